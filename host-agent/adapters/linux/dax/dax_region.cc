#include "host-agent/adapters/linux/dax/dax_region.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/mutant.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kPlatformDevices = "sys/bus/platform/devices";
constexpr absl::string_view kSoftReserved = "hmem.";  // hmem.2; not hmem_platform.0.

bool IsDaxName(absl::string_view name) {
  if (!absl::StartsWith(name, "dax")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(name.substr(3), '.');
  int number = 0;
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], &number) &&
         absl::SimpleAtoi(parts[1], &number);
}

// What a DAX device has for each of its ranges. The kernel gives an inode of sysfs to nothing else
// afterwards, so the same ones before and after a read say that nothing changed in between.
std::vector<HostFiles::Entry> MappingsOf(const HostFiles& files, const std::string& dax) {
  std::vector<HostFiles::Entry> mappings = files.Entries(dax);
  std::erase_if(mappings,
                [](const HostFiles::Entry& entry) { return !IsNumbered(entry.name, "mapping"); });
  return mappings;
}

std::optional<HpaRange> ReadMapping(const HostFiles& files, const std::string& mapping) {
  const std::optional<uint64_t> start = files.ReadNumber(absl::StrCat(mapping, "/start"));
  const std::optional<uint64_t> last = files.ReadNumber(absl::StrCat(mapping, "/end"));
  if (!start.has_value() || !last.has_value() || *last < *start) return std::nullopt;
  return HpaRange{*start, *last + 1};
}

// Where a region begins for which no file shows that; 0: that cannot be known now.
uint64_t BeginOf(const HostFiles& files, const DaxRegion& region) {
  uint64_t lowest = ~uint64_t{0};
  for (const RegionDax& dax : region.devices) {
    if (dax.ranges.empty()) {
      return KnownOrZero(files.ReadNumber(absl::StrCat(region.folder, "/", dax.name, "/resource")));
    }
    for (const HpaRange& range : dax.ranges) lowest = std::min(lowest, range.begin);
  }
  return region.devices.empty() || region.available_bytes != 0 ? 0 : lowest;
}

// False if there is no such DAX region, or it is gone by now.
bool ReadSizes(const HostFiles& files, DaxRegion& region) {
  const auto number = [&](absl::string_view attribute) {
    return files.ReadNumber(absl::StrCat(region.folder, "/dax_region/", attribute));
  };
  const std::optional<uint64_t> size = number("size");
  if (!size.has_value()) return false;
  region.size_bytes = *size;
  region.align_bytes = number("align").value_or(0);
  region.available_bytes = number("available_size").value_or(0);
  return true;
}

// All of a region's devices have the same.
std::optional<int> ReadTargetNode(const HostFiles& files, const DaxRegion& region,
                                  const std::string& dax) {
  int node = -1;
  const auto text = files.Read(absl::StrCat(region.folder, "/", dax, "/target_node"));
  if (!absl::SimpleAtoi(text.value_or(""), &node) || node < 0) return std::nullopt;
  return node;
}

}  // namespace

const RegionDax* DaxRegion::Find(const HpaRange& range) const {
  for (const RegionDax& dax : devices) {
    if (dax.ranges.size() == 1 && dax.ranges.front() == range) return &dax;
  }
  return nullptr;
}

const RegionDax* DaxRegion::FindOverlap(const HpaRange& range) const {
  for (const RegionDax& dax : devices) {
    for (const HpaRange& has : dax.ranges) {
      if (has.Overlaps(range)) return &dax;
    }
  }
  return nullptr;
}

const RegionDax* DaxRegion::Whole() const {
  for (const RegionDax& dax : devices) {
    if (dax.ranges.size() == 1 && dax.ranges.front().size() == size_bytes) return &dax;
  }
  return nullptr;
}

// Answers nothing rather than a wrong range. Size and address are two files, so the mappings are
// listed before and after both are read: if they differ, the device changed in between.
std::optional<RegionDax> ReadRegionDax(const HostFiles& files, const DaxRegion& region,
                                       const std::string& name) {
  if (!IsDaxName(name)) return std::nullopt;
  const std::string path = absl::StrCat(region.folder, "/", name);
  const std::vector<HostFiles::Entry> mappings = MappingsOf(files, path);
  const std::optional<uint64_t> size = files.ReadNumber(absl::StrCat(path, "/size"));
  if (!size.has_value()) return std::nullopt;
  RegionDax dax{
      .name = name, .ranges = {}, .driver = files.LinkName(absl::StrCat(path, "/driver"))};
  if (*size == 0) return dax;
  if (mappings.size() == 1) {
    // Not by the files of its mapping: see the header.
    const std::optional<uint64_t> begin = files.ReadNumber(absl::StrCat(path, "/resource"));
    if (!begin.has_value() || MappingsOf(files, path) != mappings) return std::nullopt;
    dax.ranges.push_back({*begin, *begin + *size});
    return dax;
  }
  for (const HostFiles::Entry& mapping : mappings) {
    const auto range = ReadMapping(files, absl::StrCat(path, "/", mapping.name));
    if (!range.has_value()) return std::nullopt;
    dax.ranges.push_back(*range);
  }
  return mappings.empty() ? std::nullopt : std::optional(dax);
}

