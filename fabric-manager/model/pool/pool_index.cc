// PoolState's indices: what a Region takes of devices, hosts and names, and what it may not.

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "proto/support/check.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... what) {
  return absl::InternalError(absl::StrCat(what...));
}

// What a segment takes of its host; nothing once it is proven unbound.
bool Occupies(const Attachment& attachment, size_t segment) {
  if (attachment.tail.has_value() && segment >= attachment.tail->first_segment) {
    return attachment.tail->state != AttachmentState::kUnbound;
  }
  return attachment.state != AttachmentState::kUnbound;
}

OccupiedSlot SlotOf(const Region& region, const Attachment& attachment, size_t index) {
  const Segment& segment = attachment.segments[index];
  const bool tail = attachment.tail.has_value() && index >= attachment.tail->first_segment;
  OccupiedSlot slot;
  slot.region = region.key;
  slot.region_id = region.id;
  slot.generation = attachment.generation;
  slot.state = tail && !attachment.detaching ? attachment.tail->state : attachment.state;
  slot.detaching = attachment.detaching || (tail && attachment.tail->detaching);
  slot.held = attachment.held;
  slot.slot = segment.slot;
  slot.host_bridge = segment.host_bridge;
  slot.serial = segment.serial;
  slot.hpa_bytes = segment.hpa_bytes;
  slot.length_bytes = region.extents[segment.extent_index].length_bytes;
  slot.set = segment.extent_index - segment.extent_index % region.interleave_ways;
  slot.ways = region.interleave_ways;
  slot.expected_lifetime = region.expected_lifetime;
  return slot;
}

bool BySlot(const OccupiedSlot& a, const OccupiedSlot& b) { return a.slot < b.slot; }

// Whether the same LDs are meant in the same slots.
bool SamePlaces(const Attachment& a, const Attachment& b) {
  return a.generation == b.generation && a.host == b.host &&
         std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
                    [](const Segment& x, const Segment& y) {
                      return x.serial == y.serial && x.slot == y.slot &&
                             x.extent_index == y.extent_index;
                    });
}

uint64_t AttachedBytesOf(const Region& region, const Attachment& attachment) {
  uint64_t bytes = 0;
  for (const Segment& segment : attachment.segments) {
    bytes += region.extents[segment.extent_index].length_bytes;
  }
  return bytes;
}

absl::Status CheckTail(const Region& region, const Attachment& attachment) {
  const auto& tail = attachment.tail;
  if (tail.has_value() &&
      (tail->first_segment == 0 || tail->first_segment >= attachment.segments.size())) {
    return Broken("region \"", region.id, "\": a tail of no segments, or of all: from ",
                  tail->first_segment, " of ", attachment.segments.size());
  }
  return absl::OkStatus();
}

// Pairwise different; there are a few at most, or it is rare.
template <typename Values>
bool Distinct(Values values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) == values.end();
}

// Where bytes are counted. Those of a bad Extent are lost to the pool at once.
uint64_t& Counter(DeviceUse& use, RegionState state, bool bad) {
  switch (bad ? RegionState::kQuarantined : state) {
    case RegionState::kScrubbing:
      return use.scrubbing_bytes;
    case RegionState::kQuarantined:
      return use.quarantined_bytes;
    default:
      return use.held_bytes;
  }
}

uint64_t UnusedOf(const Tenant& tenant, const TenantUse& use) {
  return tenant.reserved_bytes - std::min(tenant.reserved_bytes, use.held_bytes);
}

}  // namespace

