#include "host-agent/service/user_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "host-agent/service/posted.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

absl::Status UserCalls::Begin(uint32_t uid) {
  if (IsPrivileged(*policy_, uid)) return absl::OkStatus();
  const auto it = under_way_.find(uid);
  const size_t of_user = it == under_way_.end() ? 0 : it->second;
  if ((of_user >= kMaxOfUser || of_all_ >= kMaxOfUsers) &&
      !CXLPOOL_MUTANT("calls-of-users-without-end")) {
    return Refuse(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                  absl::StrCat(of_user, " calls of user id ", uid, " and ", of_all_,
                               " of all users to the fabric manager are under way"),
                  "call again later");
  }
  ++under_way_[uid];
  ++of_all_;
  return absl::OkStatus();
}

void UserCalls::End(uint32_t uid) {
  const auto it = under_way_.find(uid);
  if (it == under_way_.end()) return;  // It was not counted.
  --of_all_;
  if (--it->second == 0) under_way_.erase(it);
}

// Makes the call if the user may have one more under way. It counts until the manager has answered,
// whoever waits for that, and counts no more when `done` is called: that may make the next one.
template <typename Request, typename Response>
void UserCalls::Call(uint32_t uid, void (ManagerLink::*method)(Request, DoneWith<Response>),
                     Request request, DoneWith<Response> done) {
  if (absl::Status full = Begin(uid); !full.ok()) return std::move(done)(std::move(full));
  auto answered = [this, uid, done = std::move(done)](absl::StatusOr<Response> response) mutable {
    End(uid);
    std::move(done)(std::move(response));
  };
  (link_->*method)(std::move(request), Posted(executor_, alive_, std::move(answered)));
}

void UserCalls::Allocate(uint32_t uid, v1::AllocateRegionRequest request,
                         DoneWith<v1::AllocateRegionResponse> done) {
  Call(uid, &ManagerLink::Allocate, std::move(request), std::move(done));
}

void UserCalls::Release(uint32_t uid, v1::ReleaseRegionRequest request,
                        DoneWith<v1::ReleaseRegionResponse> done) {
  Call(uid, &ManagerLink::Release, std::move(request), std::move(done));
}

void UserCalls::Get(uint32_t uid, v1::GetRegionRequest request, DoneWith<v1::Region> done) {
  Call(uid, &ManagerLink::Get, std::move(request), std::move(done));
}

}  // namespace cxlpool::agent
