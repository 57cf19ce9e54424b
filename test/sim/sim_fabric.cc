#include "test/sim/sim_fabric.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

using Kind = FabricFault::Kind;

constexpr int64_t kTurnUs = 100;         // Until a call that found the host busy tries again.
constexpr int64_t kPollUs = 20'000;      // Of a host that cannot be asked.
constexpr int64_t kLateUs = 300'000;     // Of a command of a manager that is not there any more.
constexpr int64_t kMargin = 200'000;     // Below the deadline, for the longest way there and back.
constexpr int64_t kPatienceUs = 20'000;  // With a task of an agent that does not answer.

absl::Status UnknownHost(const std::string& host) {
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                absl::StrCat("the rack has no host ", host), "use one that it has");
}

absl::Status NotProven(const fm::LdKey& key) {
  return Refuse(absl::StatusCode::kDeadlineExceeded, "UNBIND_NOT_PROVEN",
                absl::StrCat("host ", key.host, " has not let go of tag ", key.tag),
                "wait for its agent, or fence the host");
}

// What a fault makes of the answer; OK for those that leave it.
absl::Status AnswerOf(FabricCall call, Kind kind) {
  switch (kind) {
    case Kind::kFails:
    case Kind::kLies:
      return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                    "the fabric does not do it now", "try again later");
    case Kind::kUnknownDone:
      return absl::UnknownError("the fabric's answer was lost");
    case Kind::kUnknownNot:
      if (call == FabricCall::kAwaitUnbound) return NotProven({});
      return absl::DeadlineExceededError("the fabric did not answer in time");
    case Kind::kSlow:
      break;
  }
  return absl::OkStatus();
}

constexpr const char* kNames[kFabricCalls][FabricFault::kKinds] = {
    {"discover-fails", "discover-unknown-done", "discover-unknown-not", "discover-slow", ""},
    {"bind-fails", "bind-unknown-done", "bind-unknown-not", "bind-slow", "bind-lies"},
    {"unbind-fails", "unbind-unknown-done", "unbind-unknown-not", "unbind-slow", ""},
    {"await-fails", "", "await-unknown-not", "await-slow", ""},
    {"fence-fails", "", "fence-unknown-not", "fence-slow", ""},
    {"scrub-fails", "scrub-unknown-done", "scrub-unknown-not", "scrub-slow", ""},
};

}  // namespace

const char* NameOf(FabricCall call, FabricFault::Kind kind) {
  return kNames[static_cast<int>(call)][static_cast<int>(kind)];
}

bool Legal(FabricCall call, FabricFault::Kind kind) { return *NameOf(call, kind) != '\0'; }

SimFabric::SimFabric(Scheduler* scheduler, LifeId life, Rack* rack, FabricFaults* faults,
                     Random random)
    : scheduler_(scheduler),
      life_(life),
      rack_(rack),
      faults_(faults),
      subscription_(
          rack->Subscribe([this](const fm::BoundLd& ld, Rack::Gone gone) { OnGone(ld, gone); })),
      random_(random) {
  rack_->on_evicted[life_] = [this](const std::string& host) {
    Emit({.kind = fm::FabricEvent::Kind::kHostReachable, .host = host});
  };
}

SimFabric::~SimFabric() {
  rack_->Unsubscribe(subscription_);
  rack_->on_evicted.erase(life_);
}

fm::FabricCapabilities SimFabric::capabilities() const {
  return {.driver = "simulated",
          .extent_granule_bytes = kGranule,
          .max_lds_per_device = rack_->max_lds_per_device,
          .chooses_serial = true,
          .keeps_keys = true,
          .isolates = !rack_->shared,
          .enforces_read_only = !rack_->shared,
          .shares_slices = true,
          .hardware_coherent = true,
          .fence = fm::FenceScope::kHost,
          .claims_hosts = true};
}

