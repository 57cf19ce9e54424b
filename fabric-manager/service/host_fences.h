// Cuts hosts off from the pool's memory, which is the one proof that needs no word of the host.
//
// Runs wholly on the executor; the driver's answers may come from any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_HOST_FENCES_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_HOST_FENCES_H_

#include <set>
#include <string>

#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/active_regions.h"
#include "fabric-manager/service/fabric_calls.h"
#include "fabric-manager/service/host_sessions.h"
#include "fabric-manager/service/track_table.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

// What makes sure that a host is without the pool's memory, for people: a fence, or a reboot where
// the fabric has none. Its next boot is proof that the one before it has ended.
std::string HowToCutOff(const FabricCapabilities& fabric, const std::string& host);

class HostFences {
 public:
  struct Options {
    absl::Duration look_every =
        absl::Milliseconds(250);              // Whether calls about the host have ended.
    absl::Duration wait = absl::Seconds(20);  // For them to end.
  };

  HostFences(Options options, Executor* executor, Clock* clock, Writer* writer,
             FabricDriver* driver, HostSessions* sessions, const TrackTable* tracks,
             FabricCalls* calls, ActiveRegions* active)
      : options_(options),
        executor_(executor),
        clock_(clock),
        writer_(writer),
        driver_(driver),
        sessions_(sessions),
        tracks_(tracks),
        calls_(calls),
        active_(active) {}

  // Ends the host's session, cuts the host off and takes its Attachments as unbound; `done` once
  // that is durable. UNIMPLEMENTED/NO_FENCE: the fabric has no way to, and nothing was done.
  // FAILED_PRECONDITION/FENCE_FAILED: it is under way already, or nothing is proven.
  void Fence(const std::string& host, Audit audit, Done done);

  // A fence of the host is under way: nothing may be bound there now, for a bind could still take
  // effect after the fence; nor unbound, for the fence waits until no call is under way.
  bool UnderWay(const std::string& host) const { return fencing_.contains(host); }

 private:
  void FenceWhenQuiet(const std::string& host, Audit audit, absl::Duration deadline, Done done);
  void RecordFenced(const std::string& host, Audit audit, Done done);

  const Options options_;
  Executor* const executor_;
  Clock* const clock_;
  Writer* const writer_;
  FabricDriver* const driver_;
  HostSessions* const sessions_;
  const TrackTable* const tracks_;
  FabricCalls* const calls_;
  ActiveRegions* const active_;
  std::set<std::string> fencing_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_HOST_FENCES_H_
