// A Refusal as a Status in one line, as this adapter's files write them.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_REFUSE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_REFUSE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

inline absl::Status Refuse(absl::StatusCode code, std::string reason, std::string message,
                           std::string remedy,
                           std::vector<std::pair<std::string, std::string>> metadata = {}) {
  return Refusal{code, std::move(reason), std::move(message), std::move(remedy),
                 std::move(metadata)}
      .ToStatus();
}

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_REFUSE_H_
