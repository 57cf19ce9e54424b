#include "fabric-manager/service/track_table.h"

#include <algorithm>

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
  if (found == map.end()) return;  // Two segments by one serial.
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
  Track& track = it->second.track;
  if (is_new) {
    track.region = region.key;
    track.host = attachment.host;
    all_[generation] = &track;
    by_region_[track.region][generation] = &track;
    by_host_[track.host][generation] = &track;
    SetSerials(attachment);
  }
  if (track.known.size() != attachment.segments.size()) {
    track.known.resize(attachment.segments.size());
    track.observed.resize(attachment.segments.size());
    track.observed_revision = 0;
  }
  return track;
}

// Most changes of a Region leave its serials as they are, and these cost a comparison only.
void TrackTable::SetSerials(const Attachment& attachment) {
  const auto found = tracks_.find(attachment.generation);
  if (found == tracks_.end()) return;
  Entry& entry = found->second;
  const std::vector<Segment>& segments = attachment.segments;
  const bool same =
      std::equal(entry.serials.begin(), entry.serials.end(), segments.begin(), segments.end(),
                 [](uint64_t serial, const Segment& segment) { return serial == segment.serial; });
  if (same) return;
  RemoveSerials(found->first, entry);
  for (const Segment& segment : segments) {
    entry.serials.push_back(segment.serial);
    by_serial_[entry.track.host][segment.serial][found->first] = &entry.track;
  }
}

void TrackTable::RemoveSerials(uint64_t generation, Entry& entry) {
  const auto of_host = by_serial_.find(entry.track.host);
  if (of_host == by_serial_.end()) return;
  for (const uint64_t serial : entry.serials) Remove(of_host->second, serial, generation);
  entry.serials.clear();
  if (of_host->second.empty()) by_serial_.erase(of_host);
}

void TrackTable::Erase(uint64_t generation) {
  const auto found = tracks_.find(generation);
  if (found == tracks_.end()) return;
  Entry& entry = found->second;
  Remove(by_region_, entry.track.region, generation);
  Remove(by_host_, entry.track.host, generation);
  RemoveSerials(generation, entry);
  all_.erase(generation);
  tracks_.erase(found);
}

const TrackTable::Tracks& TrackTable::OfRegion(Key region) const { return In(by_region_, region); }

const TrackTable::Tracks& TrackTable::OfHost(absl::string_view host) const {
  return In(by_host_, host);
}

const TrackTable::Tracks& TrackTable::OfSerial(absl::string_view host, uint64_t serial) const {
  static const std::map<uint64_t, Tracks> none;
  const auto of_host = by_serial_.find(host);
  return In(of_host == by_serial_.end() ? none : of_host->second, serial);
}

}  // namespace cxlpool::fm
