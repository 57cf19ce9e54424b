#include "host-agent/service/agent_core.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "host-agent/model/step_effect.h"
#include "host-agent/service/backoff.h"
#include "host-agent/service/reports.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

v1::SegmentError HoldersError(const std::vector<ProcessId>& processes) {
  v1::SegmentError error;
  error.set_reason("HOLDERS");
  const size_t named = std::min(processes.size(), kMaxReportedHolders);
  std::vector<uint32_t> pids;
  for (size_t i = 0; i < named; ++i) {
    pids.push_back(processes[i].pid);
    error.add_holder_pids(processes[i].pid);
    error.add_holder_starts(processes[i].start_ticks);
  }
  const std::string more =
      named < processes.size() ? absl::StrCat(" and ", processes.size() - named, " more") : "";
  error.set_message(absl::StrCat("in use by process ", absl::StrJoin(pids, ", "), more,
                                 " (close it there; it is looked for again)"));
  return error;
}

// The segment is open, and no process that could be named has it open.
v1::SegmentError UnseenHolderError(const ProcessId& opener) {
  v1::SegmentError error;
  error.set_reason("HOLDERS");
  error.set_message(
      opener.pid == 0
          ? std::string("in use through a connection of a process that the agent cannot see, in "
                        "another PID namespace (close it there; it is looked for again)")
          : absl::StrCat("in use through a connection that process ", opener.pid,
                         " made; it has ended, and a process that it started keeps the connection "
                         "(end that one; it is looked for again)"));
  return error;
}

std::string Describe(const AttachmentKey& key, uint64_t serial, const Step& step) {
  if (serial == 0) return "orphans whose memdevs are not known";
  const std::string of = key.tag.empty()
                             ? "no Offer's"
                             : absl::StrCat("Region ", key.tag, " generation ", key.generation);
  return absl::StrCat(of, " serial 0x", absl::Hex(serial),
                      step.target == 0 ? "" : absl::StrCat(" target ", step.target));
}

constexpr size_t kMaxWaitingHellos = 8;
constexpr absl::Duration kSayAgain = absl::Minutes(10);  // What only an operator can change.
constexpr char kEventsSubject[] = "events";

bool SameMemdevs(const HostObservation& a, const HostObservation& b) {
  return std::equal(
      a.memdevs.begin(), a.memdevs.end(), b.memdevs.begin(), b.memdevs.end(),
      [](const ObservedMemdev& x, const ObservedMemdev& y) { return x.serial == y.serial; });
}

// For probes.
std::string TaskName(const v1::DeviceTask& task) {
  switch (task.work_case()) {
    case v1::DeviceTask::kLook:
      return "DeviceLook";
    case v1::DeviceTask::kGrant:
      return "DeviceGrant";
    case v1::DeviceTask::kRevoke:
      return "DeviceRevoke";
    case v1::DeviceTask::kMark:
      return "DeviceMark";
    case v1::DeviceTask::kClear:
      return task.clear().only_check() ? "DeviceCheck" : "DeviceClear";
    case v1::DeviceTask::WORK_NOT_SET:
      break;
  }
  return "DeviceTask";
}

}  // namespace

AgentCore::AgentCore(AgentOptions options, Executor* executor, Clock* clock, HostMemory* memory,
                     ManagerLink* link, Probe probe)
    : options_(std::move(options)),
      executor_(executor),
      clock_(clock),
      memory_(memory),
      link_(link),
      probe_(std::move(probe)),
      drains_(executor, clock, memory, &attachments_, &opens_, &observation_, &meters_,
              [this] { Advance(); }) {}

AgentCore::~AgentCore() = default;

// --- Life.

void AgentCore::Start(Done started) {
  PrepareHost(std::move(started));
  Tick();
}

void AgentCore::Stop() { stopped_ = true; }

void AgentCore::PrepareHost(Done started) {
  memory_->Prepare(OnCore([this, started = std::move(started)](absl::Status status) mutable {
    OnPrepared(std::move(status), std::move(started));
  }));
}

