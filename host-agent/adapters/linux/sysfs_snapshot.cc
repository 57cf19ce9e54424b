#include "host-agent/adapters/linux/sysfs_snapshot.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/kernel_text.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kCxl = "sys/bus/cxl/devices";
constexpr absl::string_view kDax = "sys/bus/dax/devices";
constexpr size_t kMaxWays = 16;  // CXL 3.1, 8.2.4.20: HDM decoder interleave ways.

std::string At(absl::string_view device, absl::string_view attribute) {
  return absl::StrCat(kCxl, "/", device, "/", attribute);
}

// "port" and a number; not "ports", not "portal1".
bool IsNumbered(absl::string_view name, absl::string_view kind) {
  int number = 0;
  return absl::StartsWith(name, kind) && absl::SimpleAtoi(name.substr(kind.size()), &number);
}

// The number of "decoder2.3" in its port, if the port's is `port`.
std::optional<int> DecoderOf(absl::string_view name, absl::string_view port) {
  int id = 0;
  const std::string prefix = absl::StrCat("decoder", port, ".");
  if (!absl::StartsWith(name, prefix) || !absl::SimpleAtoi(name.substr(prefix.size()), &id)) {
    return std::nullopt;
  }
  return id;
}

// What is under /sys/bus/cxl/devices, each name once.
class CxlBus {
 public:
  explicit CxlBus(const HostFiles& files) : files_(files) {
    // As libcxl does: memdevs are bound by a work queue.
    files.Write("sys/bus/cxl/flush", "1");
    names_ = files.List(kCxl);
    for (const std::string& name : names_) {
      if (IsNumbered(name, "endpoint")) {
        endpoint_of_[files.LinkName(At(name, "uport"))] = name;
      } else if (IsNumbered(name, "port")) {
        paths_[name] = absl::StrCat(files.LinkText(absl::StrCat(kCxl, "/", name)), "/");
        hosts_[name] = files.LinkName(At(name, "uport"));
      }
    }
  }

  const std::vector<std::string>& names() const { return names_; }

  uint64_t Number(absl::string_view device, absl::string_view attribute) const {
    const uint64_t value = files_.ReadNumber(At(device, attribute)).value_or(0);
    return value == ~uint64_t{0} ? 0 : value;  // The kernel's word for none.
  }

  std::string Text(absl::string_view device, absl::string_view attribute) const {
    return files_.Read(At(device, attribute)).value_or("");
  }

  // The serial of the memdev that this endpoint decoder belongs to; 0 if it is gone.
  uint64_t SerialOfDecoder(absl::string_view decoder) const {
    const std::vector<absl::string_view> parts = absl::StrSplit(decoder, '.');
    return parts.size() == 2 && absl::StartsWith(parts[0], "decoder")
               ? Number(absl::StrCat("endpoint", parts[0].substr(7)), "uport/serial")
               : 0;
  }

  DecoderStack Stack(const std::string& port) const {
    DecoderStack stack;
    stack.port = port;
    const absl::string_view number = absl::string_view(port).substr(4);
    for (const std::string& name : names_) {
      const std::optional<int> id = DecoderOf(name, number);
      if (!id.has_value()) continue;
      HdmDecoder decoder;
      decoder.id = *id;
      decoder.region = Text(name, "region");
      stack.decoders.push_back(std::move(decoder));
    }
    std::sort(stack.decoders.begin(), stack.decoders.end(),
              [](const HdmDecoder& a, const HdmDecoder& b) { return a.id < b.id; });
    // Counted up to the topmost. A committed decoder without a region is one that firmware
    // programmed, unless a region lies above it: then it was freed and waits for its turn.
    const auto committed = static_cast<int>(Number(port, "decoders_committed"));
    bool region_above = false;
    for (auto it = stack.decoders.rbegin(); it != stack.decoders.rend(); ++it) {
      it->in_use = !it->region.empty() || (!region_above && it->id < committed);
      region_above = region_above || !it->region.empty();
      if (it->in_use) {
        it->hpa_bytes = Number(absl::StrCat("decoder", number, ".", it->id), "start");
      }
    }
    return stack;
  }

