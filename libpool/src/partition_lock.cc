#include "libpool/src/partition_lock.h"

#include <fcntl.h>

#include <cerrno>
#include <vector>

#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

// 0, or errno.
int SetLock(const PartitionLock::Place& place, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(place.offset_bytes);
  lock.l_len = 1;
  return ::fcntl(place.fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

// Where a Region's byte is: one file may hold many Regions.
PartitionLock::Place PlaceIn(const OpenedRegion& region, uint64_t offset_bytes) {
  const std::vector<LocalSegment>& segments = region.reply.segments;
  size_t i = 0;
  while (i + 1 < segments.size() && segments[i + 1].region_offset_bytes <= offset_bytes) ++i;
  return {
      .fd = region.descriptors[segments[i].fd_index].get(),
      .offset_bytes = segments[i].offset_bytes + offset_bytes - segments[i].region_offset_bytes};
}

}  // namespace

StatusOr<std::unique_ptr<PartitionLock>> PartitionLock::Take(
    std::shared_ptr<const OpenedRegion> region, uint64_t offset_bytes) {
  const Place place = PlaceIn(*region, offset_bytes);
  // The kernel knows descriptors, not who uses them: within one handle it is for us to say no.
  if (!region->locked.Add(offset_bytes)) return std::unique_ptr<PartitionLock>();
  std::unique_ptr<PartitionLock> lock(new PartitionLock(region, offset_bytes, place));
  const int error = SetLock(place, F_WRLCK);
  if (error == 0 || CXLPOOL_MUTANT("owner-alive-is-robbed")) return lock;
  lock.reset();
  if (error == EAGAIN) return std::unique_ptr<PartitionLock>();
  return ErrnoError(
      Code::kInternal, "LOCK_FAILED",
      Concat("cannot lock the partition at ", offset_bytes, " of ", region->reply.name),
      "ask the operator of this host which policy or filter refuses fcntl", error);
}

PartitionLock::~PartitionLock() {
  if (region_->Forked()) return;  // It is the parent's.
  SetLock(place_, F_UNLCK);
  region_->locked.Remove(offset_bytes_);
}

}  // namespace cxlpool::libpool
