// Which local connections have which segments of an Attachment open.
//
// What is open counts as used, whether or not the application still has it mapped. A use begins
// with an Open under some name and ends with a Close of the same name or with the connection: a
// Region that is renamed meanwhile stays open. Bounded: kMaxNames names of one Attachment and
// kMaxUses uses in all for each connection. Not thread-safe; owned by AgentCore.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_OPENS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_OPENS_H_

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host-agent/ports/process_watch.h"
#include "host-agent/service/attachments.h"
#include "proto/support/mutant.h"

namespace cxlpool::agent {

class OpensTable {
 public:
  static constexpr size_t kMaxNames = 16;  // A Region is seldom renamed while it is open.
  static constexpr size_t kMaxUses = 1024;

  // Who has what open, and as what. The process is the one that made the connection. It may have
  // ended, and its pid may be another's, while a child of it keeps the connection.
  struct User {
    uint64_t connection = 0;  // Never used twice.
    ProcessId process;
    std::string name;  // As the application asked for it.
  };

  // Whether the connection may open the Attachment under this name besides what it has open.
  bool HasRoom(const AttachmentKey& key, uint64_t connection, const std::string& name) const {
    if (CXLPOOL_MUTANT("opens-without-end")) return true;
    const auto uses = uses_.find(key);
    if (uses != uses_.end()) {
      if (uses->second.contains({connection, name})) return true;
      size_t names = 0;
      for (auto it = uses->second.lower_bound({connection, ""});
           it != uses->second.end() && it->first.connection == connection; ++it) {
        ++names;
      }
      if (names >= kMaxNames) return false;
    }
    return CountFor(connection) < kMaxUses;
  }

  // The segments by their first serials. Opening again under the same name adds to what is open.
  // The caller has asked HasRoom.
  void Open(const AttachmentKey& key, const User& user, const std::vector<uint64_t>& serials) {
    const auto [it, is_new] = uses_[key].try_emplace({user.connection, user.name});
    if (is_new) ++counts_[user.connection];
    it->second.process = user.process;
    it->second.serials.insert(serials.begin(), serials.end());
  }

  // Whatever the connection has open under this name. Nothing: no effect.
  void Close(uint64_t connection, const std::string& name) {
    if (CountFor(connection) == 0) return;
    ForEachAttachment([&](Uses& uses) {
      if (uses.erase({connection, name}) != 0) Forget(connection);
    });
  }

  void CloseConnection(uint64_t connection) {
    if (CountFor(connection) == 0) return;
    ForEachAttachment([&](Uses& uses) {
      auto it = uses.lower_bound({connection, ""});
      while (it != uses.end() && it->first.connection == connection) it = uses.erase(it);
    });
    counts_.erase(connection);
  }

  // How many uses the connection has of whatever there is.
  size_t CountFor(uint64_t connection) const {
    const auto it = counts_.find(connection);
    return it == counts_.end() ? 0 : it->second;
  }

  // How many connections have any of the Attachment open.
  uint32_t CountOf(const AttachmentKey& key) const {
    return CountIf(key, [](const Use&) { return true; });
  }

  // How many connections have this segment open.
  uint32_t CountOf(const AttachmentKey& key, uint64_t first_serial) const {
    return CountIf(key, [=](const Use& use) { return use.serials.contains(first_serial); });
  }

  // Each use: `visit(key, connection, process, serials)`, in order of key and connection. A
  // connection has one for each name by which it opened the Attachment.
  template <typename Visit>
  void ForEachUse(Visit visit) const {
    for (const auto& [key, uses] : uses_) {
      for (const auto& [way, use] : uses) visit(key, way.connection, use.process, use.serials);
    }
  }

  // The processes that made them: one a connection.
  std::vector<ProcessId> UsersOf(const AttachmentKey& key, uint64_t first_serial) const {
    std::vector<ProcessId> users;
    uint64_t last = 0;
    if (const auto it = uses_.find(key); it != uses_.end()) {
      for (const auto& [way, use] : it->second) {  // In order of connection.
        if (way.connection == last || !use.serials.contains(first_serial)) continue;
        last = way.connection;
        users.push_back(use.process);
      }
    }
    return users;
  }

 private:
  struct Way {
    uint64_t connection = 0;
    std::string name;
    friend auto operator<=>(const Way&, const Way&) = default;
  };
  struct Use {
    ProcessId process;
    std::set<uint64_t> serials;
  };
  using Uses = std::map<Way, Use>;

  template <typename Matches>
  uint32_t CountIf(const AttachmentKey& key, Matches matches) const {
    const auto it = uses_.find(key);
    if (it == uses_.end()) return 0;
    uint32_t count = 0;
    uint64_t last = 0;
    for (const auto& [way, use] : it->second) {  // In order of connection.
      if (way.connection == last || !matches(use)) continue;
      last = way.connection;
      ++count;
    }
    return count;
  }

  template <typename Visit>
  void ForEachAttachment(Visit visit) {
    for (auto it = uses_.begin(); it != uses_.end();) {
      visit(it->second);
      it = it->second.empty() ? uses_.erase(it) : std::next(it);
    }
  }

  void Forget(uint64_t connection) {
    const auto it = counts_.find(connection);
    if (it != counts_.end() && --it->second == 0) counts_.erase(it);
  }

  std::map<AttachmentKey, Uses> uses_;
  std::map<uint64_t, size_t> counts_;  // By connection: how many uses it has.
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_OPENS_H_
