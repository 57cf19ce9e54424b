// A fake host whose DAX files do what Linux 6.12 and 7.2 were seen to do on a write, traps
// included. No clock, no threads: what is written has happened when the write returns.
#ifndef CXLPOOL_TEST_RIGS_FAKE_DAX_KERNEL_H_
#define CXLPOOL_TEST_RIGS_FAKE_DAX_KERNEL_H_

#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {

class FakeDaxKernel : public FakeHost {
 public:
  static constexpr uint64_t kBlockBytes = 128ull << 20;
  static constexpr uint64_t kAlignBytes = 2 << 20;

  FakeDaxKernel() {
    for (const char* driver : {"device_dax", "kmem"}) {
      for (const char* file : {"bind", "unbind", "new_id", "remove_id"}) {
        Put(absl::StrCat("sys/bus/dax/drivers/", driver, "/", file), "");
      }
    }
    Put("sys/bus/dax/drivers_autoprobe", "1\n");
    Put("sys/devices/system/memory/auto_online_blocks", "offline\n");
    Put("sys/devices/system/memory/block_size_bytes", "8000000\n");
    Put("sys/devices/system/node/has_cpu", "0\n");
    Put("sys/module/device_dax/refcnt", "0\n");
    Put("proc/meminfo", "MemAvailable: 1000 kB\n");
  }

  // Files whose writes are carried out.
  HostFiles kernel() {
    return HostFiles(Path(""), [this](const std::string& path, absl::string_view text) {
      if (before_write) before_write(path);
      return OnWrite(path, std::string(text));
    });
  }

  // Called before each write, which may change things under the caller.
  std::function<void(const std::string& path)> before_write;

  // A CXL host region on the memdev with this serial, its DAX region, and the DAX device that the
  // kernel makes over all of it.
  void AddCxl(int number, uint64_t hpa, uint64_t size, uint64_t serial) {
    const std::string region = absl::StrCat("sys/devices/root0/decoder0.0/region", number);
    const std::string endpoint = absl::StrCat("sys/devices/root0/endpoint", 4 + number);
    const std::string bus = "sys/bus/cxl/devices";
    for (const std::string& folder : {region, endpoint}) {
      Folder(folder);
      Link(absl::StrCat(bus, folder.substr(folder.rfind('/'))), folder);
    }
    Put(region + "/resource", absl::StrFormat("%#x\n", hpa));
    Put(region + "/size", absl::StrFormat("%#x\n", size));
    Put(region + "/mode", "ram\n");
    Put(region + "/commit", "1\n");
    Put(region + "/interleave_ways", "1\n");
    Put(region + "/interleave_granularity", "256\n");
    Put(region + "/target0", absl::StrCat("decoder", 4 + number, ".0\n"));
    Link(region + "/driver", "sys/bus/cxl/drivers/cxl_region");
    const std::string memdev = absl::StrCat("sys/devices/pci0000:0c/0000:0c:00.0/mem", number);
    Put(memdev + "/serial", absl::StrFormat("%#x\n", serial));
    Put(memdev + "/ram/size", absl::StrFormat("%#x\n", size));
    Link(memdev + "/driver", "sys/bus/cxl/drivers/cxl_mem");
    Link(absl::StrCat(bus, "/mem", number), memdev);
    Link(endpoint + "/uport", memdev);
    Link(endpoint + "/driver", "sys/bus/cxl/drivers/cxl_port");
    AddRegion(absl::StrCat(bus, "/region", number, "/dax_region", number), number, hpa, size);
  }
  void AddSoftReserved(int number, uint64_t hpa, uint64_t size) {
    AddRegion(absl::StrCat("sys/bus/platform/devices/hmem.", number), number, hpa, size);
  }

  void SetDriver(const std::string& dax, const std::string& driver) {
    if (!driver.empty()) ForgetSeed(dax);
    const std::filesystem::path link = Path(absl::StrCat(FolderOf(dax), "/driver"));
    std::filesystem::remove(link);
    if (!driver.empty()) {
      Link(absl::StrCat(FolderOf(dax), "/driver"), absl::StrCat("sys/bus/dax/drivers/", driver));
    }
    for (const auto& [begin, end] : devices_.at(dax).ranges) {
      for (uint64_t block = begin / kBlockBytes; block < end / kBlockBytes; ++block) {
        const std::string folder = absl::StrCat("sys/devices/system/memory/memory", block);
        std::filesystem::remove_all(Path(folder));
        if (driver != "kmem") continue;
        Put(folder + "/state", "offline\n");
        Put(folder + "/valid_zones", "none\n");
      }
    }
  }

