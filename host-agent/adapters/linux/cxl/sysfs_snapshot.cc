#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "host-agent/model/observation.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kDax = "sys/bus/dax/devices";
// What is on the bus at one moment.
class CxlBus {
 public:
  CxlBus(const HostFiles& files, CxlShapes& shapes) : files_(files) {
    std::vector<HostFiles::Entry> lasting = files.Entries(kCxlDevices);
    std::set<std::string> windows_in_use;
    // Regions come and go, and change nothing in what they lie on: region0, dax_region0.
    std::erase_if(lasting, [&](const HostFiles::Entry& entry) {
      if (!absl::StrContains(entry.name, "region")) return false;
      std::string window =
          IsNumbered(entry.name, "region") ? WindowOfRegion(files, entry.name) : "";
      if (!window.empty()) windows_in_use.insert(window);
      if (!window.empty()) regions_.emplace_back(entry.name, std::move(window));
      return true;
    });
    shape_ = shapes.Read(std::move(lasting), windows_in_use);
    for (const CxlWindow& window : shape_->windows) {
      if (!windows_in_use.contains(window.name)) continue;
      bridges_in_use_.insert(window.bridges.begin(), window.bridges.end());
    }
  }

  std::vector<CxlHostBridge> Bridges() const {
    std::vector<CxlHostBridge> bridges;
    for (const CxlShape::Bridge& shape : shape_->bridges) {
      CxlHostBridge& bridge = bridges.emplace_back();
      bridge.acpi_name = shape.acpi_name;
      bridge.pci_name = shape.pci_name;
      const bool in_use = bridges_in_use_.contains(shape.pci_name);
      for (const CxlShape::Port& port : shape.ports) bridge.stacks.push_back(Stack(port, in_use));
    }
    return bridges;
  }

  const std::vector<CxlWindow>& windows() const { return shape_->windows; }

  std::vector<CxlMemdev> Memdevs() const {
    std::vector<CxlMemdev> memdevs;
    for (const CxlShape::Memdev& shape : shape_->memdevs) {
      CxlMemdev& memdev = memdevs.emplace_back(shape.memdev);
      memdev.ready = !shape.endpoint.empty() && IsBound(memdev.name) && IsBound(shape.endpoint);
    }
    return memdevs;
  }

  // By address.
  std::vector<CxlHostRegion> Regions() const {
    std::vector<CxlHostRegion> regions;
    for (const auto& [name, window] : regions_) regions.push_back(Region(name, window));
    std::sort(regions.begin(), regions.end(), [](const CxlHostRegion& a, const CxlHostRegion& b) {
      return a.hpa_bytes < b.hpa_bytes;
    });
    return regions;
  }

 private:
  uint64_t Number(absl::string_view device, absl::string_view attribute) const {
    return KnownOrZero(files_.ReadNumber(CxlFile(device, attribute)));
  }

  std::string Text(absl::string_view device, absl::string_view attribute) const {
    return files_.Read(CxlFile(device, attribute)).value_or("");
  }

  bool IsBound(const std::string& device) const {
    return !files_.LinkName(CxlFile(device, "driver")).empty();
  }

  // The serial of the memdev that this endpoint decoder belongs to; 0 if it is gone.
  uint64_t SerialOfDecoder(absl::string_view decoder) const {
    const std::optional<DecoderName> name = ParseDecoder(decoder);
    if (!name.has_value()) return 0;
    const auto serial = shape_->serials.find(name->port);
    return serial == shape_->serials.end() ? 0 : serial->second;
  }

