// What a host must have before any rung can be taken: CXL, DAX, memory hot-plug and PCIe hot-plug
// in the kernel, and a memory window from the firmware.
//
// The one list of it: PrepareHost refuses by it, and ExamineHost shows it to people. Any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_NEEDS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_NEEDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

enum class Verdict {
  kOk,
  kWarning,  // Works, but not as well or as surely as it could.
  kMissing,  // This host cannot use pool memory.
};

struct Finding {
  std::string id;  // snake_case, stable: programs switch on it.
  Verdict verdict = Verdict::kOk;
  std::string what;    // What there is, or is not, and what that means.
  std::string remedy;  // What to do; empty for kOk.
};

// As uname -r says.
std::string KernelRelease();

// The root decoders that volatile regions can be made under, by their folders.
std::vector<std::string> VolatileWindows(const HostFiles& files);

// How pool memory comes to this host.
enum class HostUse {
  kPlugged,  // A fabric plugs LDs into its slots.
  kWhole,    // It sees whole devices from its boot on (dax_space.h).
};

// Each need, kOk or kMissing, in the order in which a person would fix them. A host that has whole
// devices needs no slots; and nothing of CXL where its memory comes as a DAX region already.
std::vector<Finding> ExamineNeeds(const HostFiles& files, HostUse use = HostUse::kPlugged);

// Switches off DAX autoprobe, so that no driver takes a new DAX device by itself, then looks for
// everything that the rungs need. `kernel` (uname -r) goes into messages.
// FAILED_PRECONDITION/HOST_UNFIT lists all that is missing and how to fix each.
absl::Status PrepareHost(const HostFiles& files, const std::string& kernel,
                         HostUse use = HostUse::kPlugged);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_NEEDS_H_
