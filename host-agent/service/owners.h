// Watches the processes that own Regions of this host: a Region whose owner is dead is released,
// once.
//
// Who owns what comes with the Offers, so that an agent that restarts learns it again. An owner is
// dead when it is of another boot of this host (its incarnation), when there is no process of its
// pid and start any more, or when that process ends while it is watched. A process that is alive
// stays the owner, whether or not it has a connection to this agent or the Region open: it may
// connect again at any time. exec keeps an owner; a forked child is none.
//
// The request_id of the release is derived from the Region's tag: however often it is sent, over
// restarts of agent and manager as well, it is one call. Without a session nothing is sent; a
// refusal (another host uses the Region) is tried again after a backoff of up to
// kMaxReleaseBackoff. What another process has open blocks the release as any other.
//
// Runs wholly on the core's thread.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_OWNERS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_OWNERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "host-agent/ports/process_watch.h"
#include "host-agent/service/agent_core.h"
#include "host-agent/service/posted.h"

namespace cxlpool::agent {

inline constexpr absl::Duration kMaxReleaseBackoff = absl::Seconds(30);
inline constexpr absl::Duration kWatchAgain = absl::Seconds(5);  // What cannot be watched now.
inline constexpr int kMaxReleasesAtOnce = 8;

// The request_id of the release of a Region whose owner is dead. `tag`: text of a UUID.
std::string OwnerGoneRequestId(const std::string& tag);

class Owners {
 public:
  // All outlive this. Takes the core's OnOffers.
  Owners(AgentCore* core, Executor* executor, Clock* clock, ProcessWatch* watch, ManagerLink* link);
  ~Owners();

 private:
  // A Region with an owner, of which an Offer stands.
  struct Owned {
    std::string name;
    v1::Owner owner;
    std::set<uint64_t> generations;  // Of its Attachments to this host.
    bool wanted_online = false;
    bool dead = false;
    bool calling = false;   // A Release is under way.
    bool released = false;  // The manager has taken it.
    int failures = 0;       // In a row.
    absl::Duration retry_at;
    std::string refused;  // Why, the last time: logged once.
  };

  void OnOffers(const AttachmentKey* changed);
  void Take(const AttachmentKey& key, const Attachment& attachment);
  void Drop(const AttachmentKey& key);
  void Watch(const ProcessId& process);
  void OnEnded(const ProcessId& process, const absl::Status& status);
  void ReleaseDead();
  void Release(const std::string& tag, Owned& owned);
  void OnReleased(const std::string& tag, const absl::Status& status);

  template <typename F>
  auto OnCore(F function) {
    return Posted(executor_, alive_, std::move(function));
  }

  AgentCore* const core_;
  Executor* const executor_;
  Clock* const clock_;
  ProcessWatch* const watch_;
  ManagerLink* const link_;

  std::map<std::string, Owned> owned_;                    // By tag.
  std::map<ProcessId, std::set<std::string>> processes_;  // That are watched: tags.
  int calls_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_OWNERS_H_
