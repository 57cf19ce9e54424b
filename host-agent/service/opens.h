// Which local connections have which segments of an Attachment open.
//
// What is open counts as used, whether or not the application still has it mapped. A use begins
// with an Open under some name and ends with a Close of the same name or with the connection: a
// Region that is renamed meanwhile stays open. Not thread-safe; owned by AgentCore.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_OPENS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_OPENS_H_

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "host-agent/service/attachments.h"

namespace cxlpool::agent {

class OpensTable {
 public:
  // Who has what open, and as what.
  struct User {
    uint64_t connection = 0;  // Never used twice.
    int pid = 0;
    std::string name;  // As the application asked for it.
  };

  // The segments by their first serials. Opening again under the same name adds to what is open.
  void Open(const AttachmentKey& key, const User& user, const std::vector<uint64_t>& serials) {
    Use& use = uses_[key][{user.connection, user.name}];
    use.pid = user.pid;
    use.serials.insert(serials.begin(), serials.end());
  }

  // Whatever the connection has open under this name. Nothing: no effect.
  void Close(uint64_t connection, const std::string& name) {
    EraseIf([&](const Way& way) { return way.connection == connection && way.name == name; });
  }

  void CloseConnection(uint64_t connection) {
    EraseIf([connection](const Way& way) { return way.connection == connection; });
  }

  // One process id a connection that has any of the Attachment open.
  std::vector<int> Users(const AttachmentKey& key) const {
    return PidsOf(key, [](const Use&) { return true; });
  }

  // How many connections have this segment open.
  uint32_t CountOf(const AttachmentKey& key, uint64_t first_serial) const {
    const auto it = uses_.find(key);
    if (it == uses_.end()) return 0;
    uint32_t count = 0;
    uint64_t last = 0;
    for (const auto& [way, use] : it->second) {  // In order of connection.
      if (way.connection == last || !use.serials.contains(first_serial)) continue;
      last = way.connection;
      ++count;
    }
    return count;
  }

  // Their process ids.
  std::vector<int> UsersOf(const AttachmentKey& key, uint64_t first_serial) const {
    return PidsOf(key, [=](const Use& use) { return use.serials.contains(first_serial); });
  }

 private:
  struct Way {
    uint64_t connection = 0;
    std::string name;
    friend auto operator<=>(const Way&, const Way&) = default;
  };
  struct Use {
    int pid = 0;
    std::set<uint64_t> serials;
  };

  template <typename Matches>
  std::vector<int> PidsOf(const AttachmentKey& key, Matches matches) const {
    std::map<uint64_t, int> pids;  // By connection.
    if (const auto it = uses_.find(key); it != uses_.end()) {
      for (const auto& [way, use] : it->second) {
        if (matches(use)) pids.emplace(way.connection, use.pid);
      }
    }
    std::vector<int> list;
    for (const auto& [connection, pid] : pids) list.push_back(pid);
    return list;
  }

  template <typename Matches>
  void EraseIf(Matches matches) {
    for (auto it = uses_.begin(); it != uses_.end();) {
      std::erase_if(it->second, [&](const auto& entry) { return matches(entry.first); });
      it = it->second.empty() ? uses_.erase(it) : std::next(it);
    }
  }

  std::map<AttachmentKey, std::map<Way, Use>> uses_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_OPENS_H_
