// A pool device that is a file: which file it is for certain, and its slices scrubbed. Blocking;
// one thread.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_POOL_FILE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_POOL_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

// The file behind a pool device, held and locked as long as this lives. PATH.id beside it names it
// for ever: a UUID, made where it is missing.
class PoolFile {
 public:
  // FAILED_PRECONDITION: BAD_POOL_FILE (absent, no regular file, shorter than `capacity_bytes`, or
  // its identity can be neither read nor made), FABRIC_BUSY (another manager has it).
  static absl::StatusOr<PoolFile> Open(const std::string& path, uint64_t capacity_bytes);

  // The same file, held by the same lock, as a larger device. BAD_POOL_FILE: it is too short.
  absl::StatusOr<PoolFile> Grown(uint64_t capacity_bytes) const;

  const std::string& path() const { return path_; }  // Canonical: the one that QEMU is given, too.
  const std::string& identity() const { return identity_; }
  int fd() const { return file_.get(); }

  // Whether the path still leads to this very file.
  absl::Status CheckInPlace() const;

  // Whether some byte of the device is not zero, from there on. Holes are not read.
  absl::StatusOr<bool> HasBytes(uint64_t from_bytes = 0) const;

 private:
  PoolFile(std::string path, uint64_t capacity_bytes)
      : path_(std::move(path)), capacity_bytes_(capacity_bytes) {}

  std::string path_;
  uint64_t capacity_bytes_;
  UniqueFd file_;
  std::string identity_;
};

// One scrub under way: first every byte is cleared, then all are synced, then every byte is looked
// at. Call Step until it returns true. Dropped half-way: start a new one; nothing is remembered.
class PoolScrub {
 public:
  // Scrubs a slice that lies within the file, which outlives this.
  PoolScrub(const PoolFile& file, uint64_t offset_bytes, uint64_t length_bytes);

  // Clears or checks up to `max_bytes`. True: all of it reads as zero.
  // INTERNAL/SCRUB_FAILED: a byte is not zero afterwards, so somebody is writing it.
  absl::StatusOr<bool> Step(uint64_t max_bytes);

  // Seen to be zero so far.
  uint64_t checked_bytes() const { return phase_ == Phase::kCheck ? done_bytes_ : 0; }

 private:
  enum class Phase { kClear, kCheck };
  absl::Status Clear(uint64_t from, uint64_t length);
  absl::Status Check(uint64_t from, uint64_t length);

  const PoolFile* file_;
  uint64_t offset_bytes_;
  uint64_t length_bytes_;
  Phase phase_ = Phase::kClear;
  uint64_t done_bytes_ = 0;  // Of the phase.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_POOL_FILE_H_
