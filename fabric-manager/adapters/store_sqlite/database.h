// The records on disk, and the transactions that change them. One connection, one thread.
//
//   packs    first INTEGER PRIMARY KEY · body BLOB: some ten records, each with its crc (pack.h)
//   meta     one row: epoch · revision · row_count · crc_sum · crc
//   header   application_id "CXLP" · user_version: the schema's version
//
// `row_count` and `crc_sum` (the sum of all records' crc, mod 2^64) catch a record that is missing
// or came back from the past, as a lost page write would have it. The meta row has a CRC of its
// own.
//
// Schema 1 had a row a record. It is moved over in one transaction when it is opened; why the
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
#include "fabric-manager/adapters/store_sqlite/pack.h"
#include "fabric-manager/adapters/store_sqlite/schema.h"
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

  // Reads and checks everything and makes the next epoch durable.
  absl::StatusOr<StoreImage> TakeOver();

  // Makes `batches`, each planned on the one before, durable in one transaction: all or none.
  // OK, RESOURCE_EXHAUSTED/STORE_FULL (nothing changed; go on), ABORTED/STORE_FENCED (somebody
  // else changed the meta row), DATA_LOSS (do not go on).
  absl::Status Commit(const std::vector<const StoreBatch*>& batches);

  // For copies, on this thread. Nothing else may use it.
  sqlite3* connection() const { return db_; }
  uint64_t revision() const { return meta_.revision; }

  // Pages in the write-ahead log that a checkpoint has not copied yet.
  int wal_pages() const { return wal_pages_; }

  // Copies the log into the database, so that it starts again from its beginning.
  // RESOURCE_EXHAUSTED: no space to do so; the log goes on. DATA_LOSS: do not go on.
  absl::Status Checkpoint();

 private:
  explicit Database(std::string path) : path_(std::move(path)) {}

  absl::Status Connect(uint64_t max_size_bytes, const std::string& vfs);
  absl::StatusOr<int64_t> CheckHeader();
  absl::Status MigrateFromRows();
  absl::Status CopyRowsToPacks();
  absl::Status PrepareAll();
  absl::Status Prepare(const char* sql, Statement& statement);
  absl::StatusOr<int64_t> ReadPragma(const std::string& name);
  absl::Status LoadMeta();
  absl::StatusOr<std::vector<Row>> LoadRows();
  absl::Status Execute(const char* sql, absl::string_view doing);
  absl::Status Transact(const std::vector<const StoreBatch*>& batches);
  absl::Status Apply(const std::vector<Edit>& edits, StoreMeta& meta);
  absl::StatusOr<const Edit*> ApplyToOnePack(const Edit* begin, const Edit* end, PackSums& sums);
  absl::Status StepFailed(const Statement& statement);
  absl::Status Failed(absl::string_view doing);
  absl::Status WritePacks(uint64_t first, const std::vector<Pack>& packs);
  int WriteMeta(const StoreMeta& meta);
  void Rollback();
  void LeaveAsIs();

  const std::string path_;
  Connection connection_;
  sqlite3*& db_ = connection_.db;
  Statement begin_, commit_, rollback_, find_, find_next_, put_, erase_, write_meta_;
  StoreMeta meta_;
  int wal_pages_ = 0;
  bool opened_ = false;  // TakeOver is through.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_DATABASE_H_
