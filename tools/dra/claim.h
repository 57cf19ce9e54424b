// What a ResourceClaim of Kubernetes is here: a Region of a name that follows from the claim's uid,
// and a file that describes the Region's device to container runtimes (Container Device Interface,
// cncf-tags/container-device-interface, SPEC.md, version 0.3.0 and later).
//
// Pure functions, any thread.
#ifndef CXLPOOL_TOOLS_DRA_CLAIM_H_
#define CXLPOOL_TOOLS_DRA_CLAIM_H_

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cxlpool/pool.h"

namespace cxlpool::dra {

inline constexpr char kDriver[] = "cxlpool.dev";
// The device that every claim is given a part of, as the driver's ResourceSlice is to name it.
inline constexpr char kDevicePool[] = "cxlpool";
inline constexpr char kDevice[] = "memory";

// "k8s-UID". INVALID_ARGUMENT: no Region has such a name.
absl::StatusOr<std::string> RegionOfClaim(absl::string_view uid);

// "cxlpool.dev/region=k8s-UID".
std::string CdiDeviceId(absl::string_view region);
// "cxlpool.dev-region_k8s-UID.json".
std::string CdiFileName(absl::string_view region);
// The inverse; nothing for files of others.
std::optional<std::string> RegionOfCdiFile(absl::string_view file_name);

// What a container gets.
struct ContainerDevice {
  uint32_t major = 0, minor = 0;  // Of a DAX device.
  std::string file = {};  // Of an emulated pool: the file that is one. Empty: it is a device.
  uint64_t size_bytes = 0;
  bool read_only = false;
};

// Of an extent that is open: its descriptor's `stat`, and `path`, which only a file needs.
// FAILED_PRECONDITION: it is a part of something that others have parts of, too.
absl::StatusOr<ContainerDevice> DeviceOf(const Extent& extent, const struct stat& stat,
                                         absl::string_view path, bool read_only);

// The text of the Region's CDI file. In the container the device is /dev/cxlpool/REGION, as
// CXLPOOL_PATH says, for every user: who is in the container has been given it.
std::string CdiText(absl::string_view region, const ContainerDevice& device);

// Why the Region cannot be opened, in the kubelet's words: what and why, and what to do.
// NOT_FOUND: it is not attached to this host. UNAVAILABLE: that may pass by itself, too.
absl::Status WhyNot(absl::string_view region, const Error& error);

// Whether it may be different in a moment.
inline bool MayPass(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsUnavailable(status);
}

}  // namespace cxlpool::dra

#endif  // CXLPOOL_TOOLS_DRA_CLAIM_H_
