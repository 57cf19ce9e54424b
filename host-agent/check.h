// `cxlpool-agent check`: what is missing before this machine can use pool memory, and how to fix
// it.
//
// Changes nothing, on the machine or at the manager; an agent that runs goes on meanwhile.
#ifndef CXLPOOL_HOST_AGENT_CHECK_H_
#define CXLPOOL_HOST_AGENT_CHECK_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/machine/host_needs.h"
#include "host-agent/config.h"

namespace cxlpool::agent {

struct CheckQuestions {
  // Whether the credentials can be used.
  std::function<absl::Status(const AgentConfig&)> credentials;
  // What ends soon of credentials that can: a line each.
  std::function<std::vector<std::string>(const AgentConfig&)> expiry = {};
  // Whether an emulated fabric is as the configuration says.
  std::function<absl::Status(const AgentConfig&)> emulated_fabric = {};
  // Whether the drain hook is safe to run, where there is one.
  std::function<absl::Status(const AgentConfig&)> drain_hook = {};
  // What the manager says of this host, where it would take a session; none: not asked.
  std::function<absl::StatusOr<std::string>(const AgentConfig&)> manager;
};

// The machine, as far as the configured adapter needs it (ExamineHost), then the configuration, the
// credentials and the manager. Texts are of one line, printable ASCII.
std::vector<Finding> CheckAgent(const HostFiles& files, const std::string& config_file,
                                const CheckQuestions& questions);

// Whether nothing is missing; warnings do not count.
bool IsFit(const std::vector<Finding>& findings);

// For people, 80 columns; what is not in order has its remedy under it.
std::string CheckTable(const std::vector<Finding>& findings);

// {"fit": false, "findings": [{"id", "verdict": "ok"|"warning"|"missing", "what", "remedy"}]}
std::string CheckJson(const std::vector<Finding>& findings);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_CHECK_H_