  // Of the root, by the number of its downstream port.
  std::map<uint64_t, CxlHostBridge> Bridges(const std::string& root) const {
    std::map<uint64_t, CxlHostBridge> bridges;
    for (const std::string& name : files_.List(absl::StrCat(kCxl, "/", root))) {
      uint64_t id = 0;
      if (!absl::StartsWith(name, "dport") || !absl::SimpleAtoi(name.substr(5), &id)) continue;
      CxlHostBridge bridge;
      bridge.pci_name = files_.LinkName(At(root, name));
      bridge.acpi_name = files_.LinkName(At(root, absl::StrCat(name, "/firmware_node")));
      if (bridge.acpi_name.empty()) bridge.acpi_name = bridge.pci_name;
      for (const auto& [port, path] : paths_) {
        if (!absl::EndsWith(path, absl::StrCat("/", root, "/", port, "/")) ||
            hosts_.at(port) != bridge.pci_name) {
          continue;
        }
        bridge.stacks.push_back(Stack(port));
        for (const auto& [below, its_path] : paths_) {
          if (below != port && absl::StartsWith(its_path, path)) {
            bridge.stacks.push_back(Stack(below));
          }
        }
        break;
      }
      bridges.emplace(id, std::move(bridge));
    }
    return bridges;
  }

  CxlWindow Window(const std::string& name,
                   const std::map<uint64_t, CxlHostBridge>& bridges) const {
    CxlWindow window;
    window.name = name;
    window.hpa_bytes = Number(name, "start");
    window.size_bytes = Number(name, "size");
    window.largest_free_bytes = window.size_bytes;
    window.interleave_granularity_bytes =
        static_cast<uint32_t>(Number(name, "interleave_granularity"));
    window.volatile_capable = Number(name, "cap_ram") == 1;
    for (absl::string_view target : absl::StrSplit(Text(name, "target_list"), ',')) {
      uint64_t id = 0;
      if (!absl::SimpleAtoi(target, &id) || window.bridges.size() == kMaxWays) break;
      const auto bridge = bridges.find(id);
      window.bridges.push_back(bridge == bridges.end() ? "" : bridge->second.pci_name);
    }
    return window;
  }

  std::optional<CxlHostRegion> Region(const std::string& name) const {
    const std::string folder = absl::StrCat(kCxl, "/", name);
    const std::vector<std::string> path = absl::StrSplit(files_.LinkText(folder), '/');
    if (path.size() < 2) return std::nullopt;
    CxlHostRegion region;
    region.name = name;
    region.window = path[path.size() - 2];
    struct stat status = {};
    if (stat(files_.Path(folder).c_str(), &status) == 0) region.inode = status.st_ino;
    region.hpa_bytes = Number(name, "resource");
    region.size_bytes = Number(name, "size");
    region.committed = Number(name, "commit") == 1;
    region.enabled = !files_.LinkName(At(name, "driver")).empty();
    region.interleave_granularity_bytes =
        static_cast<uint32_t>(Number(name, "interleave_granularity"));
    const uint64_t ways = Number(name, "interleave_ways");
    if (ways > kMaxWays) return region;
    for (uint64_t position = 0; position < ways; ++position) {
      CxlRegionTarget target;
      target.decoder = Text(name, absl::StrCat("target", position));
      if (!target.decoder.empty()) target.serial = SerialOfDecoder(target.decoder);
      region.targets.push_back(std::move(target));
    }
    return region;
  }

  std::optional<CxlMemdev> Memdev(const std::string& name) const {
    const std::string path = files_.Resolve(absl::StrCat(kCxl, "/", name));
    const std::vector<std::string> parts = absl::StrSplit(path, '/');
    if (parts.size() < 2) return std::nullopt;
    CxlMemdev memdev;
    memdev.name = name;
    memdev.serial = Number(name, "serial");
    memdev.size_bytes = Number(name, "ram/size");
    memdev.pci_device = parts[parts.size() - 2];
    memdev.pci_bridge = PciHostBridgeOf(path);
    const auto endpoint = endpoint_of_.find(name);
    memdev.ready = endpoint != endpoint_of_.end() && IsBound(name) && IsBound(endpoint->second) &&
                   HasDecoder(endpoint->second);
    return memdev;
  }