void SimFabric::Start(fm::KnownFabric known, absl::AnyInvocable<void(fm::FabricEvent)> sink) {
  sink_ = std::move(sink);
  epoch_ = known.epoch;
  if (rack_->shared) {
    lives_ = known.hosts;  // Whether they have ended a session will say.
    return;
  }
  for (const auto& [id, life] : known.hosts) {
    const RackHost* host = rack_->FindHost(id);
    if (host == nullptr || life.empty() || life == host->life()) continue;
    Emit({.kind = fm::FabricEvent::Kind::kHostGone, .host = id, .incarnation = life});
  }
}

// Only a session under another boot id proves that the former life has ended.
void SimFabric::OnSession(const std::string& id, bool online) {
  const RackHost* host = rack_->FindHost(id);
  if (!rack_->shared || host == nullptr) return;
  using EventKind = fm::FabricEvent::Kind;
  if (!online) return Emit({.kind = EventKind::kHostUnreachable, .host = id});
  std::string& life = lives_[id];
  if (!life.empty() && life != host->life()) {
    Emit({.kind = EventKind::kHostGone, .host = id, .incarnation = life});
  }
  life = host->life();
  Emit({.kind = EventKind::kHostReachable, .host = id});
}

void SimFabric::Emit(fm::FabricEvent event) {
  scheduler_->At(life_, random_.Between(20, 400), [this, event = std::move(event)]() mutable {
    if (sink_) sink_(std::move(event));
  });
}

