#include "fabric-manager/adapters/store_sqlite/database.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr int64_t kApplicationId = 0x43584c50;  // "CXLP"
constexpr int64_t kSchemaVersion = 1;
constexpr int kPageBytes = 4096;
constexpr int kBusyTimeout_ms = 500;  // Covers another process that is just closing.

constexpr char kSchema[] =
    "CREATE TABLE records (key INTEGER PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL)"
    " STRICT;"
    "CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL,"
    " revision INTEGER NOT NULL, row_count INTEGER NOT NULL, crc_sum INTEGER NOT NULL,"
    " crc INTEGER NOT NULL) STRICT;";

void AppendWord(std::string& out, uint64_t word) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(word >> (8 * i)));
}

uint32_t Crc32(uint32_t crc, absl::string_view bytes) {
  if (bytes.empty()) return crc;  // zlib takes a null pointer as "start anew".
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// The bytes of a new, empty database.
absl::StatusOr<std::string> EmptyDatabase(const std::string& path, uint32_t meta_crc) {
  sqlite3* db = nullptr;
  const std::string sql = absl::StrCat("PRAGMA page_size=", kPageBytes, ";", kSchema,
                                       "INSERT INTO meta VALUES (1,0,0,0,0,", meta_crc,
                                       ");PRAGMA application_id=", kApplicationId,
                                       ";PRAGMA user_version=", kSchemaVersion, ";");
  unsigned char* bytes = nullptr;
  sqlite3_int64 size = 0;
  if (sqlite3_open(":memory:", &db) == SQLITE_OK &&
      sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) {
    bytes = sqlite3_serialize(db, "main", &size, 0);
  }
  absl::Status status = bytes == nullptr ? OpenError(db, path, "make") : absl::OkStatus();
  std::string image(reinterpret_cast<const char*>(bytes), bytes == nullptr ? 0 : size);
  sqlite3_free(bytes);
  sqlite3_close(db);
  if (!status.ok()) return status;
  return image;
}

// Steps a statement that gives no rows, and makes it ready for the next time.
int Run(const Statement& statement) {
  const int code = sqlite3_step(statement.get());
  // Reset repeats the code of a failed step, and the connection keeps its message.
  return code == SQLITE_DONE ? sqlite3_reset(statement.get())
                             : (sqlite3_reset(statement.get()), code);
}

absl::string_view Blob(sqlite3_stmt* statement, int column) {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement, column));
  return {data, static_cast<size_t>(sqlite3_column_bytes(statement, column))};
}

}  // namespace

uint32_t RecordCrc(uint64_t key, absl::string_view value) {
  std::string word;
  AppendWord(word, key);
  return Crc32(Crc32(0, word), value);
}

uint32_t Database::Meta::Crc() const {
  std::string words;
  for (const uint64_t word : {epoch, revision, row_count, crc_sum}) AppendWord(words, word);
  return Crc32(0, words);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                         uint64_t max_size_bytes,
                                                         const std::string& vfs) {
  absl::StatusOr<std::string> real = CheckStorePath(path);
  if (!real.ok()) return real.status();
  if (!StoreFileExists(*real)) {
    absl::StatusOr<std::string> empty = EmptyDatabase(*real, Meta{}.Crc());
    if (!empty.ok()) return empty.status();
    if (absl::Status status = CreateStoreFile(*real, *empty); !status.ok()) return status;
  }
  std::unique_ptr<Database> database(new Database(*std::move(real)));
  absl::Status status = database->Connect(max_size_bytes, vfs);
  if (!status.ok()) return status;
  return database;
}

