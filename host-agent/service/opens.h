// Which local connections have which Attachment open.
//
// An Attachment that is open counts as used, whether or not the application still has it mapped.
// Not thread-safe; owned by AgentCore.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_OPENS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_OPENS_H_

#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "host-agent/service/attachments.h"

namespace cxlpool::agent {

class OpensTable {
 public:
  // Opening again on the same connection changes nothing.
  void Open(const AttachmentKey& key, uint64_t connection, int pid) {
    opens_[key][connection] = pid;
  }

  // Not open: no effect.
  void Close(const AttachmentKey& key, uint64_t connection) {
    const auto it = opens_.find(key);
    if (it == opens_.end()) return;
    it->second.erase(connection);
    if (it->second.empty()) opens_.erase(it);
  }

  void CloseConnection(uint64_t connection) {
    for (auto it = opens_.begin(); it != opens_.end();) {
      it->second.erase(connection);
      it = it->second.empty() ? opens_.erase(it) : std::next(it);
    }
  }

  // One process id a connection that has it open.
  std::vector<int> Users(const AttachmentKey& key) const {
    std::vector<int> pids;
    const auto it = opens_.find(key);
    if (it == opens_.end()) return pids;
    for (const auto& [connection, pid] : it->second) pids.push_back(pid);
    return pids;
  }

 private:
  std::map<AttachmentKey, std::map<uint64_t, int>> opens_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_OPENS_H_
