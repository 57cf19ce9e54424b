// Makes the world as the records say: carries out the ladder's moves (model/ladder/ladder.h)
// through the fabric driver and the host agents, and records each rung that was reached.
//
// Works from committed values only, so that hardware never moves before its intent is durable.
// What it knows of the world is volatile: after a restart it discovers and hears it again. Every
// move is idempotent, so that doing one twice is harmless.
//
// Runs wholly on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_RECONCILER_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_RECONCILER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "fabric-manager/model/ladder/ladder.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/host_sessions.h"
#include "fabric-manager/service/media_keeper.h"
#include "fabric-manager/service/track_table.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

// Called with the name of each rung as it is passed ("before-bind", "after-commit-ONLINE", ...):
// where a test may kill the process. Empty in production.
using Probe = std::function<void(absl::string_view)>;

// FABRIC_BUSY: another manager runs this fabric, or a part of it.
bool IsFabricBusy(const absl::Status& status);

class Reconciler {
 public:
  struct Options {
    absl::Duration tick = absl::Milliseconds(250);
    absl::Duration attach_timeout = absl::Seconds(60);   // WANTED to ONLINE; then compensated.
    absl::Duration discover_period = absl::Seconds(10);  // Looks for differences by itself.
    absl::Duration unbind_wait = absl::Seconds(5);       // One wait for a proof; then again.
    absl::Duration retry = absl::Milliseconds(500);      // After a failed driver call.
    absl::Duration look_again = absl::Milliseconds(20);  // Behind a look that is under way.
    absl::Duration first_look = absl::Seconds(10);       // Of Start, for the fabric to be read.
  };

  Reconciler(Options options, Executor* executor, Clock* clock, Writer* writer,
             FabricDriver* driver, HostSessions* sessions, Probe probe);

  // Takes up every Region of the state and reads the fabric. `done` once what it showed is durable,
  // new devices with it; or with the error, where it could not be read for Options::first_look: it
  // goes on trying.
  void Start(Done done);

  // Lets the driver go by what the pool is made of now, as far as that is durable, and reads the
  // fabric. `done` once what it showed is durable, so that who asks then finds a new device.
  void FollowTopology(Done done);

  // Hosts where an application has a segment beyond the first `keep_extents` extents open, as their
  // agents last said.
  std::vector<std::string> HostsUsing(const Region& region, size_t keep_extents) const;

  void OnCommitted(const std::vector<Change>& changes);
  void OnSegments(const std::string& host, const SegmentReports& reports, bool complete);
  void OnSession(const std::string& host, bool online);
  void OnEvents(const std::string& host, const HostEvents& events);

  // Takes `device` out of service for good, for the reason that `audit` gives, and QUARANTINES what
  // is on it, in as many changes as that takes. After a restart in between it goes on by itself.
  void FailDevice(Audit audit, const std::string& device, Done done);

  // As of FabricDriver.
  void ShowDevices(const std::string& host, DoneWith<SeenDevices> done);

  // Cuts `host` off and takes its Attachments as unbound.
  void Fence(const std::string& host, Audit audit, Done done);

 private:
  using StrayOf = std::tuple<uint64_t, std::string, std::string>;  // Generation, host, tag.
  struct RegionTrack {
    bool committing = false;
    bool scrubbing = false;
    absl::flat_hash_set<uint32_t> scrubbed;
    std::string scrub_error;  // Of the last scrub; empty: none has failed since one succeeded.
    absl::Duration not_before = absl::ZeroDuration();
  };

  void FollowCommitted(const Region& region);
  void OfferAsRecorded(const Region& region, const Attachment& attachment, Track& track);
  // As track.wants says.
  void SendOffer(const Region& region, const Attachment& attachment, Track& track);
  void Offer(const Region& region, const Attachment& attachment, size_t part, Track& track,
             v1::Offer::Want want);
  void Configure(Done done);
  void AnswerBehindDevices(Done done);
  bool HasGrown(const Device& known, const FabricDevice& seen) const;
  void Tick();
  void PostStep();  // Once for all that asks for it meanwhile.
  void StepActive();
  void Step(Key key);
  void StepAttachment(const Region& region, const Attachment& attachment, const RegionTrack& own);
  void StepPart(const Region& region, const Attachment& attachment, size_t part, Track& track);
  Move NextMoveOf(const Attachment& attachment, size_t part, Track& track) const;
  void RecordMove(const Region& region, const Attachment& attachment, size_t part, Track& track,
                  const Move& move);
  void GiveUp(const Region& region, const Attachment& attachment, size_t part, const Move& move);
  void Drop(const Region& region, const Attachment& attachment, size_t part, Track& track,
            const Move& move);
  void RecordObserved(const Region& region, const Attachment& attachment, Track& track);
  void StepRegion(const Region& region, RegionTrack& own);
  void StepTail(const Region& region, RegionMoveKind move);
  void Bury(const Region& region);

