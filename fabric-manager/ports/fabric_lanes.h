// The threads of a FabricShell: a lane for each host, one for scrubs, one for looks at the devices,
// one for each host that a program fenced (`<fence> HOST`; it stays open and idle afterwards, until
// the host is forgotten), and one that keeps time.
//
// A lane runs its calls one after the other. A call that has to wait (for a proof, for a host that
// is busy) is run again after a while, and keeps no other waiting meanwhile. Where a call's
// deadline has passed, the one that keeps time answers for it, whatever the lane is doing. When
// there is nothing to run the lane listens to its fabric (FabricBackend::Idle).
//
// Any thread may call; nothing blocks but Close and the destructor.
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_LANES_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_LANES_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fabric-manager/ports/fabric_backend.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// Beyond a call's own deadline, which its lane or backend keeps unless it hangs: then it is
// answered for.
inline constexpr absl::Duration kGrace = absl::Milliseconds(500);

// How a call is answered: once, by the first that has an answer. Any thread.
template <typename T>
class Answer {
 public:
  explicit Answer(absl::AnyInvocable<void(T) &&> done) : done_(std::move(done)) {}
  // False: it has been answered already, and `value` is dropped.
  bool Give(T value) {
    if (given_.exchange(true)) return false;
    std::move(done_)(std::move(value));
    return true;
  }
  bool given() const { return given_; }

 private:
  std::atomic<bool> given_ = false;
  absl::AnyInvocable<void(T) &&> done_;
};

// One call on its way over a lane. Filled in by who makes it, before Submit.
struct FabricCall {
  // Runs on the lane. True: it has answered; false: run it again after `retry`.
  absl::AnyInvocable<bool(FabricCall&)> attempt;
  absl::AnyInvocable<void(absl::Status)> refuse;  // Answers in its place; any thread.
  std::function<bool()> answered;                 // One that has been answered does not run,
  bool always = false;                            // but with this.
  std::function<absl::Status(bool begun)> late;   // The answer when the deadline has passed.
  absl::Duration retry = absl::ZeroDuration();
  absl::Duration deadline = absl::InfiniteDuration();  // To begin; without a limit, to end.
  // How long it may take once it has begun. With `in_turns` only the time counts that it spends on
  // the lane.
  absl::Duration limit = absl::ZeroDuration();
  bool in_turns = false;
  // With `in_turns`: how long it waits to begin while nothing before it goes on. Each call that
  // comes back from the backend moves its `deadline`, so that however many are before it, it keeps
  // its place.
  absl::Duration patience = absl::ZeroDuration();

  // Used by the lane's thread: by when the backend has to return.
  absl::Duration end = absl::InfiniteDuration();

 private:
  friend class FabricLanes;
  bool begun_ = false;
  absl::Duration used_ = absl::ZeroDuration();
};
using FabricCallPtr = std::shared_ptr<FabricCall>;

// For those whose answer is not a plain status.
template <typename T>
FabricCallPtr MakeFabricCall(const std::shared_ptr<Answer<T>>& answer) {
  auto call = std::make_shared<FabricCall>();
  call->refuse = [answer](absl::Status why) { answer->Give(std::move(why)); };
  call->answered = [answer] { return answer->given(); };
  return call;
}

class FabricLanes {
 public:
  // A lane takes `max_waiting` calls; it listens for `idle` at a time.
  FabricLanes(FabricBackend* backend, std::string fabric, size_t max_waiting, absl::Duration idle);

  // Interrupts the backend, waits for the threads, and answers all that waits with CANCELLED.
  ~FabricLanes();

  // Makes the lane where it is missing.
  void Open(const std::string& name);

  // Ends the lane: interrupts what is under way there, answers what waits with UNAVAILABLE, and
  // waits for its thread. Not from that thread. There is none of this name: nothing is done.
  // With `only_idle`, a lane that has a call waiting or running stays open. Returns false only
  // then.
  bool Close(const std::string& name, bool only_idle = false);

  // Puts the call on its lane. RESOURCE_EXHAUSTED/FABRIC_OVERLOADED, UNAVAILABLE (the lane is not
  // open) and CANCELLED go to its `refuse`. `first`: before all others, and what is under way is
  // left off.
  void Submit(const std::string& lane, FabricCallPtr call, bool first = false);

 private:
  struct Lane;
  using LanePtr = std::shared_ptr<Lane>;

  void Run(Lane& lane);
  bool RunCall(FabricCall& call);
  void KeepTime();
  // Wakes the one that keeps time if this deadline is the next one.
  void Watch(absl::Duration deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FabricBackend* const backend_;
  const std::string fabric_;
  const size_t max_waiting_;
  const absl::Duration idle_;
  const SystemClock clock_;

  Mutex mutex_;
  std::condition_variable keeper_wake_;
  std::map<std::string, LanePtr> lanes_ ABSL_GUARDED_BY(mutex_);
  absl::Duration next_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread keeper_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_LANES_H_
