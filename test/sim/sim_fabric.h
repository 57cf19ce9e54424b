// The FabricDriver of one life of the manager, on the simulated rack.
//
// Each call takes effect on the rack after one seeded delay and answers after another. What a
// manager has in its hand or on its way to a host comes there even if another manager has begun
// meanwhile, or it stands still itself; the answer does not come. A look claims the hosts and
// devices that it sees, under the epoch of Start: what comes later under a lower one has no effect.
// Where the next manager has not claimed the host, it still takes effect. But whoever looks last
// has the host, as with a socket of QEMU's: the one before cannot bind until it has looked again,
// and one that was deposed may bind, if it believes what it saw. A scrub the manager does itself, a
// piece at a time: it stops and ends with it.
//
// Shared: what comes to a host that stands still, and whose session is not over yet, is done when
// the host goes on. The manager hears of it then, or that nobody knows once its patience is over.
// A scrub is such a task for one of the hosts: who was asked is written down (Rack::clearings).
//
// Faults that wait in FabricFaults are used up by the next calls of their kind; which are legal:
// rack.h. Every call answers within kDeadlineUs; AwaitUnbound when its own time-out is over.
#ifndef CXLPOOL_TEST_SIM_SIM_FABRIC_H_
#define CXLPOOL_TEST_SIM_SIM_FABRIC_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabric-manager/ports/fabric_driver.h"
#include "test/sim/rack.h"
#include "test/sim/scheduler.h"

namespace cxlpool::sim {

inline constexpr int64_t kDeadlineUs = 3'000'000;
inline constexpr uint64_t kAnyClaim = UINT64_MAX;

enum class FabricCall { kDiscover, kBind, kBeginUnbind, kAwaitUnbound, kFence, kScrub };
inline constexpr int kFabricCalls = 6;

// How the next call of a kind goes wrong.
struct FabricFault {
  enum class Kind {
    kFails,        // UNAVAILABLE; nothing was done (a scrub: a part was).
    kUnknownDone,  // Done; answers UNKNOWN. Never of AwaitUnbound and Fence.
    kUnknownNot,   // Not done; answers DEADLINE_EXCEEDED.
    kSlow,         // Takes ten times as long, up to the driver's deadline.
    kLies,         // Bind alone: done, and answers UNAVAILABLE as if it were not.
  };
  static constexpr int kKinds = 5;
  FabricCall call;
  Kind kind;
};

// A kind that is not of the call is kFails.
bool Legal(FabricCall call, FabricFault::Kind kind);
// "bind-unknown-done": what on_fault is called with.
const char* NameOf(FabricCall call, FabricFault::Kind kind);

// Outlives the managers: what is about to go wrong, and what did.
struct FabricFaults {
  std::deque<FabricFault> next;
  bool can_fence = true;  // False: Fence answers FENCE_FAILED.
  std::function<void(const char* kind)> on_fault = [](const char*) {};  // For coverage.
};

class SimFabric : public fm::FabricDriver {
 public:
  // All outlive this. `life`: of the manager. Delays: a few hundred microseconds to some
  // milliseconds; `random` is this driver's own.
  SimFabric(Scheduler* scheduler, LifeId life, Rack* rack, FabricFaults* faults, Random random);
  ~SimFabric() override;

  fm::FabricCapabilities capabilities() const override;
  void Start(fm::KnownFabric known, absl::AnyInvocable<void(fm::FabricEvent)> sink) override;
  // The simulated rack is what it is.
  void Configure(fm::FabricParts, Done done) override { std::move(done)(absl::OkStatus()); }
  void Discover(DoneWith<fm::FabricView> done) override;
  void DiscoverHost(std::string host, DoneWith<fm::FabricView> done) override;
  void Bind(fm::BindRequest request, DoneWith<fm::BoundLd> done) override;
  void BeginUnbind(fm::Binding binding, Done done) override;
  void AwaitUnbound(fm::Binding binding, absl::Duration timeout, Done done) override;
  void Fence(std::string host, Done done) override;
  void Scrub(fm::Slice slice, fm::ScrubProgress progress, DoneWith<fm::ScrubResult> done) override;

  // Shared: an agent's session with this manager began or ended.
  void OnSession(const std::string& host, bool online);

  // Tells the manager, as an event of its life, after a delay.
  void Emit(fm::FabricEvent event);

 private:
  // How one call goes.
  struct Course {
    int64_t queue_us = 0;   // In the driver.
    int64_t effect_us = 0;  // On its way, after that.
    int64_t answer_us = 0;  // On its way back, after that.
    int64_t late_us = 0;    // More on its way, if the manager ends meanwhile.
    bool acts = true;
    absl::Status instead;  // The answer where it is not OK; else what came of it.
    std::optional<FabricFault::Kind> fault;
  };
  struct Waiter {
    uint64_t id = 0;
    fm::LdKey key;
    int64_t answer_us = 0;
    Done done;
  };

  Course Plan(FabricCall call);
  // Takes `effect` to the host and its answer back. It has none under another claim than `claim`;
  // kAnyClaim: none under one of a higher epoch.
  template <typename Answer, typename Effect>
  void Send(const std::string& host, Course course, bool in_turn, Effect effect,
            absl::AnyInvocable<void(Answer) &&> done, uint64_t claim = kAnyClaim);
  bool Clear(const fm::Slice& slice, uint64_t first, uint64_t count);
  // Shared: clears that slice's first `granules`; a host that stands still does it later.
  void ScrubByHost(fm::Slice slice, uint64_t granules, Course course,
                   DoneWith<fm::ScrubResult> done);
  void SendPiece(Rack::Clearing clearing, uint64_t first, uint64_t granules, Course course,
                 DoneWith<fm::ScrubResult> done);
  // Whether nobody may still clear some of the slice's bytes. Takes out what is over.
  bool Settle(const fm::Slice& slice);
  // Whether something of a manager before this one is on its way there.
  bool IsBusy(const RackHost& host) const;
  void ClaimAll();
  void LookAround(Course course, DoneWith<fm::FabricView> done);
  void LookForProof(fm::LdKey key, int64_t deadline_us, Course course, Done done);
  void OnGone(const fm::BoundLd& ld, Rack::Gone gone);
  void Proven(size_t waiter);
  void Expire(uint64_t waiter);
  void PollUnreachable();
  template <typename Answer>
  void AnswerLater(int64_t delay_us, Answer answer, absl::AnyInvocable<void(Answer) &&> done);

  Scheduler* const scheduler_;
  const LifeId life_;
  Rack* const rack_;
  FabricFaults* const faults_;
  const uint32_t subscription_;
  uint64_t epoch_ = 0;
  Random random_;
  absl::AnyInvocable<void(fm::FabricEvent)> sink_;
  std::vector<Waiter> waiters_;
  struct Claim {
    uint64_t number = 0;  // In this life.
    uint64_t of_host = 0;
  };
  std::map<std::string, Claim> claims_;       // Of hosts, that it has, or had last.
  std::map<std::string, std::string> lives_;  // Shared: of the hosts, as last known.
  uint64_t last_waiter_ = 0;
  bool polling_ = false;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SIM_FABRIC_H_
