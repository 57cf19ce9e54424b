// HostPolicy by sysfs, procfs and a file in /run.
//
//   demotion_enabled         /sys/kernel/mm/numa/demotion_enabled
//   numa_balancing           /proc/sys/kernel/numa_balancing (needs CAP_SYS_ADMIN)
//   weighted_interleave/...  /sys/kernel/mm/mempolicy/weighted_interleave/...
//
// The file, a line a setting, with what it was before and what the agent set; one of another boot
// or that is not understood is as good as none:
//
//   cxlpool kernel policy 1 BOOT-ID
//   numa_balancing 0 2
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_POLICY_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_POLICY_H_

#include <string>

#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/machine/host_needs.h"
#include "host-agent/ports/host_policy.h"

namespace cxlpool::agent {

class LinuxHostPolicy : public HostPolicy {
 public:
  // `file` is made where there is something to put down, and removed with the last setting.
  LinuxHostPolicy(HostFiles files, std::string file);

  PolicyValues Read() override;
  absl::Status Write(const std::string& name, const std::string& value) override;
  SavedPolicy Saved() override;
  absl::Status Save(const SavedPolicy& saved) override;

 private:
  const HostFiles files_;
  const std::string file_;
  const std::string boot_id_;
};

// Whether this kernel has what the configuration sets: kOk, or a warning that says what it lacks.
Finding ExamineTiering(const HostFiles& files, const TieringConfig& config);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_POLICY_H_
