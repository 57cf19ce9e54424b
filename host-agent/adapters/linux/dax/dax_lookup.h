// From a memdev's serial to its DAX device by a handful of reads, for calls that must be quick.
//
// By sysfs: opening libcxl enumerates the whole host and may wait for udev. Nothing is remembered
// from one call to the next, for names are used again and a stale one is somebody else's memory.
// Stateless; any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_LOOKUP_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_LOOKUP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

struct DaxNode {
  std::string name;    // daxN.M.
  std::string region;  // regionN.
  uint32_t major = 0;
  uint32_t minor = 0;
};

// The DAX device of the host region that has `serial` among its targets.
// NOT_FOUND/NO_HOST_REGION, NO_DAX_DEVICE.
absl::StatusOr<DaxNode> LookUpDax(const HostFiles& files, uint64_t serial);

// Where the node of the DAX device of that name is.
std::string DaxNodePath(const HostFiles& files, const std::string& dax);

// Opens it: CLOEXEC, O_RDONLY or O_RDWR. The descriptor is that device's for certain (its number
// is compared). FAILED_PRECONDITION/NOT_DEVDAX: another driver than device_dax has it, or none.
// INTERNAL/DAX_OPEN.
absl::StatusOr<UniqueFd> OpenDaxNode(const HostFiles& files, const DaxNode& node, bool read_only);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_LOOKUP_H_
