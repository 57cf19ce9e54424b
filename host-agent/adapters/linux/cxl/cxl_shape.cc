#include "host-agent/adapters/linux/cxl/cxl_shape.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"

namespace cxlpool::agent {
namespace {

// Reads one shape.
class Reader {
 public:
  Reader(const HostFiles& files, const std::vector<HostFiles::Entry>& devices,
         const std::set<std::string>& windows_in_use)
      : files_(files), windows_in_use_(windows_in_use) {
    for (const HostFiles::Entry& device : devices) Sort(device.name);
    for (auto& [port, ids] : decoders_) std::sort(ids.begin(), ids.end());
  }

  // To be called once: it moves the result out of the reader.
  CxlShape Read() {
    for (const std::string& root : roots_) AddRoot(root);
    for (const std::string& memdev : memdevs_) AddMemdev(memdev);
    std::sort(shape_.windows.begin(), shape_.windows.end(),
              [](const CxlWindow& a, const CxlWindow& b) { return a.hpa_bytes < b.hpa_bytes; });
    std::sort(shape_.bridges.begin(), shape_.bridges.end(),
              [](const auto& a, const auto& b) { return a.acpi_name < b.acpi_name; });
    return std::move(shape_);
  }

 private:
  struct Port {
    std::string name;
    std::string path;  // Where the bus's link points, with a slash at the end.
    std::string host;  // Whose it is, pci0000:0c.
  };

  // Only gathers what is on the bus, by kind: a device may come before the one that it belongs to.
  void Sort(const std::string& name) {
    if (IsNumbered(name, "root")) {
      roots_.push_back(name);
    } else if (IsNumbered(name, "mem")) {
      memdevs_.push_back(name);
    } else if (IsNumbered(name, "endpoint")) {
      endpoint_of_[Expect(files_.LinkName(CxlFile(name, "uport")))] = name;
      shape_.serials[name.substr(8)] = Number(name, "uport/serial");
    } else if (IsNumbered(name, "port")) {
      ports_.push_back({name, files_.LinkText(absl::StrCat(kCxlDevices, "/", name)) + "/",
                        Expect(files_.LinkName(CxlFile(name, "uport")))});
    } else if (const auto decoder = ParseDecoder(name)) {
      decoders_[decoder->port].push_back(decoder->id);
    }
  }

  // Links and attributes come a moment after their device.
  std::string Expect(std::string text) {
    if (text.empty()) shape_.complete = false;
    return text;
  }

  uint64_t Number(absl::string_view device, absl::string_view attribute) {
    const std::optional<uint64_t> number = files_.ReadNumber(CxlFile(device, attribute));
    if (!number.has_value()) shape_.complete = false;
    return KnownOrZero(number);
  }

  // With its windows and bridges.
  void AddRoot(const std::string& root) {
    std::map<uint64_t, CxlShape::Bridge> bridges;  // By number of the root's downstream port.
    for (const std::string& name : files_.List(absl::StrCat(kCxlDevices, "/", root))) {
      uint64_t id = 0;
      if (!absl::StartsWith(name, "dport") || !absl::SimpleAtoi(name.substr(5), &id)) continue;
      CxlShape::Bridge bridge;
      bridge.pci_name = Expect(files_.LinkName(CxlFile(root, name)));
      bridge.acpi_name = files_.LinkName(CxlFile(root, absl::StrCat(name, "/firmware_node")));
      // Not every host bridge has an ACPI node, so the shape counts as complete without one.
      if (bridge.acpi_name.empty()) bridge.acpi_name = bridge.pci_name;
      bridges.emplace(id, std::move(bridge));
    }
    std::set<std::string> bridges_in_use;
    const std::string number = root.substr(4);
    for (const int id : decoders_[number]) {
      CxlWindow window = Window(absl::StrCat("decoder", number, ".", id), bridges);
      if (windows_in_use_.contains(window.name)) {
        bridges_in_use.insert(window.bridges.begin(), window.bridges.end());
      }
      shape_.windows.push_back(std::move(window));
    }
    for (auto& [id, bridge] : bridges) {
      AddPorts(root, bridge, bridges_in_use.contains(bridge.pci_name));
      shape_.bridges.push_back(std::move(bridge));
    }
  }

