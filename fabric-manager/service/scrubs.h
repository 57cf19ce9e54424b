// Clears the bytes of Regions that go, or that give extents away, before anybody else may have
// them: one extent of a Region at a time, until the driver says that its former bytes cannot be
// read any more. An error proves nothing, and the extent is scrubbed again. Bytes that their device
// cannot clear at all are marked, and kept from everybody when the Region goes (plan_media.h).
//
// A driver works on all scrubs in turns. One that fails after long, since a host does not answer,
// say, has kept all others waiting: it is not tried again before as much time has passed once more,
// or two minutes.
//
// What a Region waits for is said in its state_reason, and what stood there before is kept.
//
// Runs wholly on the executor, but for LeftBytes; the driver's answers may come from any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_SCRUBS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_SCRUBS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "fabric-manager/model/ladder/ladder.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/ld_owners.h"
#include "fabric-manager/service/region_recorder.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// What the state_reason of a Region begins with whose scrub cannot begin, or has failed.
inline constexpr absl::string_view kScrubWaits = "WAITS: ";

// What such a Region had to say before, which stands behind that: why it failed, or who released
// it. The same text where it does not wait.
std::string ReasonBeforeWait(const std::string& state_reason);

class Scrubs {
 public:
  // `retry`: after a scrub that failed or could not begin, at least. `look`: has the fabric looked
  // at a host.
  Scrubs(absl::Duration retry, Executor* executor, Clock* clock, const Writer* writer,
         FabricDriver* driver, const LdOwners* owners, RegionRecorder* recorder,
         ActiveRegions* active, ProbePoints* probe,
         std::function<void(const std::string& host)> look)
      : retry_(retry),
        executor_(executor),
        clock_(clock),
        writer_(writer),
        driver_(driver),
        owners_(owners),
        recorder_(recorder),
        active_(active),
        probe_(probe),
        look_(std::move(look)) {}

  // Indices of the Region's extents that need no scrub any more: it succeeded, or the device has
  // failed for good, so that its bytes are given to nobody. Valid until the next call.
  const absl::flat_hash_set<uint32_t>& Done(const Region& region);

  // Begins with the first of `move`'s extents where that may be done now. Otherwise, or where a
  // scrub of the Region is under way, nothing is done, and a later step of the Region asks again.
  void Begin(const Region& region, const RegionMove& move);

  // The extents were given away: what comes to be at their indices was not scrubbed, whatever a
  // scrub says that is still under way.
  void ForgetDone(Key region);
  void Forget(Key region);

  // How many bytes of the Region are to be cleared yet; 0: none, as far as it is known. Any thread.
  uint64_t LeftBytes(Key region) const;

 private:
  struct OfRegion {
    bool under_way = false;
    uint64_t left_bytes = 0;  // To be cleared yet, the extent of a scrub under way with them.
    // The same without what that scrub has cleared; null: none are left.
    std::shared_ptr<std::atomic<uint64_t>> left = nullptr;
    uint64_t round = 0;  // Counts how often extents were given away.
    absl::flat_hash_set<uint32_t> done;
    std::string error;  // Of the last scrub; empty: none has failed since one succeeded.
    absl::Duration began = absl::ZeroDuration();  // The last scrub.
    absl::Duration not_before = absl::ZeroDuration();
  };

  void Ended(Key region, uint32_t extent, uint64_t round,
             const absl::StatusOr<ScrubResult>& result);
  void Waits(const Region& region, const std::string& what);
  // Takes note of what is left to be cleared of a Region, in the meter of all.
  void SetLeft(Key region, OfRegion& own, uint64_t bytes);

  const absl::Duration retry_;
  Executor* const executor_;
  Clock* const clock_;
  const Writer* const writer_;
  FabricDriver* const driver_;
  const LdOwners* const owners_;
  RegionRecorder* const recorder_;
  ActiveRegions* const active_;
  ProbePoints* const probe_;
  const std::function<void(const std::string&)> look_;
  std::map<Key, OfRegion> regions_;
  mutable Mutex left_mutex_;
  std::map<Key, std::shared_ptr<std::atomic<uint64_t>>> left_ ABSL_GUARDED_BY(left_mutex_);
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_SCRUBS_H_
