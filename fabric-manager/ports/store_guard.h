// What a Store compares before it makes a batch durable, the same for every Store: the limits, the
// epoch, and the revision that the batch was planned on.
//
// Not thread-safe.
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_STORE_GUARD_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_STORE_GUARD_H_

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/store.h"
#include "proto/support/check.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

// Bytes of the values that `batch` puts.
inline uint64_t BatchBytes(const StoreBatch& batch) {
  uint64_t bytes = 0;
  for (const Row& row : batch.puts) bytes += row.value.size();
  return bytes;
}

// INVALID_ARGUMENT/STORE_BAD_BATCH names the limit that `batch` is beyond.
inline absl::Status CheckBatchLimits(const StoreBatch& batch, const StoreLimits& limits) {
  const auto bad = [](const std::string& message) {
    return Refuse(absl::StatusCode::kInvalidArgument, "STORE_BAD_BATCH", message,
                  "split the change into smaller ones");
  };
  const size_t rows = batch.puts.size() + batch.erases.size();
  if (rows > limits.max_batch_rows) {
    return bad(absl::StrCat("a change of ", rows, " rows; at most ", limits.max_batch_rows));
  }
  for (const Row& row : batch.puts) {
    if (row.value.size() > limits.max_row_bytes) {
      return bad(absl::StrCat("row ", row.key, " has ", row.value.size(), " bytes; at most ",
                              limits.max_row_bytes));
    }
    if (row.key > kMaxRowKey) return bad(absl::StrCat("row key ", row.key, " is too large"));
  }
  if (BatchBytes(batch) > limits.max_batch_bytes) {
    return bad(absl::StrCat("a change of ", BatchBytes(batch), " bytes; at most ",
                            limits.max_batch_bytes));
  }
  if (batch.revision <= batch.base_revision || batch.revision > kMaxRowKey) {
    return bad(absl::StrCat("revision ", batch.revision, " does not follow ", batch.base_revision));
  }
  return absl::OkStatus();
}

// That a second commit was asked for before the first was answered.
inline absl::Status CommitOutstanding() {
  return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_COMMIT_OUTSTANDING",
                "a commit was asked for while another is under way",
                "report this: it is a defect of the manager");
}

class StoreGuard {
 public:
  explicit StoreGuard(const StoreLimits& limits = {}) : limits_(limits) {}

  // After Open.
  void Reset(uint64_t epoch, uint64_t revision) {
    epoch_ = epoch;
    revision_ = revision;
  }

  // OK: `batch` may be applied now. Otherwise the refusal.
  absl::Status Check(const StoreBatch& batch) const {
    if (batch.epoch != epoch_ || batch.base_revision != revision_) return Fenced(batch);
    return CheckBatchLimits(batch, limits_);
  }

  // What Check let through is in the store now.
  void Applied(const StoreBatch& batch) {
    CXLPOOL_CHECK(batch.epoch == epoch_ && batch.base_revision == revision_, "a change of epoch ",
                  batch.epoch, " on revision ", batch.base_revision,
                  " was applied to a store at epoch ", epoch_, ", revision ", revision_);
    revision_ = batch.revision;
  }

  const StoreLimits& limits() const { return limits_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t revision() const { return revision_; }

 private:
  absl::Status Fenced(const StoreBatch& batch) const {
    return Refuse(absl::StatusCode::kAborted, "STORE_FENCED",
                  absl::StrCat("the store is at epoch ", epoch_, ", revision ", revision_,
                               "; this change was planned at epoch ", batch.epoch, ", revision ",
                               batch.base_revision),
                  "stop: another manager has taken the store over");
  }

  StoreLimits limits_;
  uint64_t epoch_ = 0;
  uint64_t revision_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_STORE_GUARD_H_
