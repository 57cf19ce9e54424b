// The agent's core: brings the host to what the manager offers, one rung at a time, and reports the
// state that it reads back.
//
//   observe → plan → one rung → observe → ...
//
// It keeps no records: after a restart Offers come with the manager's Welcome, and all else is read
// from the kernel (an adapter may leave hints in /run for the next agent of the same boot). So
// whatever an earlier agent left is taken up as it stands. At most one rung is under way on a host.
// A rung that fails is tried again after a backoff that doubles up to 5 s; other segments go on
// meanwhile, and the error stands in the reports until a rung succeeds. Offlining may hang for as
// long as it is allowed to: its deadline is short at first and doubles with each try that ran into
// it, and a segment whose offlining hung lets the rungs of others go first.
// The operator's drain hook runs before a segment is taken from its users (drain_keeper.h).
// While the manager is away the core converges towards the last Offers and serves what is
// attached. What no Offer names is reported and left alone, except for orphans: host regions whose
// memdevs were unplugged (AttachmentTable::TakeOrphans).
//
// A step function: owns no thread, never blocks, runs wholly on its Executor. Public calls are
// for the Executor's thread, and so is the destructor; the ports' completions may come from any.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_AGENT_CORE_H_
#define CXLPOOL_HOST_AGENT_SERVICE_AGENT_CORE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host-agent/ports/device_work.h"
#include "host-agent/ports/host_memory.h"
#include "host-agent/ports/manager_link.h"
#include "host-agent/ports/process_watch.h"
#include "host-agent/service/agent_metrics.h"
#include "host-agent/service/attachments.h"
#include "host-agent/service/backoff.h"
#include "host-agent/service/drain_keeper.h"
#include "host-agent/service/fault_table.h"
#include "host-agent/service/host_event_log.h"
#include "host-agent/service/opens.h"
#include "host-agent/service/posted.h"
#include "host-agent/service/reports.h"
#include "host-agent/service/size_table.h"

namespace cxlpool::agent {

inline constexpr absl::Duration kMaxOfflineDeadline = absl::Minutes(1);
// A slot that was powered off, and that the manager still wants ejected, is powered off again:
// where there was no memdev it cannot be seen whether the power is off.
inline constexpr absl::Duration kRepeatPowerOff = absl::Seconds(5);
// How often it is looked for the processes that hold what another, which has ended, opened:
// children that inherited the connection, for example.
inline constexpr absl::Duration kLookForHeirs = absl::Seconds(1);
inline constexpr uint32_t kProtocolVersion = 1;

// Where a test may end the agent. The core calls the Probe with "before-RUNG" when it is about to
// ask HostMemory for a rung, and with "after-RUNG" when the rung has succeeded and nothing has been
// reported of it yet. RUNG is the name of the HostMemory call: PowerOn, CreateHostRegion, BindDax,
// OnlineBlocks, OfflineBlocks, UnbindDax, DestroyHostRegion, PowerOff. "before-Report" comes before
// a report is sent.
using Probe = std::function<void(absl::string_view point)>;

struct AgentOptions {
  std::string host;         // hosts/{host}
  std::string incarnation;  // Kernel boot id.
  std::string agent_id;     // UUID of this process.
  std::string agent_version;
  std::string kernel_release;
  absl::Duration observe_interval = absl::Seconds(2);   // To see what changed by itself.
  absl::Duration offline_deadline = absl::Seconds(10);  // Of a segment's first OfflineBlocks.
};

class AgentCore {
 public:
  // The ports outlive this.
  AgentCore(AgentOptions options, Executor* executor, Clock* clock, HostMemory* memory,
            ManagerLink* link, Probe probe = {});
  ~AgentCore();

  // It outlives this; null: none. Before Start, or on the core's thread.
  void SetDrainHook(DrainHook* hook) { drains_.SetHook(hook); }

