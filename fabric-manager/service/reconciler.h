// Makes the world as the records say: carries out the ladder's moves (model/ladder/ladder.h)
// through the fabric driver and the host agents, and records each rung that was reached.
//
// Works from committed values only, so that hardware never moves before its intent is durable.
// What it knows of the world is volatile: after a restart it looks at the fabric again, and agents
// report again. Every move is idempotent, so that doing one twice is harmless.
//
// This class decides what happens next to each Region, and when. What it needs for that are classes
// of their own, each with its own part of what is known:
//
//   TrackTable      what is known of each Attachment's world
//   AgentSide       what host agents are offered, and what they say
//   FabricCalls     calls to the driver, and what is known of the fabric's side of an Attachment
//   FabricLooks     when the fabric is looked at
//   FabricMembers   which devices and hosts it shows, and in which life
//   LdOwners        whose each LD is that it shows; what no record has is held
//   Scrubs          clears bytes before anybody else may have them
//   HostFences      cuts hosts off
//   RegionRecorder  commits what was found out
//   ActiveRegions   which Regions have something left to do
//
// Runs wholly on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_RECONCILER_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_RECONCILER_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "fabric-manager/model/ladder/ladder.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/active_regions.h"
#include "fabric-manager/service/agent_side.h"
#include "fabric-manager/service/fabric_calls.h"
#include "fabric-manager/service/fabric_looks.h"
#include "fabric-manager/service/fabric_members.h"
#include "fabric-manager/service/host_fences.h"
#include "fabric-manager/service/host_sessions.h"
#include "fabric-manager/service/ld_owners.h"
#include "fabric-manager/service/probe.h"
#include "fabric-manager/service/region_recorder.h"
#include "fabric-manager/service/scrubs.h"
#include "fabric-manager/service/track_table.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

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
  // new devices with it; or with the error, where it could not be read for Options::first_look. The
  // Reconciler goes on trying then.
  void Start(Done done);

  // Gives the driver what the pool is made of now, as far as that is durable, and reads the fabric.
  // `done` once what it showed is durable, so that readers find a new device then.
  void FollowTopology(Done done);

  // Hosts where an application has a segment beyond the first `keep_extents` extents open, as their
  // agents last said.
  std::vector<std::string> HostsUsing(const Region& region, size_t keep_extents) const {
    return agents_.HostsUsing(region, keep_extents);
  }

  // As Scrubs::LeftBytes. Any thread.
  uint64_t LeftToClear(Key region) const { return scrubs_.LeftBytes(region); }

  void OnCommitted(const std::vector<Change>& changes);
  void OnSegments(const std::string& host, const SegmentReports& reports, bool complete);
  void OnSession(const std::string& host, bool online);

  // Takes `device` out of service for good, for the reason that `audit` gives, and QUARANTINES what
  // is on it, in as many changes as that takes. After a restart in between it goes on by itself.
  void FailDevice(Audit audit, const std::string& device, Done done);

  // As of FabricDriver.
  void ShowDevices(const std::string& host, DoneWith<SeenDevices> done) {
    driver_->ShowDevices(host, std::move(done));
  }

  // Cuts `host` off and takes its Attachments as unbound.
  void Fence(const std::string& host, Audit audit, Done done) {
    fences_.Fence(host, std::move(audit),
                  [this, host, done = std::move(done)](absl::Status status) mutable {
                    if (status.ok()) owners_.HostFenced(host);
                    std::move(done)(std::move(status));
                  });
  }

 private:
  // One step of a Region: of each part of each Attachment, then of the Region itself.
  void Tick();
  void Step(Key key);
  void StepAttachment(const Region& region, const Attachment& attachment);
  void StepPart(const Region& region, const Attachment& attachment, size_t part, Track& track);
  void StepRegion(const Region& region);

  // What is next for a part.
  Move NextMoveOf(const Attachment& attachment, size_t part, Track& track) const;
  bool MayGoDown(const Attachment& attachment) const;
  bool MayUnbind(const Attachment& attachment, const Track& track) const;

  // Moves of a part.
  void Bind(const Region& region, const Attachment& attachment, size_t part, Track& track,
            const Move& move);
  void Eject(const Region& region, const Attachment& attachment, size_t part, Track& track);
  void RecordMove(const Region& region, const Attachment& attachment, size_t part, Track& track,
                  const Move& move);
  void GiveUp(const Region& region, const Attachment& attachment, size_t part, const Move& move);
  void Drop(const Region& region, const Attachment& attachment, size_t part, Track& track,
            const Move& move);
  void RecordObserved(const Region& region, const Attachment& attachment, Track& track);

  // What happened.
  void CallEnded(uint64_t generation);
  void OnFabricEvent(const FabricEvent& event);
  void TakeView(const std::string& only, FabricView view, uint64_t epoch);
  void FollowHost(const Host& host);
  void FollowCommitted(const Region& region);

  void AnswerBehindDevices(Done done);
  void GoOnFailing(const std::string& id);  // A device.
  void DropTrack(uint64_t generation) { calls_.Drop(generation, looks_.under_way()); }
  void Forget(Key key);

  const Options options_;
  Executor* const executor_;
  Clock* const clock_;
  Writer* const writer_;
  FabricDriver* const driver_;

  ProbePoints probe_;
  TrackTable tracks_;
  ActiveRegions active_;
  RegionRecorder recorder_;
  AgentSide agents_;
  FabricCalls calls_;
  FabricLooks looks_;
  FabricMembers members_;
  LdOwners owners_;
  Scrubs scrubs_;
  HostFences fences_;

  std::set<Key> stepped_;  // Regions that a step was made of, for as long as they are there.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_RECONCILER_H_
