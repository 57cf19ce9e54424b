#include "fabric-manager/model/pool/region.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

// The first part begins with the first segment; each later one has some, and leaves some to those
// before it.
absl::Status CheckParts(const Region& region, const Attachment& attachment) {
  const auto& parts = attachment.parts;
  bool ok = !parts.empty() && parts.size() <= kMaxParts && parts.front().first_segment == 0;
  for (size_t i = 1; ok && i < parts.size(); ++i) {
    ok = parts[i].first_segment > parts[i - 1].first_segment &&
         parts[i].first_segment < attachment.segments.size();
  }
  if (ok) return absl::OkStatus();
  return Broken("region \"", region.id, "\" on host \"", attachment.host, "\": its ", parts.size(),
                " parts do not share its ", attachment.segments.size(), " segments");
}

// Pairwise different; there are a few at most, or it is rare.
template <typename Values>
bool Distinct(Values values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) == values.end();
}

}  // namespace

// Here and below: the words of the API. UNKNOWN: a number that stands for no value.
absl::string_view ToString(RegionState state) {
  switch (state) {
    case RegionState::kReserved:
      return "RESERVED";
    case RegionState::kAllocated:
      return "ALLOCATED";
    case RegionState::kReleasing:
      return "RELEASING";
    case RegionState::kScrubbing:
      return "SCRUBBING";
    case RegionState::kFailed:
      return "FAILED";
    case RegionState::kQuarantined:
      return "QUARANTINED";
  }
  return "UNKNOWN";
}

absl::string_view ToString(AttachmentState state) {
  switch (state) {
    case AttachmentState::kWanted:
      return "WANTED";
    case AttachmentState::kBound:
      return "BOUND";
    case AttachmentState::kOnline:
      return "ONLINE";
    case AttachmentState::kOffline:
      return "OFFLINE";
    case AttachmentState::kEjecting:
      return "EJECTING";
    case AttachmentState::kUnbound:
      return "UNBOUND";
    case AttachmentState::kReleaseBlocked:
      return "RELEASE_BLOCKED";
  }
  return "UNKNOWN";
}

absl::string_view ToString(Sharing sharing) {
  switch (sharing) {
    case Sharing::kExclusive:
      return "EXCLUSIVE";
    case Sharing::kSingleWriter:
      return "SINGLE_WRITER";
    case Sharing::kMultiWriter:
      return "MULTI_WRITER";
  }
  return "UNKNOWN";
}

absl::string_view ToString(Zone zone) {
  switch (zone) {
    case Zone::kMovable:
      return "MOVABLE";
    case Zone::kKernel:
      return "KERNEL";
  }
  return "UNKNOWN";
}

absl::string_view ToString(Mode mode) {
  switch (mode) {
    case Mode::kDevdax:
      return "DEVDAX";
    case Mode::kSystemRam:
      return "SYSTEM_RAM";
  }
  return "UNKNOWN";
}

absl::string_view ToString(Policy policy) {
  switch (policy) {
    case Policy::kPack:
      return "PACK";
    case Policy::kSpread:
      return "SPREAD";
    case Policy::kBandwidth:
      return "BANDWIDTH";
    case Policy::kLatency:
      return "LATENCY";
    case Policy::kIsolate:
      return "ISOLATE";
  }
  return "UNKNOWN";
}

absl::string_view ToString(Access access) {
  switch (access) {
    case Access::kReadWrite:
      return "READ_WRITE";
    case Access::kReadOnly:
      return "READ_ONLY";
  }
  return "UNKNOWN";
}

const Part& Attachment::PartOf(size_t segment) const {
  size_t part = 0;
  while (part + 1 < parts.size() && segment >= parts[part + 1].first_segment) ++part;
  return parts[part];
}

size_t Attachment::EndOf(size_t part) const {
  return part + 1 < parts.size() ? parts[part + 1].first_segment : segments.size();
}

void Attachment::Join() { parts.resize(1); }

// The parts behind it begin earlier by as many segments as went.
void Attachment::Remove(size_t part) {
  const size_t first = parts[part].first_segment;
  const size_t end = EndOf(part);
  segments.erase(segments.begin() + first, segments.begin() + end);
  parts.erase(parts.begin() + part);
  for (size_t later = part; later < parts.size(); ++later) {
    parts[later].first_segment -= static_cast<uint32_t>(end - first);
  }
}

void Attachment::TurnDown(const std::string& why, const Uuid& request) {
  // What has left already stays away: its slots may be somebody else's.
  for (size_t part = parts.size(); part-- > 1;) {
    if (parts[part].state == AttachmentState::kUnbound) Remove(part);
  }
  Join();
  settled().detaching = true;
  settled().reason = why;
  request_id = request;
}

// Only a Region of which a time changes is copied. What every Region goes through sets its time by
// itself: made, released, scrubbed.
RegionPtr WithTimes(RegionPtr region, const Region* before, absl::Time now) {
  std::shared_ptr<Region> edited;
  const auto edit = [&]() -> Region& {
    if (edited == nullptr) edited = std::make_shared<Region>(*region);
    return *edited;
  };
  if ((before == nullptr || before->state != region->state) && region->state_since != now) {
    edit().state_since = now;
  }
  for (size_t i = 0; i < region->attachments.size(); ++i) {
    const Attachment& attachment = region->attachments[i];
    const Attachment* was = before == nullptr ? nullptr : before->FindAttachment(attachment.host);
    if (was != nullptr && was->generation != attachment.generation) was = nullptr;
    for (size_t k = 0; k < attachment.parts.size(); ++k) {
      const Part& part = attachment.parts[k];
      const bool moved = was == nullptr || k >= was->parts.size() ||
                         was->parts[k].state != part.state ||
                         (was->parts[k].detaching != part.detaching &&
                          !CXLPOOL_MUTANT("going-down-keeps-the-old-time"));
      if (moved && part.since != now) edit().attachments[i].parts[k].since = now;
    }
  }
  return edited == nullptr ? region : edited;
}

