// A pool device that is a file: slices of it are scrubbed here. Blocking; one thread.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_POOL_FILE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_POOL_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

// One scrub under way: first every byte is cleared, then all are synced, then every byte is looked
// at. Call Step until it returns true. Dropped half-way: start a new one; nothing is remembered.
class PoolScrub {
 public:
  // NOT_FOUND and others: as open(2) says. FAILED_PRECONDITION: not a regular file, or too short.
  static absl::StatusOr<PoolScrub> Begin(const std::string& path, uint64_t offset_bytes,
                                         uint64_t length_bytes);

  // Clears or checks up to `max_bytes`. True: all of it reads as zero.
  // INTERNAL/SCRUB_FAILED: a byte is not zero afterwards, so somebody is writing it.
  absl::StatusOr<bool> Step(uint64_t max_bytes);

 private:
  enum class Phase { kClear, kCheck };
  PoolScrub(std::string path, UniqueFd file, uint64_t offset, uint64_t length);
  absl::Status Clear(uint64_t from, uint64_t length);
  absl::Status Check(uint64_t from, uint64_t length);

  std::string path_;
  UniqueFd file_;
  uint64_t offset_bytes_;
  uint64_t length_bytes_;
  Phase phase_ = Phase::kClear;
  uint64_t done_bytes_ = 0;  // Of the phase.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_POOL_FILE_H_