 private:
  bool IsBound(const std::string& device) const {
    return !files_.LinkName(At(device, "driver")).empty();
  }

  bool HasDecoder(const std::string& endpoint) const {
    return std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
      return DecoderOf(name, absl::string_view(endpoint).substr(8)).has_value();
    });
  }

  const HostFiles& files_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> paths_;        // Of ports: where the bus's link points.
  std::map<std::string, std::string> hosts_;        // Of ports: whose they are, pci0000:0c.
  std::map<std::string, std::string> endpoint_of_;  // By memdev.
};

}  // namespace

CxlSnapshot ReadCxlSnapshot(const HostFiles& files) {
  const CxlBus bus(files);
  CxlSnapshot snapshot;
  for (const std::string& name : bus.names()) {
    if (IsNumbered(name, "root")) {
      const std::map<uint64_t, CxlHostBridge> bridges = bus.Bridges(name);
      for (const std::string& decoder : bus.names()) {
        if (DecoderOf(decoder, absl::string_view(name).substr(4)).has_value()) {
          snapshot.windows.push_back(bus.Window(decoder, bridges));
        }
      }
      for (const auto& [id, bridge] : bridges) snapshot.bridges.push_back(bridge);
    } else if (IsNumbered(name, "region")) {
      if (auto region = bus.Region(name)) snapshot.regions.push_back(*std::move(region));
    } else if (IsNumbered(name, "mem")) {
      if (auto memdev = bus.Memdev(name)) snapshot.memdevs.push_back(*std::move(memdev));
    }
  }
  std::sort(snapshot.windows.begin(), snapshot.windows.end(),
            [](const CxlWindow& a, const CxlWindow& b) { return a.hpa_bytes < b.hpa_bytes; });
  std::sort(
      snapshot.bridges.begin(), snapshot.bridges.end(),
      [](const CxlHostBridge& a, const CxlHostBridge& b) { return a.acpi_name < b.acpi_name; });
  std::sort(
      snapshot.regions.begin(), snapshot.regions.end(),
      [](const CxlHostRegion& a, const CxlHostRegion& b) { return a.hpa_bytes < b.hpa_bytes; });
  return snapshot;
}

std::vector<DaxDevice> ReadDaxDevices(const HostFiles& files) {
  std::vector<DaxDevice> devices;
  for (const std::string& name : files.List(kDax)) {
    const std::string folder = absl::StrCat(kDax, "/", name);
    // .../root0/decoder0.0/region0/dax_region0/dax0.0: only CXL puts a DAX region below a regionN.
    const std::vector<std::string> path = absl::StrSplit(files.LinkText(folder), '/');
    if (path.size() < 4 || !absl::StartsWith(path[path.size() - 2], "dax_region") ||
        !absl::StartsWith(path[path.size() - 3], "region") ||
        !absl::StartsWith(path[path.size() - 4], "decoder")) {
      continue;
    }
    const auto number = [&](absl::string_view attribute) {
      return files.ReadNumber(absl::StrCat(folder, "/", attribute)).value_or(0);
    };
    DaxDevice device;
    device.name = name;
    device.region = path[path.size() - 3];
    device.hpa_bytes = number("resource");
    device.size_bytes = number("size");
    device.align_bytes = number("align");
    int node = -1;
    if (absl::SimpleAtoi(files.Read(absl::StrCat(folder, "/target_node")).value_or(""), &node) &&
        node >= 0) {
      device.target_node = node;
    }
    const std::string numbers = files.Read(absl::StrCat(folder, "/dev")).value_or("");
    const std::vector<absl::string_view> parts = absl::StrSplit(numbers, ':');
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &device.major) ||
        !absl::SimpleAtoi(parts[1], &device.minor)) {
      continue;  // It is going.
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

bool MemdevReady(const HostFiles& files, uint64_t serial) {
  const CxlBus bus(files);
  for (const std::string& name : bus.names()) {
    if (!IsNumbered(name, "mem") || bus.Number(name, "serial") != serial) continue;
    const std::optional<CxlMemdev> memdev = bus.Memdev(name);
    return memdev.has_value() && memdev->ready;
  }
  return false;
}

}  // namespace cxlpool::agent
