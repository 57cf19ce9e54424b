// What the agent does for applications on its host: Open, Allocate, Release, List, Close, Faults
// and Usage of local.proto.
//
// Open and List are answered from what is attached, with or without the manager; Allocate and
// Release go through it. A READ_ONLY Attachment gives only O_RDONLY descriptors. From the moment
// the manager wants an Attachment down nothing more is opened. What is allocated is owned by the
// calling process (owners.h), unless it asks for a persistent Region.
//
// One judge decides for every call (user_policy.h), on what the Offer says of the Region; for a
// Region that this host has no Offer of, Release asks the manager first. What is released is named
// by its tag: a name may be another Region's by the time that the manager reads it.
//
// One request at a time a connection; an answer for a connection that has ended is dropped. What
// goes on without it is bounded: calls to the manager for each user (user_calls.h), and timers
// (wait_timer.h). On the core's thread only. Waits end by their deadline.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_LOCAL_SERVICE_H_
#define CXLPOOL_HOST_AGENT_SERVICE_LOCAL_SERVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cxlpool/v1/local.pb.h"
#include "host-agent/model/user_policy.h"
#include "host-agent/service/agent_core.h"
#include "host-agent/service/fault_service.h"
#include "host-agent/service/holder_reports.h"
#include "host-agent/service/path_table.h"
#include "host-agent/service/user_calls.h"
#include "host-agent/service/user_usage.h"
#include "host-agent/service/wait_timer.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

inline constexpr uint32_t kLocalProtocolVersion = 1;
inline constexpr size_t kMaxDescriptors = 64;
inline constexpr absl::Duration kMaxLocalWait = absl::Minutes(10);
// For an Allocate that does not say how long it waits.
inline constexpr absl::Duration kDefaultAllocateWait = absl::Seconds(60);

// The other end of a connection, as the kernel knows it (SO_PEERCRED): the process that made it.
struct LocalPeer {
  uint64_t connection = 0;  // Never used twice.
  uint32_t uid = 0;
  int pid = 0;               // 0: in another PID namespace.
  uint64_t start_ticks = 0;  // 0: not known.
  std::vector<uint32_t> gids = {};
  std::string program = {};  // Its name, in printable ASCII; "": not known.
};

struct LocalReply {
  v1::LocalResponse response;
  std::vector<UniqueFd> descriptors;
  bool holds = false;  // The connection has something open now.
};

using LocalDone = absl::AnyInvocable<void(LocalReply) &&>;

// An error as a LocalResponse.
LocalReply RefusedReply(const absl::Status& status);

// REGION_RELEASING: nothing more of it may be opened.
absl::Status Releasing(const std::string& name);

class LocalService {
 public:
  // All outlive this. `paths` is null where no Region is shown as a path.
  LocalService(LocalPolicy policy, AgentCore* core, Executor* executor, Clock* clock,
               HostMemory* memory, ManagerLink* link, DevicePaths* paths = nullptr);
  ~LocalService();

  // Takes back the paths that an agent before this one has shown. Once, before the core starts:
  // until then nothing is opened.
  void Start() { paths_.Start(); }

  // `done` is called on the core's thread, perhaps before this returns; never after
  // ConnectionEnded. `page`: what IsUsagePage of the descriptors that came with the request.
  void Handle(const LocalPeer& peer, v1::LocalRequest request, LocalDone done,
              UniqueFd page = UniqueFd());

  // Closes what the connection had open and drops what it waits for.
  void ConnectionEnded(uint64_t connection);

  // Whether the peer may connect at all: PERMISSION_DENIED/USER_NOT_ALLOWED. Any thread.
  absl::Status CheckPeer(const LocalPeer& peer) const {
    return CheckUser(policy_, peer.uid, peer.gids);
  }
  bool IsPrivileged(const LocalPeer& peer) const {
    return cxlpool::agent::IsPrivileged(policy_, peer.uid);
  }

 private:
  // A request that is not answered yet.
  struct Pending {
    LocalPeer peer;
    uint64_t number = 0;  // Distinguishes requests of one connection.
    LocalDone done;
    // Waiting for ONLINE: what to open. Empty name: waiting for the manager.
    std::string name;
    std::string tag;  // Empty: the newest of that name.
    v1::Access access = v1::READ_WRITE;
    uint64_t at_most_bytes = 0;  // 0: all.
    bool as_file = false;
    absl::Duration deadline;
    bool allocated = false;  // Allocate: the Offer may be yet to come.
    bool seen = false;       // The Offer came.
  };

  absl::Status MayOpen(const LocalPeer& peer, const v1::Offer& offer) const;
  RegionRights RightsOf(const v1::Offer& offer) const;
  RegionRights RightsOf(const v1::Region& region) const;
  absl::Status Admit(const LocalPeer& peer, const v1::LocalAllocateRequest& request);

  uint64_t HeldBytes(const v1::LocalAllocateRequest& request) const;
  void Open(const v1::LocalOpenRequest& request, Pending pending);
  void Allocate(const v1::LocalAllocateRequest& request, Pending pending);  // _manager.cc
  void OnAllocated(uint64_t connection, uint64_t number,
                   absl::StatusOr<v1::AllocateRegionResponse> response);
  void Release(const v1::LocalReleaseRequest& request, Pending pending);
  void OnGot(uint64_t connection, uint64_t number, const std::string& request_id,
             const absl::StatusOr<v1::Region>& region);
  void ReleaseIfMay(const std::string& request_id, const std::string& tag,
                    const RegionRights& rights, Pending pending);
  std::optional<Pending> TakePending(uint64_t connection, uint64_t number);
  LocalReply List(const LocalPeer& peer) const;
  LocalReply Close(const LocalPeer& peer, const v1::LocalCloseRequest& request);
  LocalReply TakeUsage(const LocalPeer& peer, UniqueFd page);
  void Faults(const v1::LocalFaultsRequest& request, Pending pending);

  // Opens now, or says why not. UNAVAILABLE/NOT_ONLINE_YET: waiting may help.
  absl::StatusOr<LocalReply> OpenNow(const Pending& pending);
  // What of an Open as a file can be refused before anything is opened, or allocated.
  absl::Status CheckAsFile(const LocalPeer& peer, v1::AttachmentMode mode,
                           const std::string& name) const;
  // Shows the only device of what is about to be opened: that of `serial`, with the node `node`.
  absl::Status ShowPath(const Pending& pending, const v1::Offer& offer, uint64_t serial,
                        const std::string& node, v1::LocalOpenResponse& open);
  // Takes back the paths of devices that the host has no more.
  void DropPathsOfGone();
  // By tag, if one is given; else by name, or by the tag in its place.
  const std::pair<const AttachmentKey, Attachment>* Find(const std::string& name,
                                                         const std::string& tag) const;
  // True if answered.
  bool TryToFinish(Pending& pending);
  // Returns the earliest deadline of those that wait on.
  absl::Duration ServeWaiters();
  void WaitFor(Pending pending, absl::Duration wait);
  // Puts aside; the previous request of the connection must have been answered.
  void Keep(Pending pending);

  const LocalPolicy policy_;
  AgentCore* const core_;
  Clock* const clock_;
  HostMemory* const memory_;

  UserCalls calls_;
  FaultService faults_;
  PathTable paths_;
  HolderReports holders_;
  uint64_t last_number_ = 0;
  std::map<uint64_t, Pending> pending_;  // By connection.
  WaitTimer timer_;
  UserUsageTable usage_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_LOCAL_SERVICE_H_
