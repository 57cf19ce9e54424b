#include "tools/dra/claim.h"

#include <sys/sysmacros.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "proto/support/names.h"

namespace cxlpool::dra {
namespace {

constexpr char kClass[] = "region";
constexpr char kFileSuffix[] = ".json";
constexpr int kEverybodyReads = 0444;
constexpr int kEverybodyWrites = 0666;

std::string FilePrefix() { return absl::StrCat(kDriver, "-", kClass, "_"); }

// What stands in a JSON text as it is.
bool IsPlain(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
}

}  // namespace

absl::StatusOr<std::string> RegionOfClaim(absl::string_view uid) {
  std::string region = absl::StrCat(kClaimRegionPrefix, uid);
  if (uid.empty() || !CheckResourceId(region).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the claim's uid is none that a Region can be named after (at most 59 of a-z, "
                     "0-9 and -): see who made it"));
  }
  return region;
}

std::string CdiDeviceId(absl::string_view region) {
  return absl::StrCat(kDriver, "/", kClass, "=", region);
}

std::string CdiFileName(absl::string_view region) {
  return absl::StrCat(FilePrefix(), region, kFileSuffix);
}

// Nothing: the file is another driver's, or of no claim.
std::optional<std::string> RegionOfCdiFile(absl::string_view file_name) {
  absl::string_view uid = file_name;
  if (!absl::ConsumePrefix(&uid, absl::StrCat(FilePrefix(), kClaimRegionPrefix)) ||
      !absl::ConsumeSuffix(&uid, kFileSuffix)) {
    return std::nullopt;
  }
  absl::StatusOr<std::string> region = RegionOfClaim(uid);
  return region.ok() ? std::optional(*std::move(region)) : std::nullopt;
}

// A device is known by its number, which nothing else gets while it is open here; its name in /dev
// may be another one's at any time.
absl::StatusOr<ContainerDevice> DeviceOf(const Extent& extent, const struct stat& stat,
                                         absl::string_view path, bool read_only) {
  ContainerDevice device = {.size_bytes = extent.length_bytes, .read_only = read_only};
  if (S_ISCHR(stat.st_mode) && extent.offset_bytes == 0) {
    device.major = major(stat.st_rdev);
    device.minor = minor(stat.st_rdev);
    return device;
  }
  if (S_ISREG(stat.st_mode) && extent.offset_bytes == 0 &&
      static_cast<uint64_t>(stat.st_size) == extent.length_bytes && IsPlain(path)) {
    device.file = std::string(path);
    return device;
  }
  return absl::FailedPreconditionError(absl::StrCat("the Region is a part of ", path,
                                                    ", and no device of its own (use DAX devices "
                                                    "in place of shared.files)"));
}

// Nothing in it needs an escape: a Region's name is a resource id, and DeviceOf takes only plain
// paths. A device is named by its number, a file is mounted.
std::string CdiText(absl::string_view region, const ContainerDevice& device) {
  const std::string path = absl::StrCat("/dev/cxlpool/", region);
  const char* const access = device.read_only ? "r" : "rw";
  const std::string edit =
      device.file.empty()
          ? absl::StrFormat(R"("deviceNodes": [{"path": "%s", "type": "c", "major": %d, )"
                            R"("minor": %d, "fileMode": %d, "permissions": "%s"}])",
                            path, device.major, device.minor,
                            device.read_only ? kEverybodyReads : kEverybodyWrites, access)
          : absl::StrFormat(R"("mounts": [{"hostPath": "%s", "containerPath": "%s", )"
                            R"("options": ["bind", "%s"]}])",
                            device.file, path, device.read_only ? "ro" : "rw");
  return absl::StrFormat(R"({
  "cdiVersion": "0.3.0",
  "kind": "%s/%s",
  "devices": [{
    "name": "%s",
    "containerEdits": {
      "env": ["CXLPOOL_PATH=%s", "CXLPOOL_SIZE_BYTES=%d"],
      %s
    }
  }]
}
)",
                         kDriver, kClass, region, path, device.size_bytes, edit);
}

// The library's remedies are for the program that called it, which here is the plugin: where the
// reader can do something else, that is said.
absl::Status WhyNot(absl::string_view region, const Error& error) {
  const auto say = [&](absl::StatusCode code, absl::string_view remedy) {
    return absl::Status(code, absl::StrCat(error.message, remedy.empty() ? "" : " (", remedy,
                                           remedy.empty() ? "" : ")", " [", error.reason, "]"));
  };
  if (error.reason == "NOT_ATTACHED") {
    return say(absl::StatusCode::kNotFound,
               absl::StrCat("give it to this node: `cxlpool region allocate ", region,
                            " --size SIZE --max-extents 1 --host HOST`"));
  }
  if (error.reason == "NOT_ONLINE_YET") {
    return say(absl::StatusCode::kUnavailable,
               absl::StrCat("`cxlpool explain region/", region, "` says what it waits for"));
  }
  const bool passes = error.code == CXLPOOL_UNAVAILABLE || error.code == CXLPOOL_DEADLINE_EXCEEDED;
  return say(passes ? absl::StatusCode::kUnavailable : absl::StatusCode::kFailedPrecondition,
             error.remedy);
}

}  // namespace cxlpool::dra