  // `in_use`: whether a region lies in a window of the bridge; else none is on its decoders.
  DecoderStack Stack(const CxlShape::Port& port, bool in_use) const {
    DecoderStack stack;
    stack.port = port.name;
    const absl::string_view number = absl::string_view(port.name).substr(4);
    for (const int id : port.decoders) {
      HdmDecoder& decoder = stack.decoders.emplace_back();
      decoder.id = id;
      if (in_use) decoder.region = Text(absl::StrCat("decoder", number, ".", id), "region");
    }
    // Counted up to the topmost. A committed decoder without a region is one that firmware
    // programmed, unless a region lies above it: then it was freed and waits for its turn.
    const bool read = in_use || !port.committed_by_firmware.has_value();
    const int committed = read ? static_cast<int>(Number(port.name, "decoders_committed"))
                               : *port.committed_by_firmware;
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

  CxlHostRegion Region(const std::string& name, const std::string& window) const {
    CxlHostRegion region;
    region.name = name;
    region.window = window;
    struct stat status = {};
    if (stat(files_.Path(absl::StrCat(kCxlDevices, "/", name)).c_str(), &status) == 0) {
      region.inode = status.st_ino;
    }
    region.hpa_bytes = Number(name, "resource");
    region.size_bytes = Number(name, "size");
    region.committed = Number(name, "commit") == 1;
    region.enabled = IsBound(name);
    region.interleave_granularity_bytes =
        static_cast<uint32_t>(Number(name, "interleave_granularity"));
    const uint64_t ways = Number(name, "interleave_ways");
    if (ways > kMaxInterleaveWays) return region;
    for (uint64_t position = 0; position < ways; ++position) {
      CxlRegionTarget target;
      target.decoder = Text(name, absl::StrCat("target", position));
      if (!target.decoder.empty()) target.serial = SerialOfDecoder(target.decoder);
      region.targets.push_back(std::move(target));
    }
    return region;
  }

  const HostFiles& files_;
  std::shared_ptr<const CxlShape> shape_;
  std::vector<std::pair<std::string, std::string>> regions_;  // With their windows.
  std::set<std::string> bridges_in_use_;                      // By pci_name.
};

// Waits for the work queue on which memdevs are bound.
void FlushBus(const HostFiles& files) { files.Write("sys/bus/cxl/flush", "1"); }

CxlSnapshot ReadOnce(const HostFiles& files, CxlShapes& shapes) {
  const CxlBus bus(files, shapes);
  return {.bridges = bus.Bridges(),
          .windows = bus.windows(),
          .memdevs = bus.Memdevs(),
          .regions = bus.Regions()};
}

bool AllReady(const CxlSnapshot& snapshot) {
  return std::all_of(snapshot.memdevs.begin(), snapshot.memdevs.end(),
                     [](const CxlMemdev& memdev) { return memdev.ready; });
}

}  // namespace

CxlSnapshot ReadCxlSnapshot(const HostFiles& files, CxlShapes& shapes) {
  CxlSnapshot snapshot = ReadOnce(files, shapes);
  if (AllReady(snapshot)) return snapshot;
  FlushBus(files);
  return ReadOnce(files, shapes);
}

CxlSnapshot ReadCxlSnapshot(const HostFiles& files) {
  CxlShapes shapes(files);
  return ReadCxlSnapshot(files, shapes);
}

std::vector<CxlHostRegion> ReadCxlRegions(const HostFiles& files, CxlShapes& shapes) {
  return CxlBus(files, shapes).Regions();
}

// Which host region it belongs to is in its path; a device whose path has no such region is not
// CXL's.
std::optional<DaxDevice> ReadDaxDevice(const HostFiles& files, const std::string& name) {
  const std::string folder = absl::StrCat(kDax, "/", name);
  // .../root0/decoder0.0/region0/dax_region0/dax0.0: only CXL puts a DAX region below a regionN.
  const std::vector<std::string> path = absl::StrSplit(files.LinkText(folder), '/');
  if (path.size() < 4 || !absl::StartsWith(path[path.size() - 2], "dax_region") ||
      !absl::StartsWith(path[path.size() - 3], "region") ||
      !absl::StartsWith(path[path.size() - 4], "decoder")) {
    return std::nullopt;
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
    return std::nullopt;  // It is going.
  }
  return device;
}

std::vector<DaxDevice> ReadDaxDevices(const HostFiles& files) {
  std::vector<DaxDevice> devices;
  for (const std::string& name : files.List(kDax)) {
    if (auto device = ReadDaxDevice(files, name)) devices.push_back(*std::move(device));
  }
  return devices;
}

bool MemdevReady(const HostFiles& files, uint64_t serial) {
  FlushBus(files);
  CxlShapes shapes(files);
  const std::vector<CxlMemdev> memdevs = CxlBus(files, shapes).Memdevs();
  return std::any_of(memdevs.begin(), memdevs.end(), [serial](const CxlMemdev& memdev) {
    return memdev.serial == serial && memdev.ready;
  });
}

namespace {

// "mem3"; "memory..." is none.
bool IsMemdev(absl::string_view name) {
  return absl::ConsumePrefix(&name, "mem") && !name.empty() && absl::ascii_isdigit(name[0]);
}

}  // namespace

std::vector<PoolMemdev> ReadPoolMemdevs(const HostFiles& files, bool every) {
  std::vector<PoolMemdev> memdevs;
  for (const std::string& name : files.List(kCxlDevices)) {
    if (!IsMemdev(name)) continue;
    PoolMemdev memdev;
    memdev.path = absl::StrCat(kCxlDevices, "/", name);
    memdev.serial = files.ReadNumber(absl::StrCat(memdev.path, "/serial")).value_or(0);
    if (every ? memdev.serial == 0 : !IsPoolSerial(memdev.serial)) continue;
    memdev.device = files.Resolve(memdev.path);
    memdevs.push_back(std::move(memdev));
  }
  return memdevs;
}

bool IsBehind(const PoolMemdev& memdev, absl::string_view pci_function) {
  return !pci_function.empty() &&
         absl::StrContains(memdev.device, absl::StrCat("/", pci_function, "/"));
}

}  // namespace cxlpool::agent
