#include "host-agent/adapters/linux/dax/dax_lookup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/dax/dax_driver.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// Serial of the memdev that an endpoint decoder belongs to.
std::optional<uint64_t> SerialOfDecoder(const HostFiles& files, const std::string& decoder) {
  const std::optional<DecoderName> name = ParseDecoder(decoder);
  if (!name.has_value()) return std::nullopt;
  return files.ReadNumber(absl::StrCat(kCxlDevices, "/endpoint", name->port, "/uport/serial"));
}

// The host region that has the memdev among its targets; "" where none has.
std::string RegionOf(const HostFiles& files, uint64_t serial) {
  for (const std::string& region : files.List(kCxlDevices)) {
    if (!IsNumbered(region, "region")) continue;
    for (size_t position = 0; position < kMaxInterleaveWays; ++position) {
      const std::optional<std::string> target =
          files.Read(absl::StrCat(kCxlDevices, "/", region, "/target", position));
      if (!target.has_value()) break;
      if (SerialOfDecoder(files, *target) == serial) return region;
    }
  }
  return "";
}

// daxN.M below the region; "" until the kernel has made it.
std::string DaxBelow(const HostFiles& files, const std::string& region) {
  // The kernel numbers a region's DAX region as the region.
  for (const std::string& dax :
       files.List(absl::StrCat(kCxlDevices, "/", region, "/dax_", region))) {
    if (absl::StartsWith(dax, "dax") && absl::StrContains(dax, '.')) return dax;
  }
  return "";
}

}  // namespace

// From the serial to the device node, through what sysfs says now. The device number is read with
// it, so that who opens the node can see whether it is still that one.
absl::StatusOr<DaxNode> LookUpDax(const HostFiles& files, uint64_t serial) {
  DaxNode node;
  node.region = RegionOf(files, serial);
  if (node.region.empty()) {
    return Refuse(absl::StatusCode::kNotFound, "NO_HOST_REGION",
                  absl::StrFormat("no host region has the memdev of serial %#x", serial),
                  "make the host region first");
  }
  node.name = DaxBelow(files, node.region);
  const std::optional<std::string> numbers =
      files.Read(absl::StrCat("sys/bus/dax/devices/", node.name, "/dev"));
  const std::vector<std::string> parts = absl::StrSplit(numbers.value_or(""), ':');
  if (node.name.empty() || parts.size() != 2 || !absl::SimpleAtoi(parts[0], &node.major) ||
      !absl::SimpleAtoi(parts[1], &node.minor)) {
    return Refuse(absl::StatusCode::kNotFound, "NO_DAX_DEVICE",
                  absl::StrCat("host region ", node.region, " has no DAX device"),
                  "check that the module dax_cxl is loaded");
  }
  return node;
}

std::string DaxNodePath(const HostFiles& files, const std::string& dax) {
  return files.Path(absl::StrCat("dev/", dax));
}

// Opens the node only while device_dax has it, and only if what was opened has the device number
// that was looked up: a file put in its place, or a node that was made for another device
// meanwhile, is refused.
absl::StatusOr<UniqueFd> OpenDaxNode(const HostFiles& files, const DaxNode& node, bool read_only) {
  if (DaxDriverOf(files, node.name) != DaxDriver::kDeviceDax) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_DEVDAX",
                  absl::StrCat(node.name, " is not bound to device_dax"), "bind it first");
  }
  const std::string path = DaxNodePath(files, node.name);
  UniqueFd fd(open(path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return Refuse(absl::StatusCode::kInternal, "DAX_OPEN",
                  absl::StrCat(path, ": ", ErrnoText(errno)),
                  "check that /dev is a devtmpfs and that this process may open it");
  }
  struct stat found = {};
  if (fstat(fd.get(), &found) != 0 || !S_ISCHR(found.st_mode) ||
      found.st_rdev != makedev(node.major, node.minor)) {
    return Refuse(absl::StatusCode::kInternal, "DAX_OPEN",
                  absl::StrCat(path, " is not device ", node.major, ":", node.minor),
                  "remove that file: /dev is to be a devtmpfs");
  }
  return fd;
}

}  // namespace cxlpool::agent
