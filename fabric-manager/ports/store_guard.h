// What a Store compares before it makes a batch durable, the same for every Store: the limits, the
// epoch, and the revision that the batch was planned on.
//
// Commits may be outstanding several at a time, each planned on the one before. When one of them
// is refused (no space), those behind it were planned on a change that never happened: they get
// the same refusal, not STORE_FENCED, which would stop a manager that nobody took over from.
//
// Not thread-safe.
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_STORE_GUARD_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_STORE_GUARD_H_

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/store.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

// Bytes of the values that `batch` puts.
inline uint64_t BatchBytes(const StoreBatch& batch) {
  uint64_t bytes = 0;
  for (const Row& row : batch.puts) bytes += row.value.size();
  return bytes;
}

// INVALID_ARGUMENT/STORE_BAD_BATCH names the limit that `batch` is beyond.
inline absl::Status CheckBatchLimits(const StoreBatch& batch) {
  const auto bad = [](const std::string& message) {
    return Refusal{absl::StatusCode::kInvalidArgument,
                   "STORE_BAD_BATCH",
                   message,
                   "split the change into smaller ones",
                   {}}
        .ToStatus();
  };
  const size_t rows = batch.puts.size() + batch.erases.size();
  if (rows > kMaxBatchRows) {
    return bad(absl::StrCat("a change of ", rows, " rows; at most ", kMaxBatchRows));
  }
  for (const Row& row : batch.puts) {
    if (row.value.size() > kMaxRowBytes) {
      return bad(absl::StrCat("row ", row.key, " has ", row.value.size(), " bytes; at most ",
                              kMaxRowBytes));
    }
    if (row.key > kMaxRowKey) return bad(absl::StrCat("row key ", row.key, " is too large"));
  }
  if (BatchBytes(batch) > kMaxBatchBytes) {
    return bad(absl::StrCat("a change of ", BatchBytes(batch), " bytes; at most ", kMaxBatchBytes));
  }
  if (batch.revision <= batch.base_revision || batch.revision > kMaxRowKey) {
    return bad(absl::StrCat("revision ", batch.revision, " does not follow ", batch.base_revision));
  }
  return absl::OkStatus();
}

class StoreGuard {
 public:
  // After Open.
  void Reset(uint64_t epoch, uint64_t revision) {
    epoch_ = epoch;
    revision_ = revision;
    refused_.reset();
  }

  // OK: `batch` may be applied now. Otherwise the refusal; tell Refused of it.
  absl::Status Check(const StoreBatch& batch) const {
    if (batch.epoch == epoch_ && batch.base_revision != revision_ && refused_.has_value() &&
        batch.base_revision == refused_revision_) {
      return *refused_;
    }
    if (batch.epoch != epoch_ || batch.base_revision != revision_) return Fenced(batch);
    return CheckBatchLimits(batch);
  }

  void Applied(const StoreBatch& batch) {
    revision_ = batch.revision;
    refused_.reset();
  }

  // `batch` changed nothing.
  void Refused(const StoreBatch& batch, const absl::Status& why) {
    if (why.code() == absl::StatusCode::kAborted) return;
    refused_revision_ = batch.revision;
    refused_ = why;
  }

  uint64_t epoch() const { return epoch_; }
  uint64_t revision() const { return revision_; }

 private:
  absl::Status Fenced(const StoreBatch& batch) const {
    return Refusal{absl::StatusCode::kAborted,
                   "STORE_FENCED",
                   absl::StrCat("the store is at epoch ", epoch_, ", revision ", revision_,
                                "; this change was planned at epoch ", batch.epoch, ", revision ",
                                batch.base_revision),
                   "stop: another manager has taken the store over",
                   {}}
        .ToStatus();
  }

  uint64_t epoch_ = 0;
  uint64_t revision_ = 0;
  uint64_t refused_revision_ = 0;
  std::optional<absl::Status> refused_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_STORE_GUARD_H_
