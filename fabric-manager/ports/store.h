// Where the pool's records live: what the core needs of a database, and no more.
//
// A Store is a set of rows under one revision, changed only by Commit. Two guards are compared
// inside every commit, so that nothing is ever decided on an earlier read: the epoch (which
// manager owns the store) and the revision (what it last saw). A local file and a replicated
// store can stand behind the same contract: test/contract/store_contract.h.
//
// One commit is outstanding at a time: further changes go into the next batch. How large a batch
// may be is known once the store is opened (StoreImage).
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_STORE_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_STORE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/support/executor.h"

namespace cxlpool::fm {

// One record. Keys are monotonic: given once, never given to another record.
struct Row {
  uint64_t key = 0;
  std::string value;  // Opaque here. At most StoreLimits::max_row_bytes.
};

inline constexpr uint64_t kMaxRowKey = INT64_MAX;

// What one commit may have. Stores differ; no store takes less than a thousandth of this.
struct StoreLimits {
  size_t max_row_bytes = 1 << 20;
  size_t max_batch_rows = 65536;      // Puts and erases.
  size_t max_batch_bytes = 64 << 20;  // Of values.
};

// Everything a store held when it was opened, in ascending key order.
struct StoreImage {
  uint64_t epoch = 0;     // Now ours. Greater than any before.
  uint64_t revision = 0;  // 0: new and empty.
  StoreLimits limits;
  std::vector<Row> rows;  // None where a follower was told them already.
  // How often Beat has to be called while nothing is committed; 0: never.
  absl::Duration beat_interval;
};

// One atomic change: puts, in order, insert or replace; then erases, where absent keys are fine.
struct StoreBatch {
  uint64_t epoch = 0;          // As given by Open.
  uint64_t base_revision = 0;  // The revision this change was planned on.
  uint64_t revision = 0;       // The new one; greater than base_revision.
  std::vector<Row> puts;
  std::vector<uint64_t> erases;
};

// Who has a store that several managers want.
struct StoreOwner {
  std::string address;  // Where it is asked; empty: it has not said.
  uint64_t epoch = 0;
  uint64_t revision = 0;
  // Whether the follower had been told all, when it was last seen: one that is still being told
  // cannot take over.
  bool is_followed = false;
};

// What a manager hears of a store while another has it. Called one after the other, from a thread
// of the store's, which waits meanwhile.
struct StoreFollower {
  std::function<void(const StoreOwner&)> on_owner;
  // Without these two Open reads all there is once it has the store. All there is; what was told
  // before does not count any more:
  std::function<void(StoreImage)> on_image;
  std::function<void(StoreBatch)> on_batch;  // And what was committed since.
};

// A copy of the store that has been made.
struct StoreBackup {
  uint64_t revision = 0;  // What it holds: everything up to here and nothing after.
  uint64_t size_bytes = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  // For a store that several managers may want, before Open, which then waits for its turn: until
  // nobody has it, or whoever has it gives no sign of life. Where only one manager can reach a
  // store there is no turn to wait for, and `follower` hears nothing.
  virtual void Follow(StoreFollower /*follower*/) {}

  // Takes the store over and reads it whole. Call once, first.
  // DATA_LOSS/STORE_CORRUPT: a row fails its checksum (restore a backup).
  // FAILED_PRECONDITION/STORE_BUSY: another manager holds it.
  // FAILED_PRECONDITION/STORE_TOO_NEW: written by a later release.
  //
  // `lost` is called at most once, from any thread and at any time after `done`, when the store
  // finds by itself that it takes no more commits: another manager has taken over, or the disk
  // failed between two commits. The caller must stop. An error that a commit answers is not
  // reported again here.
  virtual void Open(Done lost, DoneWith<StoreImage> done) = 0;

  // Makes `batch` durable as a whole or not at all; OK only after it is on stable storage. The next
  // one may be asked for once `done` is called, or from within it.
  // FAILED_PRECONDITION/STORE_COMMIT_OUTSTANDING: `done` of the last one has not been called.
  // ABORTED/STORE_FENCED: the epoch or base_revision is not current: another manager has taken
  //   over; the caller must stop.
  // RESOURCE_EXHAUSTED/STORE_FULL: no space; nothing changed and reads go on.
  // INVALID_ARGUMENT/STORE_BAD_BATCH: beyond the limits; nothing changed.
  // FAILED_PRECONDITION/STORE_NOT_OPEN: Open has not succeeded.
  // DATA_LOSS or UNKNOWN: the outcome cannot be known; the caller must stop and reopen.
  virtual void Commit(StoreBatch batch, Done done) = 0;

  // A sign of life, where there was no commit for StoreImage::beat_interval. Where it cannot be
  // given `lost` is called.
  virtual void Beat() {}

  // Copies the store, as of one revision, into a new file at the absolute `path`, which only its
  // owner can read and which is on stable storage before `done`. Commits go on meanwhile. When it
  // fails there is no file. How to restore one: docs/operations.md. UNIMPLEMENTED/NO_BACKUP: this
  // store has nothing to copy. RESOURCE_EXHAUSTED/BACKUP_IN_PROGRESS: another is under way;
  // STORE_FULL: no space for it. ALREADY_EXISTS/BACKUP_EXISTS: something is at `path`.
  // INVALID_ARGUMENT, FAILED_PRECONDITION: `path` will not do.
  // DEADLINE_EXCEEDED/BACKUP_TIMEOUT, UNAVAILABLE/STORE_IO, CANCELLED (the store is closing).
  virtual void Backup(std::string path, DoneWith<StoreBackup> done) = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_STORE_H_