// How the call goes: when it takes effect and is answered, and the first fault that waits for a
// call of its kind. A fault that this call cannot have is an ordinary failure.
SimFabric::Course SimFabric::Plan(FabricCall call) {
  Course course;
  const bool scrub = call == FabricCall::kScrub;
  course.effect_us = scrub ? random_.Between(1000, 5000) : random_.Between(50, 800);
  course.answer_us = random_.Between(20, 400);
  course.late_us = random_.Between(0, kLateUs);
  const auto fault = std::find_if(faults_->next.begin(), faults_->next.end(),
                                  [=](const FabricFault& f) { return f.call == call; });
  if (fault == faults_->next.end()) return course;
  const Kind kind = Legal(call, fault->kind) ? fault->kind : Kind::kFails;
  faults_->next.erase(fault);
  course.fault = kind;
  course.acts = kind != Kind::kFails && kind != Kind::kUnknownNot;
  course.instead = AnswerOf(call, kind);
  if (kind == Kind::kUnknownNot) course.answer_us += random_.Between(1000, kDeadlineUs / 2);
  if (kind == Kind::kSlow) {
    course.effect_us *= 10;
    course.answer_us *= 10;
    if (random_.Percent(30)) course.queue_us = random_.Between(10'000, kDeadlineUs - kMargin);
  }
  faults_->on_fault(NameOf(call, kind));
  return course;
}

template <typename Answer>
void SimFabric::AnswerLater(int64_t delay_us, Answer answer,
                            absl::AnyInvocable<void(Answer) &&> done) {
  scheduler_->At(life_, delay_us, [answer = std::move(answer), done = std::move(done)]() mutable {
    std::move(done)(std::move(answer));
  });
}

bool SimFabric::IsBusy(const RackHost& host) const {
  return std::any_of(host.fabric_calls.begin(), host.fabric_calls.end(),
                     [this](LifeId life) { return life != life_; });
}

// What comes to a host that stands still: it does it in its turn, if its agent lives to do it. For
// whoever asked nobody knows whether, once kPatienceUs are over.
template <typename Answer, typename Effect>
void DoLate(Scheduler* scheduler, Rack* rack, RackHost* host, LifeId agent, LifeId manager,
            int64_t answer_us, Effect effect, absl::AnyInvocable<void(Answer) &&> done) {
  using Waiting = std::optional<absl::AnyInvocable<void(Answer) &&>>;
  const auto waiting = std::make_shared<Waiting>(std::move(done));
  const auto answer = [waiting](Answer what) {
    if (auto own = std::exchange(*waiting, std::nullopt)) std::move (*own)(std::move(what));
  };
  host->late_tasks.push_back(agent);
  if (rack->trace) rack->trace(absl::StrCat("rack: ", host->id, " stands still; a task waits"));
  scheduler->At(agent, 0, [=, effect = std::move(effect), life = host->life()]() mutable {
    if (rack->trace) rack->trace(absl::StrCat("rack: ", host->id, " does what waited"));
    host->late_tasks.erase(std::find(host->late_tasks.begin(), host->late_tasks.end(), agent));
    Answer done_now = absl::UnavailableError("another life");
    host->does_late_task = true;
    if (host->life() == life) done_now = effect(*rack);
    host->does_late_task = false;
    scheduler->At(manager, answer_us, [answer, done_now = std::move(done_now)]() mutable {
      answer(std::move(done_now));
    });
  });
  scheduler->At(manager, kPatienceUs,
                [answer] { answer(absl::UnknownError("the host's agent has not answered")); });
}

// A command that has come to the host. What happens in the world knows nothing of the driver that
// gave it, which may be gone by then. A manager that is not there any more was stopped with it in
// its hand, as long as that: it comes `late_us` later. So was one of two that stands still.
template <typename Answer, typename Effect>
void Land(Scheduler* scheduler, LifeId life, uint64_t epoch, uint64_t claim, Rack* rack,
          RackHost* host, const std::string& fabric_life, bool in_turn, int64_t late_us,
          const absl::Status& instead, bool acts, int64_t answer_us, Effect effect,
          absl::AnyInvocable<void(Answer) &&> done) {
  const bool in_hand = scheduler->IsPaused(life) && late_us % 2 == 0;
  if (late_us > 0 && !rack->shared && (!scheduler->Alive(life) || in_hand)) {
    const int64_t goes_on_us = in_hand ? scheduler->PausedUntil(life) - scheduler->now_us() : 0;
    scheduler->At(kWorld, in_hand ? goes_on_us + late_us / 100 : late_us,
                  [=, effect = std::move(effect), done = std::move(done)]() mutable {
                    Land<Answer>(scheduler, life, epoch, claim, rack, host, fabric_life, in_turn, 0,
                                 instead, acts, answer_us, std::move(effect), std::move(done));
                  });
    return;
  }
  const Rack::AgentSession session = rack->SessionOf(*host);
  if (rack->shared && in_turn && acts && instead.ok() && session.stands && host->reachable &&
      host->life() == fabric_life) {
    return DoLate<Answer>(scheduler, rack, host, session.agent, life, answer_us, std::move(effect),
                          std::move(done));
  }
  Answer answer = absl::UnavailableError("");
  bool dropped = claim == kAnyClaim ? epoch < host->epoch : claim != host->claims;
  if (host->claimed_by == life && CXLPOOL_MUTANT("bind-under-any-claim")) dropped = false;
  if (dropped && !rack->shared) {
    const bool deposed = scheduler->PausedFor(life) > 0 && epoch < host->epoch;
    if (claim != kAnyClaim && deposed) ++rack->dropped_binds;
    if (rack->trace) rack->trace(absl::StrCat("rack: ", host->id, " drops a former command"));
  } else if (in_turn && host->life() != fabric_life) {
    answer = Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                    absl::StrCat("host ", host->id, " went dark meanwhile"), "try again later");
  } else if (acts) {
    answer = effect(*rack);
  }
  if (!instead.ok()) answer = instead;
  scheduler->At(life, answer_us, [answer = std::move(answer), done = std::move(done)]() mutable {
    std::move(done)(std::move(answer));
  });
}

