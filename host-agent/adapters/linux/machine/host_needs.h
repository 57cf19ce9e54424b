// What a host must have before any rung can be taken: CXL, DAX, memory hot-plug and PCIe hot-plug
// in the kernel, and a memory window from the firmware.
//
// The one list of it: PrepareHost refuses by it, and ExamineHost shows it to people. Only looks;
// any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_NEEDS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_NEEDS_H_

#include <string>
#include <vector>

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

// The root decoders that volatile regions can be made under, by their folders.
std::vector<std::string> VolatileWindows(const HostFiles& files);

// Each need, kOk or kMissing, in the order in which a person would fix them.
std::vector<Finding> ExamineNeeds(const HostFiles& files);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_NEEDS_H_
