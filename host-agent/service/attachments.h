// What the manager wants of this host: the Offers that stand, and how the work on each goes.
//
// Offers are levels: one stands until it is replaced, withdrawn, or missing from a later Welcome.
// Ordered by the Attachment's generation, which is the order in which host regions are made.
// Not thread-safe; owned by AgentCore.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_ATTACHMENTS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_ATTACHMENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/model/online_plan.h"
#include "host-agent/ports/process_watch.h"
#include "proto/support/log.h"

namespace cxlpool::agent {

inline constexpr size_t kMaxAttachments = 1024;
inline constexpr int kMaxSegments = 64;
inline constexpr int kMaxTargets = kMaxInterleaveWays;

struct AttachmentKey {
  uint64_t generation = 0;
  std::string tag;
  friend auto operator<=>(const AttachmentKey&, const AttachmentKey&) = default;
};

// The key of host regions that belong to no Offer: see TakeOrphans.
inline const AttachmentKey kOrphans = {};

inline constexpr absl::Duration kOrphanAge = absl::Seconds(30);
inline constexpr int kOrphanLooks = 3;

// One host region to make or take away, and how that goes.
struct Segment {
  uint32_t extent_index = 0;
  DesiredSegment desired;  // `want` is the segment's own, or else the Offer's.

  // It came to an Attachment that stood: an Open does not wait for it.
  bool appended = false;

  std::optional<v1::SegmentError> error;
  bool refused = false;  // `error` came from the plan, not from a rung.
  int failures = 0;      // Of rung `failed`, without success in between.
  Step::Kind failed = Step::Kind::kDone;
  int hung = 0;                        // Offlinings in a row that ran into their deadline.
  absl::Duration retry_at;             // On the clock's Elapsed; no rung before.
  std::optional<Step> last_succeeded;  // Its postcondition is yet to be read back.
  absl::Duration powered_off_at;       // The last time that it succeeded.

  // Who has the memory that a process opened which has ended, as was seen last.
  std::vector<ProcessId> heirs;
  absl::Duration heirs_at;  // On the clock's Elapsed; not looked for before.

  // The drain hook's runs since the segment is to go.
  int drains = 0;            // That have ended.
  bool drain_again = false;  // The memory was found held since the last one.
  absl::Duration drain_at;   // On the clock's Elapsed; no further run before.
  std::string drain_error;   // Of the last one; empty: it ended well.
};

struct Attachment {
  v1::Offer offer;
  std::vector<Segment> segments;  // In Region order.

  bool wanted_online() const { return offer.want() == v1::Offer::WANT_ONLINE; }
};

class AttachmentTable {
 public:
  using Map = std::map<AttachmentKey, Attachment>;

  // Replaces the Offer of the same key, however its name and segments differ. Progress of a
  // segment is kept where the want is the same; another want starts afresh. A segment that is no
  // longer named is forgotten. INVALID_ARGUMENT/BAD_OFFER: nothing changed.
  absl::Status Put(v1::Offer offer);

  // Not there: no effect.
  void Erase(const AttachmentKey& key);

  // Forgets all that are not in `keys`.
  void KeepOnly(const std::vector<AttachmentKey>& keys);

  // Lists orphans under kOrphans, as if an Offer wanted them OFFLINE, until they are gone: host
  // regions of the pool's serials only, named by no Offer, none of whose memdevs is there. They
  // have no bytes, and each keeps a decoder.
  //
  // Anonymous orphans go by serial 0, all together, once each has been there for kOrphanAge and was
  // seen kOrphanLooks times: before that, a person might be about to make a host region.
  void TakeOrphans(const HostObservation& host, absl::Duration now);

  // The newest Attachment of a Region name; null if there is none.
  const std::pair<const AttachmentKey, Attachment>* FindByName(const std::string& name) const;

  // The newest Attachment of a Region, whatever its name; null if there is none.
  const std::pair<const AttachmentKey, Attachment>* FindByTag(const std::string& tag) const;

  Segment* FindSegment(const AttachmentKey& key, uint64_t first_serial);
  bool NamesSerial(uint64_t serial) const;

  // Of the log's lines about `rung` of that Attachment; nothing of one that is not there.
  LogFields FieldsOf(const AttachmentKey& key, absl::string_view rung) const;

  Map& all() { return map_; }
  const Map& all() const { return map_; }

 private:
  struct Orphan {
    uint64_t hpa_bytes = 0;
    absl::Duration since;
    int looks = 0;
  };

  // Whether there are orphans, and each has been there for long enough.
  bool OrphansAreOld(const HostObservation& host, absl::Duration now);

  Map map_;
  std::map<std::string, Orphan> orphans_;  // By name of the host region.
};

AttachmentKey KeyOf(const v1::Offer& offer);

// How many leading segments an application may map now: those that are wanted online and are. 0
// while one that an Open waits for is not among them.
size_t UsableSegments(const Attachment& attachment, const HostObservation& host);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_ATTACHMENTS_H_
