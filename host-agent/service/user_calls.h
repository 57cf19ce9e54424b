// Calls to the manager for local users: how many are under way, of each user and in all.
//
// A call goes on when the connection that it was made for has ended, so the places of connections
// do not limit calls. The link takes kMaxManagerCalls, and what the agent itself calls is among
// these (owners.h): a user has kMaxOfUser at most, and all users together kMaxOfUsers. Root's and
// those of the agent's own user are not counted. One that does not fit is not made, and ends at
// once with RESOURCE_EXHAUSTED/QUEUE_FULL.
//
// On the core's thread only, as are completions; none comes after this is gone.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_USER_CALLS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_USER_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "host-agent/model/user_policy.h"
#include "host-agent/ports/manager_link.h"
#include "proto/support/executor.h"

namespace cxlpool::agent {

class UserCalls {
 public:
  static constexpr size_t kMaxOfUser = 64;  // As applications.max_connections_per_uid, by default.
  static constexpr size_t kMaxOfUsers = 192;
  static_assert(kMaxOfUsers + 32 <= kMaxManagerCalls, "the agent's own calls find no room");

  // All outlive this.
  UserCalls(const LocalPolicy* policy, ManagerLink* link, Executor* executor)
      : policy_(policy), link_(link), executor_(executor) {}

  // As ManagerLink's, for the user `uid`. `done` may be called before this returns.
  void Allocate(uint32_t uid, v1::AllocateRegionRequest request,
                DoneWith<v1::AllocateRegionResponse> done);
  void Release(uint32_t uid, v1::ReleaseRegionRequest request,
               DoneWith<v1::ReleaseRegionResponse> done);
  void Get(uint32_t uid, v1::GetRegionRequest request, DoneWith<v1::Region> done);

 private:
  template <typename Request, typename Response>
  void Call(uint32_t uid, void (ManagerLink::*method)(Request, DoneWith<Response>), Request request,
            DoneWith<Response> done);
  absl::Status Begin(uint32_t uid);
  void End(uint32_t uid);

  const LocalPolicy* const policy_;
  ManagerLink* const link_;
  Executor* const executor_;

  std::map<uint32_t, size_t> under_way_;  // By user: more than none.
  size_t of_all_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_USER_CALLS_H_