// Tries again after an error. After the first try, whatever came of it, the manager is dialled: an
// unfit host reports why it takes nothing.
void AgentCore::OnPrepared(absl::Status status, Done started) {
  if (stopped_) return;
  const bool news = std::exchange(prepared_, status) != status;
  if (!status.ok()) {
    if (news) LogError(kSubject, "cannot prepare the host: ", status.message());
    executor_->PostAfter(BackoffAfter(++prepare_failures_, kFirstBackoff, kMaxBackoff),
                         OnCore([this] { PrepareHost({}); }));
  } else if (prepare_failures_ > 0) {
    LogInfo(kSubject, "the host is prepared");
  }
  if (started) {  // Only now: nothing may be offered to a host that was never prepared.
    ManagerLink::Handlers handlers;
    handlers.make_hello = [this, post = executor_,
                           alive = std::weak_ptr<bool>(alive_)](DoneWith<v1::Hello> done) {
      post->Post([this, alive, done = std::move(done)]() mutable {
        if (!alive.expired()) MakeHello(std::move(done));
      });
    };
    auto handler = [this](auto method) {
      return [this, method, post = executor_, alive = std::weak_ptr<bool>(alive_)](auto... args) {
        post->Post([this, method, alive, packed = std::make_tuple(std::move(args)...)]() mutable {
          if (alive.expired()) return;
          std::apply([&](auto&... a) { (this->*method)(std::move(a)...); }, packed);
        });
      };
    };
    handlers.on_welcome = handler(&AgentCore::OnWelcome);
    handlers.on_offer = handler(&AgentCore::OnOffer);
    handlers.on_withdraw = handler(&AgentCore::OnWithdraw);
    handlers.on_events_seen = handler(&AgentCore::OnEventsSeen);
    handlers.on_device_task = handler(&AgentCore::OnDeviceTask);
    handlers.on_lost = handler(&AgentCore::OnLost);
    link_->Start(std::move(handlers));
    std::move(started)(std::move(status));
  }
  Look();
}

void AgentCore::Tick() {
  if (stopped_) return;
  Look();
  executor_->PostAfter(options_.observe_interval, OnCore([this] { Tick(); }));
}

void AgentCore::Reconsider() {
  for (auto& [key, attachment] : attachments_.all()) {
    for (Segment& segment : attachment.segments) {
      if (segment.error.has_value() && segment.error->reason() == "HOLDERS") {
        segment.retry_at = absl::ZeroDuration();
      }
    }
  }
  Advance();
}

// Posted: an Open may be answered in the middle of what the core does.
void AgentCore::ReportOpensSoon() {
  executor_->Post(OnCore([this] {
    if (observed_ && !stopped_) SendReports();
  }));
}

// --- Looking.

void AgentCore::Look() {
  if (looking_ || stopped_) return;
  looking_ = true;
  memory_->Observe(OnCore([this, epoch = epoch_](absl::StatusOr<HostObservation> seen) {
    OnObserved(epoch, std::move(seen));
  }));
}

void AgentCore::OnObserved(uint64_t epoch, absl::StatusOr<HostObservation> seen) {
  looking_ = false;
  if (std::exchange(look_again_, false)) Look();
  if (!seen.ok()) {
    // Tick looks again; until then nothing is planned.
    LogError(kSubject, "cannot read the host's CXL state: ", seen.status().message());
    AnswerHellos(seen.status());
    return;
  }
  CompareMemdevs(*seen);
  observation_ = *std::move(seen);
  observed_ = true;
  observed_epoch_ = epoch;
  if (!early_events_.empty()) TakeEvents(std::exchange(early_events_, {}));
  // Before a Welcome it is not known which host regions are to stay.
  if (welcomed_) attachments_.TakeOrphans(observation_, clock_->Elapsed());
  AnswerHellos(absl::OkStatus());
  Advance();
}

// --- Planning.

void AgentCore::Advance() {
  if (stopped_ || !observed_) return;
  if (!CXLPOOL_MUTANT("two-rungs-at-once") && rung_.has_value()) {
    SendReports();
  } else if (!CXLPOOL_MUTANT("plan-on-old-sight") && observed_epoch_ != epoch_) {
    Look();  // Comes back here.
  } else {
    std::optional<Rung> next = Plan();
    if (welcomed_ && prepared_.ok() && !next.has_value()) reconciled_ = true;
    SendReports();
    if (next.has_value()) RunRung(*std::move(next));
  }
  faults_.Place(attachments_, observation_);
  sizes_.Place(attachments_, observation_, faults_);
  NotifyChanged();
}

