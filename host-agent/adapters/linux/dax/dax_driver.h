// Which driver has a DAX device, and giving it to one or taking it from one.
//
// By sysfs and not by libdaxctl's enable calls: those write every name to `new_id`, which makes
// the kernel offer *all* unbound DAX devices to that driver (so that kmem would take devices meant
// for mmap), and leave the name there, so that a later device of the same name is taken unasked.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_DRIVER_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_DRIVER_H_

#include <string>

#include "absl/status/status.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/model/observation.h"

namespace cxlpool::agent {

// The driver's name in sysfs ("device_dax", "kmem"); "" if the device is unbound.
std::string DaxDriverName(const HostFiles& files, const std::string& dax);

// kNone also for a driver that is neither; BindDaxDriver and the destroying of a host region
// still see it by name.
DaxDriver DaxDriverOf(const HostFiles& files, const std::string& dax);

// Takes auto_online_blocks back to what it was, if a process was killed between BindDaxDriver's two
// writes to it, in this boot.
void RestoreAutoOnline(const HostFiles& files);

// For kKmem the kernel's auto_online_blocks is "offline" while it binds and then what it was: it
// is one switch for all memory of the host. What it was is in /run/cxlpool meanwhile.
// FAILED_PRECONDITION/DAX_BOUND: another driver has it; INTERNAL/DAX_BIND. UNAVAILABLE/RUN_FILE:
// what auto_online_blocks was cannot be noted, and it was left so.
absl::Status BindDaxDriver(const HostFiles& files, const std::string& dax, DaxDriver driver);

// FAILED_PRECONDITION/BLOCKS_BUSY: a memory block of it is online; unbinding would report success
// and leave the memory unremovable until the next boot. Or, though no driver has the device now, a
// block came online meanwhile and has stayed: then the remedy is that reboot. INTERNAL/DAX_BIND.
absl::Status UnbindDaxDriver(const HostFiles& files, const DaxDevice& dax);

// Switches DAX autoprobe off and reads it back, because somebody (modprobe, a udev rule) may have
// switched it on since. It must be off whenever a DAX device appears: else the kernel gives the
// device to a driver at once, and may put its memory online where it never leaves again.
// NOT_FOUND: there is no DAX bus. Else FAILED_PRECONDITION. Both HOST_UNFIT.
absl::Status SwitchAutoprobeOff(const HostFiles& files);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_DRIVER_H_