// What waits in the driver is in the manager's hand: it may be stopped with it, and go on when
// there is another. Shared: a session that ends takes it along.
template <typename Answer, typename Effect>
void SimFabric::Send(const std::string& host_id, Course course, bool in_turn, Effect effect,
                     absl::AnyInvocable<void(Answer) &&> done, uint64_t claim) {
  RackHost* host = rack_->FindHost(host_id);
  if (host == nullptr) {
    return AnswerLater<Answer>(course.answer_us, UnknownHost(host_id), std::move(done));
  }
  const bool in_hand = course.queue_us > 0 && !rack_->shared;
  if (!in_hand && (course.queue_us > 0 || (in_turn && IsBusy(*host)))) {
    const int64_t delay_us = std::max(course.queue_us, kTurnUs);
    course.queue_us = 0;
    scheduler_->At(life_, delay_us,
                   [this, host_id, course, in_turn, claim, effect = std::move(effect),
                    done = std::move(done)]() mutable {
                     Send<Answer>(host_id, std::move(course), in_turn, std::move(effect),
                                  std::move(done), claim);
                   });
    return;
  }
  auto go = [scheduler = scheduler_, life = life_, epoch = epoch_, claim, rack = rack_, host,
             in_turn, course, effect = std::move(effect), done = std::move(done)]() mutable {
    host->fabric_calls.push_back(life);
    scheduler->At(kWorld, course.effect_us,
                  [=, fabric_life = host->life(), effect = std::move(effect),
                   done = std::move(done)]() mutable {
                    host->fabric_calls.erase(
                        std::find(host->fabric_calls.begin(), host->fabric_calls.end(), life));
                    Land<Answer>(scheduler, life, epoch, claim, rack, host, fabric_life, in_turn,
                                 course.late_us, course.instead, course.acts, course.answer_us,
                                 std::move(effect), std::move(done));
                  });
  };
  if (!in_hand) return go();
  scheduler_->At(kWorld, course.queue_us, std::move(go));
}

// The judge of what must never happen stands in the effect: a bind that a host takes under an epoch
// lower than that of its claim is a breach, whatever let it through.
void SimFabric::Bind(fm::BindRequest request, DoneWith<fm::BoundLd> done) {
  const std::string host = request.key.host;
  // One that has claimed nothing has nothing that could be lost.
  const auto claimed = claims_.find(host);
  uint64_t claim = kAnyClaim;
  if (claimed != claims_.end()) {
    claim = claimed->second.number == request.claim ? claimed->second.of_host : 0;
  }
  Send<absl::StatusOr<fm::BoundLd>>(
      host, Plan(FabricCall::kBind), /*in_turn=*/true,
      [request = std::move(request), epoch = epoch_](Rack& rack) {
        const RackHost& to = *rack.FindHost(request.key.host);
        if (!rack.shared && epoch < to.epoch && !rack.IsBound(request.key)) {
          rack.Breach(absl::StrCat("bind of tag ", request.key.tag, " to ", to.id, " under epoch ",
                                   epoch, ", and it was claimed under epoch ", to.epoch));
        }
        return rack.Bind(request);
      },
      std::move(done), claim);
}

void SimFabric::BeginUnbind(fm::Binding binding, Done done) {
  const std::string host = binding.key.host;
  Send<absl::Status>(
      host, Plan(FabricCall::kBeginUnbind), /*in_turn=*/true,
      [key = std::move(binding.key)](Rack& rack) { return rack.BeginUnbind(key); },
      std::move(done));
}

// Past whatever is on its way: that finds the host dark.
void SimFabric::Fence(std::string host, Done done) {
  Course course = Plan(FabricCall::kFence);
  if (!faults_->can_fence && course.instead.ok()) {
    course.acts = false;
    course.instead = Refuse(absl::StatusCode::kFailedPrecondition, "FENCE_FAILED",
                            absl::StrCat("nobody confirms that host ", host, " is off"),
                            "cut its power by hand");
  }
  Send<absl::Status>(
      host, std::move(course), /*in_turn=*/false,
      [host](Rack& rack) {
        rack.Fence(host);
        return absl::OkStatus();
      },
      std::move(done));
}

// --- Looking.

void SimFabric::Discover(DoneWith<fm::FabricView> done) {
  Course course = Plan(FabricCall::kDiscover);
  const int64_t delay_us = course.queue_us + course.effect_us;
  scheduler_->At(life_, delay_us,
                 [this, course = std::move(course), done = std::move(done)]() mutable {
                   LookAround(std::move(course), std::move(done));
                 });
}