// Chooses the next rung of the host: of those whose time has come, the one with the fewest
// failures, and one that takes down before one that brings up, since that may free what the other
// needs.
std::optional<AgentCore::Rung> AgentCore::Plan() {
  std::optional<Rung> up;
  std::optional<Rung> down;
  int up_failures = 0;
  int down_failures = 0;
  bool down_hung = false;
  absl::Duration wake = absl::InfiniteDuration();
  std::set<std::string> pending_bridges;
  for (auto& [key, attachment] : attachments_.all()) {
    for (Segment& segment : attachment.segments) {
      const std::string& bridge = segment.desired.host_bridge;
      ForgetPowerOff(segment);
      if (!LacksDaxDevice(segment.desired, observation_)) segment.desired.failed_remakes = 0;
      Step step = NextStep(segment.desired, observation_, pending_bridges.contains(bridge));
      const bool ready = PlanSegment(key, segment, step);
      if (!segment.error.has_value() && AwaitsHostRegion(segment.desired, observation_)) {
        pending_bridges.insert(bridge);
      }
      if (!ready) continue;
      if (segment.retry_at > clock_->Elapsed()) {
        wake = std::min(wake, segment.retry_at);
        continue;
      }
      // What fails over and over must not keep the others waiting.
      std::optional<Rung>& choice = step.is_down() ? down : up;
      int& failures = step.is_down() ? down_failures : up_failures;
      if (choice.has_value() && failures <= segment.failures) continue;
      if (step.is_down()) down_hung = segment.hung > 0;
      choice = Rung{key, segment.desired.first_serial(), std::move(step), {}};
      failures = segment.failures;
    }
  }
  WakeAt(wake);
  // It may take all of its deadline again.
  if (down_hung && up.has_value() && up_failures < down_failures) return up;
  return down.has_value() ? std::move(down) : std::move(up);
}

// Without a session the Offer may be old, and the slot another's.
void AgentCore::ForgetPowerOff(Segment& segment) const {
  if (!session_up_) return;
  for (DesiredTarget& target : segment.desired.targets) {
    target.powered_off =
        target.powered_off && clock_->Elapsed() - segment.powered_off_at < kRepeatPowerOff;
  }
}

// Settles what the plan says without a rung; true if `step` is a rung to be taken when its time
// has come.
bool AgentCore::PlanSegment(const AttachmentKey& key, Segment& segment, const Step& step) {
  const bool from_users =
      step.kind == Step::Kind::kOfflineBlocks || step.kind == Step::Kind::kUnbindDax;
  // The error that was reported before stands meanwhile.
  if (from_users && prepared_.ok() && drains_.MustWait(key, segment, step.serial)) return false;
  const std::optional<Step> taken = std::exchange(segment.last_succeeded, std::nullopt);
  if (segment.refused) segment.error.reset();
  segment.refused = false;
  auto refuse = [&segment](v1::SegmentError error) {
    segment.error = std::move(error);
    segment.refused = true;
    return false;
  };
  if (step.kind == Step::Kind::kRefuse) return refuse(ErrorOf(step.refusal.ToStatus()));
  if (!step.is_rung()) {
    segment.error.reset();
    segment.failures = 0;
    return false;
  }
  if (!prepared_.ok()) return refuse(ErrorOf(prepared_));
  if (from_users) {
    const std::vector<ProcessId> users = opens_.UsersOf(key, segment.desired.first_serial());
    if (!CXLPOOL_MUTANT("ignore-opens") && !users.empty()) {
      WakeAt(drains_.NextRun(segment));
      return refuse(DrainKeeper::NoteError(segment, OpenError(key, segment, step.serial, users)));
    }
  }
  if (CXLPOOL_MUTANT("believe-exit-codes") || !taken.has_value()) return true;
  if (PostconditionHolds(*taken, segment.desired, observation_)) {
    if (taken->kind == segment.failed) segment.failures = 0;  // That rung is behind us.
  } else {
    v1::SegmentError error;
    error.set_reason("NO_EFFECT");
    error.set_message(
        absl::StrCat(StepName(taken->kind), " reported success, but the kernel does not show ",
                     PostconditionText(taken->kind), " (see the kernel log of this host)"));
    Fail(segment, *taken, std::move(error));
  }
  return true;
}

