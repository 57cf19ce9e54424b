// When the fabric is looked at: all of it at a steady pace and whenever devices or the topology
// change, one host when something happened there.
//
// One look at a time covers a host, so that what was seen later is never overwritten by what was
// seen before. A look at a host that is asked for meanwhile follows: the one that is under way may
// have read the host before what it is asked for happened.
//
// Before a look at everything, the driver is given the topology where that is another than it had.
//
// A look under a claim of a host that is new (FabricDriver), and the first look after each
// Configure, which may have taken a device over, is believed only after a commit: by then a manager
// that is none any more has been refused by the store. One that cannot be committed is dropped.
//
// Runs wholly on the executor; the driver's answers may come from any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_FABRIC_LOOKS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_FABRIC_LOOKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

// FABRIC_BUSY: another manager runs this fabric, or a part of it.
bool IsFabricBusy(const absl::Status& status);

class FabricLooks {
 public:
  struct Options {
    absl::Duration period = absl::Seconds(10);       // From one look at everything to the next.
    absl::Duration retry = absl::Milliseconds(500);  // After a first look that failed.
    absl::Duration wait = absl::Milliseconds(20);    // For a look that is under way to end.
    absl::Duration first_look = absl::Seconds(10);   // For the fabric to be read at the start.
    absl::Duration busy = absl::Seconds(5);  // Of that, for another manager to let go of it.
  };
  // What a look showed. `only`: the one host that was looked at; empty: all, and the devices.
  // `epoch`: what `epoch_now` was when it began.
  using Take = std::function<void(const std::string& only, FabricView view, uint64_t epoch)>;

  FabricLooks(Options options, Executor* executor, Clock* clock, Writer* writer,
              FabricDriver* driver, std::function<uint64_t()> epoch_now, Take take);

  // Looks at everything until that has worked once, at most for Options::first_look; then `done`
  // with how the last look went. Another manager that has the fabric (FABRIC_BUSY) may be about to
  // end: that is waited for no longer than Options::busy.
  void LookFirst(Done done);

  // Looks at this host; empty: at everything. `done` once what it showed is taken; at once where a
  // look that is under way covers the host.
  void Look(const std::string& host, Done done);
  void Look(const std::string& host) {
    Look(host, [](const absl::Status&) {});
  }
  // Looks at the host once the looks that are under way have been taken. Only from Take.
  void LookAgain(const std::string& host) { again_.insert(host); }
  // Looks at everything if that is due.
  void Tick();
  // Has everything looked at by the next Tick: one look is enough for all that ask meanwhile.
  void LookSoon() { next_ = {}; }

  // The topology, or which of its hosts are retired, is another than the driver was last given, or
  // the driver had no use for a part of it: the driver is given it before the next look at
  // everything.
  void TopologyChanged() { stale_topology_ = true; }
  // Likewise, and looks at everything at once. `done` when that look is taken.
  void FollowTopology(Done done);

  // The claim of the host that the last look which was believed was taken under; 0: none.
  uint64_t ClaimOf(const std::string& host) const {
    const auto claim = claims_.find(host);
    return claim == claims_.end() ? 0 : claim->second;
  }

  // Everything was looked at in this life of the manager.
  bool has_seen_all() const { return has_seen_all_; }
  bool under_way() const { return !under_way_.empty(); }

 private:
  void LookFirst(absl::Duration began, Done done);
  void Configure(Done done);
  // `end` with the view once it may be believed: at once, or after a commit.
  void Confirm(bool of_all, FabricView view, DoneWith<FabricView> end);
  void LookAtThoseThatWaited();

  const Options options_;
  Executor* const executor_;
  Clock* const clock_;
  Writer* const writer_;
  FabricDriver* const driver_;
  const bool claims_hosts_;  // As the driver says of itself.
  const std::function<uint64_t()> epoch_now_;
  const Take take_;

  std::set<std::string> under_way_;  // What is looked at now: a host; empty: everything.
  std::set<std::string> again_;      // Hosts to look at once those looks are taken.
  uint64_t full_looks_ = 0;          // Looks at everything that have begun.
  bool has_seen_all_ = false;
  bool stale_topology_ = true;
  bool configured_ = true;  // The driver may have taken over what no commit has confirmed.
  std::map<std::string, uint64_t> claims_;      // Of hosts, that a commit has confirmed.
  absl::Duration next_ = absl::ZeroDuration();  // When everything is to be looked at.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_FABRIC_LOOKS_H_
