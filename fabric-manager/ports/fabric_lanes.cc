#include "fabric-manager/ports/fabric_lanes.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/check.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {
namespace {

// A lane with much to do still listens to its fabric this often.
constexpr absl::Duration kListenEvery = absl::Milliseconds(50);

absl::Status Stopping() { return absl::CancelledError("the fabric driver is stopping"); }

absl::Status NotOpen(const std::string& lane) {
  return absl::UnavailableError(
      absl::StrCat("the fabric's side of ", lane, " is just being set up or taken away"));
}

void Signal(const UniqueFd& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event.get(), &one, sizeof(one));
}

void Clear(const UniqueFd& event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(event.get(), &count, sizeof(count));
}

}  // namespace

bool FabricBackend::Idle(const std::string&, int wake_fd, absl::Duration at_most) {
  pollfd wake = {wake_fd, POLLIN, 0};
  // Rounded up, or the last millisecond would be spent spinning.
  ::poll(&wake, 1,
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(at_most, absl::Milliseconds(1)))));
  return false;
}

// Guarded by the mutex of FabricLanes, except for what only its thread uses.
struct FabricLanes::Lane {
  explicit Lane(std::string lane_name)
      : name(std::move(lane_name)), wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  const std::string name;
  const UniqueFd wake;
  std::deque<FabricCallPtr> ready;
  std::multimap<absl::Duration, FabricCallPtr> later;  // By when they run again.
  FabricCallPtr running;
  std::thread thread;
  bool closed = false;                             // Close waits for the thread.
  absl::Duration listened = absl::ZeroDuration();  // When Idle last ran; of the thread.

  void TakeWaiting(std::vector<FabricCallPtr>& waiting) {
    for (FabricCallPtr& call : ready) waiting.push_back(std::move(call));
    for (auto& [when, call] : later) waiting.push_back(std::move(call));
    ready.clear();
    later.clear();
  }

  size_t waiting() const { return ready.size() + later.size() + (running != nullptr ? 1 : 0); }
};

FabricLanes::FabricLanes(FabricBackend* backend, std::string fabric, size_t max_waiting,
                         absl::Duration idle)
    : backend_(backend),
      fabric_(std::move(fabric)),
      max_waiting_(max_waiting),
      idle_(idle),
      keeper_([this] { KeepTime(); }) {
  pthread_setname_np(keeper_.native_handle(), "fab-time");
}

// What waits is answered before the threads are waited for: a backend may take until its deadline.
FabricLanes::~FabricLanes() {
  std::vector<FabricCallPtr> waiting;
  std::vector<LanePtr> lanes;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    keeper_wake_.notify_all();
    for (auto& [name, lane] : lanes_) {
      lanes.push_back(lane);
      lane->TakeWaiting(waiting);
    }
  }
  for (const LanePtr& lane : lanes) {
    backend_->Interrupt(lane->name);
    Signal(lane->wake);
  }
  for (const FabricCallPtr& call : waiting) call->refuse(Stopping());
  // A lane that is closed is waited for by a thread of these.
  for (const LanePtr& lane : lanes) {
    if (!lane->closed) lane->thread.join();
  }
  keeper_.join();
}

void FabricLanes::Open(const std::string& name) {
  MutexLock lock(mutex_);
  LanePtr& lane = lanes_[name];
  if (lane != nullptr) return;
  lane = std::make_shared<Lane>(name);
  lane->listened = clock_.Elapsed();
  lane->thread = std::thread([this, lane = lane] { Run(*lane); });
  pthread_setname_np(lane->thread.native_handle(),
                     absl::StrCat("fab-", name).substr(0, 15).c_str());
}

// The lane stays listed until its thread has ended, so that the one that keeps time goes on to
// answer for what is under way there.
bool FabricLanes::Close(const std::string& name, bool only_idle) {
  LanePtr lane;
  std::vector<FabricCallPtr> waiting;
  {
    MutexLock lock(mutex_);
    const auto found = lanes_.find(name);
    if (stopping_ || found == lanes_.end() || found->second->closed) return true;
    if (only_idle && found->second->waiting() > 0) return false;
    lane = found->second;
    lane->closed = true;
    lane->TakeWaiting(waiting);
  }
  CXLPOOL_CHECK(lane->thread.get_id() != std::this_thread::get_id(), "the lane of ", name,
                " would wait for its own thread");
  backend_->Interrupt(name);
  Signal(lane->wake);
  for (const FabricCallPtr& call : waiting) call->refuse(NotOpen(name));
  lane->thread.join();
  MutexLock lock(mutex_);
  lanes_.erase(name);
  return true;
}

void FabricLanes::Watch(absl::Duration deadline) {
  if (deadline >= next_deadline_) return;
  next_deadline_ = deadline;
  keeper_wake_.notify_all();
}