// Who has the segment open through the agent. The process that made a connection may have ended
// while a child of it keeps the connection and the descriptors: its pid would name no process, or
// another one. Then who really has the memory is looked for, and named instead.
v1::SegmentError AgentCore::OpenError(const AttachmentKey& key, Segment& segment,
                                      uint64_t region_serial, const std::vector<ProcessId>& users) {
  std::vector<ProcessId> live;
  for (const ProcessId& user : users) {
    const bool ended = processes_ != nullptr && processes_->HasEnded(user);
    if (!ended || CXLPOOL_MUTANT("name-the-dead")) live.push_back(user);
  }
  if (live.size() == users.size()) return HoldersError(live);
  LookForHeirs(key, segment, region_serial);
  for (const ProcessId& heir : segment.heirs) {
    const bool ended = processes_ != nullptr && processes_->HasEnded(heir);
    if (!ended && std::find(live.begin(), live.end(), heir) == live.end()) live.push_back(heir);
  }
  return live.empty() ? UnseenHolderError(users.front()) : HoldersError(live);
}

void AgentCore::LookForHeirs(const AttachmentKey& key, Segment& segment, uint64_t region_serial) {
  if (segment.heirs_at > clock_->Elapsed()) return;
  segment.heirs_at = clock_->Elapsed() + kLookForHeirs;
  memory_->FindHolders(region_serial, OnCore([this, key, first = segment.desired.first_serial()](
                                                 absl::StatusOr<std::vector<ProcessId>> holders) {
                         Segment* segment = attachments_.FindSegment(key, first);
                         if (segment == nullptr || !holders.ok() || segment->heirs == *holders)
                           return;
                         segment->heirs = *std::move(holders);
                         Advance();
                       }));
}

void AgentCore::WakeAt(absl::Duration when) {
  if (when >= wake_at_ || when == absl::InfiniteDuration()) return;
  wake_at_ = when;
  executor_->PostAfter(when - clock_->Elapsed(), OnCore([this, when] {
                         if (wake_at_ == when) wake_at_ = absl::InfiniteDuration();
                         Advance();
                       }));
}

// --- Rungs.

void AgentCore::RunRung(Rung rung) {
  const Segment* segment = attachments_.FindSegment(rung.key, rung.first_serial);
  if (probe_) probe_(absl::StrCat("before-", StepName(rung.step.kind)));
  ++epoch_;
  rung_ = std::move(rung);
  rung_->began = clock_->Elapsed();
  Ask(*segment, rung_->step,
      OnCore([this](absl::Status status) { OnRungEnded(std::move(status)); }));
}

// Others wait while it runs, so it begins short; what only takes long gets there in the end.
absl::Duration AgentCore::OfflineDeadline(const Segment& segment) const {
  absl::Duration deadline = options_.offline_deadline;
  for (int i = 0; i < segment.hung && deadline < kMaxOfflineDeadline; ++i) deadline *= 2;
  return std::min(deadline, kMaxOfflineDeadline);
}

// Has the adapter carry out the rung `step`.
void AgentCore::Ask(const Segment& segment, const Step& step, Done done) {
  const DesiredSegment& desired = segment.desired;
  const uint64_t serial = desired.first_serial();
  const DesiredTarget& target = desired.targets[step.target];
  switch (step.kind) {
    case Step::Kind::kPowerOn:
      return memory_->PowerOn(target.slot, target.serial, std::move(done));
    case Step::Kind::kPowerOff:
      return memory_->PowerOff(target.slot, target.serial, std::move(done));
    case Step::Kind::kCreateHostRegion: {
      HostRegionSpec spec;
      spec.host_bridge = desired.host_bridge;
      spec.interleave_granularity_bytes = desired.interleave_granularity_bytes;
      spec.size_bytes = desired.length_bytes;
      for (const DesiredTarget& t : desired.targets) spec.serials.push_back(t.serial);
      return memory_->CreateHostRegion(std::move(spec), std::move(done));
    }
    case Step::Kind::kBindDax:
      return memory_->BindDax(serial, step.driver, std::move(done));
    case Step::Kind::kOnlineBlocks:
      return memory_->OnlineBlocks(serial, desired.zone, std::move(done));
    case Step::Kind::kOfflineBlocks:
      return memory_->OfflineBlocks(step.serial, OfflineDeadline(segment), std::move(done));
    case Step::Kind::kUnbindDax:
      if (step.check_holders) return UnbindUnlessHeld(step.serial, std::move(done));
      return memory_->UnbindDax(step.serial, std::move(done));
    case Step::Kind::kDestroyHostRegion:
      return memory_->DestroyHostRegion(step.serial, std::move(done));
    case Step::Kind::kDone:
    case Step::Kind::kWait:
    case Step::Kind::kRefuse:
      break;
  }
  std::move(done)(absl::InternalError("not a rung"));
}