absl::Status Database::Connect(uint64_t max_size_bytes, const std::string& vfs) {
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                         SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  if (sqlite3_open_v2(path_.c_str(), &db_, kFlags, vfs.empty() ? nullptr : vfs.c_str()) !=
      SQLITE_OK) {
    return OpenError(db_, path_, "open");
  }
  sqlite3_busy_timeout(db_, kBusyTimeout_ms);
  sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, kMaxRowBytes + kPageBytes);
  // Until it is known to be ours, closing it must not write to it either.
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  // Exclusive before anything is read: then the index of the log lives in this process's memory,
  // and the lock is held for good from the first write on.
  if (sqlite3_exec(db_, "PRAGMA locking_mode=EXCLUSIVE", nullptr, nullptr, nullptr) != SQLITE_OK) {
    return OpenError(db_, path_, "lock");
  }
  if (absl::Status status = CheckHeader(); !status.ok()) return status;
  const std::string setup = absl::StrCat(
      "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA wal_autocheckpoint=0;"
      "PRAGMA cell_size_check=ON;PRAGMA temp_store=MEMORY;PRAGMA mmap_size=0;"
      "PRAGMA journal_size_limit=67108864;PRAGMA cache_size=-65536;PRAGMA max_page_count=",
      std::max<uint64_t>(max_size_bytes / kPageBytes, 1));
  if (sqlite3_exec(db_, setup.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return OpenError(db_, path_, "set up");
  }
  sqlite3_wal_hook(
      db_,
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<Database*>(self)->wal_pages_ = pages;
        return SQLITE_OK;
      },
      this);
  return PrepareAll();
}

absl::StatusOr<int64_t> Database::ReadPragma(const std::string& name) {
  Statement pragma;
  if (pragma.Prepare(db_, absl::StrCat("PRAGMA ", name).c_str()) != SQLITE_OK ||
      sqlite3_step(pragma.get()) != SQLITE_ROW) {
    return OpenError(db_, path_, "read");
  }
  return sqlite3_column_int64(pragma.get(), 0);
}

absl::Status Database::CheckHeader() {
  const absl::StatusOr<int64_t> application = ReadPragma("application_id");
  if (!application.ok()) return application.status();
  const absl::StatusOr<int64_t> version = ReadPragma("user_version");
  if (!version.ok()) return version.status();
  if (*application != kApplicationId) {
    return Refusal{absl::StatusCode::kFailedPrecondition,
                   "STORE_FOREIGN",
                   absl::StrCat(path_, " is the database of another program"),
                   "give store.path a file of its own",
                   {}}
        .ToStatus();
  }
  if (*version > kSchemaVersion) {
    return Refusal{absl::StatusCode::kFailedPrecondition,
                   "STORE_TOO_NEW",
                   absl::StrCat(path_, " was written by a later release: schema ", *version,
                                ", this one knows ", kSchemaVersion),
                   "run that release, or restore the backup made before the update",
                   {}}
        .ToStatus();
  }
  if (*version != kSchemaVersion) {
    return CorruptError(path_, absl::StrCat("schema version ", *version));
  }
  return absl::OkStatus();
}

absl::Status Database::PrepareAll() {
  const std::pair<Statement*, const char*> statements[] = {
      {&begin_, "BEGIN IMMEDIATE"},
      {&commit_, "COMMIT"},
      {&rollback_, "ROLLBACK"},
      {&find_, "SELECT crc FROM records WHERE key = ?1"},
      {&put_,
       "INSERT INTO records (key, value, crc) VALUES (?1, ?2, ?3)"
       " ON CONFLICT (key) DO UPDATE SET value = excluded.value, crc = excluded.crc"},
      {&erase_, "DELETE FROM records WHERE key = ?1"},
      // The guards are compared here, inside the transaction: no row, no commit.
      {&write_meta_,
       "UPDATE meta SET epoch = ?1, revision = ?2, row_count = ?3, crc_sum = ?4, crc = ?5"
       " WHERE id = 1 AND epoch = ?6 AND revision = ?7"},
  };
  for (const auto& [statement, sql] : statements) {
    if (statement->Prepare(db_, sql) == SQLITE_OK) continue;
    // A table of ours that is not there is damage, not a mistake in the SQL above.
    if ((sqlite3_errcode(db_) & 0xff) == SQLITE_ERROR) {
      return CorruptError(path_, sqlite3_errmsg(db_));
    }
    return OpenError(db_, path_, "read");
  }
  return absl::OkStatus();
}

