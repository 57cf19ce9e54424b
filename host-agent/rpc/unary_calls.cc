#include "host-agent/rpc/unary_calls.h"

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

absl::Status UnaryCalls::Enter(const std::shared_ptr<grpc::ClientContext>& context) {
  MutexLock lock(mutex_);
  if (stopped_) {
    return Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE",
                  "the host agent is stopping", "call again once it runs again");
  }
  if (under_way_.size() >= kMaxCalls) {
    return Refuse(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                  absl::StrCat(kMaxCalls, " calls to the fabric manager are under way"),
                  "call again later");
  }
  under_way_.insert(context);
  return absl::OkStatus();
}

void UnaryCalls::Leave(std::shared_ptr<grpc::ClientContext> context) {
  {
    MutexLock lock(mutex_);
    under_way_.erase(context);
    ++leaving_;
  }
  context.reset();
  MutexLock lock(mutex_);
  --leaving_;
  left_.notify_all();
}

void UnaryCalls::Stop() {
  std::set<std::shared_ptr<grpc::ClientContext>> to_cancel;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    to_cancel = under_way_;
  }
  // Without the lock: a completion may run inside TryCancel, and takes it.
  for (const auto& context : to_cancel) context->TryCancel();
  to_cancel.clear();
  MutexLock lock(mutex_);
  while (!under_way_.empty() || leaving_ > 0) left_.wait(lock.native());
}

}  // namespace cxlpool::agent