// The kernel would take a mapped DAX device away, and its users would die of SIGBUS.
void AgentCore::UnbindUnlessHeld(uint64_t serial, Done done) {
  memory_->FindHolders(serial, OnCore([this, serial, done = std::move(done)](
                                          absl::StatusOr<std::vector<ProcessId>> holders) mutable {
                         if (!holders.ok()) return std::move(done)(holders.status());
                         if (CXLPOOL_MUTANT("unbind-while-held")) holders->clear();
                         if (holders->empty()) return memory_->UnbindDax(serial, std::move(done));
                         rung_->holders = *std::move(holders);
                         std::move(done)(absl::FailedPreconditionError("the DAX device is held"));
                       }));
}

// Notes the outcome. A success is only believed once PlanSegment has found its postcondition.
void AgentCore::OnRungEnded(absl::Status status) {
  const Rung rung = *std::exchange(rung_, std::nullopt);
  meters_.Count(rung.step, clock_->Elapsed() - rung.began, status, !rung.holders.empty());
  ++epoch_;
  if (probe_ && status.ok()) probe_(absl::StrCat("after-", StepName(rung.step.kind)));
  // The Offer may have been replaced or withdrawn meanwhile.
  if (Segment* segment = attachments_.FindSegment(rung.key, rung.first_serial)) {
    const LogScope scope(attachments_.FieldsOf(rung.key, StepName(rung.step.kind)));
    if (status.ok()) {
      if (LogsAt(LogLevel::kInfo)) {
        LogInfo(kSubject, StepName(rung.step.kind), ": ",
                Describe(rung.key, rung.first_serial, rung.step));
      }
      segment->error.reset();
      segment->hung = 0;
      segment->last_succeeded = rung.step;
      std::vector<DesiredTarget>& targets = segment->desired.targets;
      if (rung.step.kind == Step::Kind::kPowerOff && rung.step.target < targets.size()) {
        targets[rung.step.target].powered_off = true;
        segment->powered_off_at = clock_->Elapsed();
      }
    } else {
      v1::SegmentError error = rung.holders.empty() ? ErrorOf(status) : HoldersError(rung.holders);
      // Its time was up; the kernel did not refuse.
      const bool timed_out = absl::IsDeadlineExceeded(status) || error.cause() == "timeout";
      if (rung.step.kind == Step::Kind::kOfflineBlocks && timed_out) ++segment->hung;
      LogWarning(kSubject, StepName(rung.step.kind), ": ",
                 Describe(rung.key, rung.first_serial, rung.step), ": ", error.message());
      Fail(*segment, rung.step, std::move(error));
    }
  }
  Advance();
}

void AgentCore::Fail(Segment& segment, const Step& step, v1::SegmentError error) {
  if (step.kind == Step::Kind::kCreateHostRegion && LacksDaxDevice(segment.desired, observation_)) {
    ++segment.desired.failed_remakes;
  }
  segment.error = DrainKeeper::NoteError(segment, std::move(error));
  segment.failed = step.kind;
  segment.last_succeeded.reset();
  segment.retry_at =
      clock_->Elapsed() + BackoffAfter(++segment.failures, kFirstBackoff, kMaxBackoff);
}

void AgentCore::MakeHello(DoneWith<v1::Hello> done) {
  if (hellos_.size() >= kMaxWaitingHellos) {
    return std::move(done)(absl::ResourceExhaustedError("too many sessions are being opened"));
  }
  hellos_.push_back(std::move(done));
  Look();
}

void AgentCore::AnswerHellos(const absl::Status& status) {
  if (hellos_.empty()) return;
  std::vector<DoneWith<v1::Hello>> hellos = std::exchange(hellos_, {});
  if (!status.ok()) {
    for (DoneWith<v1::Hello>& done : hellos) std::move(done)(status);
    return;
  }
  v1::Hello hello = ReportEverything();
  DoneWith<v1::Hello> last = std::move(hellos.back());
  hellos.pop_back();
  for (DoneWith<v1::Hello>& done : hellos) std::move(done)(hello);
  std::move(last)(std::move(hello));
}

