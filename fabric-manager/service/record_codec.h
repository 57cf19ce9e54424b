// Between the model's values and the rows of a Store (cxlpool.store.v1.Record).
//
// Pure functions. Decoding trusts nothing: a row that does not parse, or has a field or a value
// that this release does not know, is DATA_LOSS/BAD_RECORD and names the key.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_RECORD_CODEC_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_RECORD_CODEC_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/ports/store.h"

namespace cxlpool::store::v1 {
class Record;
}

namespace cxlpool::fm {

// Who makes a change, and why: for the audit trail (AuditEntry).
struct Audit {
  absl::Time time;
  std::string principal;  // Identity URI; "manager" for the manager's own work.
  std::string action;     // "AllocateRegion", "bound", ...
  std::string reason;
  std::string role = {};
  CallOrigin origin = {};
  // What it was asked about, where that is not the first record that it changes: "hosts/host-a".
  // It goes down even where nothing is changed.
  std::string target = {};
};

// The record about the pool itself; its key is kPoolKey.
inline constexpr Key kPoolKey = 1;
struct PoolMeta {
  uint32_t schema_version = 1;
  uint64_t next_id = 16;  // Ids below this may have been given out.
  // Not empty: `cxlpool fsck` does not know what records that were lost held. Devices that come in
  // are held whole (PlanSeenDevice).
  std::string hold_reason = {};
  AuditBounds audit = {};
};

// The last time that a record can hold: the year 9999.
inline constexpr int64_t kMaxRecordMicros = 253402300799'000'000;

// record_encode.cc. `item` is not Erased.
std::string EncodeItem(const Item& item);
std::string EncodePool(const PoolMeta& meta);
// AuditRow::bytes. Texts are cut to kMaxAuditText.
std::string EncodeEntries(const std::vector<AuditEntry>& entries);
// DATA_LOSS/BAD_RECORD, as below.
absl::StatusOr<std::vector<AuditEntry>> DecodeEntries(const AuditRow& row);

// FAILED_PRECONDITION/COPY_UNFINISHED: it is kUnfinishedCopy.
absl::StatusOr<std::variant<Item, PoolMeta>> DecodeRecord(Key key, absl::string_view value);

// It has a field that this release does not know, at whatever depth, so that what this release made
// of it would lack that; or it is all of a kind that this release does not know.
bool IsOfLaterRelease(const store::v1::Record& record);

// In place of the pool's own record until all others have been copied (`--copy-store`). It does not
// parse as a record.
inline constexpr char kUnfinishedCopy[] = "this copy is not whole";
absl::Status UnfinishedCopy();

// Fewer are not worth a thread.
inline constexpr size_t kRecordsPerThread = 10'000;

// record_load.cc. All that a store has when a manager starts (StoreImage::rows): each record but
// the pool's own, in the rows' order. That one goes to `meta`, where there is one. The first in
// order that is not sound is the error. As many threads take part as there are processors and rows
// for; all have ended when it returns.
absl::StatusOr<Change> DecodeAll(std::vector<Row> rows, PoolMeta& meta);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_RECORD_CODEC_H_
