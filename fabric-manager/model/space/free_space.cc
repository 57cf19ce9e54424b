#include "fabric-manager/model/space/free_space.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/space/bytes.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kMaxGranules = std::numeric_limits<uint32_t>::max();

// The lowest device of both sets; kMaxDevices: they have none in common.
size_t FirstCommon(const DeviceSet& a, const DeviceSet& b) {
  for (uint64_t rest = a.summary() & b.summary(); rest != 0; rest &= rest - 1) {
    const size_t word = static_cast<size_t>(std::countr_zero(rest));
    const uint64_t common = a.word(word) & b.word(word);
    if (common != 0) return word * 64 + static_cast<size_t>(std::countr_zero(common));
  }
  return kMaxDevices;
}

// The devices of both sets, if they are at most `Few`: how many. -1: they are more.
template <int kFew>
int FewCommon(const DeviceSet& a, const DeviceSet& b, std::array<DeviceIndex, kFew>& devices) {
  int count = 0;
  for (uint64_t rest = a.summary() & b.summary(); rest != 0; rest &= rest - 1) {
    const size_t word = static_cast<size_t>(std::countr_zero(rest));
    uint64_t bits = a.word(word) & b.word(word);
    if (~bits == 0) return -1;
    for (; bits != 0; bits &= bits - 1) {
      if (count == kFew) return -1;
      devices[static_cast<size_t>(count++)] =
          static_cast<DeviceIndex>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
  return count;
}

}  // namespace

// The shortest length of the set from `length` on, which is at least 1. In the first word the bits
// of shorter lengths are masked out.
uint32_t FreeSpace::NextLength(const Lengths& lengths, uint32_t length) {
  if (length > kShort) return 0;
  size_t word = (length - 1) / 64;
  uint64_t bits = lengths[word] & (~uint64_t{0} << ((length - 1) % 64));
  while (bits == 0) {
    if (++word == lengths.size()) return 0;
    bits = lengths[word];
  }
  return static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(bits)) + 1);
}

uint32_t FreeSpace::LastLength(const Lengths& lengths) {
  for (size_t word = lengths.size(); word-- > 0;) {
    if (lengths[word] != 0) return static_cast<uint32_t>(word * 64 + std::bit_width(lengths[word]));
  }
  return 0;
}

// The group of this granule. A new one takes the place of a group without members, so that the
// indices of the others stay, and there are no more groups than were ever in use at one time.
size_t FreeSpace::GroupOf(uint64_t granule_bytes) {
  size_t unused = groups_.size();
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].granule_bytes == granule_bytes) return i;
    if (groups_[i].members.empty()) unused = i;
  }
  if (unused == groups_.size()) groups_.emplace_back();
  Group& group = groups_[unused];
  group = Group{};
  group.granule_bytes = granule_bytes;
  if (std::has_single_bit(granule_bytes)) group.shift = std::countr_zero(granule_bytes);
  return unused;
}

// Adds a device, all of it free, under the lowest number that is not taken: bit sets over the
// numbers stay short.
absl::StatusOr<DeviceIndex> FreeSpace::AddDevice(uint64_t capacity_bytes, uint64_t granule_bytes,
                                                 uint32_t max_lds) {
  if (granule_bytes == 0 || capacity_bytes == 0 || capacity_bytes % granule_bytes != 0 ||
      capacity_bytes / granule_bytes > kMaxGranules / std::max(max_lds, 1u)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a capacity of ", capacity_bytes, " bytes is not made of 1 to 2^32 - 1 granules of ",
        granule_bytes, max_lds == 0 ? "" : absl::StrCat(", in ", max_lds, " LDs")));
  }
  size_t index = 0;
  while (index < kMaxDevices && devices_.Contains(static_cast<DeviceIndex>(index))) ++index;
  if (index == kMaxDevices) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", kMaxDevices, " devices already"));
  }
  const uint32_t granules = static_cast<uint32_t>(capacity_bytes / granule_bytes);
  const DeviceIndex device = static_cast<DeviceIndex>(index);
  if (index == all_.size()) {
    all_.emplace_back();
    lengths_.emplace_back();
  }
  const size_t group = GroupOf(granule_bytes);
  all_[index] = {.group = group, .runs = FreeRuns(granules, max_lds)};
  lengths_[index] = {};
  devices_.Add(device);
  groups_[group].members.Add(device);
  const size_t sets = std::min(granules, kShort);
  if (groups_[group].shorts.size() < sets) groups_[group].shorts.resize(sets);
  Came(device, {0, granules});
  total_free_bytes_ += capacity_bytes;
  return device;
}

