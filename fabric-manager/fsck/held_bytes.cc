#include "fabric-manager/fsck/held_bytes.h"

#include <algorithm>

namespace cxlpool::fm {

void HeldBytes::AddDevice(const std::string& id, uint64_t capacity_bytes, uint64_t granule_bytes,
                          uint32_t max_lds) {
  const uint64_t spans = std::max(max_lds, 1u);
  const uint64_t end = capacity_bytes > UINT64_MAX / spans ? UINT64_MAX : capacity_bytes * spans;
  devices_[id] = {end, std::max<uint64_t>(granule_bytes, 1), max_lds, {}};
}

std::vector<HeldBytes::Owned> HeldBytes::OwnersOf(const ByteRange& range) const {
  std::vector<Owned> owners;
  const auto device = devices_.find(range.device);
  if (device == devices_.end()) return owners;
  auto at = device->second.held.upper_bound(range.begin);
  if (at != device->second.held.begin()) --at;
  for (; at != device->second.held.end() && at->first < range.end; ++at) {
    const uint64_t begin = std::max(at->first, range.begin);
    const uint64_t end = std::min(at->second.end, range.end);
    if (begin < end) owners.push_back({{range.device, begin, end}, at->second.key});
  }
  return owners;
}

std::vector<ByteRange> HeldBytes::FreeOf(const ByteRange& range) const {
  std::vector<ByteRange> free;
  const auto found = devices_.find(range.device);
  if (found == devices_.end()) return free;
  const Device& device = found->second;
  // Outwards to whole granules; a capacity that is no multiple leaves a rest that nobody can hold.
  const uint64_t limit = device.capacity / device.granule * device.granule;
  uint64_t begin = range.begin / device.granule * device.granule;
  uint64_t end = std::min(range.end, limit);
  end = std::min((end + device.granule - 1) / device.granule * device.granule, limit);
  for (const Owned& owned : OwnersOf({range.device, begin, end})) {
    const uint64_t until = owned.range.begin / device.granule * device.granule;
    if (begin < until) free.push_back({range.device, begin, until});
    begin = (owned.range.end + device.granule - 1) / device.granule * device.granule;
  }
  if (begin < end) free.push_back({range.device, begin, end});
  return free;
}

std::vector<ByteRange> HeldBytes::Free() const {
  std::vector<ByteRange> free;
  for (const auto& [id, device] : devices_) {
    if (device.max_lds != 0) {
      const uint64_t span = device.capacity / device.max_lds;
      uint64_t left = span;
      uint64_t at = 0;  // The first LD of which nothing is held.
      for (const auto& [begin, interval] : device.held) {
        left -= std::min(left, interval.end - begin);
        if (begin < at + span) at = (interval.end + span - 1) / span * span;
      }
      left -= left % device.granule;
      if (left > 0 && at < device.capacity) free.push_back({id, at, at + left});
      continue;
    }
    for (ByteRange& range : FreeOf({id, 0, device.capacity})) free.push_back(std::move(range));
  }
  return free;
}

void HeldBytes::Hold(const ByteRange& range, uint64_t key) {
  const auto device = devices_.find(range.device);
  if (device == devices_.end()) return;
  uint64_t begin = range.begin;
  for (const Owned& owned : OwnersOf(range)) {
    if (begin < owned.range.begin) device->second.held[begin] = {owned.range.begin, key};
    begin = owned.range.end;
  }
  if (begin < range.end) device->second.held[begin] = {range.end, key};
}

}  // namespace cxlpool::fm
