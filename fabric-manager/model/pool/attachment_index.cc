#include "fabric-manager/model/pool/attachment_index.h"

#include <algorithm>

#include "proto/support/check.h"

namespace cxlpool::fm {
namespace {

// What a segment takes of its host; nothing once it is proven unbound.
bool Occupies(const Attachment& attachment, size_t segment) {
  return attachment.PartOf(segment).state != AttachmentState::kUnbound;
}

// What one segment of an Attachment takes of its host, as the placement of the next one sees it.
OccupiedSlot SlotOf(const Region& region, const Attachment& attachment, size_t index) {
  const Segment& segment = attachment.segments[index];
  const Part& part = attachment.PartOf(index);
  OccupiedSlot slot;
  slot.region = region.key;
  slot.region_id = region.id;
  slot.generation = attachment.generation;
  slot.state = part.state;
  slot.detaching = part.detaching;
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

}  // namespace

// Whether the Region may be added: no generation or serial that is known already, and no slot that
// another segment has. One that is proven unbound takes no slot, though its serial stays known.
absl::Status AttachmentIndex::Check(const Region& region) const {
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

// Adds all Attachments of a Region, or none. Slots of a host stay in order, as readers want them.
absl::Status AttachmentIndex::Add(const Region& region) {
  if (absl::Status status = Check(region); !status.ok()) return status;
  for (const Attachment& attachment : region.attachments) {
    generations_.insert(attachment.generation);
    HostUse& use = hosts_[attachment.host];
    use.attached[region.tenant] += AttachedBytesOf(region, attachment);
    for (size_t i = 0; i < attachment.segments.size(); ++i) {
      by_serial_[attachment.segments[i].serial] = region.key;
      if (!Occupies(attachment, i)) continue;
      const OccupiedSlot slot = SlotOf(region, attachment, i);
      use.occupied.insert(std::upper_bound(use.occupied.begin(), use.occupied.end(), slot, BySlot),
                          slot);
    }
  }
  return absl::OkStatus();
}

// The inverse of Add, of the same record.
void AttachmentIndex::Remove(const Region& region) {
  for (const Attachment& attachment : region.attachments) {
    generations_.erase(attachment.generation);
    HostUse& use = hosts_[attachment.host];
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

// Applied whole or not at all: first it is seen whether all that is taken now was taken before.
bool AttachmentIndex::Move(const Region& before, const Region& now) {
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
    std::vector<OccupiedSlot>& occupied = hosts_.find(is.host)->second.occupied;
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

const std::vector<OccupiedSlot>& AttachmentIndex::Occupied(absl::string_view host) const {
  static const auto* const kNone = new std::vector<OccupiedSlot>();
  const auto it = hosts_.find(host);
  return it == hosts_.end() ? *kNone : it->second.occupied;
}

uint64_t AttachmentIndex::AttachedBytes(absl::string_view host, Interned tenant) const {
  const auto use = hosts_.find(host);
  if (use == hosts_.end()) return 0;
  const auto it = use->second.attached.find(tenant);
  return it == use->second.attached.end() ? 0 : it->second;
}

std::optional<Key> AttachmentIndex::FindBySerial(uint64_t serial) const {
  const auto it = by_serial_.find(serial);
  return it == by_serial_.end() ? std::nullopt : std::optional(it->second);
}

// Says what differs from an index built from nothing: how tests and fsck see that changes, one
// after the other, led to the same.
absl::Status AttachmentIndex::Compare(const AttachmentIndex& other) const {
  if (by_serial_ != other.by_serial_) return Broken("the index by serial differs");
  if (generations_ != other.generations_) return Broken("the set of generations differs");
  // One that nothing is left on may still be in the index.
  const auto same = [](const AttachmentIndex& a, const AttachmentIndex& b) {
    for (const auto& [id, use] : a.hosts_) {
      const auto it = b.hosts_.find(id);
      if (use != (it == b.hosts_.end() ? HostUse{} : it->second)) {
        return Broken("slots or bytes of host \"", id, "\" differ");
      }
    }
    return absl::OkStatus();
  };
  if (absl::Status status = same(*this, other); !status.ok()) return status;
  return same(other, *this);
}

}  // namespace cxlpool::fm