  // Counts all of the window as free. Host regions come and go between two reads of the shape, so
  // CountFree subtracts them each time.
  CxlWindow Window(const std::string& name, const std::map<uint64_t, CxlShape::Bridge>& bridges) {
    CxlWindow window;
    window.name = name;
    window.hpa_bytes = Number(name, "start");
    window.size_bytes = Number(name, "size");
    window.largest_free_bytes = window.size_bytes;
    window.interleave_granularity_bytes =
        static_cast<uint32_t>(Number(name, "interleave_granularity"));
    window.volatile_capable = files_.ReadNumber(CxlFile(name, "cap_ram")) == 1;
    const std::string targets = files_.Read(CxlFile(name, "target_list")).value_or("");
    for (absl::string_view target : absl::StrSplit(targets, ',')) {
      uint64_t id = 0;
      if (!absl::SimpleAtoi(target, &id) || window.bridges.size() == kMaxInterleaveWays) break;
      const auto bridge = bridges.find(id);
      window.bridges.push_back(bridge == bridges.end() ? "" : bridge->second.pci_name);
    }
    return window;
  }

  // The bridge's own port is directly below the root; the ports of its switches are somewhere below
  // that one. `in_use`: a host region lies under the bridge. Then the number of committed decoders
  // includes its own, and does not say how many the firmware committed.
  void AddPorts(const std::string& root, CxlShape::Bridge& bridge, bool in_use) {
    const auto own = std::find_if(ports_.begin(), ports_.end(), [&](const Port& port) {
      return port.host == bridge.pci_name &&
             absl::EndsWith(port.path, absl::StrCat("/", root, "/", port.name, "/"));
    });
    if (own == ports_.end()) return;
    const auto add = [&](const Port& port) {
      CxlShape::Port& added = bridge.ports.emplace_back();
      added.name = port.name;
      added.decoders = decoders_[port.name.substr(4)];
      if (!in_use) {
        added.committed_by_firmware = static_cast<int>(Number(port.name, "decoders_committed"));
      }
    };
    add(*own);
    for (const Port& below : ports_) {
      if (below.name != own->name && absl::StartsWith(below.path, own->path)) add(below);
    }
  }

  // Leaves out whether the memdev is ready: that changes while the same devices are on the bus.
  void AddMemdev(const std::string& name) {
    const std::string path = files_.LinkText(absl::StrCat(kCxlDevices, "/", name));
    const std::vector<std::string> parts = absl::StrSplit(path, '/');
    if (parts.size() < 2) return;
    CxlShape::Memdev found;
    found.memdev.name = name;
    found.memdev.serial = Number(name, "serial");
    found.memdev.size_bytes = files_.ReadNumber(CxlFile(name, "ram/size")).value_or(0);
    found.memdev.pci_device = parts[parts.size() - 2];
    found.memdev.pci_bridge = PciHostBridgeOf(path);
    // The endpoint appears before its decoders, and is of no use without them.
    const auto endpoint = endpoint_of_.find(name);
    if (endpoint != endpoint_of_.end() && decoders_.contains(endpoint->second.substr(8))) {
      found.endpoint = endpoint->second;
    }
    shape_.memdevs.push_back(std::move(found));
  }

  const HostFiles& files_;
  const std::set<std::string>& windows_in_use_;
  CxlShape shape_;
  std::vector<std::string> roots_;
  std::vector<std::string> memdevs_;
  std::vector<Port> ports_;
  std::map<std::string, std::vector<int>> decoders_;  // Ids by number of their port.
  std::map<std::string, std::string> endpoint_of_;    // By memdev.
};

}  // namespace

std::string WindowOfRegion(const HostFiles& files, const std::string& region) {
  const std::string link = files.LinkText(absl::StrCat(kCxlDevices, "/", region));
  const std::vector<absl::string_view> path = absl::StrSplit(link, '/');
  return path.size() < 2 ? "" : std::string(path[path.size() - 2]);
}

CxlShape ReadCxlShape(const HostFiles& files, const std::vector<HostFiles::Entry>& devices,
                      const std::set<std::string>& windows_in_use) {
  return Reader(files, devices, windows_in_use).Read();
}

// Holds the lock while it reads: of several threads one reads, and the others use the result. A
// shape that is not complete is answered, too, but the next call reads again.
std::shared_ptr<const CxlShape> CxlShapes::Read(std::vector<HostFiles::Entry> devices,
                                                const std::set<std::string>& windows_in_use,
                                                absl::Time now) {
  const MutexLock lock(mutex_);
  const bool young = IsYoung(read_at_, now, kMaxAge);
  if (shape_ != nullptr && shape_->complete && young && devices == devices_) return shape_;
  CxlShape shape = ReadCxlShape(files_, devices, windows_in_use);
  // A region that was made meanwhile: its decoder may have been counted as the firmware's.
  for (const HostFiles::Entry& entry : files_.Entries(kCxlDevices)) {
    if (!IsNumbered(entry.name, "region")) continue;
    shape.complete &= windows_in_use.contains(WindowOfRegion(files_, entry.name));
  }
  shape_ = std::make_shared<const CxlShape>(std::move(shape));
  devices_ = std::move(devices);
  read_at_ = now;
  return shape_;
}

}  // namespace cxlpool::agent