absl::StatusOr<StoreImage> Database::TakeOver() {
  if (Run(begin_) != SQLITE_OK) return OpenError(db_, path_, "lock");
  StoreImage image;
  absl::Status status = LoadMeta();
  if (status.ok()) {
    absl::StatusOr<std::vector<Row>> rows = LoadRows();
    status = rows.status();
    if (rows.ok()) image.rows = *std::move(rows);
  }
  Meta next = meta_;
  ++next.epoch;
  if (status.ok() && (WriteMeta(next) != SQLITE_OK || Run(commit_) != SQLITE_OK)) {
    status = OpenError(db_, path_, "take over");
  }
  if (!status.ok()) {
    Rollback();
    return status;
  }
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  meta_ = next;
  image.epoch = meta_.epoch;
  image.revision = meta_.revision;
  return image;
}

absl::Status Database::LoadMeta() {
  Statement read;
  if (read.Prepare(db_, "SELECT epoch, revision, row_count, crc_sum, crc FROM meta WHERE id = 1") !=
      SQLITE_OK) {
    return OpenError(db_, path_, "read");
  }
  const int code = sqlite3_step(read.get());
  if (code == SQLITE_DONE) return CorruptError(path_, "its meta row is missing");
  if (code != SQLITE_ROW) return OpenError(db_, path_, "read");
  const auto word = [&](int column) {
    return static_cast<uint64_t>(sqlite3_column_int64(read.get(), column));
  };
  meta_ = {word(0), word(1), word(2), word(3)};
  if (word(4) != meta_.Crc()) return CorruptError(path_, "its meta row fails its checksum");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Row>> Database::LoadRows() {
  Statement read;
  if (read.Prepare(db_, "SELECT key, value, crc FROM records ORDER BY key") != SQLITE_OK) {
    return OpenError(db_, path_, "read");
  }
  std::vector<Row> rows;
  rows.reserve(meta_.row_count);
  uint64_t crc_sum = 0, bad = 0, first_bad = 0;
  int code = 0;
  while ((code = sqlite3_step(read.get())) == SQLITE_ROW) {
    Row row;
    row.key = static_cast<uint64_t>(sqlite3_column_int64(read.get(), 0));
    const absl::string_view value = Blob(read.get(), 1);
    const auto crc = static_cast<uint64_t>(sqlite3_column_int64(read.get(), 2));
    if (crc != RecordCrc(row.key, value) && bad++ == 0) first_bad = row.key;
    crc_sum += crc;
    row.value = std::string(value);
    rows.push_back(std::move(row));
  }
  if (code != SQLITE_DONE) return OpenError(db_, path_, "read");
  if (bad > 0) {
    return CorruptError(path_, absl::StrCat("record ", first_bad, " fails its checksum, ", bad,
                                            " of ", rows.size(), " in all"));
  }
  if (rows.size() != meta_.row_count || crc_sum != meta_.crc_sum) {
    return CorruptError(path_, absl::StrCat("it has ", rows.size(), " records where ",
                                            meta_.row_count, " were stored, or old ones"));
  }
  max_key_ = rows.empty() ? 0 : rows.back().key;
  return rows;
}

absl::Status Database::Commit(const std::vector<const StoreBatch*>& batches) {
  absl::Status status = Transact(batches);
  if (absl::IsResourceExhausted(status) && wal_pages_ > 0) {
    // The log itself may be what has no room to grow. Copied into the database it starts again
    // from its beginning, so releases still go through on a full disk.
    if (absl::Status copied = Checkpoint(); absl::IsDataLoss(copied)) return copied;
    status = Transact(batches);
  }
  if (absl::IsDataLoss(status)) LeaveAsIs();
  return status;
}

// What is on the disk is evidence now: closing must not write to it.
void Database::LeaveAsIs() { sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr); }