uint64_t Region::size_bytes() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < settled_extents(); ++i) sum += extents[i].length_bytes;
  return sum;
}

uint64_t Region::held_bytes() const {
  uint64_t sum = 0;
  for (const Extent& extent : extents) sum += extent.length_bytes;
  return sum;
}

bool Region::HasBytesOn(absl::string_view device) const {
  return std::any_of(extents.begin(), extents.end(),
                     [&](const Extent& extent) { return extent.device.str() == device; });
}

const BadExtent* Region::FindBad(size_t extent) const {
  const auto at = std::find_if(bad.begin(), bad.end(),
                               [&](const BadExtent& b) { return b.extent_index == extent; });
  return at == bad.end() ? nullptr : &*at;
}

const Attachment* Region::FindAttachment(absl::string_view host) const {
  const auto it = std::find_if(attachments.begin(), attachments.end(),
                               [host](const Attachment& a) { return a.host == host; });
  return it == attachments.end() ? nullptr : &*it;
}

Attachment* Region::FindAttachment(absl::string_view host) {
  return const_cast<Attachment*>(static_cast<const Region*>(this)->FindAttachment(host));
}

std::string Region::etag() const {
  return absl::StrCat(absl::Hex(generation), "-", absl::Hex(revision));
}

// Whether the record makes sense by itself, without any other: what a writer of records, a database
// on disk or a planner might have got wrong. Whether its bytes and slots are free is what the
// indices say.
absl::Status CheckShape(const Region& region) {
  const auto broken = [&](const auto&... why) {
    return Broken("region \"", region.id, "\" ", why...);
  };
  if (region.key == 0 || region.tag.empty() || region.id.empty()) {
    return broken("lacks a key, a tag or an id");
  }
  if (region.extents.empty() || region.extents.size() > kMaxExtentsPerRegion) {
    return broken("has ", region.extents.size(), " extents");
  }
  if (region.tail_extents >= region.extents.size()) return broken("is all tail");
  if (region.interleave_ways == 0 || region.extents.size() % region.interleave_ways != 0 ||
      region.tail_extents % region.interleave_ways != 0) {
    return broken("has ", region.extents.size(), " extents, ", region.interleave_ways, " ways");
  }
  for (size_t i = 0; i < region.bad.size(); ++i) {
    const BadExtent& bad = region.bad[i];
    if (bad.extent_index >= region.extents.size() || bad.reason.empty() ||
        (i > 0 && bad.extent_index <= region.bad[i - 1].extent_index)) {
      return broken("has a bad extent ", bad.extent_index, " that is none, or is twice");
    }
  }
  if (region.attachments.empty()) return absl::OkStatus();
  if (region.attachments.size() > kMaxAttachmentsPerRegion) {
    return broken("has ", region.attachments.size(), " attachments");
  }
  if (region.state == RegionState::kScrubbing)
    return broken("is being scrubbed while it is attached");
  absl::InlinedVector<uint64_t, kMaxExtentsPerRegion> serials;
  absl::InlinedVector<uint64_t, 8> generations;
  for (size_t i = 0; i < region.attachments.size(); ++i) {
    const Attachment& attachment = region.attachments[i];
    if (i > 0 && !(region.attachments[i - 1].host < attachment.host)) {
      return broken("has attachments that are not in order of host");
    }
    generations.push_back(attachment.generation);
    if (absl::Status status = CheckParts(region, attachment); !status.ok()) return status;
    for (const Segment& segment : attachment.segments) {
      if (segment.extent_index >= region.extents.size()) {
        return broken("has a segment of extent ", segment.extent_index);
      }
      if (segment.serial == 0) return broken("has a serial of zero");
      serials.push_back(segment.serial);
    }
  }
  if (!Distinct(std::move(generations))) return broken("has a generation twice");
  if (!Distinct(std::move(serials))) return broken("has a serial twice");
  return absl::OkStatus();
}

// The ladder of region.h. Each state may be written again, and proof that nothing is bound ends
// every one of them: a host may lose its memory at any rung.
bool MayFollow(AttachmentState from, AttachmentState to) {
  using enum AttachmentState;
  if (from == to) return true;
  if (to == kUnbound) return true;
  switch (from) {
    case kWanted:
      return to == kBound || to == kOffline;
    case kBound:
      return to == kOnline || to == kOffline || to == kReleaseBlocked || to == kWanted;
    case kOnline:
      return to == kOffline || to == kReleaseBlocked || to == kBound || to == kWanted;
    case kReleaseBlocked:
      return to == kOffline;
    case kOffline:
      return to == kEjecting;
    case kEjecting:
    case kUnbound:
      return false;
  }
  return false;
}

// What comes after SCRUBBING and FAILED is no state: the Region is gone then.
bool MayFollow(RegionState from, RegionState to) {
  using enum RegionState;
  if (from == to) return true;
  switch (from) {
    case kReserved:
      return to == kAllocated || to == kReleasing || to == kFailed || to == kQuarantined;
    case kAllocated:
      return to == kReleasing || to == kQuarantined;
    case kReleasing:
      return to == kScrubbing;
    case kQuarantined:
      return to == kReleasing;
    case kScrubbing:
    case kFailed:
      return false;
  }
  return false;
}

}  // namespace cxlpool::fm
