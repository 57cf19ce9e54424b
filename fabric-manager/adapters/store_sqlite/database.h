// The records on disk, and the transactions that change them. One connection, one thread.
//
//   packs    first INTEGER PRIMARY KEY · body BLOB: some ten records, each with its crc (pack.h)
//   meta     one row: epoch · revision · row_count · crc_sum · clean · store_id · crc (schema.h)
//   header   application_id "CXLP" · user_version: the schema's version
//
// `row_count` and `crc_sum` (the sum of all records' crc, mod 2^64) catch a record that is missing
// or came back from the past, as a lost page write would have it. The meta row has a CRC of its
// own.
//
// Beside it lie the log (PATH-wal, SQLite's) and the head file (PATH-head, head_file.h). Before
// anything is read for good, the three are held against each other: a store that lacks something
// that was acknowledged is refused and left as it is (store_end.h, docs/adr/0023).
//
// Databases of schema 1 and 2 are moved over in one transaction when they are opened; why the
// records are packed: docs/adr/0010.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_DATABASE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_DATABASE_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/adapters/store_sqlite/head_file.h"
#include "fabric-manager/adapters/store_sqlite/schema.h"
#include "fabric-manager/ports/pack.h"
#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

// Closes with its owner; declared before the statements, so that they go first.
class Connection {
 public:
  Connection() = default;
  ~Connection() { sqlite3_close(db); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  sqlite3* db = nullptr;
};

// A prepared statement.
class Statement {
 public:
  Statement() = default;
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() { sqlite3_finalize(statement_); }
  int Prepare(sqlite3* db, const char* sql) {
    return sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement_, nullptr);
  }
  sqlite3_stmt* get() const { return statement_; }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

// The blob of the row that `statement` is at; lives until its next step or reset.
absl::string_view Blob(const Statement& statement, int column);

class Database {
 public:
  // Opens the database at `path`, making it where there is none, and locks it for as long as this
  // lives. Errors as in sqlite_store.h. A database that is refused is left as it was.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        uint64_t max_size_bytes,
                                                        const std::string& vfs);

  // Ends the store in order, if it was taken over and nothing failed since: marks it clean and
  // copies the log into the database.
  ~Database();

  // Reads and checks everything, makes the next epoch durable, and marks the store as in use in the
  // database itself.
  absl::StatusOr<StoreImage> TakeOver();

  // Makes `batch` durable in one transaction: all of it or nothing.
  // OK, RESOURCE_EXHAUSTED/STORE_FULL (nothing changed; go on), ABORTED/STORE_FENCED (somebody
  // else changed the meta row), DATA_LOSS (do not go on).
  absl::Status Commit(const StoreBatch& batch);

  // For copies, on this thread. Nothing else may use it.
  sqlite3* connection() const { return db_; }
  uint64_t revision() const { return meta_.revision; }

  // Pages in the write-ahead log that a checkpoint has not copied yet.
  int wal_pages() const { return wal_pages_; }

  // Copies the log into the database, so that it starts again from its beginning.
  // Makes the head file durable as well.
  // RESOURCE_EXHAUSTED: no space to do so; the log goes on. DATA_LOSS: do not go on.
  absl::Status Checkpoint();

  // Makes the head file durable: for when nothing else is to be done. DATA_LOSS: do not go on.
  bool settled() const { return head_ == nullptr || head_->settled(); }
  absl::Status Settle();

 private:
  Database(std::string path, std::string vfs) : path_(std::move(path)), vfs_(std::move(vfs)) {}

  absl::Status Connect(uint64_t max_size_bytes);
  absl::StatusOr<int64_t> CheckHeader();
  absl::Status CheckEnd();
  int CutLog(uint64_t end);
  absl::Status CutOffUnfinished(uint64_t end);
  absl::Status CutOffRefused();
  absl::Status Migrate();
  absl::Status MakeMetaTableAnew();
  absl::Status CopyRowsToPacks();
  absl::Status PrepareAll();
  absl::Status Prepare(const char* sql, Statement& statement);
  absl::StatusOr<int64_t> ReadPragma(const std::string& name);
  absl::Status LoadMeta();
  absl::StatusOr<std::vector<Row>> LoadRows();
  absl::Status Execute(const char* sql, absl::string_view doing);
  absl::Status Transact(const StoreBatch& batch);
  absl::Status Apply(const std::vector<Edit>& edits, StoreMeta& meta);
  absl::StatusOr<const Edit*> ApplyToOnePack(const Edit* begin, const Edit* end, PackSums& sums);
  absl::Status StepFailed(const Statement& statement);
  absl::Status Failed(absl::string_view doing);
  absl::Status WritePacks(uint64_t first, const std::vector<Pack>& packs);
  int WriteMeta(const StoreMeta& meta);
  int PagesWritten() const;
  void Rollback();
  void EndInOrder();
  void LeaveAsIs();

  const std::string path_;
  const std::string vfs_;
  Connection connection_;
  sqlite3*& db_ = connection_.db;
  Statement begin_, commit_, rollback_, find_, find_next_, put_, erase_, write_meta_;
  int64_t schema_ = kSchemaVersion;  // Of the database as it was found.
  StoreMeta meta_;
  std::unique_ptr<HeadFile> head_;
  int wal_pages_ = 0;
  int log_frames_ = 0;        // Up to the last commit, as SQLite counts them.
  bool made_log_ = false;     // There was none.
  bool opened_ = false;       // TakeOver is through.
  bool is_evidence_ = false;  // Something failed: closing must not write.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_DATABASE_H_