absl::Status Database::Transact(const std::vector<const StoreBatch*>& batches) {
  if (Run(begin_) != SQLITE_OK) return CommitError(db_, path_, "begin a change of");
  Meta next = meta_;
  absl::Status status;
  for (const StoreBatch* batch : batches) {
    for (const Row& row : batch->puts) {
      if (status.ok()) status = Put(row, next);
    }
    for (const uint64_t key : batch->erases) {
      if (status.ok()) status = Erase(key, next);
    }
    next.revision = batch->revision;
  }
  if (status.ok()) {
    const int code = WriteMeta(next);
    if (code == SQLITE_ABORT) {
      status = Refusal{
          absl::StatusCode::kAborted,
          "STORE_FENCED",
          absl::StrCat("another process has changed ", path_),
          "stop",
          {}}.ToStatus();
    } else if (code != SQLITE_OK || Run(commit_) != SQLITE_OK) {
      status = CommitError(db_, path_, "commit to");
    }
  }
  if (!status.ok()) {
    Rollback();
    return status;
  }
  meta_ = next;
  return absl::OkStatus();
}

absl::Status Database::Put(const Row& row, Meta& meta) {
  if (absl::Status status = Forget(row.key, meta).status(); !status.ok()) return status;
  const uint32_t crc = RecordCrc(row.key, {row.value.data(), row.value.size()});
  sqlite3_bind_int64(put_.get(), 1, static_cast<sqlite3_int64>(row.key));
  sqlite3_bind_blob64(put_.get(), 2, row.value.data(), row.value.size(), SQLITE_STATIC);
  sqlite3_bind_int64(put_.get(), 3, crc);
  if (Run(put_) != SQLITE_OK) return CommitError(db_, path_, "write to");
  max_key_ = std::max(max_key_, row.key);
  meta.crc_sum += crc;
  ++meta.row_count;
  return absl::OkStatus();
}

absl::Status Database::Erase(uint64_t key, Meta& meta) {
  const absl::StatusOr<bool> found = Forget(key, meta);
  if (!found.ok() || !*found) return found.status();
  sqlite3_bind_int64(erase_.get(), 1, static_cast<sqlite3_int64>(key));
  return Run(erase_) == SQLITE_OK ? absl::OkStatus() : CommitError(db_, path_, "write to");
}

// Takes the record out of the sums. False: there is none. Most puts append, and look nothing up.
absl::StatusOr<bool> Database::Forget(uint64_t key, Meta& meta) {
  if (key > max_key_) return false;
  sqlite3_bind_int64(find_.get(), 1, static_cast<sqlite3_int64>(key));
  const int code = sqlite3_step(find_.get());
  const auto crc = static_cast<uint64_t>(sqlite3_column_int64(find_.get(), 0));
  sqlite3_reset(find_.get());
  if (code == SQLITE_DONE) return false;
  if (code != SQLITE_ROW) return CommitError(db_, path_, "read");
  meta.crc_sum -= crc;
  --meta.row_count;
  return true;
}

// SQLITE_ABORT: the row in the database is not the one that was read (meta_).
int Database::WriteMeta(const Meta& meta) {
  int column = 0;
  for (const uint64_t word : {meta.epoch, meta.revision, meta.row_count, meta.crc_sum,
                              uint64_t{meta.Crc()}, meta_.epoch, meta_.revision}) {
    sqlite3_bind_int64(write_meta_.get(), ++column, static_cast<sqlite3_int64>(word));
  }
  if (const int code = Run(write_meta_); code != SQLITE_OK) return code;
  return sqlite3_changes(db_) == 1 ? SQLITE_OK : SQLITE_ABORT;
}

void Database::Rollback() {
  // Most failures have rolled back by themselves; then there is nothing to do.
  if (sqlite3_get_autocommit(db_) == 0) Run(rollback_);
}

absl::Status Database::Checkpoint() {
  int pages = 0, copied = 0;
  if (sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_PASSIVE, &pages, &copied) !=
      SQLITE_OK) {
    absl::Status status = CommitError(db_, path_, "copy the log into");
    if (absl::IsDataLoss(status)) LeaveAsIs();
    return status;
  }
  wal_pages_ = pages - copied;
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