void SimFabric::DiscoverHost(std::string host, DoneWith<fm::FabricView> done) {
  Discover([host = std::move(host), done = std::move(done)](auto view) mutable {
    if (view.ok()) fm::KeepOnly(host, *view);
    std::move(done)(std::move(view));
  });
}

// The devices, and the hosts that it can look at. Whoever had one notices, and looks again.
void SimFabric::ClaimAll() {
  for (RackDevice& device : rack_->devices) device.epoch = std::max(device.epoch, epoch_);
  for (auto& [id, host] : rack_->hosts) {
    if (!rack_->CanAsk(host)) continue;
    host.epoch = std::max(host.epoch, epoch_);
    const LifeId before = std::exchange(host.claimed_by, life_);
    if (before != life_) {
      ++host.claims;
      const auto evicted = rack_->on_evicted.find(before);
      if (evicted != rack_->on_evicted.end()) evicted->second(id);
    }
    Claim& claim = claims_[id];
    if (std::exchange(claim.of_host, host.claims) != host.claims) ++claim.number;
  }
}

// Claims what it looks at. Shared: a host does one thing after another, and its
// agent's session is the claim.
void SimFabric::LookAround(Course course, DoneWith<fm::FabricView> done) {
  const bool busy = std::any_of(rack_->hosts.begin(), rack_->hosts.end(),
                                [this](const auto& entry) { return IsBusy(entry.second); });
  if (!rack_->shared && course.instead.ok() && epoch_ != 0) ClaimAll();
  if (busy && rack_->shared) {
    scheduler_->At(life_, kTurnUs,
                   [this, course = std::move(course), done = std::move(done)]() mutable {
                     LookAround(std::move(course), std::move(done));
                   });
    return;
  }
  absl::StatusOr<fm::FabricView> answer = absl::UnknownError("");
  if (course.instead.ok()) {
    answer = rack_->Look();
    for (fm::FabricHost& host : answer->hosts) {
      const auto claim = claims_.find(host.id);
      if (claim != claims_.end()) host.claim = claim->second.number;
    }
  } else {
    answer = std::move(course.instead);
  }
  AnswerLater(course.answer_us, std::move(answer), std::move(done));
}

void SimFabric::AwaitUnbound(fm::Binding binding, absl::Duration timeout, Done done) {
  Course course = Plan(FabricCall::kAwaitUnbound);
  const int64_t now_us = scheduler_->now_us();
  const int64_t deadline_us = now_us + std::max<int64_t>(0, absl::ToInt64Microseconds(timeout));
  const int64_t delay_us = course.queue_us + course.effect_us;
  scheduler_->At(life_, delay_us,
                 [this, key = std::move(binding.key), deadline_us, course = std::move(course),
                  done = std::move(done)]() mutable {
                   LookForProof(std::move(key), deadline_us, std::move(course), std::move(done));
                 });
}

// Answers at once what can be said at once. Otherwise it waits among `waiters_` until the host is
// without it or the deadline is over.
void SimFabric::LookForProof(fm::LdKey key, int64_t deadline_us, Course course, Done done) {
  const RackHost* host = rack_->FindHost(key.host);
  if (host == nullptr) {
    return AnswerLater(course.answer_us, UnknownHost(key.host), std::move(done));
  }
  if (!course.instead.ok()) {
    return AnswerLater(course.answer_us, std::move(course.instead), std::move(done));
  }
  if (IsBusy(*host)) {
    scheduler_->At(life_, kTurnUs,
                   [this, key = std::move(key), deadline_us, course = std::move(course),
                    done = std::move(done)]() mutable {
                     LookForProof(std::move(key), deadline_us, std::move(course), std::move(done));
                   });
    return;
  }
  if (!rack_->MayBeBound(key)) {
    return AnswerLater(course.answer_us, absl::OkStatus(), std::move(done));
  }
  const int64_t left_us = deadline_us - scheduler_->now_us();
  if (left_us <= 0) return AnswerLater(course.answer_us, NotProven(key), std::move(done));
  const uint64_t id = ++last_waiter_;
  waiters_.push_back({id, std::move(key), course.answer_us, std::move(done)});
  scheduler_->At(life_, left_us, [this, id] { Expire(id); });
  PollUnreachable();
}

