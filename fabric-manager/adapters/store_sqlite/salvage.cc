#include "fabric-manager/adapters/store_sqlite/salvage.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/backup.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "fabric-manager/adapters/store_sqlite/record_crc.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr int kMaxDamageLines = 20;
constexpr char kQuarantineTable[] =
    "CREATE TABLE quarantine (key INTEGER NOT NULL, value BLOB NOT NULL, crc INTEGER NOT NULL,"
    " reason TEXT NOT NULL, time TEXT NOT NULL) STRICT;";

uint64_t Word(const Statement& statement, int column) {
  return static_cast<uint64_t>(sqlite3_column_int64(statement.get(), column));
}

class Damaged : public DamagedDatabase {
 public:
  explicit Damaged(std::string path) : path_(std::move(path)) {}
  ~Damaged() override;
  absl::Status Connect();
  absl::StatusOr<Salvage> Read() override;
  absl::Status Replace(const StoreMeta& meta, const std::vector<Row>& rows,
                       const std::vector<SetAside>& quarantined) override;

 private:
  absl::StatusOr<int64_t> Pragma(const char* sql);
  int Seen(int code);
  void CheckIntegrity(Salvage& out);
  void ReadMeta(Salvage& out);
  void ReadTable(Salvage& out);
  bool Scan(const std::string& sql, Salvage& out);
  void TakePack(uint64_t first, absl::string_view body, Salvage& out);
  void TakeRecord(uint64_t key, uint32_t crc, absl::string_view value, Salvage& out);
  void ReadQuarantine(Salvage& out);
  void CheckSums(Salvage& out);

  const std::string path_;
  bool had_log_ = false;
  int64_t schema_ = 0;
  Connection connection_;
  sqlite3*& db_ = connection_.db;
  std::set<uint64_t> scanned_;  // Row ids.
  uint64_t crc_sum_ = 0;        // As stored, over all records that were found.
  bool out_of_memory_ = false;
};

bool LogIsEmpty(const std::string& path) {
  struct stat found;
  return stat((path + "-wal").c_str(), &found) == 0 && found.st_size == 0;
}

Damaged::~Damaged() {
  // A log that only looking at the database has made. It is locked: nobody else has it open.
  if (db_ != nullptr && !had_log_ && LogIsEmpty(path_)) unlink((path_ + "-wal").c_str());
}

