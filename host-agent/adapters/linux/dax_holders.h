// Finds the processes that have a character device open or mapped.
//
// The kernel asks nobody before it takes a DAX device away: who still maps it gets SIGBUS. Looks
// through /proc: descriptors first, mappings then. It sees what may be seen with the caller's
// rights (root: everything in its PID namespace).
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_HOLDERS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_HOLDERS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/deadline.h"
#include "host-agent/adapters/linux/host_files.h"

namespace cxlpool::agent {

inline constexpr size_t kMaxHolders = 32;

struct CharDevice {
  std::string name;  // Of its file in /dev: "dax0.0".
  dev_t number = 0;
};

// Process ids in ascending order, at most kMaxHolders, without `self`.
// DEADLINE_EXCEEDED/KERNEL_TIMEOUT: too many processes for the time given.
absl::StatusOr<std::vector<int>> FindDeviceHolders(const HostFiles& files, const CharDevice& device,
                                                   int self, const Deadline& deadline);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_HOLDERS_H_
