// Which bytes of each device are held, by which record: plain intervals, made again from the
// records without the model's own index, so that a fault of the one does not hide in the other.
//
// Not thread-safe.
#ifndef CXLPOOL_FABRIC_MANAGER_FSCK_HELD_BYTES_H_
#define CXLPOOL_FABRIC_MANAGER_FSCK_HELD_BYTES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cxlpool::fm {

// [begin, end) of a device.
struct ByteRange {
  std::string device;
  uint64_t begin = 0;
  uint64_t end = 0;
};

class HeldBytes {
 public:
  // `max_lds`: it places so many LDs itself (FreeRuns), and what is free of it is one of them.
  void AddDevice(const std::string& id, uint64_t capacity_bytes, uint64_t granule_bytes,
                 uint32_t max_lds = 0);
  bool Knows(const std::string& device) const { return devices_.contains(device); }
  uint64_t CapacityOf(const std::string& device) const { return devices_.at(device).capacity; }

  struct Owned {
    ByteRange range;
    uint64_t key = 0;
  };
  // Parts of `range` that are held already, in order.
  std::vector<Owned> OwnersOf(const ByteRange& range) const;

  // Parts of `range`, in whole granules of its device, that nobody holds: in order. None if the
  // device is not known.
  std::vector<ByteRange> FreeOf(const ByteRange& range) const;
  std::vector<ByteRange> Free() const;  // Of all devices.

  // `range` belongs to `key` now, where it belonged to nobody.
  void Hold(const ByteRange& range, uint64_t key);

 private:
  struct Interval {
    uint64_t end = 0;
    uint64_t key = 0;
  };
  struct Device {
    uint64_t capacity = 0;  // Of LDs: of all, as if each were as large as the device.
    uint64_t granule = 1;
    uint32_t max_lds = 0;
    std::map<uint64_t, Interval> held;  // By begin; disjoint.
  };
  std::map<std::string, Device> devices_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_FSCK_HELD_BYTES_H_