absl::Status Damaged::Connect() {
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                         SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  had_log_ = StoreFileExists(path_ + "-wal");
  if (sqlite3_open_v2(path_.c_str(), &db_, kFlags, nullptr) != SQLITE_OK) {
    return OpenError(db_, path_, "open");
  }
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  // Locked from here on: BEGIN IMMEDIATE finds a manager that runs, and the mode keeps the lock.
  if (sqlite3_exec(db_, "PRAGMA locking_mode=EXCLUSIVE;BEGIN IMMEDIATE;ROLLBACK", nullptr, nullptr,
                   nullptr) != SQLITE_OK) {
    return OpenError(db_, path_, "lock");
  }
  const absl::StatusOr<int64_t> application = Pragma("PRAGMA application_id");
  if (!application.ok()) return application.status();
  const absl::StatusOr<int64_t> version = Pragma("PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (absl::Status status = CheckVersion(path_, *application, *version); !status.ok()) {
    return status;
  }
  schema_ = *version;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Damaged::Pragma(const char* sql) {
  Statement pragma;
  if (pragma.Prepare(db_, sql) != SQLITE_OK || sqlite3_step(pragma.get()) != SQLITE_ROW) {
    return OpenError(db_, path_, "read");
  }
  return sqlite3_column_int64(pragma.get(), 0);
}

absl::StatusOr<Salvage> Damaged::Read() {
  Salvage out;
  out.schema = schema_;
  scanned_.clear();
  crc_sum_ = 0;
  out_of_memory_ = false;
  CheckIntegrity(out);
  ReadMeta(out);
  ReadTable(out);
  ReadQuarantine(out);
  CheckSums(out);
  // What memory was missing for is no damage, and must not be repaired.
  if (out_of_memory_) {
    return Refusal{absl::StatusCode::kUnavailable,
                   "STORE_IO",
                   absl::StrCat("cannot read ", path_, ": SQLite is out of memory"),
                   "make memory free, then try again",
                   {}}
        .ToStatus();
  }
  return out;
}

// Remembers what is not the file's fault.
int Damaged::Seen(int code) {
  out_of_memory_ = out_of_memory_ || (code & 0xff) == SQLITE_NOMEM;
  return code;
}

void Damaged::CheckIntegrity(Salvage& out) {
  Statement check;
  int code = Seen(
      check.Prepare(db_, absl::StrCat("PRAGMA integrity_check(", kMaxDamageLines, ")").c_str()));
  while (code == SQLITE_OK || code == SQLITE_ROW) {
    code = Seen(sqlite3_step(check.get()));
    if (code != SQLITE_ROW) break;
    const std::string line(Blob(check, 0));
    if (line != "ok") out.damage.push_back(absl::StrCat("the file's structure: ", line));
  }
  if (code != SQLITE_DONE) {
    out.damage.push_back(absl::StrCat("the file's structure: ", sqlite3_errmsg(db_)));
  }
}

void Damaged::ReadMeta(Salvage& out) {
  Statement read;
  const bool found = Seen(read.Prepare(db_,
                                       "SELECT epoch, revision, row_count, crc_sum, crc FROM meta"
                                       " WHERE id = 1")) == SQLITE_OK &&
                     Seen(sqlite3_step(read.get())) == SQLITE_ROW;
  if (found) out.meta = {Word(read, 0), Word(read, 1), Word(read, 2), Word(read, 3)};
  if (found && Word(read, 4) == out.meta.Crc()) return;
  out.meta = {};
  out.damage.push_back(found ? "the meta row fails its checksum" : "the meta row is missing");
  out.records_lost = true;  // How many there were cannot be told.
}

// Forwards as far as it goes; where that is not to the end, backwards from there, too.
void Damaged::ReadTable(Salvage& out) {
  const std::string sql = schema_ == kRowsSchemaVersion
                              ? "SELECT key, value, crc FROM records ORDER BY key"
                              : "SELECT first, body, 0 FROM packs ORDER BY first";
  if (!Scan(sql, out)) {
    out.damage.push_back(absl::StrCat("records cannot be read: ", sqlite3_errmsg(db_)));
    out.records_lost = true;
    Scan(sql + " DESC", out);
  }
  const auto by_key = [](const Row& a, const Row& b) { return a.key < b.key; };
  std::stable_sort(out.rows.begin(), out.rows.end(), by_key);
  size_t kept = 0;
  for (Row& row : out.rows) {
    if (kept > 0 && out.rows[kept - 1].key == row.key) {
      const uint32_t crc = RecordCrc(row.key, row.value);
      out.unsound.push_back({row.key, std::move(row.value), crc, "another record has its key", ""});
      continue;
    }
    if (&out.rows[kept] != &row) out.rows[kept] = std::move(row);
    ++kept;
  }
  out.rows.resize(kept);
}

bool Damaged::Scan(const std::string& sql, Salvage& out) {
  Statement read;
  if (Seen(read.Prepare(db_, sql.c_str())) != SQLITE_OK) return false;
  int code = 0;
  while ((code = Seen(sqlite3_step(read.get()))) == SQLITE_ROW) {
    const uint64_t id = Word(read, 0);
    if (!scanned_.insert(id).second) return true;  // From both ends they have met.
    if (schema_ == kRowsSchemaVersion) {
      TakeRecord(id, static_cast<uint32_t>(Word(read, 2)), Blob(read, 1), out);
    } else {
      TakePack(id, Blob(read, 1), out);
    }
  }
  return code == SQLITE_DONE;
}

void Damaged::TakePack(uint64_t first, absl::string_view body, Salvage& out) {
  size_t read = 0;
  const bool framed = ReadPack(body, [&](const Entry& entry) {
    read += kEntryHeaderBytes + entry.value.size();
    TakeRecord(entry.key, entry.crc, entry.value, out);
  });
  if (framed) return;
  out.damage.push_back(absl::StrCat("the pack of records from ", first, " is broken"));
  out.unsound.push_back(
      {first, std::string(body.substr(read)), 0, "the end of a broken pack of records", ""});
  out.records_lost = true;
}

void Damaged::TakeRecord(uint64_t key, uint32_t crc, absl::string_view value, Salvage& out) {
  crc_sum_ += crc;
  if (crc == RecordCrc(key, value)) {
    out.rows.push_back({key, std::string(value)});
  } else {
    out.unsound.push_back({key, std::string(value), crc, "it fails its checksum", ""});
  }
}

void Damaged::ReadQuarantine(Salvage& out) {
  Statement read;
  int code = Seen(read.Prepare(db_, "SELECT key, value, crc, reason, time FROM quarantine"));
  if ((code & 0xff) == SQLITE_ERROR) return;  // No such table: nothing was ever set aside.
  while (code == SQLITE_OK || code == SQLITE_ROW) {
    code = Seen(sqlite3_step(read.get()));
    if (code != SQLITE_ROW) break;
    out.quarantined.push_back({Word(read, 0), std::string(Blob(read, 1)),
                               static_cast<uint32_t>(Word(read, 2)), std::string(Blob(read, 3)),
                               std::string(Blob(read, 4))});
  }
  if (code != SQLITE_DONE) {
    out.damage.push_back(
        absl::StrCat("what was set aside before cannot be read: ", sqlite3_errmsg(db_)));
  }
}

void Damaged::CheckSums(Salvage& out) {
  if (out.records_lost) return;  // Known already, or not to be known.
  const uint64_t found = out.rows.size() + out.unsound.size();
  if (found == out.meta.row_count && crc_sum_ == out.meta.crc_sum) return;
  out.damage.push_back(found == out.meta.row_count
                           ? "a record came back from the past"
                           : absl::StrCat("there are ", found, " records where ",
                                          out.meta.row_count, " were written"));
  out.records_lost = true;
}

// Fills the new database at `path`.
absl::Status Fill(const std::string& path, StoreMeta meta, const std::vector<Row>& rows,
                  const std::vector<SetAside>& quarantined) {
  Connection connection;
  Statement put, put_meta, put_aside;
  if (sqlite3_open_v2(path.c_str(), &connection.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE,
                      nullptr) != SQLITE_OK ||
      sqlite3_exec(
          connection.db,
          absl::StrCat("PRAGMA journal_mode=OFF;PRAGMA synchronous=OFF;", kQuarantineTable, "BEGIN")
              .c_str(),
          nullptr, nullptr, nullptr) != SQLITE_OK ||
      put.Prepare(connection.db, "INSERT INTO packs VALUES (?1, ?2)") != SQLITE_OK ||
      put_aside.Prepare(connection.db, "INSERT INTO quarantine VALUES (?1, ?2, ?3, ?4, ?5)") !=
          SQLITE_OK ||
      put_meta.Prepare(connection.db, "UPDATE meta SET row_count = ?1, crc_sum = ?2, crc = ?3") !=
          SQLITE_OK) {
    return OpenError(connection.db, path, "make");
  }
  std::vector<Edit> edits;
  for (const Row& row : rows) edits.push_back({row.key, &row.value});
  std::vector<Pack> packs;
  PackSums sums;
  if (!edits.empty()) {
    EditPack(edits[0].key, "", edits.data(), edits.data() + edits.size(), true, sums, packs);
  }
  const auto run = [](const Statement& statement) {
    const int code = sqlite3_step(statement.get());
    sqlite3_reset(statement.get());
    return code == SQLITE_DONE;
  };
  bool good = true;
  for (const Pack& pack : packs) {
    sqlite3_bind_int64(put.get(), 1, static_cast<sqlite3_int64>(pack.first));
    sqlite3_bind_blob64(put.get(), 2, pack.body.data(), pack.body.size(), SQLITE_STATIC);
    good = good && run(put);
  }
  for (const SetAside& aside : quarantined) {
    sqlite3_bind_int64(put_aside.get(), 1, static_cast<sqlite3_int64>(aside.key));
    sqlite3_bind_blob64(put_aside.get(), 2, aside.value.data(), aside.value.size(), SQLITE_STATIC);
    sqlite3_bind_int64(put_aside.get(), 3, aside.crc);
    sqlite3_bind_text(put_aside.get(), 4, aside.reason.c_str(), -1, SQLITE_STATIC);
    sqlite3_bind_text(put_aside.get(), 5, aside.time.c_str(), -1, SQLITE_STATIC);
    good = good && run(put_aside);
  }
  meta.row_count = static_cast<uint64_t>(sums.records);
  meta.crc_sum = sums.crc_sum;
  sqlite3_bind_int64(put_meta.get(), 1, static_cast<sqlite3_int64>(meta.row_count));
  sqlite3_bind_int64(put_meta.get(), 2, static_cast<sqlite3_int64>(meta.crc_sum));
  sqlite3_bind_int64(put_meta.get(), 3, meta.Crc());
  good = good && run(put_meta) &&
         sqlite3_exec(connection.db, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK;
  return good ? absl::OkStatus() : OpenError(connection.db, path, "fill");
}

absl::Status Damaged::Replace(const StoreMeta& meta, const std::vector<Row>& rows,
                              const std::vector<SetAside>& quarantined) {
  auto copy = BackupCopy::Start(db_, path_ + ".before-fsck");
  if (!copy.ok()) return copy.status();
  if (const auto whole = (*copy)->Step(absl::InfiniteDuration()); !whole.ok()) {
    return whole.status();
  }
  if (const auto size = (*copy)->Publish(); !size.ok()) return size.status();

  const absl::StatusOr<std::string> empty = EmptyDatabase(path_, meta);
  if (!empty.ok()) return empty.status();
  const std::string fresh = path_ + ".fsck";
  unlink(fresh.c_str());  // Of a repair that was interrupted.
  absl::Status status = CreateStoreFile(fresh, *empty);
  if (status.ok()) status = Fill(fresh, meta, rows, quarantined);
  // The old log belongs to the old file, and is in it before the new file takes its name.
  if (status.ok() && sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr,
                                               nullptr) != SQLITE_OK) {
    status = OpenError(db_, path_, "copy the log into");
  }
  if (status.ok()) status = ReplaceStoreFile(fresh, path_);
  if (!status.ok()) unlink(fresh.c_str());
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DamagedDatabase>> DamagedDatabase::Open(const std::string& path) {
  const absl::StatusOr<std::string> real = CheckStorePath(path);
  if (!real.ok()) return real.status();
  if (!StoreFileExists(*real)) {
    return Refusal{absl::StatusCode::kNotFound,
                   "STORE_MISSING",
                   absl::StrCat("there is no database at ", *real),
                   "name the manager's store.path, or a backup",
                   {}}
        .ToStatus();
  }
  auto database = std::make_unique<Damaged>(*real);
  if (absl::Status status = database->Connect(); !status.ok()) return status;
  return database;
}

}  // namespace cxlpool::fm