// Tries the device called `hint` first. All devices, of which there may be hundreds, are read only
// if it is not the one.
std::optional<RegionDax> FindRegionDax(const HostFiles& files, const DaxRegion& region,
                                       const HpaRange& range, const std::string& hint) {
  std::optional<RegionDax> dax = ReadRegionDax(files, region, hint);
  if (dax.has_value() && !dax->ranges.empty() && CXLPOOL_MUTANT("piece-by-name")) return dax;
  if (dax.has_value() && dax->ranges == std::vector{range}) return dax;
  const std::optional<DaxRegion> all = ReadDaxRegion(files, region.name);
  const RegionDax* const found = all.has_value() ? all->Find(range) : nullptr;
  return found == nullptr ? std::nullopt : std::optional(*found);
}

// Soft Reserved memory is read with its devices, because only they show where it begins.
std::optional<DaxRegion> ReadBareDaxRegion(const HostFiles& files, const std::string& name) {
  DaxRegion region;
  region.name = name;
  if (!IsNumbered(name, "region")) return ReadDaxRegion(files, name);
  // The kernel numbers a region's DAX region as the region.
  region.folder = CxlFile(name, absl::StrCat("dax_", name));
  if (!ReadSizes(files, region)) return std::nullopt;
  region.hpa_bytes = KnownOrZero(files.ReadNumber(CxlFile(name, "resource")));
  return region;
}

// The address of Soft Reserved memory is set last, because it follows from the devices.
std::optional<DaxRegion> ReadDaxRegion(const HostFiles& files, const std::string& name) {
  DaxRegion region;
  region.name = name;
  const bool cxl = IsNumbered(name, "region");
  if (cxl) {
    std::optional<DaxRegion> bare = ReadBareDaxRegion(files, name);
    if (!bare.has_value()) return std::nullopt;
    region = *std::move(bare);
  } else {
    region.folder = absl::StrCat(kPlatformDevices, "/", name);
    if (!absl::StartsWith(name, kSoftReserved) || !ReadSizes(files, region)) return std::nullopt;
  }
  for (const std::string& child : files.List(region.folder)) {
    if (auto dax = ReadRegionDax(files, region, child)) region.devices.push_back(*std::move(dax));
  }
  if (!region.devices.empty()) {
    region.target_node = ReadTargetNode(files, region, region.devices.front().name);
  }
  if (!cxl) region.hpa_bytes = BeginOf(files, region);
  return region;
}

// A host region is in the list only while it has a DAX region.
std::vector<std::string> DaxRegionNames(const HostFiles& files) {
  std::vector<std::string> names;
  for (const std::string& name : files.List(kCxlDevices)) {
    if (IsNumbered(name, "region") && files.Exists(CxlFile(name, absl::StrCat("dax_", name)))) {
      names.push_back(name);
    }
  }
  for (const std::string& name : files.List(kPlatformDevices)) {
    if (absl::StartsWith(name, kSoftReserved)) names.push_back(name);
  }
  return names;
}

bool IsFirstDax(absl::string_view name) { return absl::EndsWith(name, ".0"); }

// `dax` must have a range: whatever Find and FindRegionDax answer has one.
std::optional<DaxDevice> ReadDaxNode(const HostFiles& files, const DaxRegion& region,
                                     const RegionDax& dax) {
  const std::string numbers =
      files.Read(absl::StrCat(region.folder, "/", dax.name, "/dev")).value_or("");
  const std::vector<absl::string_view> parts = absl::StrSplit(numbers, ':');
  DaxDevice device{.name = dax.name,
                   .region = region.name,
                   .hpa_bytes = dax.ranges.front().begin,
                   .size_bytes = dax.ranges.front().size(),
                   .align_bytes = region.align_bytes,
                   .target_node = ReadTargetNode(files, region, dax.name)};
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &device.major) ||
      !absl::SimpleAtoi(parts[1], &device.minor)) {
    return std::nullopt;
  }
  return device;
}

}  // namespace cxlpool::agent
