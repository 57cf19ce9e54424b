#include "host-agent/adapters/linux/libcxl_snapshot.h"

#include <sys/stat.h>

#include <algorithm>
#include <climits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/host_files.h"
#include "host-agent/adapters/linux/kernel_text.h"
#include "host-agent/adapters/linux/libcxl_context.h"

namespace cxlpool::agent {
namespace {

constexpr uint32_t kMaxWays = 16;  // CXL 3.1, 8.2.4.20: HDM decoder interleave ways.

std::string Text(const char* text) { return text == nullptr ? "" : text; }

std::string LastComponent(const char* path) {
  const std::string text = Text(path);
  return text.substr(text.rfind('/') + 1);
}

uint64_t KnownOrZero(unsigned long long value) { return value == ULLONG_MAX ? 0 : value; }

// How many decoders of a port are committed, counted up to the topmost. libcxl has no call.
int CommittedDecoders(const std::string& port) {
  return static_cast<int>(
      HostFiles()
          .ReadNumber(absl::StrCat("sys/bus/cxl/devices/", port, "/decoders_committed"))
          .value_or(0));
}

DecoderStack ReadStack(cxl_port* port) {
  DecoderStack stack;
  stack.port = Text(cxl_port_get_devname(port));
  cxl_decoder* decoder = nullptr;
  cxl_decoder_foreach(port, decoder) {
    HdmDecoder read;
    read.id = cxl_decoder_get_id(decoder);
    read.hpa_bytes = KnownOrZero(cxl_decoder_get_resource(decoder));
    cxl_region* const region = cxl_decoder_get_region(decoder);
    if (region != nullptr) read.region = Text(cxl_region_get_devname(region));
    stack.decoders.push_back(std::move(read));
  }
  std::sort(stack.decoders.begin(), stack.decoders.end(),
            [](const HdmDecoder& a, const HdmDecoder& b) { return a.id < b.id; });
  // A committed decoder without a region is one that firmware programmed, unless a region lies
  // above it: then it was freed and waits for its turn.
  const int committed = CommittedDecoders(stack.port);
  bool region_above = false;
  for (auto it = stack.decoders.rbegin(); it != stack.decoders.rend(); ++it) {
    it->in_use = !it->region.empty() || (!region_above && it->id < committed);
    region_above = region_above || !it->region.empty();
  }
  return stack;
}

bool IsBelow(cxl_port* port, const cxl_port* top) {
  for (; port != nullptr; port = cxl_port_get_parent(port)) {
    if (port == top) return true;
    if (cxl_port_is_root(port)) return false;
  }
  return false;
}

std::vector<CxlHostBridge> ReadBridges(cxl_port* root) {
  std::vector<CxlHostBridge> bridges;
  cxl_dport* dport = nullptr;
  cxl_dport_foreach(root, dport) {
    CxlHostBridge bridge;
    bridge.pci_name = LastComponent(cxl_dport_get_devname(dport));
    bridge.acpi_name = LastComponent(cxl_dport_get_firmware_node(dport));
    if (bridge.acpi_name.empty()) bridge.acpi_name = bridge.pci_name;
    cxl_port* own = nullptr;
    cxl_port_foreach(root, own) {
      if (LastComponent(cxl_port_get_host(own)) == bridge.pci_name) break;
    }
    if (own != nullptr) {
      bridge.stacks.push_back(ReadStack(own));
      cxl_port* below = nullptr;
      cxl_port_foreach_all(root, below) {
        if (below != own && IsBelow(below, own)) bridge.stacks.push_back(ReadStack(below));
      }
    }
    bridges.push_back(std::move(bridge));
  }
  return bridges;
}

CxlWindow ReadWindow(cxl_decoder* decoder) {
  CxlWindow window;
  window.name = Text(cxl_decoder_get_devname(decoder));
  window.hpa_bytes = KnownOrZero(cxl_decoder_get_resource(decoder));
  window.size_bytes = KnownOrZero(cxl_decoder_get_size(decoder));
  window.largest_free_bytes = KnownOrZero(cxl_decoder_get_max_available_extent(decoder));
  window.interleave_granularity_bytes = cxl_decoder_get_interleave_granularity(decoder);
  window.volatile_capable = cxl_decoder_is_volatile_capable(decoder);
  cxl_target* target = nullptr;
  cxl_target_foreach(decoder, target) {
    const int position = cxl_target_get_position(target);
    if (position < 0 || position >= static_cast<int>(kMaxWays)) continue;
    if (window.bridges.size() <= static_cast<size_t>(position)) window.bridges.resize(position + 1);
    window.bridges[position] = LastComponent(cxl_target_get_devname(target));
  }
  return window;
}

uint64_t InodeOf(const std::string& region) {
  const std::string path = HostFiles().Path(absl::StrCat("sys/bus/cxl/devices/", region));
  struct stat folder = {};
  return stat(path.c_str(), &folder) == 0 ? folder.st_ino : 0;
}

CxlHostRegion ReadRegion(cxl_region* region, const std::string& window) {
  CxlHostRegion read;
  read.name = Text(cxl_region_get_devname(region));
  read.window = window;
  read.inode = InodeOf(read.name);
  read.hpa_bytes = KnownOrZero(cxl_region_get_resource(region));
  read.size_bytes = KnownOrZero(cxl_region_get_size(region));
  read.committed = cxl_region_decode_is_committed(region) == 1;
  read.enabled = cxl_region_is_enabled(region) == 1;
  read.interleave_granularity_bytes = cxl_region_get_interleave_granularity(region);
  const uint32_t ways = cxl_region_get_interleave_ways(region);
  if (ways > kMaxWays) return read;  // UINT_MAX: the region is only just made.
  for (uint32_t position = 0; position < ways; ++position) {
    CxlRegionTarget target;
    cxl_decoder* const decoder = cxl_region_get_target_decoder(region, static_cast<int>(position));
    if (decoder != nullptr) {
      target.decoder = Text(cxl_decoder_get_devname(decoder));
      cxl_memdev* const memdev = cxl_decoder_get_memdev(decoder);
      if (memdev != nullptr) target.serial = KnownOrZero(cxl_memdev_get_serial(memdev));
    }
    read.targets.push_back(std::move(target));
  }
  return read;
}

CxlMemdev ReadMemdev(cxl_memdev* memdev) {
  CxlMemdev read;
  read.name = Text(cxl_memdev_get_devname(memdev));
  read.serial = KnownOrZero(cxl_memdev_get_serial(memdev));
  read.size_bytes = KnownOrZero(cxl_memdev_get_ram_size(memdev));
  read.pci_device = LastComponent(cxl_memdev_get_host(memdev));
  read.pci_bridge =
      PciHostBridgeOf(HostFiles().Resolve(absl::StrCat("sys/bus/pci/devices/", read.pci_device)));
  cxl_endpoint* const endpoint =
      cxl_memdev_is_enabled(memdev) ? cxl_memdev_get_endpoint(memdev) : nullptr;
  read.ready = endpoint != nullptr && cxl_endpoint_is_enabled(endpoint) &&
               cxl_decoder_get_first(cxl_endpoint_get_port(endpoint)) != nullptr;
  return read;
}

}  // namespace

absl::StatusOr<CxlSnapshot> ReadCxlSnapshot() {
  absl::StatusOr<CxlContext> context = CxlContext::Open();
  if (!context.ok()) return context.status();
  CxlSnapshot snapshot;
  cxl_bus* bus = nullptr;
  cxl_bus_foreach(context->get(), bus) {
    cxl_port* const root = cxl_bus_get_port(bus);
    for (CxlHostBridge& bridge : ReadBridges(root)) snapshot.bridges.push_back(std::move(bridge));
    cxl_decoder* decoder = nullptr;
    cxl_decoder_foreach(root, decoder) {
      snapshot.windows.push_back(ReadWindow(decoder));
      cxl_region* region = nullptr;
      cxl_region_foreach(decoder, region) {
        snapshot.regions.push_back(ReadRegion(region, snapshot.windows.back().name));
      }
    }
  }
  cxl_memdev* memdev = nullptr;
  cxl_memdev_foreach(context->get(), memdev) snapshot.memdevs.push_back(ReadMemdev(memdev));
  std::sort(
      snapshot.bridges.begin(), snapshot.bridges.end(),
      [](const CxlHostBridge& a, const CxlHostBridge& b) { return a.acpi_name < b.acpi_name; });
  std::sort(
      snapshot.regions.begin(), snapshot.regions.end(),
      [](const CxlHostRegion& a, const CxlHostRegion& b) { return a.hpa_bytes < b.hpa_bytes; });
  return snapshot;
}

absl::StatusOr<std::vector<DaxDevice>> ReadDaxDevices() {
  absl::StatusOr<DaxctlContext> context = DaxctlContext::Open();
  if (!context.ok()) return context.status();
  std::vector<DaxDevice> devices;
  daxctl_region* region = nullptr;
  daxctl_region_foreach(context->get(), region) {
    // .../root0/decoder0.0/region0/dax_region0: only CXL puts a DAX region below a regionN.
    const std::vector<std::string> path = absl::StrSplit(Text(daxctl_region_get_path(region)), '/');
    if (path.size() < 3 || !absl::StartsWith(path[path.size() - 1], "dax_region") ||
        !absl::StartsWith(path[path.size() - 2], "region") ||
        !absl::StartsWith(path[path.size() - 3], "decoder")) {
      continue;
    }
    daxctl_dev* device = nullptr;
    daxctl_dev_foreach(region, device) {
      DaxDevice read;
      read.name = Text(daxctl_dev_get_devname(device));
      read.region = path[path.size() - 2];
      read.hpa_bytes = KnownOrZero(daxctl_dev_get_resource(device));
      read.size_bytes = KnownOrZero(daxctl_dev_get_size(device));
      read.align_bytes = daxctl_dev_get_align(device);
      const int node = daxctl_dev_get_target_node(device);
      if (node >= 0) read.target_node = node;
      read.major = static_cast<uint32_t>(std::max(0, daxctl_dev_get_major(device)));
      read.minor = static_cast<uint32_t>(std::max(0, daxctl_dev_get_minor(device)));
      devices.push_back(std::move(read));
    }
  }
  return devices;
}

bool MemdevReady(uint64_t serial) {
  absl::StatusOr<CxlContext> context = CxlContext::Open();
  if (!context.ok()) return false;
  cxl_memdev* memdev = nullptr;
  cxl_memdev_foreach(context->get(), memdev) {
    if (cxl_memdev_get_serial(memdev) == serial) return ReadMemdev(memdev).ready;
  }
  return false;
}

}  // namespace cxlpool::agent