void SimFabric::Proven(size_t waiter) {
  Waiter proven = std::move(waiters_[waiter]);
  waiters_.erase(waiters_.begin() + static_cast<ptrdiff_t>(waiter));
  AnswerLater(proven.answer_us, absl::OkStatus(), std::move(proven.done));
}

void SimFabric::Expire(uint64_t waiter) {
  for (size_t i = 0; i < waiters_.size(); ++i) {
    if (waiters_[i].id != waiter) continue;
    Waiter late = std::move(waiters_[i]);
    waiters_.erase(waiters_.begin() + static_cast<ptrdiff_t>(i));
    std::move(late.done)(NotProven(late.key));
    return;
  }
}

// A host that cannot be asked does not say either when it can be asked again.
void SimFabric::PollUnreachable() {
  bool unreachable = false;
  for (size_t i = 0; i < waiters_.size();) {
    unreachable |= !rack_->FindHost(waiters_[i].key.host)->reachable;
    if (rack_->MayBeBound(waiters_[i].key)) {
      ++i;
    } else {
      Proven(i);
    }
  }
  if (!unreachable || polling_) return;
  polling_ = true;
  scheduler_->At(life_, kPollUs, [this] {
    polling_ = false;
    PollUnreachable();
  });
}

void SimFabric::OnGone(const fm::BoundLd& ld, Rack::Gone gone) {
  if (!scheduler_->Alive(life_)) return;
  PollUnreachable();
  if (gone == Rack::Gone::kRemoved && rack_->FindHost(ld.host)->reachable) {
    Emit({.kind = fm::FabricEvent::Kind::kLdLost, .host = ld.host, .key = ld.key, .slot = ld.slot});
  }
}

// --- Scrubbing: the manager's own work, so it ends with it. Shared: some host's, but asked for in
// pieces.

void SimFabric::Scrub(fm::Slice slice, fm::ScrubProgress, DoneWith<fm::ScrubResult> done) {
  Course course = Plan(FabricCall::kScrub);
  const RackDevice* device = rack_->FindDevice(slice.device);
  const uint64_t granules = slice.length_bytes / kGranule;
  if (device == nullptr || granules == 0 ||
      slice.dpa_bytes / kGranule + granules > device->content.size()) {
    return AnswerLater<absl::StatusOr<fm::ScrubResult>>(
        course.answer_us,
        Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
               absl::StrCat("the rack has no such bytes on device ", slice.device),
               "use a device that it has"),
        std::move(done));
  }
  // In two pieces. A failed one ends somewhere, one that was not done before the first.
  uint64_t cleared = granules;
  if (course.fault == Kind::kFails) cleared = random_.Below(granules);
  if (course.fault == Kind::kUnknownNot) cleared = 0;
  const uint64_t half = cleared / 2;
  const int64_t first_us = course.queue_us + course.effect_us / 2;
  const int64_t half_us = course.effect_us / 2;
  scheduler_->At(
      life_, first_us,
      [this, slice = std::move(slice), half, cleared, half_us, course = std::move(course),
       done = std::move(done)]() mutable {
        if (rack_->shared) {
          course.queue_us = 0;
          course.effect_us = half_us;
          return ScrubByHost(std::move(slice), cleared, std::move(course), std::move(done));
        }
        if (half > 0) Clear(slice, 0, half);
        scheduler_->At(life_, half_us,
                       [this, slice = std::move(slice), half, cleared, course = std::move(course),
                        done = std::move(done)]() mutable {
                         if (cleared > half && !Clear(slice, half, cleared - half)) {
                           course.instead = absl::UnavailableError("another manager has it");
                         }
                         absl::StatusOr<fm::ScrubResult> answer = fm::ScrubResult::kZero;
                         if (!course.instead.ok()) answer = std::move(course.instead);
                         AnswerLater(course.answer_us, std::move(answer), std::move(done));
                       });
      });
}