  // Before Start; it outlives this. Without one the manager's DeviceTasks are refused.
  void SetDeviceWork(DeviceWork* work) { device_work_ = work; }

  // Before Start; it outlives this. Without one every process counts as alive.
  void SetProcessWatch(ProcessWatch* processes) { processes_ = processes; }

  // Prepares the host, looks at it and dials the manager. `started` gets the result of the first
  // Prepare; after an error the core goes on and prepares again, and makes nothing until it
  // succeeds.
  void Start(Done started);

  // Starts no further rung. Memory stays as it is.
  void Stop();

  // Calls `on_change`, besides what was given before, whenever an Offer, a segment or the
  // observation may have changed. It cannot be removed: a subscriber that ends before the core has
  // to guard itself.
  void AddOnChange(absl::AnyInvocable<void()> on_change) {
    on_change_.push_back(std::move(on_change));
  }

  // Calls `on_offers` when one Offer came or went, with its key, and with null once a Welcome has
  // replaced them all.
  void SetOnOffers(absl::AnyInvocable<void(const AttachmentKey*)> on_offers) {
    on_offers_ = std::move(on_offers);
  }

  // Looks for holders again at once: a user closed a Region.
  void Reconsider();

  // Takes what the kernel reported (host_events.h): it is reported to the manager and to
  // applications, and the core looks at the host at once.
  void TakeEvents(std::vector<v1::HostEvent> events);

  // Soon reports to the manager which segments are open: a user opened a Region.
  void ReportOpensSoon();

  const AgentOptions& options() const { return options_; }
  const AttachmentTable& attachments() const { return attachments_; }
  const HostObservation& observation() const { return observation_; }
  OpensTable& opens() { return opens_; }
  const OpensTable& opens() const { return opens_; }
  const FaultTable& faults() const { return faults_; }
  const SizeTable& sizes() const { return sizes_; }

  // Whether a rung that takes the segment down is under way: it may be gone at any moment.
  bool TakingDown(const AttachmentKey& key, uint64_t first_serial) const {
    return rung_.has_value() && rung_->step.is_down() && rung_->key == key &&
           rung_->first_serial == first_serial;
  }

  // What is counted. Any thread.
  AgentMeters& meters() const { return meters_; }

  // Whether a manager has sent its Offers since this agent started.
  bool welcomed() const { return welcomed_; }

  // The unit of a Region's size on this host, as far as the host and the manager have reported
  // theirs.
  uint64_t granule_bytes() const {
    return std::max({pool_granule_bytes_, observation_.region_granule_bytes, uint64_t{1}});
  }

  // How far it has come, for the service manager.
  struct Progress {
    absl::Status prepared;  // Not OK: nothing is made on this host, and why.
    bool observed = false;
    bool session_up = false;
    absl::Status refused;     // Not OK: the manager will have no session with this host, and why.
    bool reconciled = false;  // Since the first Welcome there was a moment with no rung to take.
  };
  bool session_up() const { return session_up_; }
  // How many sessions there have been.
  uint64_t sessions() const { return sessions_; }
  Progress progress() const { return {prepared_, observed_, session_up_, refused_, reconciled_}; }

 private:
  static constexpr char kSubject[] = "agent";  // Whose lines in the log these are.

  struct Rung {
    AttachmentKey key;
    uint64_t first_serial = 0;
    Step step;
    std::vector<ProcessId> holders;               // Why it was not taken.
    absl::Duration began = absl::ZeroDuration();  // On the clock's Elapsed.
  };

  template <typename F>
  auto OnCore(F function) {
    return Posted(executor_, alive_, std::move(function));
  }

  void PrepareHost(Done started);
  void OnPrepared(absl::Status status, Done started);
  void Tick();

  // The session with the manager.
  void MakeHello(DoneWith<v1::Hello> done);
  void AnswerHellos(const absl::Status& status);
  v1::Hello ReportEverything();
  void OnWelcome(v1::Welcome welcome);
  void OnOffer(v1::Offer offer);
  void OnWithdraw(const v1::Withdraw& withdraw);
  void OnDeviceTask(v1::DeviceTask task);
  void OnLost(absl::Status why, bool permanent);
  bool TakeOffer(v1::Offer offer);
  void SendReports();

