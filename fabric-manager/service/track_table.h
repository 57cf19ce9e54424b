// What the manager knows of each Attachment's world (its Track), found by generation, by Region, by
// host and by the serial of a segment without looking at any other Track: a change of one Region, a
// host that comes and goes, or a report about one segment costs what it has itself, however large
// the pool is.
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

// What is known of one Attachment. Volatile: after a restart all of it is looked at, and reported,
// again.
struct Track {
  Key region = 0;
  std::string host;
  // Of each segment: the host's side is AgentSide's, the fabric's side FabricCalls'.
  std::vector<SegmentKnown> known;
  std::array<std::optional<absl::Duration>, kMaxParts> coming_up_since;  // Of each part.
  absl::Duration next_discover = absl::ZeroDuration();  // The next step that may have it looked at.

  // AgentSide's.
  std::vector<Segment> observed;   // As the agent last reported; serial 0: not yet.
  uint64_t observed_revision = 0;  // Of the Region that records it already; 0: look.
  OfferedWants wants = {};         // Standing with the agent.
  // The Offer that was made last, and what it was made of; revision 0: none stands.
  uint64_t offered_revision = 0;
  OfferedWants offered_wants = {};
  OfferTerms offered;
  uint32_t opens = 0;  // Bits: segments that applications have open, as the agent last said.

  // FabricCalls'.
  int driver_calls = 0;              // Under way.
  bool life_ended = false;           // While they were: then nothing of it is bound.
  uint64_t driver_epoch = 0;         // Of the last driver call that began or ended.
  std::set<uint64_t> serials_tried;  // A Bind was asked for: the host may have seen the LD.
  absl::Duration not_before = absl::ZeroDuration();  // No call begins earlier: the last one failed.
  std::string stuck;                                 // Why the unbind is not proven yet.
};

class TrackTable {
 public:
  using Tracks = std::map<uint64_t, Track*>;  // By Attachment generation.

  // nullptr: there is none.
  Track* Find(uint64_t generation) const;
  // The Attachment's Track, with an entry for each segment that the Attachment has. It is made
  // where there is none.
  Track& Of(const Region& region, const Attachment& attachment);
  // Has the Track found by the serials of `attachment` from now on, and by no others. To be called
  // whenever a change of the Attachment is durable; a new Track has its serials from Of. Nothing
  // happens where there is no Track.
  void SetSerials(const Attachment& attachment);
  void Erase(uint64_t generation);

  // Valid until a track is made or erased.
  const Tracks& All() const { return all_; }
  const Tracks& OfRegion(Key region) const;
  const Tracks& OfHost(absl::string_view host) const;
  // Of that host, with a segment by that serial. Mostly one; hardware that has serials of its own
  // may show one of them again while the Track of an earlier Attachment is still there.
  const Tracks& OfSerial(absl::string_view host, uint64_t serial) const;

 private:
  struct Entry {
    Track track;
    std::vector<uint64_t> serials;  // By which it is found.
  };

  void RemoveSerials(uint64_t generation, Entry& entry);

  std::map<uint64_t, Entry> tracks_;  // Where they are; the others point here.
  Tracks all_;
  std::map<Key, Tracks> by_region_;
  std::map<std::string, Tracks, std::less<>> by_host_;
  std::map<std::string, std::map<uint64_t, Tracks>, std::less<>> by_serial_;  // Of each host.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_TRACK_TABLE_H_
