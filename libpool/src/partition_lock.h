// Who of this host's processes owns a partition of a Directory: a lock of the kernel's on one byte
// of the Region's descriptor (F_OFD_SETLK), which ends with the process in whatever way that ends.
// So the process that gets it knows that no other process of this host has the partition. Of other
// hosts it says nothing.
//
// A child that was forked keeps the lock as long as it lives, as it keeps the Region.
#ifndef CXLPOOL_LIBPOOL_SRC_PARTITION_LOCK_H_
#define CXLPOOL_LIBPOOL_SRC_PARTITION_LOCK_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "libpool/src/opened_region.h"
#include "libpool/src/status.h"

namespace cxlpool::libpool {

class PartitionLock {
 public:
  struct Place {
    int fd = -1;
    uint64_t offset_bytes = 0;
  };

  // `offset_bytes`: of the partition in the Region, which has that byte. Null: another has it.
  // INTERNAL/LOCK_FAILED.
  static StatusOr<std::unique_ptr<PartitionLock>> Take(std::shared_ptr<const OpenedRegion> region,
                                                       uint64_t offset_bytes);
  PartitionLock(const PartitionLock&) = delete;
  PartitionLock& operator=(const PartitionLock&) = delete;
  ~PartitionLock();

 private:
  PartitionLock(std::shared_ptr<const OpenedRegion> region, uint64_t offset_bytes, Place place)
      : region_(std::move(region)), offset_bytes_(offset_bytes), place_(place) {}

  const std::shared_ptr<const OpenedRegion> region_;
  const uint64_t offset_bytes_;
  const Place place_;  // Of the byte, in its descriptor.
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_PARTITION_LOCK_H_