  // What the kernel reported.
  bool AddEvent(v1::HostEvent event);  // False: no news.
  void CompareMemdevs(const HostObservation& seen);
  void OnEventsSeen(const v1::EventsSeen& seen);
  void SendEvents();

  void NotifyChanged() {
    for (auto& on_change : on_change_) on_change();
  }

  void Look();
  void OnObserved(uint64_t epoch, absl::StatusOr<HostObservation> seen);

  void Advance();
  std::optional<Rung> Plan();
  void ForgetPowerOff(Segment& segment) const;
  v1::SegmentError OpenError(const AttachmentKey& key, Segment& segment, uint64_t region_serial,
                             const std::vector<ProcessId>& users);
  void LookForHeirs(const AttachmentKey& key, Segment& segment, uint64_t region_serial);
  bool PlanSegment(const AttachmentKey& key, Segment& segment, const Step& step);
  void RunRung(Rung rung);
  absl::Duration OfflineDeadline(const Segment& segment) const;
  void Ask(const Segment& segment, const Step& step, Done done);
  void UnbindUnlessHeld(uint64_t serial, Done done);
  void OnRungEnded(absl::Status status);
  void Fail(Segment& segment, const Step& step, v1::SegmentError error);
  void WakeAt(absl::Duration when);

  const AgentOptions options_;
  Executor* const executor_;
  Clock* const clock_;
  HostMemory* const memory_;
  ManagerLink* const link_;
  DeviceWork* device_work_ = nullptr;
  ProcessWatch* processes_ = nullptr;
  Probe probe_;
  std::vector<absl::AnyInvocable<void()>> on_change_;
  absl::AnyInvocable<void(const AttachmentKey*)> on_offers_;

  mutable AgentMeters meters_;  // No part of what the core is.
  AttachmentTable attachments_;
  OpensTable opens_;
  HostEventLog events_;
  std::vector<v1::HostEvent> early_events_;  // That came before the first look at the host.
  FaultTable faults_;
  SizeTable sizes_;

  absl::Status prepared_ = absl::UnavailableError("the host is being prepared");
  int prepare_failures_ = 0;
  bool stopped_ = false;

  // What was seen, and in which epoch it was asked for. An epoch ends when a rung starts or ends:
  // plans are made on an observation of the current one only.
  HostObservation observation_;
  bool observed_ = false;
  bool looking_ = false;
  bool look_again_ = false;  // Something happened since that look began.
  uint64_t epoch_ = 1;
  uint64_t observed_epoch_ = 0;

  DrainKeeper drains_;
  std::optional<Rung> rung_;
  absl::Duration wake_at_ = absl::InfiniteDuration();

  bool session_up_ = false;
  uint64_t sessions_ = 0;
  std::string last_lost_;          // Why the last session ended or was refused.
  absl::Duration logged_lost_at_;  // When it was logged last.
  absl::Status refused_;           // Why the manager will have none; OK: it may.
  bool welcomed_ = false;
  uint64_t pool_granule_bytes_ = 0;  // 0: not known.
  bool reconciled_ = false;
  std::vector<DoneWith<v1::Hello>> hellos_;
  HostObservation reported_inventory_;  // Of what was seen then.
  absl::Status reported_prepared_;
  struct ReportedSegment {
    std::optional<SegmentStatus> last;  // Nothing yet: reported in this round for the first time.
    std::optional<SegmentStatus> next;  // What this round reports, if it is news.
    uint64_t round = 0;                 // The last one that had the segment.
  };
  std::map<uint64_t, ReportedSegment> reported_segments_;  // By first serial.
  uint64_t report_round_ = 0;

  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_AGENT_CORE_H_
