#include "host-agent/service/attachments.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

absl::Status BadOffer(const v1::Offer& offer, absl::string_view what) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_OFFER",
                absl::StrCat("the manager's offer of ", offer.region_name(), " (",
                             offer.region_tag(), ") ", what),
                "run agent and manager of the same release");
}

bool IsKnown(v1::Offer::Want want) {
  return want == v1::Offer::WANT_ONLINE || want == v1::Offer::WANT_OFFLINE ||
         want == v1::Offer::WANT_EJECTED;
}

// BAD_OFFER where the segment is none that an agent could bring online: the manager is of another
// release, or broken. `serials`: those of the Offer so far.
absl::Status CheckSegment(const v1::Offer& offer, const v1::OfferedSegment& segment,
                          std::set<uint64_t>& serials) {
  if (segment.length_bytes() == 0) return BadOffer(offer, "has a segment without length");
  if (segment.want() != v1::Offer::WANT_UNSPECIFIED && !IsKnown(segment.want())) {
    return BadOffer(offer, "wants something of a segment that this agent does not know");
  }
  if (segment.targets_size() == 0 || segment.targets_size() > kMaxTargets) {
    return BadOffer(offer,
                    absl::StrCat("has a segment without targets, or with more than ", kMaxTargets));
  }
  const uint32_t granularity = segment.interleave_granularity_bytes();
  if (granularity != 0 && !IsInterleaveGranularity(granularity)) {
    return BadOffer(offer, absl::StrCat("has an interleave granularity of ", granularity));
  }
  if (segment.length_bytes() % static_cast<uint64_t>(segment.targets_size()) != 0) {
    return BadOffer(offer, "has a segment that its targets cannot share equally");
  }
  for (const v1::Target& target : segment.targets()) {
    if (target.serial() == 0) return BadOffer(offer, "has a target without serial");
    if (!serials.insert(target.serial()).second) return BadOffer(offer, "names a serial twice");
  }
  return absl::OkStatus();
}