// `first`: ahead of all others, and what runs is interrupted; there is no limit for such calls.
void FabricLanes::Submit(const std::string& name, FabricCallPtr call, bool first) {
  const bool may_be_late =
      call->deadline != absl::InfiniteDuration() || call->limit > absl::ZeroDuration();
  CXLPOOL_CHECK(call->attempt && call->refuse && call->answered && (call->late || !may_be_late),
                "a call on the lane of ", name, " could end without an answer");
  if (first) backend_->Interrupt(name);
  absl::Status refused;
  {
    MutexLock lock(mutex_);
    const auto found = lanes_.find(name);
    if (stopping_) {
      refused = Stopping();
    } else if (found == lanes_.end() || found->second->closed) {
      refused = NotOpen(name);
    } else if (!first && found->second->waiting() >= max_waiting_) {
      refused = Refuse(
          absl::StatusCode::kResourceExhausted, "FABRIC_OVERLOADED",
          absl::StrCat("the ", fabric_, " fabric has ", max_waiting_, " calls waiting on ", name),
          "try again later");
    } else {
      Lane& lane = *found->second;
      Watch(call->deadline);
      if (first) {
        lane.ready.push_front(call);
      } else {
        lane.ready.push_back(call);
      }
      Signal(lane.wake);
    }
  }
  if (!refused.ok()) call->refuse(std::move(refused));
}

// The thread of a lane: runs what is due, one call after the other, and listens to the fabric in
// between.
void FabricLanes::Run(Lane& lane) {
  while (true) {
    FabricCallPtr call;
    absl::Duration wait = idle_;
    const absl::Duration now = clock_.Elapsed();
    {
      MutexLock lock(mutex_);
      if (stopping_ || lane.closed) return;
      while (!lane.later.empty() && lane.later.begin()->first <= now) {
        lane.ready.push_back(std::move(lane.later.begin()->second));
        lane.later.erase(lane.later.begin());
      }
      if (!lane.later.empty()) wait = std::min(wait, lane.later.begin()->first - now);
      const bool listen = now - lane.listened >= kListenEvery;
      if (!lane.ready.empty()) wait = absl::ZeroDuration();
      if (!lane.ready.empty() && !listen) {
        CXLPOOL_CHECK(lane.running == nullptr, "two calls run on the lane of ", lane.name);
        call = std::move(lane.ready.front());
        lane.ready.pop_front();
        lane.running = call;
      }
    }
    if (call == nullptr) {
      const bool look = backend_->Idle(lane.name, lane.wake.get(), wait);
      Clear(lane.wake);
      lane.listened = clock_.Elapsed();
      if (!look) continue;
      MutexLock lock(mutex_);
      for (auto& [when, later] : lane.later) lane.ready.push_back(std::move(later));
      lane.later.clear();
      continue;
    }
    const bool over = RunCall(*call);
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      lane.running = nullptr;
      stopping = stopping_ || lane.closed;
      if (!over && !stopping) {
        if (call->in_turns) call->deadline = absl::InfiniteDuration();
        if (call->retry == absl::ZeroDuration()) {
          lane.ready.push_back(call);
        } else {
          lane.later.emplace(clock_.Elapsed() + call->retry, call);
        }
      }
      // The lane does not hang, and all that wait for their first turn have come nearer to it.
      const absl::Duration ended = clock_.Elapsed();
      for (const FabricCallPtr& waits : lane.ready) {
        if (!waits->in_turns || waits->begun_) continue;
        waits->deadline = std::max(waits->deadline, ended + waits->patience);
      }
    }
    if (!over && stopping) call->refuse(lane.closed ? NotOpen(lane.name) : Stopping());
  }
}

// True: the call needs to run no more.
bool FabricLanes::RunCall(FabricCall& call) {
  if (call.answered() && !call.always) return true;
  const absl::Duration start = clock_.Elapsed();
  {
    MutexLock lock(mutex_);
    if (call.limit > absl::ZeroDuration() && (!call.begun_ || call.in_turns)) {
      call.end = start + call.limit - call.used_;
      call.deadline = call.end + kGrace;
      Watch(call.deadline);
    }
    call.begun_ = true;
  }
  const bool over = call.attempt(call);
  call.used_ += clock_.Elapsed() - start;
  return over;
}

// The clock's thread: answers calls whose deadline has passed. One that has begun stays on its lane
// until the backend returns; one that has not is dropped, unless it must run in any case
// (`always`).
void FabricLanes::KeepTime() {
  while (true) {
    std::vector<std::pair<FabricCallPtr, bool>> late;  // With whether it has begun.
    {
      MutexLock lock(mutex_);
      while (!stopping_ && next_deadline_ > clock_.Elapsed()) {
        if (next_deadline_ == absl::InfiniteDuration()) {
          keeper_wake_.wait(lock.native());
        } else {
          keeper_wake_.wait_for(lock.native(),
                                absl::ToChronoNanoseconds(next_deadline_ - clock_.Elapsed()));
        }
      }
      if (stopping_) return;
      const absl::Duration now = clock_.Elapsed();
      next_deadline_ = absl::InfiniteDuration();
      // True: it is off the lane.
      const auto is_late = [&](const FabricCallPtr& call) {
        if (call->deadline <= now) {
          late.emplace_back(call, call->begun_);
          call->deadline = absl::InfiniteDuration();
          return !call->always;
        }
        next_deadline_ = std::min(next_deadline_, call->deadline);
        return false;
      };
      for (auto& [name, lane] : lanes_) {
        if (lane->running != nullptr) is_late(lane->running);
        std::erase_if(lane->ready, is_late);
        std::erase_if(lane->later, [&](const auto& entry) { return is_late(entry.second); });
      }
    }
    for (auto& [call, begun] : late) call->refuse(call->late(begun));
  }
}

}  // namespace cxlpool::fm