// What a Region must be like by itself.
absl::Status PoolState::CheckShape(const Region& region) {
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
    if (absl::Status status = CheckTail(region, attachment); !status.ok()) return status;
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

unsigned PoolState::PartsThatDiffer(const Region& before, const Region& after) {
  unsigned parts = 0;
  if (before.id != after.id || before.tag != after.tag) parts |= kNames;
  if (before.requests != after.requests) parts |= kRequests;
  const auto use = [](RegionState state) {
    return state == RegionState::kScrubbing || state == RegionState::kQuarantined
               ? state
               : RegionState::kAllocated;
  };
  if (before.extents != after.extents || before.tenant != after.tenant || before.bad != after.bad ||
      use(before.state) != use(after.state)) {
    parts |= kExtents;
  }
  const bool attached = !before.attachments.empty() || !after.attachments.empty();
  if (attached && (before.attachments != after.attachments || (parts & kExtents) != 0 ||
                   before.id != after.id || before.interleave_ways != after.interleave_ways)) {
    parts |= kAttachments;
  }
  return parts;
}

absl::Status PoolState::CheckAttachments(const Region& region) const {
  for (const Attachment& attachment : region.attachments) {
    if (generations_.contains(attachment.generation)) {
      return Broken("region \"", region.id, "\": generation ", attachment.generation, " twice");
    }
    const std::vector<OccupiedSlot>& occupied = Occupied(attachment.host);
    absl::flat_hash_set<uint32_t> own;
    for (size_t i = 0; i < attachment.segments.size(); ++i) {
      const Segment& segment = attachment.segments[i];
      if (by_serial_.contains(segment.serial)) {
        return Broken("region \"", region.id, "\": serial ", segment.serial, " twice");
      }
      if (!Occupies(attachment, i)) continue;
      const bool taken = std::any_of(occupied.begin(), occupied.end(),
                                     [&](const auto& other) { return other.slot == segment.slot; });
      if (taken || !own.insert(segment.slot).second) {
        return Broken("region \"", region.id, "\": slot ", segment.slot, " of host \"",
                      attachment.host, "\" is taken");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PoolState::TakeExtents(const Region& region) {
  for (size_t i = 0; i < region.extents.size(); ++i) {
    const Extent& extent = region.extents[i];
    const auto index = IndexOf(extent.device);
    absl::Status status = index.has_value()
                              ? space_.Take(*index, extent.dpa_bytes, extent.length_bytes)
                              : Broken("no such device");
    if (status.ok()) continue;
    for (size_t taken = 0; taken < i; ++taken) {
      const Extent& back = region.extents[taken];
      CXLPOOL_CHECK_OK(space_.Give(*IndexOf(back.device), back.dpa_bytes, back.length_bytes),
                       "region \"", region.id, "\": extent ", taken, " cannot be given back");
    }
    return Broken("region \"", region.id, "\", extent ", i, " on device \"", extent.device.str(),
                  "\": ", status.message());
  }
  Charge(region, 1);
  return absl::OkStatus();
}

void PoolState::GiveExtents(const Region& region) {
  Charge(region, -1);
  for (const Extent& extent : region.extents) {
    CXLPOOL_CHECK_OK(space_.Give(*IndexOf(extent.device), extent.dpa_bytes, extent.length_bytes),
                     "region \"", region.id, "\": an extent of device \"", extent.device.str(),
                     "\" cannot be given back");
  }
}

void PoolState::Charge(const Region& region, int64_t sign) {
  for (size_t i = 0; i < region.extents.size(); ++i) {
    const Extent& extent = region.extents[i];
    const DeviceIndex index = *IndexOf(extent.device);
    DeviceUse& use = use_[index];
    uint64_t& counted = Counter(use, region.state, region.FindBad(i) != nullptr);
    CXLPOOL_CHECK(sign > 0 || (counted >= extent.length_bytes && use.lds > 0), "region \"",
                  region.id, "\" gives back more of device \"", extent.device.str(),
                  "\" than is held there");
    counted += sign * extent.length_bytes;
    use.lds += static_cast<uint32_t>(sign);
    if (MaxLds(index) != UINT32_MAX) UpdateUsable(index);
  }
  if (CXLPOOL_MUTANT("quota-forgets-scrubbing") && region.state == RegionState::kScrubbing) return;
  ChargeTenant(region.tenant, sign * static_cast<int64_t>(region.held_bytes()), sign);
}

void PoolState::ChargeTenant(Interned tenant, int64_t bytes, int64_t regions) {
  const Tenant* known = tenants_.empty() ? nullptr : FindTenant(tenant);
  TenantUse& use = tenant_use_[tenant];
  if (known != nullptr) promised_bytes_ -= UnusedOf(*known, use);
  use.held_bytes += static_cast<uint64_t>(bytes);
  use.regions += static_cast<uint64_t>(regions);
  if (known != nullptr) promised_bytes_ += UnusedOf(*known, use);
}

uint64_t PoolState::Unused(const Tenant& tenant) const {
  return UnusedOf(tenant, UseOf(Interned(tenant.id)));
}

void PoolState::IndexAttachments(const Region& region) {
  for (const Attachment& attachment : region.attachments) {
    generations_.insert(attachment.generation);
    HostUse& use = host_use_[attachment.host];
    use.attached[region.tenant] += AttachedBytesOf(region, attachment);
    for (size_t i = 0; i < attachment.segments.size(); ++i) {
      by_serial_[attachment.segments[i].serial] = region.key;
      if (!Occupies(attachment, i)) continue;
      const OccupiedSlot slot = SlotOf(region, attachment, i);
      use.occupied.insert(std::upper_bound(use.occupied.begin(), use.occupied.end(), slot, BySlot),
                          slot);
    }
  }
}

void PoolState::UnindexAttachments(const Region& region) {
  for (const Attachment& attachment : region.attachments) {
    generations_.erase(attachment.generation);
    HostUse& use = host_use_[attachment.host];
    const auto attached = use.attached.find(region.tenant);
    const uint64_t bytes = AttachedBytesOf(region, attachment);
    CXLPOOL_CHECK(attached != use.attached.end() && attached->second >= bytes, "region \"",
                  region.id, "\" is not counted among what host \"", attachment.host, "\" has");
    attached->second -= bytes;
    if (attached->second == 0) use.attached.erase(attached);
    for (const Segment& segment : attachment.segments) by_serial_.erase(segment.serial);
    std::erase_if(use.occupied,
                  [&](const OccupiedSlot& slot) { return slot.region == region.key; });
  }
}

bool PoolState::MoveAttachments(const Region& before, const Region& now) {
  if (before.attachments.size() != now.attachments.size()) return false;
  for (size_t a = 0; a < now.attachments.size(); ++a) {
    const Attachment& was = before.attachments[a];
    const Attachment& is = now.attachments[a];
    if (!SamePlaces(was, is)) return false;
    for (size_t i = 0; i < is.segments.size(); ++i) {
      if (Occupies(is, i) && !Occupies(was, i)) return false;
    }
  }
  for (size_t a = 0; a < now.attachments.size(); ++a) {
    const Attachment& is = now.attachments[a];
    std::vector<OccupiedSlot>& occupied = host_use_.find(is.host)->second.occupied;
    for (size_t i = 0; i < is.segments.size(); ++i) {
      if (!Occupies(before.attachments[a], i)) continue;
      const auto slot = std::find_if(
          occupied.begin(), occupied.end(),
          [&](const OccupiedSlot& other) { return other.slot == is.segments[i].slot; });
      CXLPOOL_CHECK(slot != occupied.end(), "region \"", now.id, "\": slot ", is.segments[i].slot,
                    " of host \"", is.host, "\" is not in the index");
      if (Occupies(is, i)) {
        *slot = SlotOf(now, is, i);
      } else {
        occupied.erase(slot);
      }
    }
  }
  return true;
}

absl::Status PoolState::IndexNames(const RegionPtr& region) {
  if (!by_id_.insert(region).second) {
    return Broken("there is a region \"", region->id, "\" already");
  }
  if (by_tag_.insert(region).second) return absl::OkStatus();
  by_id_.erase(region->id);
  return Broken("region \"", region->id, "\": its tag belongs to another");
}

absl::Status PoolState::IndexRequests(const Region& region) {
  for (size_t i = 0; i < region.requests.size(); ++i) {
    const RequestId& id = region.requests[i].id;
    if (requests_.try_emplace(id, region.key).second) continue;
    for (size_t before = 0; before < i; ++before) requests_.erase(region.requests[before].id);
    return Broken("region \"", region.id, "\": a request of ", id.method.str(),
                  " made another change already");
  }
  return absl::OkStatus();
}

absl::Status PoolState::Index(const RegionPtr& region, unsigned parts) {
  absl::Status status;
  unsigned done = 0;
  const auto index = [&](unsigned part, const auto& add) {
    if ((parts & part) == 0 || !status.ok()) return;
    status = add();
    if (status.ok()) done |= part;
  };
  index(kNames, [&] { return IndexNames(region); });
  index(kRequests, [&] { return IndexRequests(*region); });
  index(kExtents, [&] { return TakeExtents(*region); });
  index(kAttachments, [&] {
    absl::Status fits = CheckAttachments(*region);
    if (fits.ok()) IndexAttachments(*region);
    return fits;
  });
  if (!status.ok()) Unindex(region, done);
  return status;
}

void PoolState::Unindex(const RegionPtr& region, unsigned parts) {
  if (parts & kExtents) GiveExtents(*region);
  if (parts & kNames) {
    by_id_.erase(region->id);
    by_tag_.erase(region->tag);
  }
  if (parts & kRequests) {
    for (const Request& request : region->requests) requests_.erase(request.id);
  }
  if (parts & kAttachments) UnindexAttachments(*region);
}

}  // namespace cxlpool::fm
