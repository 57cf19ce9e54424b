#include "fabric-manager/service/track_table.h"

namespace cxlpool::fm {
namespace {

template <typename Map, typename Name>
const TrackTable::Tracks& In(const Map& map, const Name& name) {
  static const TrackTable::Tracks none;
  const auto found = map.find(name);
  return found == map.end() ? none : found->second;
}

// An entry that nothing is left in goes: hosts and Regions come and go for ever.
template <typename Map, typename Name>
void Remove(Map& map, const Name& name, uint64_t generation) {
  const auto found = map.find(name);
  found->second.erase(generation);
  if (found->second.empty()) map.erase(found);
}

}  // namespace

Track* TrackTable::Find(uint64_t generation) const {
  const auto found = all_.find(generation);
  return found == all_.end() ? nullptr : found->second;
}

Track& TrackTable::Of(const Region& region, const Attachment& attachment) {
  const uint64_t generation = attachment.generation;
  const auto [it, is_new] = tracks_.try_emplace(generation);
  Track& track = it->second;
  if (is_new) {
    track.region = region.key;
    track.host = attachment.host;
    all_[generation] = &track;
    by_region_[track.region][generation] = &track;
    by_host_[track.host][generation] = &track;
  }
  if (track.known.size() != attachment.segments.size()) {
    track.known.resize(attachment.segments.size());
    track.observed.resize(attachment.segments.size());
    track.observed_revision = 0;
  }
  return track;
}

void TrackTable::Erase(uint64_t generation) {
  const auto found = tracks_.find(generation);
  if (found == tracks_.end()) return;
  Remove(by_region_, found->second.region, generation);
  Remove(by_host_, found->second.host, generation);
  all_.erase(generation);
  tracks_.erase(found);
}

const TrackTable::Tracks& TrackTable::OfRegion(Key region) const { return In(by_region_, region); }

const TrackTable::Tracks& TrackTable::OfHost(absl::string_view host) const {
  return In(by_host_, host);
}

}  // namespace cxlpool::fm