// Checks the whole Offer before any of it is used. A serial may appear only once in it, because
// segments are found by their serials.
absl::Status CheckOffer(const v1::Offer& offer) {
  if (offer.region_tag().empty()) return BadOffer(offer, "has no tag");
  if (!IsKnown(offer.want())) return BadOffer(offer, "wants something this agent does not know");
  if (offer.mode() != v1::DEVDAX && offer.mode() != v1::SYSTEM_RAM) {
    return BadOffer(offer, "has a mode this agent does not know");
  }
  // One that a later manager knows would be taken for READ_WRITE, or for MOVABLE. To let go of it
  // neither is asked for.
  const bool is_known = v1::Access_IsValid(offer.access()) && v1::MemoryZone_IsValid(offer.zone());
  if (offer.want() == v1::Offer::WANT_ONLINE && !is_known &&
      !CXLPOOL_MUTANT("unknown-access-may-write")) {
    return BadOffer(offer, "has an access or a zone that this agent does not know");
  }
  if (offer.segments_size() > kMaxSegments) {
    return BadOffer(offer, absl::StrCat("has more than ", kMaxSegments, " segments"));
  }
  std::set<uint64_t> serials;
  for (const v1::OfferedSegment& segment : offer.segments()) {
    if (absl::Status s = CheckSegment(offer, segment, serials); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// A segment's own want comes first: a resize takes the last segments down while the others stay.
Want WantOf(const v1::Offer& offer, const v1::OfferedSegment& offered) {
  switch (offered.want() == v1::Offer::WANT_UNSPECIFIED ? offer.want() : offered.want()) {
    case v1::Offer::WANT_OFFLINE:
      return Want::kOffline;
    case v1::Offer::WANT_EJECTED:
      return Want::kEjected;
    default:
      return Want::kOnline;
  }
}

// The segment as offered, without any progress: Put adds that.
Segment SegmentOf(const v1::Offer& offer, const v1::OfferedSegment& offered) {
  Segment segment;
  segment.extent_index = offered.extent_index();
  segment.desired.want = WantOf(offer, offered);
  segment.desired.mode = offer.mode() == v1::SYSTEM_RAM ? Mode::kSystemRam : Mode::kDevdax;
  if (offer.zone() == v1::KERNEL && !CXLPOOL_MUTANT("kernel-zone-is-lost")) {
    segment.desired.zone = MemoryZone::kKernel;
  }
  segment.desired.host_bridge = offered.host_bridge();
  if (!CXLPOOL_MUTANT("granularity-is-lost")) {
    segment.desired.interleave_granularity_bytes = offered.interleave_granularity_bytes();
  }
  segment.desired.length_bytes = offered.length_bytes();
  for (const v1::Target& target : offered.targets()) {
    segment.desired.targets.push_back({.slot = target.slot(), .serial = target.serial()});
  }
  return segment;
}

// Whether `segment` came to `standing` later than its first Offer.
bool CameLater(const Attachment& standing, const Segment& segment) {
  for (const Segment& old : standing.segments) {
    if (old.extent_index == segment.extent_index) return old.appended;
  }
  return standing.wanted_online();
}

// A segment whose want is the same goes on where it was: errors, backoff and tries stay, and what
// the drain hook was run for.
void CarryProgress(const Segment& old, Segment& segment) {
  segment.error = old.error;
  segment.refused = old.refused;
  segment.failures = old.failures;
  segment.failed = old.failed;
  segment.hung = old.hung;
  segment.retry_at = old.retry_at;
  segment.desired.failed_remakes = old.desired.failed_remakes;
  if (CXLPOOL_MUTANT("same-offer-drains-anew")) return;
  segment.drains = old.drains;
  segment.drain_again = old.drain_again;
  segment.drain_at = old.drain_at;
  segment.drain_error = old.drain_error;
}

}  // namespace

AttachmentKey KeyOf(const v1::Offer& offer) {
  return {.generation = offer.attachment_generation(), .tag = offer.region_tag()};
}

// Stops at the first segment that is not online or is to go, because what an application maps has
// no gaps. If a segment that an Open waits for is at or behind that place, nothing is usable yet.
size_t UsableSegments(const Attachment& attachment, const HostObservation& host) {
  size_t usable = 0;
  bool gap = false;
  for (const Segment& segment : attachment.segments) {
    const bool wanted = segment.desired.want == Want::kOnline;
    gap |= !wanted || StateOf(segment.desired, host) != LadderState::kOnline;
    if (gap && wanted && !segment.appended) return 0;
    if (!gap) ++usable;
  }
  return usable;
}

// Changes the map only at the end: a refused Offer leaves the one before it in place.
absl::Status AttachmentTable::Put(v1::Offer offer) {
  if (absl::Status s = CheckOffer(offer); !s.ok()) return s;
  const AttachmentKey key = KeyOf(offer);
  const bool newer = !map_.contains(key) && FindByTag(key.tag) != nullptr;
  if (CXLPOOL_MUTANT("drop-newer-offer") && newer) return absl::OkStatus();
  // An Offer that replaces another always fits.
  if (map_.size() >= kMaxAttachments && map_.find(key) == map_.end()) {
    return BadOffer(offer, absl::StrCat("is one more than ", kMaxAttachments));
  }
  const auto standing = map_.find(key);
  std::vector<Segment> segments;
  for (const v1::OfferedSegment& offered : offer.segments()) {
    Segment segment = SegmentOf(offer, offered);
    if (standing != map_.end()) segment.appended |= CameLater(standing->second, segment);
    const Segment* old = FindSegment(key, segment.desired.first_serial());
    if (old != nullptr && old->desired.want == segment.desired.want) CarryProgress(*old, segment);
    segments.push_back(std::move(segment));
  }
  map_[key] = Attachment{.offer = std::move(offer), .segments = std::move(segments)};
  return absl::OkStatus();
}

void AttachmentTable::Erase(const AttachmentKey& key) { map_.erase(key); }

void AttachmentTable::KeepOnly(const std::vector<AttachmentKey>& keys) {
  std::erase_if(map_, [&](const auto& entry) {
    return std::find(keys.begin(), keys.end(), entry.first) == keys.end();
  });
}

// An orphan is recognized by its name and address, and starts afresh if it was missing at one look.
// A single young one holds up all: they can only be destroyed together.
bool AttachmentTable::OrphansAreOld(const HostObservation& host, absl::Duration now) {
  std::map<std::string, Orphan> before = std::exchange(orphans_, {});
  bool old = true;
  for (const ObservedHostRegion& region : host.regions) {
    if (!IsAnonymousOrphan(region)) continue;
    Orphan orphan{.hpa_bytes = region.hpa_bytes, .since = now};
    const auto known = before.find(region.name);
    if (known != before.end() && known->second.hpa_bytes == region.hpa_bytes)
      orphan = known->second;
    ++orphan.looks;
    old = old && orphan.looks >= kOrphanLooks && now - orphan.since >= kOrphanAge;
    orphans_.emplace(region.name, orphan);
  }
  return old && !orphans_.empty();
}

// The list is made again each time: the rungs for orphans are planned like those of an Offer, so
// what they have come to (CarryProgress) must not get lost.
void AttachmentTable::TakeOrphans(const HostObservation& host, absl::Duration now) {
  const Map::node_type before = map_.extract(kOrphans);  // From here on only Offers name serials.
  std::vector<Segment> orphans;
  for (const ObservedHostRegion& region : host.regions) {
    // Not an orphan: it has a memdev, or one that is not the pool's, or an Offer names it.
    if (std::any_of(region.serials.begin(), region.serials.end(), [&](uint64_t serial) {
          return serial != 0 && (!IsPoolSerial(serial) || FindMemdev(host, serial) != nullptr ||
                                 NamesSerial(serial));
        })) {
      continue;
    }
    Segment segment;
    segment.desired.want = Want::kOffline;
    segment.desired.length_bytes = region.size_bytes;
    for (const uint64_t serial : region.serials) {
      if (serial != 0) segment.desired.targets.push_back({.slot = 0, .serial = serial});
    }
    if (!segment.desired.targets.empty()) orphans.push_back(std::move(segment));
  }
  // Anonymous orphans have no serial to go by: one segment with serial 0 stands for all of them.
  if (OrphansAreOld(host, now)) {
    Segment anonymous;
    anonymous.desired.want = Want::kOffline;
    anonymous.desired.targets = {{.slot = 0, .serial = 0}};
    orphans.push_back(std::move(anonymous));
  }
  for (Segment& segment : orphans) {
    if (before.empty()) break;
    for (const Segment& old : before.mapped().segments) {
      if (old.desired.first_serial() != segment.desired.first_serial()) continue;
      CarryProgress(old, segment);
      segment.last_succeeded = old.last_succeeded;
    }
  }
  if (orphans.empty()) return;
  Attachment& standing = map_[kOrphans];
  standing.offer.set_want(v1::Offer::WANT_OFFLINE);
  standing.segments = std::move(orphans);
}

// The map is in order of generation, so the newest comes last.
const std::pair<const AttachmentKey, Attachment>* AttachmentTable::FindByName(
    const std::string& name) const {
  for (auto it = map_.rbegin(); it != map_.rend(); ++it) {
    if (it->second.offer.region_name() == name) return &*it;
  }
  return nullptr;
}

const std::pair<const AttachmentKey, Attachment>* AttachmentTable::FindByTag(
    const std::string& tag) const {
  for (auto it = map_.rbegin(); it != map_.rend(); ++it) {
    if (it->first.tag == tag) return &*it;
  }
  return nullptr;
}

// The pointer is valid until the table changes.
LogFields AttachmentTable::FieldsOf(const AttachmentKey& key, absl::string_view rung) const {
  const auto it = map_.find(key);
  if (it == map_.end()) return {};
  const v1::Offer& offer = it->second.offer;
  LogFields fields{.region = std::string(absl::StripPrefix(offer.region_name(), "regions/")),
                   .tenant = std::string(absl::StripPrefix(offer.tenant(), "tenants/")),
                   .rung = std::string(rung)};
  ParseUuid(offer.request_id(), fields.request_id);
  return fields;
}

Segment* AttachmentTable::FindSegment(const AttachmentKey& key, uint64_t first_serial) {
  const auto it = map_.find(key);
  if (it == map_.end()) return nullptr;
  for (Segment& segment : it->second.segments) {
    if (segment.desired.first_serial() == first_serial) return &segment;
  }
  return nullptr;
}

bool AttachmentTable::NamesSerial(uint64_t serial) const {
  for (const auto& [key, attachment] : map_) {
    for (const Segment& segment : attachment.segments) {
      for (const DesiredTarget& target : segment.desired.targets) {
        if (target.serial == serial) return true;
      }
    }
  }
  return false;
}

}  // namespace cxlpool::agent
