#include "fabric-manager/fsck/held_bytes.h"

#include <algorithm>

namespace cxlpool::fm {

void HeldBytes::AddDevice(const std::string& id, uint64_t capacity_bytes, uint64_t granule_bytes) {
  devices_[id] = {capacity_bytes, std::max<uint64_t>(granule_bytes, 1), {}};
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