  // Its folder in sysfs.
  std::string FolderOf(const std::string& dax) const {
    return absl::StrCat(devices_.at(dax).region, "/", dax);
  }
  std::vector<std::string> Devices() const {
    std::vector<std::string> names;
    for (const auto& [name, device] : devices_) names.push_back(name);
    return names;
  }
  // Where it lies, as [begin, end).
  std::vector<std::pair<uint64_t, uint64_t>> RangesOf(const std::string& dax) const {
    return devices_.at(dax).ranges;
  }
  // As `daxctl create-device` does: it takes the seed, whatever that has.
  std::string MakeByHand(const std::string& region, uint64_t begin, uint64_t end) {
    const std::string seed = region + "/dax_region/seed";
    if (files().Read(seed).value_or("").empty()) Create(regions_.at(region));
    const std::string name = files().Read(seed).value();
    devices_.at(name).ranges = {{begin, end}};
    Show(name);
    SetDriver(name, "device_dax");
    return name;
  }

 private:
  struct Region {
    std::string folder;
    int number = 0;
    uint64_t hpa = 0;
    uint64_t size = 0;
  };
  struct Device {
    std::string region;  // Its folder.
    int id = 0;
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
  };

  void AddRegion(const std::string& folder, int number, uint64_t hpa, uint64_t size) {
    regions_[folder] = {folder, number, hpa, size};
    Put(folder + "/dax_region/size", absl::StrCat(size, "\n"));
    Put(folder + "/dax_region/align", absl::StrCat(kAlignBytes, "\n"));
    Put(folder + "/dax_region/create", "\n");
    Put(folder + "/dax_region/delete", "");
    Create(regions_[folder]);
    Put(folder + "/dax_region/seed", "\n");  // The kernel's own is never the seed.
    devices_.at(youngest_).ranges.emplace_back(hpa, hpa + size);
    Show(youngest_);
  }

  void Create(const Region& region) {
    int id = 0;
    while (devices_.contains(absl::StrCat("dax", region.number, ".", id))) ++id;
    youngest_ = absl::StrCat("dax", region.number, ".", id);
    devices_[youngest_] = {region.folder, id, {}};
    const std::string folder = FolderOf(youngest_);
    Put(folder + "/target_node", "1\n");
    Put(folder + "/dev", absl::StrCat("252:", 16 * region.number + id, "\n"));
    Link(absl::StrCat("sys/bus/dax/devices/", youngest_), folder);
    Show(youngest_);
    Put(region.folder + "/dax_region/create", youngest_ + "\n");
    const std::string seed = region.folder + "/dax_region/seed";
    if (files().Read(seed).value_or("").empty()) Put(seed, youngest_ + "\n");
  }

  void ForgetSeed(const std::string& dax) {
    const std::string seed = devices_.at(dax).region + "/dax_region/seed";
    if (files().Read(seed) == dax) Put(seed, "\n");
  }

  // Writes what the kernel shows of a DAX device and its region.
  void Show(const std::string& dax) {
    const Device& device = devices_.at(dax);
    const std::string folder = FolderOf(dax);
    for (int i = 0; i < 8; ++i) {
      std::filesystem::remove_all(Path(absl::StrCat(folder, "/mapping", i)));
    }
    uint64_t size = 0;
    for (size_t i = 0; i < device.ranges.size(); ++i) {
      const auto& [begin, end] = device.ranges[i];
      size += end - begin;
      Folder(absl::StrCat(folder, "/mapping", i));
      // Of a device with one range they are not read: that can block for ever (dax_region.h).
      if (device.ranges.size() == 1) continue;
      Put(absl::StrCat(folder, "/mapping", i, "/start"), absl::StrFormat("%#x\n", begin));
      Put(absl::StrCat(folder, "/mapping", i, "/end"), absl::StrFormat("%#x\n", end - 1));
    }
    Put(folder + "/size", absl::StrCat(size, "\n"));
    Put(folder + "/mapping", "");
    const Region& region = regions_.at(device.region);
    // Of an empty one, that of its region.
    const uint64_t at = device.ranges.empty() ? region.hpa : device.ranges.front().first;
    Put(folder + "/resource", absl::StrFormat("%#x\n", at));
    Put(device.region + "/dax_region/available_size", absl::StrCat(Available(region), "\n"));
  }

