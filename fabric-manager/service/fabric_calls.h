// Calls to the fabric driver about Attachments, and what is known of the fabric's side of each of
// their segments (Track::known): from the answers to these calls, and from looks at the fabric.
//
// Both arrive late, and in any order. What decides which of them to believe is an epoch, a number
// that goes up whenever a call begins, whenever one ends, and whenever something else is proven of
// an Attachment. A look has the epoch in which it began. It is believed of an Attachment only if no
// call about that Attachment is under way, and none has begun or ended since the look began: what
// it shows may otherwise be of before the call.
//
// An answer that is an error proves nothing, whatever it says was done: the fabric's side is
// unknown then, and has to be looked at. There are no calls about that Attachment for
// Options::retry.
//
// Runs wholly on the executor; the driver's answers may come from any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_FABRIC_CALLS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_FABRIC_CALLS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/active_regions.h"
#include "fabric-manager/service/probe.h"
#include "fabric-manager/service/track_table.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

// What is kept and logged of an error of the fabric's: its beginning. Such texts come to stand in
// records, of which the store takes only so much, and in lists that everybody is sent.
inline constexpr size_t kMaxFabricError = 1024;
std::string FabricErrorText(absl::string_view message, size_t max_bytes = kMaxFabricError);

class FabricCalls {
 public:
  struct Options {
    absl::Duration retry = absl::Milliseconds(500);  // After a call that failed.
    absl::Duration unbind_wait = absl::Seconds(5);   // One wait for a proof; then again.
  };

  // `ended`: a call about the Attachment of this generation has ended, and its Track says what came
  // of it.
  FabricCalls(Options options, Executor* executor, Clock* clock, const Writer* writer,
              FabricDriver* driver, TrackTable* tracks, ProbePoints* probe,
              std::function<void(uint64_t generation)> ended);

  // Whether a call about the Attachment may begin now: none is under way, and the last that failed
  // was long enough ago.
  bool MayCall(const Track& track) const;
  // Lets no call about it begin for Options::retry.
  void BackOff(Track& track);

  // Segments of `move` are bound in the life `incarnation` of the host, under `claim`. They count
  // from the part's first. Only where MayCall, as the next two.
  void Bind(const Region& region, const Attachment& attachment, size_t part, Track& track,
            const Move& move, const std::string& incarnation, uint64_t claim);
  // Asks the fabric to take LDs of one part away. That it has begun proves nothing.
  void BeginUnbind(const Region& region, const Attachment& attachment, size_t part, Track& track,
                   const Move& move);
  // Asks the fabric for proof that the host has let go of what the part still has. Where there is
  // none in Options::unbind_wait, Track::stuck says why.
  void AwaitUnbound(const Region& region, const Attachment& attachment, size_t part, Track& track);

  // Something else than a call is proof that nothing of the Attachment is bound: its host was
  // fenced.
  void MarkUnbound(Track& track);

  // The life of the host that the Attachment is bound in has ended, which proves the same. Calls
  // that are under way end first: a Bind of the former life has no effect in another, but its
  // answer may still come.
  void LifeEnded(Track& track);

  // Takes from a look what it shows of the Attachments of `only` (empty: of all), as far as it is
  // to be believed, and touches the Regions of which that is news. `epoch`: in which the look
  // began. `is_gone`: whether nothing can be bound on this host any more, whatever is shown.
  void TakeView(const std::string& only, const FabricView& view, uint64_t epoch,
                const std::function<bool(const std::string& host)>& is_gone, ActiveRegions& active);

  uint64_t epoch() const { return epoch_; }
  // A look that began in `epoch` says nothing of this Attachment.
  bool IsStale(const Track& track, uint64_t epoch) const {
    return track.driver_calls > 0 || track.driver_epoch > epoch;
  }

  // Erases the Track of an Attachment that is gone. Looks that are under way may still show its
  // LDs.
  void Drop(uint64_t generation, bool looks_under_way);
  // A Track of the host was dropped after a look began in `epoch`.
  bool DroppedSince(const std::string& host, uint64_t epoch) const;

 private:
  void Began(Track& track);
  // Posts to the executor; `then` sees the segment if the Attachment is still there.
  void Ended(uint64_t generation, uint32_t segment,
             std::function<void(Track&, SegmentKnown&)> then);

  const Options options_;
  Executor* const executor_;
  Clock* const clock_;
  const Writer* const writer_;
  FabricDriver* const driver_;
  const bool chooses_serial_;  // As the driver says of itself.
  TrackTable* const tracks_;
  ProbePoints* const probe_;
  const std::function<void(uint64_t)> ended_;
  uint64_t epoch_ = 1;
  // Host to the epoch in which the last of its tracks was dropped while something was looked at.
  std::map<std::string, uint64_t> dropped_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_FABRIC_CALLS_H_