// False: a manager of a higher epoch has claimed the device.
bool SimFabric::Clear(const fm::Slice& slice, uint64_t first, uint64_t count) {
  if (epoch_ != 0 && epoch_ < rack_->FindDevice(slice.device)->epoch) {
    ++rack_->dropped_scrubs;
    return false;
  }
  rack_->Scrub(slice, first, count);
  return true;
}

bool SimFabric::Settle(const fm::Slice& slice) {
  if (CXLPOOL_MUTANT("late-clear-forgotten")) return true;
  bool settled = true;
  std::erase_if(rack_->clearings, [&](const Rack::Clearing& each) {
    const bool overlap = each.slice.device == slice.device &&
                         each.slice.dpa_bytes < slice.dpa_bytes + slice.length_bytes &&
                         slice.dpa_bytes < each.slice.dpa_bytes + each.slice.length_bytes;
    if (!overlap) return false;
    const RackHost& host = *rack_->FindHost(each.host);
    const bool over =
        rack_->SessionOf(host).agent != kWorld &&
        (host.life() != each.life || (rack_->CanAsk(host) && host.fabric_calls.empty()));
    settled &= over;
    return over;
  });
  return settled;
}

// By any host that has a session: nobody sees whether it stands still.
void SimFabric::ScrubByHost(fm::Slice slice, uint64_t granules, Course course,
                            DoneWith<fm::ScrubResult> done) {
  std::vector<const RackHost*> able;
  for (const auto& [id, host] : rack_->hosts) {
    if (host.reachable && rack_->SessionOf(host).agent != kWorld) able.push_back(&host);
  }
  if (able.empty() || !Settle(slice)) {
    return AnswerLater<absl::StatusOr<fm::ScrubResult>>(
        course.answer_us, absl::UnavailableError("no host can clear it now"), std::move(done));
  }
  const RackHost& host = *able[random_.Below(able.size())];
  Rack::Clearing clearing{host.id, host.life(), std::move(slice)};
  rack_->clearings.push_back(clearing);
  SendPiece(std::move(clearing), 0, granules, std::move(course), std::move(done));
}

// Half of it, and then the rest. Only what was answered is over.
void SimFabric::SendPiece(Rack::Clearing clearing, uint64_t first, uint64_t granules, Course course,
                          DoneWith<fm::ScrubResult> done) {
  if (first == granules) {
    if (course.instead.ok() || course.fault == Kind::kFails) {
      std::erase_if(rack_->clearings, [&](const Rack::Clearing& each) {
        return each.host == clearing.host && each.slice == clearing.slice;
      });
    }
    absl::StatusOr<fm::ScrubResult> answer = fm::ScrubResult::kZero;
    if (!course.instead.ok()) answer = std::move(course.instead);
    return AnswerLater(course.answer_us, std::move(answer), std::move(done));
  }
  const uint64_t count = first == 0 ? std::max<uint64_t>(granules / 2, 1) : granules - first;
  const Course piece{
      .effect_us = course.effect_us, .answer_us = course.answer_us, .instead = {}, .fault = {}};
  const std::string host = clearing.host;
  Send<absl::Status>(
      host, piece, /*in_turn=*/true,
      [clearing, first, count](Rack& rack) -> absl::Status {
        if (!rack.CanAsk(*rack.FindHost(clearing.host))) {
          return absl::UnavailableError("the host's agent has no session");
        }
        rack.Scrub(clearing.slice, first, count);
        return absl::OkStatus();
      },
      [this, clearing, first, count, granules, course = std::move(course),
       done = std::move(done)](absl::Status status) mutable {
        if (!status.ok()) return std::move(done)(std::move(status));
        SendPiece(std::move(clearing), first + count, granules, std::move(course), std::move(done));
      });
}

}  // namespace cxlpool::sim