  uint64_t Available(const Region& region) const {
    uint64_t left = region.size;
    for (const auto& [name, device] : devices_) {
      if (device.region != region.folder) continue;
      for (const auto& [begin, end] : device.ranges) left -= end - begin;
    }
    return left;
  }

  std::string DriverOf(const std::string& dax) const {
    return files().LinkName(FolderOf(dax) + "/driver");
  }

  std::optional<int> OnWrite(const std::string& path, const std::string& text) {
    const std::vector<std::string> parts = absl::StrSplit(path, '/');
    const std::string& file = parts.back();
    if (absl::StartsWith(path, "sys/bus/dax/drivers/")) return OnDriver(parts[4], file, text);
    if (file == "create" || file == "delete") {
      const auto region =
          regions_.find(std::string(absl::StripSuffix(path, "/dax_region/" + file)));
      if (region == regions_.end()) return std::nullopt;
      return file == "create" ? OnCreate(region->second) : OnDelete(text);
    }
    const auto device = devices_.find(parts[parts.size() - 2]);
    if (device == devices_.end()) return std::nullopt;
    if (file == "mapping") return OnMapping(*device, text);
    if (file == "size" && text == "0") {
      if (!DriverOf(device->first).empty()) return EBUSY;
      device->second.ranges.clear();
      Show(device->first);
      return 0;
    }
    return std::nullopt;
  }

  int OnCreate(const Region& region) {
    if (Available(region) == 0) return ENOSPC;
    Create(region);
    return 0;
  }

  // The first DAX device of a region is never deleted.
  int OnDelete(const std::string& dax) {
    const auto device = devices_.find(dax);
    if (device == devices_.end()) return ENXIO;
    if (device->second.id == 0 || !device->second.ranges.empty() || !DriverOf(dax).empty()) {
      return EBUSY;
    }
    ForgetSeed(dax);
    const std::string folder = FolderOf(dax);
    if (dax == youngest_) Put(device->second.region + "/dax_region/create", "\n");
    std::filesystem::remove_all(Path(folder));
    std::filesystem::remove(Path("sys/bus/dax/devices/" + dax));
    devices_.erase(device);
    return 0;
  }

  // A length that is no multiple of the alignment is accepted, without effect; any begin is fine.
  int OnMapping(std::pair<const std::string, Device>& device, const std::string& text) {
    const std::vector<std::string> ends = absl::StrSplit(text, '-');
    uint64_t begin = 0;
    uint64_t last = 0;
    if (ends.size() != 2 || !absl::SimpleHexAtoi(ends[0], &begin) ||
        !absl::SimpleHexAtoi(ends[1], &last) || last < begin) {
      return EINVAL;
    }
    if (!DriverOf(device.first).empty()) return EBUSY;
    const Region& region = regions_.at(device.second.region);
    if (begin < region.hpa || last >= region.hpa + region.size) return EBUSY;
    for (const auto& [name, other] : devices_) {
      for (const auto& [from, end] : other.ranges) {
        if (begin < end && from <= last) return EBUSY;
      }
    }
    if ((last + 1 - begin) % kAlignBytes != 0) return 0;
    device.second.ranges.emplace_back(begin, last + 1);
    Show(device.first);
    return 0;
  }

  std::optional<int> OnDriver(const std::string& driver, const std::string& file,
                              const std::string& dax) {
    if (!devices_.contains(dax)) return ENODEV;
    const std::string has = DriverOf(dax);
    if (file == "unbind") {
      if (has != driver) return ENODEV;
      SetDriver(dax, "");
      return 0;
    }
    // The DAX devices of volatile memory match kmem by their kind, device_dax only by an id.
    if (file == "bind" && driver == "device_dax") return ENODEV;
    if (file == "bind" || file == "new_id") {
      if (!has.empty() || devices_.at(dax).ranges.empty()) return EINVAL;
      SetDriver(dax, driver);
    }
    return 0;
  }

  std::map<std::string, Region> regions_;  // By folder.
  std::map<std::string, Device> devices_;
  std::string youngest_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_RIGS_FAKE_DAX_KERNEL_H_
