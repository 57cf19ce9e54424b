// One host's kernel memory policy as a few settings by name (model/tiering.h), and the place where
// their former values are put down until they are restored.
//
// Calls may take some milliseconds: not for the core's thread. One thread at a time.
#ifndef CXLPOOL_HOST_AGENT_PORTS_HOST_POLICY_H_
#define CXLPOOL_HOST_AGENT_PORTS_HOST_POLICY_H_

#include <string>

#include "absl/status/status.h"
#include "host-agent/model/tiering.h"

namespace cxlpool::agent {

class HostPolicy {
 public:
  virtual ~HostPolicy() = default;

  // Every setting that this kernel has, as it is now.
  virtual PolicyValues Read() = 0;

  // OK: it reads so now. INTERNAL/POLICY_WRITE: it does not. UNIMPLEMENTED/TIERING_UNSUPPORTED:
  // this host cannot, and never will.
  virtual absl::Status Write(const std::string& name, const std::string& value) = 0;

  // What was put down last, by this agent or one before it in this boot of the kernel. Never fails:
  // at worst nothing is known.
  virtual SavedPolicy Saved() = 0;

  // Puts it down in one step; it outlives this process and not the boot. UNAVAILABLE: what was
  // there stays.
  virtual absl::Status Save(const SavedPolicy& saved) = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_PORTS_HOST_POLICY_H_
