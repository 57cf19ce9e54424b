// The free bytes of all devices: where a run fits, and keeping count as runs come and go.
//
// Each device has a granule and a list of free runs. Devices of one granule are looked after
// together: for each short length, the set of devices that have a run of exactly that length; the
// long runs in order of length. A search walks lengths upwards and intersects with the devices that
// are allowed, so that its cost depends neither on how many devices nor on how many runs there are.
// Where few devices are allowed it asks them one by one.
//
// Invariant (Check): runs of a device are disjoint, not adjacent, whole granules, inside the
// device; sums and sets agree with them. Not thread-safe; owned by PoolState. Bytes unless said
// otherwise.
//
// Memory: some 24 bytes a run; 130 KiB for each different granule. What is taken costs nothing.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_SPACE_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_SPACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/model/space/device_set.h"
#include "fabric-manager/model/space/free_runs.h"

namespace cxlpool::fm {

class FreeSpace {
 public:
  // A free run, or the part of one that was chosen.
  struct Run {
    DeviceIndex device = 0;
    uint64_t dpa_bytes = 0;
    uint64_t length_bytes = 0;
    friend bool operator==(const Run&, const Run&) = default;
  };

  // A new device, all of it free; the lowest index that nobody has. `max_lds` as of FreeRuns.
  // INVALID_ARGUMENT: granule 0, or capacity no positive multiple of it, or more than 2^32 - 1
  // granules (times `max_lds`). RESOURCE_EXHAUSTED: kMaxDevices are there.
  absl::StatusOr<DeviceIndex> AddDevice(uint64_t capacity_bytes, uint64_t granule_bytes,
                                        uint32_t max_lds = 0);

  // Forgets a device that is wholly free; its index may be given again. FAILED_PRECONDITION: it is
  // not free, or not there.
  absl::Status RemoveDevice(DeviceIndex device);

  // The smallest run that is long enough on any device of `among`; of equals the lowest device
  // index, then the lowest address. `length_bytes` is rounded up to the device's granule and to
  // `unit_bytes` (0: the granule alone); the answer's length is the rounded one, its start the
  // run's. Starts are multiples of the granule only. Nothing fits a length of 0.
  std::optional<Run> BestFit(const DeviceSet& among, uint64_t length_bytes,
                             uint64_t unit_bytes = 0) const;
  std::optional<Run> BestFitOn(DeviceIndex device, uint64_t length_bytes,
                               uint64_t unit_bytes = 0) const;

  // The longest run on any device of `among`, whole; of equals the lowest device, then address.
  std::optional<Run> Longest(const DeviceSet& among) const;

  // FAILED_PRECONDITION: not made of whole granules of the device; Take: some of it is not free;
  // Give: some of it is free already. Nothing has changed then.
  absl::Status Take(DeviceIndex device, uint64_t dpa_bytes, uint64_t length_bytes);
  absl::Status Give(DeviceIndex device, uint64_t dpa_bytes, uint64_t length_bytes);

  // Of a device that was added.
  uint64_t capacity_bytes(DeviceIndex device) const {
    return all_[device].runs.granules() * granule_bytes(device);
  }
  uint64_t granule_bytes(DeviceIndex device) const {
    return groups_[all_[device].group].granule_bytes;
  }
  uint64_t free_bytes(DeviceIndex device) const {
    return all_[device].runs.free() * granule_bytes(device);
  }
  uint64_t largest_free_bytes(DeviceIndex device) const;
  std::vector<Run> RunsOf(DeviceIndex device) const;  // In order of address.
  // The free parts of so many bytes there, outwards to whole granules (FreeRuns::ForEachIn).
  std::vector<Run> FreeIn(DeviceIndex device, uint64_t dpa_bytes, uint64_t length_bytes) const;

  const DeviceSet& devices() const { return devices_; }
  uint64_t total_free_bytes() const { return total_free_bytes_; }

  // Recomputes everything derived. INTERNAL says what is broken.
  absl::Status Check() const;

 private:
  // Lengths in granules of up to this many have a set of devices each.
  static constexpr uint32_t kShort = 256;
  // So few devices are asked one by one.
  static constexpr int kFew = 16;

  // Bit length - 1 for each short length.
  using Lengths = std::array<uint64_t, kShort / 64>;
  static uint32_t NextLength(const Lengths& lengths, uint32_t length);  // 0: none is as long.
  static uint32_t LastLength(const Lengths& lengths);                   // 0: there is none.

  using LongRun = std::tuple<uint32_t, DeviceIndex, uint32_t>;  // Length, device, start.

  // The devices of one granule.
  struct Group {
    uint64_t granule_bytes = 0;
    int shift = -1;  // The granule is 1 << shift; -1: no power of two.
    DeviceSet members;
    Lengths present = {};            // Short lengths that any device has.
    std::vector<DeviceSet> shorts;   // By length - 1; as many as the largest device has granules.
    DeviceSet with_long;             // Devices that have a long run.
    absl::btree_set<LongRun> longs;  // All runs longer than kShort.
  };

  struct Device {
    size_t group = 0;
    uint32_t long_runs = 0;
    FreeRuns runs{0};
  };

  // A run to be, in granules of its group. Length 0: none.
  struct Candidate {
    DeviceIndex device = 0;
    uint32_t start = 0;
    uint32_t length = 0;
    bool found() const { return length > 0; }
  };

  // Whole granules for that many bytes. 0: none could hold them.
  static uint32_t Granules(const Group& group, uint64_t length_bytes, uint64_t unit_bytes);
  // Of `device`, which is a member of the group.
  Candidate ShortestOn(DeviceIndex device, uint32_t length) const;
  Candidate ShortestOf(const Group& group, const DeviceIndex* devices, int count,
                       uint32_t length) const;
  Candidate Shortest(const Group& group, const DeviceSet& among, uint32_t length) const;
  Candidate ShortestLong(const Group& group, const DeviceSet& among, uint32_t length) const;
  Candidate LongestIn(const Group& group, const DeviceSet& among) const;

  size_t GroupOf(uint64_t granule_bytes);
  std::optional<std::pair<uint32_t, uint32_t>> WholeGranules(DeviceIndex device, uint64_t dpa_bytes,
                                                             uint64_t length_bytes) const;
  void Follow(DeviceIndex device, const FreeRuns::Change& change);
  void Came(DeviceIndex device, FreeRuns::Run run);
  void Went(DeviceIndex device, FreeRuns::Run run, bool none_left);
  absl::Status CheckGroup(size_t index) const;

  std::vector<Device> all_;       // By index; those removed have no group's membership.
  std::vector<Lengths> lengths_;  // By index: the short lengths that the device has.
  std::vector<Group>
      groups_;  // Never fewer: indices into it last. One without members is used again.
  DeviceSet devices_;
  uint64_t total_free_bytes_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_SPACE_H_