// Its one run leaves counts and sets as if somebody took it: nothing refers to the index then.
absl::Status FreeSpace::RemoveDevice(DeviceIndex device) {
  if (!devices_.Contains(device)) {
    return absl::FailedPreconditionError(absl::StrCat("there is no device ", device));
  }
  const FreeRuns& runs = all_[device].runs;
  if (runs.free() != runs.granules()) {
    return absl::FailedPreconditionError(
        absl::StrCat(capacity_bytes(device) - free_bytes(device), " bytes of it are taken"));
  }
  total_free_bytes_ -= capacity_bytes(device);
  const FreeRuns::Change change = *all_[device].runs.Take(0, runs.granules());
  Follow(device, change);
  devices_.Remove(device);
  groups_[all_[device].group].members.Remove(device);
  return absl::OkStatus();
}

// Rounded up to a multiple of the granule and of `unit_bytes`. What overflows on the way fits
// nowhere.
uint32_t FreeSpace::Granules(const Group& group, uint64_t length_bytes, uint64_t unit_bytes) {
  if (length_bytes == 0) return 0;
  uint64_t granules = 0;
  if (group.shift >= 0 && unit_bytes <= group.granule_bytes &&
      (unit_bytes & (unit_bytes - 1)) == 0) {  // The usual case, without a division.
    granules = ((length_bytes - 1) >> group.shift) + 1;
  } else {
    const std::optional<uint64_t> unit = CommonUnit(group.granule_bytes, unit_bytes);
    const std::optional<uint64_t> length =
        unit.has_value() ? RoundUp(length_bytes, *unit) : std::nullopt;
    if (!length.has_value()) return 0;
    granules = *length / group.granule_bytes;
  }
  return granules > kMaxGranules ? 0 : static_cast<uint32_t>(granules);
}

// Short lengths are found by the device's bits. Every long run is longer than those, so it counts
// only where no short one is long enough.
FreeSpace::Candidate FreeSpace::ShortestOn(DeviceIndex device, uint32_t length) const {
  if (const uint32_t found = NextLength(lengths_[device], length); found > 0) {
    return {device, *all_[device].runs.FirstOfLength(found), found};
  }
  if (all_[device].long_runs == 0) return {};
  const std::optional<FreeRuns::Run> run = all_[device].runs.BestFit(std::max(length, kShort + 1));
  return run.has_value() ? Candidate{device, run->start, run->length} : Candidate{};
}

// As Shortest, of `count` devices in ascending order: of equal runs the first device's is taken.
FreeSpace::Candidate FreeSpace::ShortestOf(const Group& group, const DeviceIndex* devices,
                                           int count, uint32_t length) const {
  // First whether any has it, then who: that needs no look at the devices one after the other.
  Lengths present = {};
  for (int i = 0; i < count; ++i) {
    const Lengths& lengths = lengths_[devices[i]];
    for (size_t word = 0; word < lengths.size(); ++word) present[word] |= lengths[word];
  }
  if (const uint32_t found = NextLength(present, length); found > 0) {
    while ((lengths_[*devices][(found - 1) / 64] >> ((found - 1) % 64) & 1) == 0) ++devices;
    return {*devices, *all_[*devices].runs.FirstOfLength(found), found};
  }
  Candidate best;
  for (int i = 0; i < count; ++i) {
    if (!group.with_long.Contains(devices[i])) continue;
    const Candidate found = ShortestOn(devices[i], length);
    if (found.found() && (!best.found() || found.length < best.length)) best = found;
  }
  return best;
}

// `longs` is in order of length, device and start, so the first run on an allowed device is the
// answer. Runs of other devices on the way there are passed over one by one.
FreeSpace::Candidate FreeSpace::ShortestLong(const Group& group, const DeviceSet& among,
                                             uint32_t length) const {
  if (FirstCommon(group.with_long, among) == kMaxDevices) return {};
  for (auto it = group.longs.lower_bound({length, 0, 0}); it != group.longs.end(); ++it) {
    const auto& [found, device, start] = *it;
    if (among.Contains(device)) return {device, start, found};
  }
  return {};
}

