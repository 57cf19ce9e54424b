#include "libpool/src/partition_lock.h"

#include <fcntl.h>

#include <cerrno>

#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

// 0, or errno.
int SetLock(int fd, uint64_t offset_bytes, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset_bytes);
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

}  // namespace

StatusOr<std::unique_ptr<PartitionLock>> PartitionLock::Take(
    std::shared_ptr<const OpenedRegion> region, uint64_t offset_bytes) {
  // The kernel knows descriptors, not who uses them: within one handle it is for us to say no.
  if (!region->locked.Add(offset_bytes)) return std::unique_ptr<PartitionLock>();
  const int error = SetLock(region->descriptors.front().get(), offset_bytes, F_WRLCK);
  if (error != 0 && !CXLPOOL_MUTANT("owner-alive-is-robbed")) {
    region->locked.Remove(offset_bytes);
    if (error == EAGAIN || error == EACCES) return std::unique_ptr<PartitionLock>();
    return ErrnoError(
        Code::kInternal, "LOCK_FAILED",
        Concat("cannot lock the partition at ", offset_bytes, " of ", region->reply.name),
        "ask the operator of this host which file system or filter refuses fcntl", error);
  }
  return std::unique_ptr<PartitionLock>(new PartitionLock(std::move(region), offset_bytes));
}

PartitionLock::~PartitionLock() {
  if (region_->Forked()) return;  // It is the parent's.
  SetLock(region_->descriptors.front().get(), offset_bytes_, F_UNLCK);
  region_->locked.Remove(offset_bytes_);
}

}  // namespace cxlpool::libpool