v1::Hello AgentCore::ReportEverything() {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_host(options_.host);
  hello.set_incarnation(options_.incarnation);
  hello.set_agent_id(options_.agent_id);
  hello.set_agent_version(options_.agent_version);
  hello.set_kernel_release(options_.kernel_release);
  *hello.mutable_inventory() = InventoryOf(observation_, prepared_);
  reported_inventory_ = observation_;
  reported_prepared_ = prepared_;
  reported_segments_.clear();
  ForEachStatus(attachments_, opens_, observation_,
                [&](const SegmentStatus& status, uint32_t opens) {
                  AddReport(status, opens, hello.mutable_segments());
                  reported_segments_[status.serial].last = status;
                });
  return hello;
}

void AgentCore::OnWelcome(v1::Welcome welcome) {
  LogInfo(kSubject, "session with manager ", welcome.manager_version(), ", ", welcome.offers_size(),
          " offers");
  if (device_work_ != nullptr) device_work_->EndSession();
  session_up_ = true;
  ++sessions_;
  refused_ = absl::OkStatus();
  last_lost_.clear();
  if (!CXLPOOL_MUTANT("events-are-sent-once")) events_.Rewind();
  welcomed_ = true;
  if (!CXLPOOL_MUTANT("granule-is-not-taken")) pool_granule_bytes_ = welcome.granule_bytes();
  std::vector<AttachmentKey> offered;
  for (const v1::Offer& offer : welcome.offers()) offered.push_back(KeyOf(offer));
  // First: what goes must not take the room of what comes.
  if (!CXLPOOL_MUTANT("keep-old-offers")) attachments_.KeepOnly(offered);
  for (v1::Offer& offer : *welcome.mutable_offers()) TakeOffer(std::move(offer));
  if (on_offers_) on_offers_(nullptr);
  Advance();
}

void AgentCore::OnOffer(v1::Offer offer) {
  const AttachmentKey key = KeyOf(offer);
  if (!TakeOffer(std::move(offer))) return;
  if (on_offers_) on_offers_(&key);
  Advance();
}

bool AgentCore::TakeOffer(v1::Offer offer) {
  const AttachmentKey key = KeyOf(offer);
  const absl::Status status = attachments_.Put(std::move(offer));
  if (status.ok()) return true;
  LogError(kSubject, status.message());
  v1::Report report;
  v1::SegmentReport& segment = *report.add_segments();
  segment.set_region_tag(key.tag);
  segment.set_attachment_generation(key.generation);
  *segment.mutable_error() = ErrorOf(status);
  link_->Send(std::move(report));
  return false;
}

void AgentCore::OnWithdraw(const v1::Withdraw& withdraw) {
  const AttachmentKey key = {.generation = withdraw.attachment_generation(),
                             .tag = withdraw.region_tag()};
  attachments_.Erase(key);
  if (on_offers_) on_offers_(&key);
  Advance();
}

// Hands the task on and its answer back, unless its session has ended: another manager may have
// given its number to another task. What it changed is looked at at once: a grant is a memdev.
void AgentCore::OnDeviceTask(v1::DeviceTask task) {
  const std::string name = TaskName(task);
  if (probe_) probe_(absl::StrCat("before-", name));
  auto answer = [=, this, id = task.id(), of = sessions_](absl::StatusOr<v1::DeviceLook> look) {
    if (probe_ && look.ok()) probe_(absl::StrCat("after-", name));
    const bool up = session_up_ || CXLPOOL_MUTANT("lost-session-is-answered");
    const bool same = (up && of == sessions_) || CXLPOOL_MUTANT("answers-outlive-sessions");
    if (same) link_->Answer(id, std::move(look));
    if (looking_) look_again_ = true;
    Look();
  };
  if (device_work_ == nullptr) {
    return answer(Refuse(absl::StatusCode::kUnimplemented, "NO_SHARED_DEVICES",
                         "this agent's adapter does not know shared devices",
                         "set adapter = \"shared\" in its configuration"));
  }
  device_work_->Do(std::move(task), OnCore(std::move(answer)));
}