// Few devices are asked by themselves. For many the short lengths that any device has are walked
// upwards, each with one look at the set of devices that have it; then come the long runs.
FreeSpace::Candidate FreeSpace::Shortest(const Group& group, const DeviceSet& among,
                                         uint32_t length) const {
  std::array<DeviceIndex, kFew> few;
  if (const int count = FewCommon<kFew>(among, group.members, few); count >= 0) {
    return ShortestOf(group, few.data(), count, length);
  }
  for (uint32_t found = NextLength(group.present, length); found > 0;
       found = NextLength(group.present, found + 1)) {
    const size_t device = FirstCommon(group.shorts[found - 1], among);
    if (device == kMaxDevices) continue;
    const DeviceIndex on = static_cast<DeviceIndex>(device);
    return {on, *all_[on].runs.FirstOfLength(found), found};
  }
  return ShortestLong(group, among, length);
}

// Granules differ from group to group, so what the groups found is compared in bytes.
std::optional<FreeSpace::Run> FreeSpace::BestFit(const DeviceSet& among, uint64_t length_bytes,
                                                 uint64_t unit_bytes) const {
  std::optional<Run> best;
  uint64_t best_bytes = 0;  // Of the whole run.
  for (const Group& group : groups_) {
    const uint32_t granules = Granules(group, length_bytes, unit_bytes);
    if (granules == 0) continue;
    const Candidate found = Shortest(group, among, granules);
    if (!found.found()) continue;
    const uint64_t bytes = found.length * group.granule_bytes;
    if (best.has_value() &&
        (bytes > best_bytes || (bytes == best_bytes && found.device > best->device))) {
      continue;
    }
    best = Run{found.device, found.start * group.granule_bytes, granules * group.granule_bytes};
    best_bytes = bytes;
  }
  return best;
}

// As BestFit with this one device. Nothing: also where there is no such device.
std::optional<FreeSpace::Run> FreeSpace::BestFitOn(DeviceIndex device, uint64_t length_bytes,
                                                   uint64_t unit_bytes) const {
  if (!devices_.Contains(device)) return std::nullopt;
  const Group& group = groups_[all_[device].group];
  const uint32_t granules = Granules(group, length_bytes, unit_bytes);
  if (granules == 0) return std::nullopt;
  const Candidate found = ShortestOn(device, granules);
  if (!found.found()) return std::nullopt;
  return Run{device, found.start * group.granule_bytes, granules * group.granule_bytes};
}

// From its end `longs` gives the greatest length on an allowed device, but of equal runs the last.
// So the run itself is looked for from the front.
FreeSpace::Candidate FreeSpace::LongestIn(const Group& group, const DeviceSet& among) const {
  if (FirstCommon(group.with_long, among) != kMaxDevices) {
    uint32_t length = 0;
    for (auto it = group.longs.rbegin(); length == 0; ++it) {
      if (among.Contains(std::get<1>(*it))) length = std::get<0>(*it);
    }
    return ShortestLong(group, among, length);  // Of equals, the first.
  }
  for (uint32_t length = LastLength(group.present); length > 0; --length) {
    const size_t device = FirstCommon(group.shorts[length - 1], among);
    if (device == kMaxDevices) continue;
    const DeviceIndex on = static_cast<DeviceIndex>(device);
    return {on, *all_[on].runs.FirstOfLength(length), length};
  }
  return {};
}

// Compared in bytes, as in BestFit.
std::optional<FreeSpace::Run> FreeSpace::Longest(const DeviceSet& among) const {
  std::optional<Run> best;
  for (const Group& group : groups_) {
    const Candidate found = LongestIn(group, among);
    if (!found.found()) continue;
    const Run run{found.device, found.start * group.granule_bytes,
                  found.length * group.granule_bytes};
    if (!best.has_value() || run.length_bytes > best->length_bytes ||
        (run.length_bytes == best->length_bytes && run.device < best->device)) {
      best = run;
    }
  }
  return best;
}

