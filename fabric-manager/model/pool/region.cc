#include "fabric-manager/model/pool/region.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cxlpool::fm {

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

void Attachment::TurnDown(const std::string& why) {
  detaching = true;
  reason = why;
  // What has left already stays away: its slots may be somebody else's.
  if (tail.has_value() && tail->state == AttachmentState::kUnbound) {
    segments.resize(tail->first_segment);
  }
  tail.reset();
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
