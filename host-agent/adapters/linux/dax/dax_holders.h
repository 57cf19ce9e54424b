// Finds the processes that have a character device open or mapped; and whether there can be any.
//
// The kernel takes a DAX device away without asking: a process that still maps it gets SIGBUS.
// Looks through /proc: descriptors first, mappings then; of a process whose main thread has ended,
// those of another thread. It sees what may be seen with the caller's rights (root: everything
// in its PID namespace), and says so where that is not enough. It does not see a descriptor that a
// socket carries just then, nor one that only a thread with a descriptor table of its own has.
// What any user can have is no holder: a descriptor of the device's path alone (O_PATH), or a file
// of the device's name; and nobody's file system makes it wait.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_HOLDERS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_HOLDERS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/ports/process_watch.h"
#include "host-agent/support/deadline.h"

namespace cxlpool::agent {

inline constexpr size_t kMaxHolders = 32;

struct CharDevice {
  std::string name;  // Of its file in /dev: "dax0.0".
  dev_t number = 0;
};

// Whether the driver device_dax counts no user. Each open file counts for one, and a mapping holds
// its file open (Linux, fs/char_dev.c: chrdev_open). False if that cannot be known: a driver that
// is built in has no count.
bool NoDaxDeviceIsOpen(const HostFiles& files);

// In ascending order of process id, at most kMaxHolders, without `self`.
// DEADLINE_EXCEEDED/KERNEL_TIMEOUT: too much to look through for the time given.
// UNAVAILABLE/HOLDERS_UNKNOWN: no holder was found, and a process that is there could not be looked
// at; or /proc could not.
absl::StatusOr<std::vector<ProcessId>> FindDeviceHolders(const HostFiles& files,
                                                         const CharDevice& device, int self,
                                                         const Deadline& deadline);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_HOLDERS_H_