// Start and length in granules. Nothing: there is no such device, the length is 0, or one of them
// is no multiple of the granule or does not fit 32 bits. Whether they lie within the device is for
// FreeRuns to judge.
std::optional<std::pair<uint32_t, uint32_t>> FreeSpace::WholeGranules(DeviceIndex device,
                                                                      uint64_t dpa_bytes,
                                                                      uint64_t length_bytes) const {
  if (!devices_.Contains(device) || length_bytes == 0) return std::nullopt;
  const Group& group = groups_[all_[device].group];
  uint64_t start, length;
  if (group.shift >= 0) {
    if (((dpa_bytes | length_bytes) & (group.granule_bytes - 1)) != 0) return std::nullopt;
    start = dpa_bytes >> group.shift;
    length = length_bytes >> group.shift;
  } else {
    if (dpa_bytes % group.granule_bytes != 0 || length_bytes % group.granule_bytes != 0) {
      return std::nullopt;
    }
    start = dpa_bytes / group.granule_bytes;
    length = length_bytes / group.granule_bytes;
  }
  if (start > kMaxGranules || length > kMaxGranules) return std::nullopt;
  return std::pair{static_cast<uint32_t>(start), static_cast<uint32_t>(length)};
}

// FreeRuns judges first: counts and sets follow only what it let through.
absl::Status FreeSpace::Take(DeviceIndex device, uint64_t dpa_bytes, uint64_t length_bytes) {
  const auto granules = WholeGranules(device, dpa_bytes, length_bytes);
  const std::optional<FreeRuns::Change> change =
      granules.has_value() ? all_[device].runs.Take(granules->first, granules->second)
                           : std::nullopt;
  if (!change.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(length_bytes, " bytes at ", dpa_bytes,
                                                      " of device ", device,
                                                      " are no whole granules that are free"));
  }
  total_free_bytes_ -= length_bytes;
  Follow(device, *change);
  return absl::OkStatus();
}

// As Take: what is refused has changed nothing.
absl::Status FreeSpace::Give(DeviceIndex device, uint64_t dpa_bytes, uint64_t length_bytes) {
  const uint32_t one_more = CXLPOOL_MUTANT("free-one-granule-more") ? 1 : 0;
  const auto granules = WholeGranules(device, dpa_bytes, length_bytes);
  const std::optional<FreeRuns::Change> change =
      granules.has_value() ? all_[device].runs.Give(granules->first, granules->second + one_more)
                           : std::nullopt;
  if (!change.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(length_bytes, " bytes at ", dpa_bytes,
                                                      " of device ", device,
                                                      " are no whole granules that are taken"));
  }
  total_free_bytes_ += length_bytes;
  Follow(device, *change);
  return absl::OkStatus();
}

// Keeps the sets up to date with what FreeRuns did. `none_left` is as of the end of the whole
// change, so a length that leaves and comes in the same change keeps its bits.
void FreeSpace::Follow(DeviceIndex device, const FreeRuns::Change& change) {
  for (const FreeRuns::Run& run : change.come) {
    if (run.length > 0) Came(device, run);
  }
  for (size_t i = 0; i < change.gone.size(); ++i) {
    if (change.gone[i].length > 0) Went(device, change.gone[i], change.none_left[i]);
  }
}

// Of a short run the sets know only the length: a second one of the same length changes nothing.
void FreeSpace::Came(DeviceIndex device, FreeRuns::Run run) {
  Group& group = groups_[all_[device].group];
  if (run.length > kShort) {
    group.longs.insert({run.length, device, run.start});
    if (all_[device].long_runs++ == 0) group.with_long.Add(device);
    return;
  }
  const uint32_t bit = run.length - 1;
  lengths_[device][bit / 64] |= uint64_t{1} << (bit % 64);
  group.present[bit / 64] |= uint64_t{1} << (bit % 64);
  group.shorts[bit].Add(device);
}

// The last short run of its length takes the device's bit along, and the last device that had such
// a run the group's.
void FreeSpace::Went(DeviceIndex device, FreeRuns::Run run, bool none_left) {
  Group& group = groups_[all_[device].group];
  if (run.length > kShort) {
    group.longs.erase({run.length, device, run.start});
    if (--all_[device].long_runs == 0) group.with_long.Remove(device);
    return;
  }
  if (!none_left) return;
  const uint32_t bit = run.length - 1;
  lengths_[device][bit / 64] &= ~(uint64_t{1} << (bit % 64));
  group.shorts[bit].Remove(device);
  if (group.shorts[bit].empty()) group.present[bit / 64] &= ~(uint64_t{1} << (bit % 64));
}