void AgentCore::OnLost(absl::Status why, bool permanent) {
  // Each reason is logged once; one that only an operator can change, again after kSayAgain.
  const std::string reason(why.message());
  const absl::Duration now = clock_->Elapsed();
  const bool news = reason != last_lost_ || (permanent && now - logged_lost_at_ >= kSayAgain);
  if (session_up_ && !permanent) {
    LogWarning(kSubject, "lost the manager: ", reason);
  } else if (news && permanent) {
    LogError(kSubject, "the manager refuses this agent: ", reason);
  } else if (news && !ReasonOf(why).empty()) {
    LogError(kSubject, "no session with the manager: ", reason);
  }
  if (news) logged_lost_at_ = now;
  last_lost_ = reason;
  session_up_ = false;
  refused_ = permanent ? std::move(why) : absl::OkStatus();
}

// Reports events, segments and inventory, as far as they differ from what was sent in this session.
void AgentCore::SendReports() {
  if (!session_up_) return;
  SendEvents();
  v1::Report changes;
  ++report_round_;
  ForEachStatus(attachments_, opens_, observation_,
                [&](const SegmentStatus& status, uint32_t opens) {
                  ReportedSegment& reported = reported_segments_[status.serial];
                  reported.round = report_round_;
                  reported.next.reset();
                  if (reported.last == status) return;
                  AddReport(status, opens, changes.mutable_segments());
                  reported.next = status;
                });
  for (auto it = reported_segments_.begin(); it != reported_segments_.end();) {
    auto& [serial, reported] = *it;
    if (reported.round == report_round_) {
      if (reported.next.has_value()) reported.last = std::move(reported.next);
      ++it;
      continue;
    }
    if (FindMemdev(observation_, serial) == nullptr) {
      v1::SegmentReport& gone = *changes.add_segments();  // Was found, or withdrawn; is no more.
      gone.set_serial(serial);
      gone.set_state(v1::SEGMENT_ABSENT);
    }
    it = reported_segments_.erase(it);
  }
  if (InventoryChanged(reported_inventory_, observation_) || reported_prepared_ != prepared_) {
    reported_inventory_ = observation_;
    reported_prepared_ = prepared_;
    *changes.mutable_inventory() = InventoryOf(observation_, prepared_);
  }
  if (changes.segments_size() == 0 && !changes.has_inventory()) return;
  if (probe_) probe_("before-Report");
  link_->Send(std::move(changes));
}

// Before the host was looked at nobody knows whose bytes an event is of: it waits for that.
void AgentCore::TakeEvents(std::vector<v1::HostEvent> events) {
  if (stopped_) return;
  if (!observed_ && !CXLPOOL_MUTANT("early-events-are-nobodys")) {
    for (v1::HostEvent& event : events) {
      if (early_events_.size() < HostEventLog::kMaxWaiting)
        early_events_.push_back(std::move(event));
    }
    return;
  }
  bool is_news = events.empty();  // Some were lost.
  for (v1::HostEvent& event : events) {
    for (v1::HostEvent& of : ByMemdev(observation_, std::move(event))) {
      is_news |= AddEvent(std::move(of));
    }
  }
  if (!is_news) return;
  faults_.Place(attachments_, observation_);
  if (observed_) SendReports();
  NotifyChanged();
  look_again_ = looking_;
  Look();
}

bool AgentCore::AddEvent(v1::HostEvent event) {
  if (!events_.Add(event, clock_->Elapsed())) return false;
  meters_.Count(event);
  LogWarning(kEventsSubject, DescribeEvent(event));
  faults_.Add(event);
  return true;
}

// Called before `seen` takes the place of what was seen last.
void AgentCore::CompareMemdevs(const HostObservation& seen) {
  if (!observed_ || SameMemdevs(observation_, seen)) return;
  for (v1::HostEvent& event : SurpriseRemovals(observation_, seen, attachments_)) {
    AddEvent(std::move(event));
  }
  events_.ForgetGone(seen);
}

void AgentCore::OnEventsSeen(const v1::EventsSeen& seen) { events_.OnSeen(seen.sequence()); }

void AgentCore::SendEvents() {
  while (true) {
    v1::Report report;
    if (!events_.TakeUnsent(report)) return;
    link_->Send(std::move(report));
  }
}

}  // namespace cxlpool::agent
