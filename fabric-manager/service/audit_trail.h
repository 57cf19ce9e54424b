// Writes the audit trail (model/audit/audit_chain.h): an entry for each change of the group that is
// being planned, one row for all of them, in the same commit. Nothing is changed without an entry,
// and no entry is written of what was not changed.
//
// What the pool forgets an hour after a Region has gone (its tombstone) is no change.
//
// A part of the Writer, on its executor, but for Read.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_AUDIT_TRAIL_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_AUDIT_TRAIL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "fabric-manager/model/audit/audit_chain.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

using AuditEntries = absl::InlinedVector<AuditEntry, 1>;  // As a rule there is one.

// The entries of one change, whose `inverse` says what was there before: what it was asked about,
// or its first record, and each further Region. A Region that is kept from everybody is no
// tenant's. Beyond kMaxEntriesOfChange records are counted, as those are that are no Regions.
// Empty: nothing was changed, and nothing asked about.
AuditEntries EntriesOf(Audit audit, const Change& change, const Change& inverse, uint64_t revision);
inline constexpr size_t kMaxEntriesOfChange = 256;

class AuditTrail {
 public:
  explicit AuditTrail(const AuditLimits& limits) : limits_(limits) {}

  // Goes on from what a store has: `bounds`, and the rows among `records`, which are in order of
  // key. What is wrong with it goes into the log, and is there as long as its rows are: a manager
  // that did not start would help nobody. False: something is.
  bool Load(const AuditBounds& bounds, const Change& records);

  // Another manager's commit: its rows, in order of key, the records that it erased, and where the
  // trail is then. False: the rows do not go on from where it was.
  bool Follow(const AuditBounds& bounds, const std::vector<AuditRowPtr>& rows,
              const std::vector<uint64_t>& erased);

  // An entry of the group that is planned.
  void Note(AuditEntry entry);
  size_t entries() const { return entries_.size(); }
  // How large the row of the group is about to be, at most.
  size_t row_bytes() const { return row_bytes_; }

  // What the group's commit is to have beside its changes.
  struct Step {
    AuditRowPtr row;           // Null: there is no entry, and nothing to do.
    std::vector<Key> dropped;  // Records that are erased with it.
    AuditBounds bounds;        // For the pool's record.
    size_t entries = 0;        // In the row.
  };
  // `max_dropped`: so many records at most. What is noted from here on is the next group's, which
  // is closed after this one's Finish.
  Step Close(const std::function<Key()>& next_key, size_t max_dropped);

  // The group that was closed was made durable; or it was undone, and with it all that was noted
  // since. How the trail is now.
  AuditBounds Finish(bool durable);

  // What is durable: the rows from `first` to `last`, where they are kept, the oldest first. Any
  // thread.
  struct Kept {
    AuditBounds bounds;
    std::vector<AuditRowPtr> rows;
  };
  Kept Read(uint64_t first = 0, uint64_t last = UINT64_MAX) const;

 private:
  static size_t BytesOf(const AuditRow& row) { return row.bytes.size() + kRowOverhead; }
  static constexpr size_t kRowOverhead = 64;

  const AuditLimits limits_;
  // Written by the Writer alone, which reads them without it.
  mutable Mutex mutex_;
  AuditBounds bounds_;
  std::deque<AuditRowPtr> rows_;
  size_t bytes_ = 0;  // Of `rows_`.

  // The group that is planned.
  std::vector<AuditEntry> entries_;
  size_t row_bytes_ = 0;
  Step step_;  // Of the one that was closed.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_AUDIT_TRAIL_H_