uint64_t FreeSpace::largest_free_bytes(DeviceIndex device) const {
  const uint32_t length = all_[device].long_runs == 0 ? LastLength(lengths_[device])
                                                      : all_[device].runs.Longest()->length;
  return length * granule_bytes(device);
}

std::vector<FreeSpace::Run> FreeSpace::RunsOf(DeviceIndex device) const {
  std::vector<Run> runs;
  runs.reserve(all_[device].runs.size());
  const uint64_t granule = granule_bytes(device);
  all_[device].runs.ForEach([&](FreeRuns::Run run) {
    runs.push_back({device, run.start * granule, run.length * granule});
  });
  return runs;
}

// Outwards to whole granules, since nothing smaller is ever held. What a host says is bound there
// may end anywhere, even beyond 64 bits: then all that is free behind its beginning is a part of
// it, for nobody must be given it.
std::vector<FreeSpace::Run> FreeSpace::FreeIn(DeviceIndex device, uint64_t dpa_bytes,
                                              uint64_t length_bytes) const {
  std::vector<Run> parts;
  if (!devices_.Contains(device) || length_bytes == 0) return parts;
  if (length_bytes > ~dpa_bytes && CXLPOOL_MUTANT("bound-beyond-64-bits-is-nothing")) return parts;
  const uint64_t granule = granule_bytes(device);
  const uint64_t first = dpa_bytes / granule;
  if (first > kMaxGranules) return parts;
  const uint64_t last = (dpa_bytes + std::min(length_bytes - 1, ~dpa_bytes)) / granule;
  const uint64_t count = std::min(last - first, kMaxGranules - 1) + 1;
  all_[device].runs.ForEachIn(
      static_cast<uint32_t>(first), static_cast<uint32_t>(count), [&](FreeRuns::Run run) {
        parts.push_back({device, run.start * granule, run.length * granule});
      });
  return parts;
}

// Builds the sets of one group anew from the runs of its devices, and compares: every set is an
// index of those runs, and of nothing else.
absl::Status FreeSpace::CheckGroup(size_t index) const {
  const Group& group = groups_[index];
  Group made;
  made.shorts.resize(group.shorts.size());
  for (size_t i = 0; i < all_.size(); ++i) {
    const DeviceIndex device = static_cast<DeviceIndex>(i);
    if (!devices_.Contains(device) || all_[i].group != index) continue;
    made.members.Add(device);
    Lengths lengths = {};
    uint32_t long_runs = 0;
    all_[i].runs.ForEach([&](FreeRuns::Run run) {
      if (run.length > kShort) {
        ++long_runs;
        made.longs.insert({run.length, device, run.start});
        made.with_long.Add(device);
        return;
      }
      const uint32_t bit = run.length - 1;
      lengths[bit / 64] |= uint64_t{1} << (bit % 64);
      made.shorts[bit].Add(device);
    });
    if (lengths != lengths_[i] || long_runs != all_[i].long_runs) {
      return absl::InternalError(
          absl::StrCat("the lengths of device ", device, " are not its runs'"));
    }
    for (size_t word = 0; word < lengths.size(); ++word) made.present[word] |= lengths[word];
  }
  if (made.members != group.members || made.present != group.present ||
      made.shorts != group.shorts || made.with_long != group.with_long ||
      made.longs != group.longs) {
    return absl::InternalError(absl::StrCat("the sets of the devices with a granule of ",
                                            group.granule_bytes, " bytes are not their runs'"));
  }
  return absl::OkStatus();
}

// The runs of each device, the sets of each group, and the sum over all. Of several faults the
// first is named.
absl::Status FreeSpace::Check() const {
  uint64_t free = 0;
  absl::Status status;
  devices_.ForEach([&](DeviceIndex device) {
    status.Update(all_[device].runs.Check());
    free += free_bytes(device);
  });
  for (size_t i = 0; i < groups_.size(); ++i) status.Update(CheckGroup(i));
  if (free != total_free_bytes_) {
    status.Update(absl::InternalError(
        absl::StrCat(free, " bytes are free, ", total_free_bytes_, " are counted")));
  }
  return status;
}

}  // namespace cxlpool::fm
