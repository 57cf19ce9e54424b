#include "tools/benches/agent_link.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cxlpool::bench {
namespace {

absl::Status NotAsked() { return absl::UnimplementedError("the bench has no manager to ask"); }

absl::Status TooLate(absl::string_view what, absl::Duration limit) {
  return absl::DeadlineExceededError(
      absl::StrCat(what, " within ", absl::FormatDuration(limit), "; see the agent's log"));
}

}  // namespace

void AgentLink::Start(Handlers handlers) {
  MutexLock lock(mutex_);
  handlers_ = std::move(handlers);
  started_ = true;
  news_.notify_all();
}

bool AgentLink::Wait(MutexLock& lock, absl::Duration limit, const bool& done) {
  return news_.wait_for(lock.native(), absl::ToChronoNanoseconds(limit), [&done] { return done; });
}

absl::Status AgentLink::Connect(absl::Duration limit) {
  {
    MutexLock lock(mutex_);
    if (!Wait(lock, limit, started_)) return TooLate("the core has not prepared the host", limit);
  }
  struct Answer {
    bool there = false;
    absl::Status status;
  };
  const auto answer = std::make_shared<Answer>();  // The core may answer after we gave up.
  handlers_.make_hello([this, answer](absl::StatusOr<v1::Hello> hello) {
    MutexLock lock(mutex_);
    answer->status = hello.status();
    answer->there = true;
    news_.notify_all();
  });
  {
    MutexLock lock(mutex_);
    if (!Wait(lock, limit, answer->there)) return TooLate("the core has not looked", limit);
    if (!answer->status.ok()) return answer->status;
  }
  v1::Welcome welcome;
  welcome.set_manager_version("bench");
  handlers_.on_welcome(std::move(welcome));
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> AgentLink::Offer(v1::Offer offer, v1::SegmentState state,
                                                absl::Duration limit) {
  {
    MutexLock lock(mutex_);
    generation_ = offer.attachment_generation();
    wanted_ = state;
    answered_ = false;
    offered_ = clock_.Elapsed();
  }
  handlers_.on_offer(std::move(offer));
  MutexLock lock(mutex_);
  const bool in_time = Wait(lock, limit, answered_);
  generation_ = 0;
  if (!in_time) return TooLate(absl::StrCat("no report of ", v1::SegmentState_Name(state)), limit);
  return took_;
}

void AgentLink::Withdraw(v1::Withdraw withdraw) { handlers_.on_withdraw(std::move(withdraw)); }

void AgentLink::Send(v1::Report report) {
  MutexLock lock(mutex_);
  for (const v1::SegmentReport& segment : report.segments()) {
    if (generation_ == 0 || segment.attachment_generation() != generation_ || answered_) continue;
    if (segment.has_error()) {
      took_ = absl::InternalError(
          absl::StrCat(segment.error().reason(), ": ", segment.error().message()));
    } else if (segment.state() == wanted_) {
      took_ = clock_.Elapsed() - offered_;
    } else {
      continue;
    }
    answered_ = true;
    news_.notify_all();
  }
}

void AgentLink::Allocate(v1::AllocateRegionRequest /*request*/,
                         DoneWith<v1::AllocateRegionResponse> done) {
  std::move(done)(NotAsked());
}

void AgentLink::Release(v1::ReleaseRegionRequest /*request*/,
                        DoneWith<v1::ReleaseRegionResponse> done) {
  std::move(done)(NotAsked());
}

void AgentLink::Get(v1::GetRegionRequest /*request*/, DoneWith<v1::Region> done) {
  std::move(done)(NotAsked());
}

}  // namespace cxlpool::bench
