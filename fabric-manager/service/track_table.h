// What the Reconciler knows of each Attachment's world, found by generation, by Region and by host
// without looking at any other: a change of one Region, or a host that comes and goes, costs what
// it has itself, however large the pool is.
//
// Runs wholly on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_TRACK_TABLE_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_TRACK_TABLE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabric-manager/model/ladder/ladder.h"
#include "fabric-manager/service/offers.h"

namespace cxlpool::fm {

// Of one Attachment. Volatile: after a restart all of it is discovered and heard again.
struct Track {
  Key region = 0;
  std::string host;
  std::vector<SegmentKnown> known;
  std::vector<Segment> observed;   // As the agent last reported; serial 0: not yet.
  uint64_t observed_revision = 0;  // Of the Region that records it already; 0: look.
  int driver_calls = 0;            // Under way.
  uint64_t driver_epoch = 0;       // Of the last driver call that began or ended.
  std::array<std::optional<absl::Duration>, kMaxParts> coming_up_since;  // Of each part.
  OfferedWants wants = {};                                               // Standing with the agent.
  // The Offer that was made last, and what it was made of; revision 0: none stands.
  uint64_t offered_revision = 0;
  OfferedWants offered_wants = {};
  OfferTerms offered;
  std::set<uint64_t> met;  // Serials that a Bind was asked for: the host may have met them.
  uint32_t opens = 0;      // Bits: segments that applications have open, as the agent last said.
  absl::Duration not_before = absl::ZeroDuration();  // Backoff after a failed call.
  absl::Duration next_discover = absl::ZeroDuration();
  std::string stuck;  // Why the unbind is not proven yet.
};

class TrackTable {
 public:
  using Tracks = std::map<uint64_t, Track*>;  // By Attachment generation.

  // nullptr: there is none.
  Track* Find(uint64_t generation) const;
  // Made where there is none, and as long as the Attachment has segments.
  Track& Of(const Region& region, const Attachment& attachment);
  void Erase(uint64_t generation);

  // Valid until a track is made or erased.
  const Tracks& All() const { return all_; }
  const Tracks& OfRegion(Key region) const;
  const Tracks& OfHost(absl::string_view host) const;

 private:
  std::map<uint64_t, Track> tracks_;  // Where they are; the others point here.
  Tracks all_;
  std::map<Key, Tracks> by_region_;
  std::map<std::string, Tracks, std::less<>> by_host_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_TRACK_TABLE_H_
