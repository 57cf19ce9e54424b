#include "host-agent/service/fault_table.h"

#include <algorithm>
#include <utility>

#include "proto/support/mutant.h"

namespace cxlpool::agent {
namespace {

// The segment's byte that is the memdev's byte `dpa`, on target `position` of `ways`.
uint64_t OffsetInSegment(uint64_t dpa, uint64_t position, uint64_t ways, uint64_t granularity) {
  return (dpa / granularity * ways + position) * granularity + dpa % granularity;
}

std::optional<RegionRange> RangeInSegment(const DesiredSegment& segment, size_t position,
                                          uint64_t granularity, uint64_t dpa, uint64_t length) {
  const uint64_t ways = segment.targets.size();
  const uint64_t share = segment.length_bytes / ways;
  if (dpa >= share || length == 0) return std::nullopt;
  length = std::min(length, share - dpa);
  if (ways == 1) return RegionRange{dpa, length};
  if (granularity == 0) return RegionRange{0, segment.length_bytes};  // Not known: all of it.
  const uint64_t first = OffsetInSegment(dpa, position, ways, granularity);
  const uint64_t last = OffsetInSegment(dpa + length - 1, position, ways, granularity);
  return RegionRange{first, last + 1 - first};
}

// How many of a host region's first `end` bytes are on target `position` of `ways`: where what
// follows begins on the target's memdev, too.
uint64_t BytesBelow(uint64_t end, uint64_t position, uint64_t ways, uint64_t granularity) {
  const uint64_t row = ways * granularity;
  const uint64_t begin = position * granularity;
  const uint64_t rest = end % row;
  return end / row * granularity + (rest > begin ? std::min(rest - begin, granularity) : 0);
}

bool HasSerial(const AttachmentTable& attachments, const AttachmentKey& key, uint64_t serial) {
  const auto it = attachments.all().find(key);
  if (it == attachments.all().end()) return false;
  for (const Segment& segment : it->second.segments) {
    for (const DesiredTarget& target : segment.desired.targets) {
      if (target.serial == serial) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<RegionRange> RangeInRegion(const Attachment& attachment, const HostObservation& host,
                                         uint64_t serial, uint64_t dpa_bytes,
                                         uint64_t length_bytes) {
  uint64_t begin = 0;
  for (const Segment& segment : attachment.segments) {
    const DesiredSegment& desired = segment.desired;
    for (size_t i = 0; i < desired.targets.size(); ++i) {
      if (desired.targets[i].serial != serial) continue;
      uint64_t granularity = desired.interleave_granularity_bytes;
      if (const ObservedHostRegion* region = FindHostRegion(host, serial);
          region != nullptr && region->interleave_granularity_bytes != 0) {
        granularity = region->interleave_granularity_bytes;
      }
      std::optional<RegionRange> range =
          RangeInSegment(desired, i, granularity, dpa_bytes, length_bytes);
      if (range.has_value()) range->offset_bytes += begin;
      return range;
    }
    begin += desired.length_bytes;
  }
  return std::nullopt;
}

// An event without a serial names host memory. It is split over the targets of the host region that
// has that memory: stripe after stripe goes to the next target, so a range of host addresses is one
// range of each. Memory outside of all host regions is not the pool's: no event is left.
std::vector<v1::HostEvent> ByMemdev(const HostObservation& host, v1::HostEvent event) {
  if (event.serial() != 0) return {std::move(event)};
  std::vector<v1::HostEvent> events;
  for (const ObservedHostRegion& region : host.regions) {
    const bool begins_before = region.hpa_bytes != 0 && event.hpa_bytes() >= region.hpa_bytes;
    const uint64_t at = event.hpa_bytes() - region.hpa_bytes;
    const bool is_in = begins_before && at < region.size_bytes;
    if (!(CXLPOOL_MUTANT("memory-above-a-region") ? begins_before : is_in)) continue;
    const size_t ways = region.serials.size();
    const uint64_t granularity =
        ways == 1 ? region.size_bytes : region.interleave_granularity_bytes;
    // Any length may come from outside.
    const uint64_t end = CXLPOOL_MUTANT("lost-bytes-wrap")
                             ? std::min(at + event.length_bytes(), region.size_bytes)
                             : at + std::min(event.length_bytes(), region.size_bytes - at);
    for (size_t position = 0; granularity != 0 && position < ways; ++position) {
      const uint64_t serial = region.serials[position];
      const uint64_t dpa = BytesBelow(at, position, ways, granularity);
      const uint64_t dpa_end = BytesBelow(end, position, ways, granularity);
      if (dpa_end <= dpa || serial == 0 || serial == kNoSerial) continue;
      v1::HostEvent& lost = events.emplace_back(event);
      lost.set_serial(serial);
      lost.set_dpa_bytes(dpa);
      lost.set_length_bytes(dpa_end - dpa);
    }
    break;
  }
  return events;
}

void FaultTable::Add(const v1::HostEvent& event) {
  if (!event.bytes_lost() || lost_count_ >= kMaxLost) return;
  std::vector<Lost>& lost = lost_[event.serial()];
  // Poison is found by more than one kind of event.
  if (std::any_of(lost.begin(), lost.end(), [&event](const Lost& l) {
        return l.dpa_bytes == event.dpa_bytes() && l.length_bytes == event.length_bytes();
      })) {
    return;
  }
  lost.push_back({.dpa_bytes = event.dpa_bytes(),
                  .length_bytes = event.length_bytes(),
                  .message = event.text(),
                  .placed = std::nullopt});
  ++lost_count_;
}

size_t FaultTable::CountOf(const AttachmentKey& key) const {
  return static_cast<size_t>(std::count_if(faults_.begin(), faults_.end(),
                                           [&key](const Fault& f) { return f.key == key; }));
}

// Each loss becomes a fault of an Attachment once (Lost::placed), and again of the next Attachment
// that gets its serial. A loss is kept until neither a memdev nor an Offer has its serial.
void FaultTable::Place(const AttachmentTable& attachments, const HostObservation& host) {
  if (lost_.empty()) return;  // Nor are there faults: a loss is kept as long as its fault.
  std::erase_if(faults_, [&](const Fault& fault) {
    return CXLPOOL_MUTANT("fault-of-a-former-tail")
               ? !attachments.all().contains(fault.key)
               : !HasSerial(attachments, fault.key, fault.serial);
  });
  for (auto& [serial, losses] : lost_) {
    for (Lost& lost : losses) {
      // The same Attachment may get it again.
      if (lost.placed.has_value() && !HasSerial(attachments, *lost.placed, serial)) {
        lost.placed.reset();
      }
    }
  }
  for (const auto& [key, attachment] : attachments.all()) {
    if (key == kOrphans) continue;
    for (const Segment& segment : attachment.segments) {
      for (const DesiredTarget& target : segment.desired.targets) {
        const auto losses = lost_.find(target.serial);
        if (losses == lost_.end()) continue;
        for (Lost& lost : losses->second) {
          if (lost.placed == key || CountOf(key) >= kMaxFaults) continue;
          lost.placed = key;
          const std::optional<RegionRange> range =
              RangeInRegion(attachment, host, target.serial, lost.dpa_bytes, lost.length_bytes);
          if (!range.has_value()) continue;
          faults_.push_back({TakeSequence(), key, target.serial, *range, lost.message});
        }
      }
    }
  }
  for (auto it = lost_.begin(); it != lost_.end();) {
    const bool is_gone =
        FindMemdev(host, it->first) == nullptr && !attachments.NamesSerial(it->first);
    if (is_gone) lost_count_ -= it->second.size();
    it = is_gone ? lost_.erase(it) : std::next(it);
  }
}

}  // namespace cxlpool::agent