  // Of a part; segments of `move` count from the part's first.
  void Bind(const Region& region, const Attachment& attachment, size_t part, Track& track,
            const Move& move);
  void BeginUnbind(const Region& region, const Attachment& attachment, size_t part, Track& track,
                   const Move& move);
  void Eject(const Region& region, const Attachment& attachment, size_t part, Track& track);
  void Scrub(const Region& region, RegionTrack& own, const RegionMove& move);
  void ScrubEnded(Key key, uint32_t index, const absl::Status& status);
  void Waits(const Region& region, const std::string& what);
  void DriverCallBegan(Track& track);
  void DriverCallEnded(uint64_t generation, uint32_t segment,
                       std::function<void(Track&, SegmentKnown&)> then);

  // Commits `edit` of the Attachment if it still is what `seen` was; `then` once it is durable.
  void Record(const Region& region, const Attachment& seen, const std::string& rung,
              const std::string& reason,
              std::function<void(Region&, Attachment&, PlanContext&)> edit,
              std::function<void()> then = nullptr);
  // Commits what `edit` makes of the Region as it is then; false: nothing to do after all.
  void Submit(Key key, const std::string& rung, const std::string& reason,
              std::function<bool(Region&, PlanContext&)> edit,
              std::function<void()> then = nullptr);
  void ForgetHostSide(Key key, uint64_t generation, const std::vector<uint64_t>& before);

  void LookFirst(absl::Duration give_up, Done done);
  // Reads back the fabric's side of a host; empty: of all, and the devices.
  void Discover(const std::string& host, Done done);
  void LookAgain();
  void NameByPlace(std::vector<BoundLd>& bound) const;
  void TakeView(const std::string& only, FabricView view, uint64_t epoch);
  void TakeHosts(const std::string& only, const FabricView& view);
  // Makes the life in which the fabric shows the host durable, so that something may be bound in
  // it.
  void OnHost(const std::string& host);
  void RecordLife(const std::string& host);
  // That the host lives, in the fabric, as the records have it; empty: it does not, or nobody can
  // say.
  std::string LifeOf(const std::string& host) const;
  // Whether all that was bound in the life that the records have of it is proven to be gone.
  bool IsGone(const std::string& host) const;
  void TakeDevices(const FabricView& view);
  void AddDevice(const FabricDevice& seen);
  void RecordIdentity(const FabricDevice& seen);
  // A look that is under way may still show what the track was of.
  void DropTrack(uint64_t generation);
  void AdoptStrays(std::vector<BoundLd> lds);
  static StrayOf StrayOfLd(const BoundLd& ld);
  static uint32_t IndexOf(const BoundLd& ld);
  bool IsNamed(const BoundLd& ld) const;
  const BoundLd* UnrecordedOn(const Slice& slice) const;
  void FenceWhenQuiet(const std::string& host, Audit audit, absl::Duration deadline, Done done);
  void OnFabricEvent(const FabricEvent& event);

  void Pass(absl::string_view moment, absl::string_view rung);  // Tells the probe.
  RegionPtr Durable(Key key) const;
  std::string NameOf(Key region) const;  // As people call it: "regions/kv".
  RegionPtr FindBySerial(const std::string& host, uint64_t serial) const;
  void Forget(Key key);
  bool MayGoDown(const Attachment& attachment) const;
  LdKey KeyFor(const Region& region, const Attachment& attachment, uint32_t segment) const;
  // Where the records have the LD, and whose it is.
  Binding BindingFor(const Region& region, const Attachment& attachment, uint32_t segment) const;
  void Touch(Key key) { active_.insert(key); }
  void TouchHost(const std::string& host);

  const Options options_;
  Executor* const executor_;
  Clock* const clock_;
  Writer* const writer_;
  FabricDriver* const driver_;
  const bool chooses_serial_;  // As the driver says of itself.
  const bool keeps_keys_;
  HostSessions* const sessions_;
  const Probe probe_;
  MediaKeeper media_;

  TrackTable tracks_;
  std::map<Key, RegionTrack> regions_;
  std::set<Key> active_;           // Not settled: stepped by every tick.
  std::vector<Key> stepped_;       // Of them, in StepActive alone.
  std::set<std::string> fencing_;  // Hosts where nothing may be bound now.
  // LDs of no record that were taken in hand: whose they say that they are, and their number.
  std::set<std::pair<StrayOf, uint32_t>> strays_;
  std::vector<BoundLd> unrecorded_lds_;  // Of the last view: bound, and named by no record.
  bool viewed_ = false;                  // The fabric was read in this life.
  std::set<std::string> renamed_;        // Devices that were told of as known under another name.
  std::map<std::string, std::string> lives_;  // Host to the incarnation that it was last seen in.
  std::map<std::string, std::string>
      gone_;  // Host to the incarnation that the fabric said has ended.
  // Host to the epoch in which the last of its tracks went while something was looked at.
  std::map<std::string, uint64_t> dropped_;
  bool step_posted_ = false;
  std::set<std::string> discovering_;  // What is looked at now: a host; empty: all.
  std::set<std::string> look_again_;   // Hosts to look at once those looks are taken.
  uint64_t full_looks_ = 0;            // Looks at everything that have begun.
  bool stale_topology_ = true;         // Another than the driver was last given.
  std::string passed_;                 // Kept for its memory.
  uint64_t driver_epoch_ = 1;
  absl::Duration next_discover_ = absl::ZeroDuration();
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_RECONCILER_H_
