#include "fabric-manager/adapters/store_sqlite/salvage.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "fabric-manager/adapters/store_sqlite/store_end.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "fabric-manager/ports/pack.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kQuarantineTable[] =
    "CREATE TABLE quarantine (key INTEGER NOT NULL, value BLOB NOT NULL, crc INTEGER NOT NULL,"
    " reason TEXT NOT NULL, time TEXT NOT NULL) STRICT;";

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
  absl::Status Keep();
  absl::Status EndInOrder();

  const std::string path_;
  bool made_log_ = false;  // Only looking at the database has made it.
  bool is_whole_ = false;  // As far as Read could see, a manager could go on with it.
  int64_t schema_ = 0;
  Connection connection_;
  sqlite3*& db_ = connection_.db;
};

Damaged::~Damaged() {
  if (made_log_) RemoveEmptyLog(path_);
}

// Opens and locks the database, and judges no more of it than its version. Changes no record: what
// is damaged stays as it is until a repair is asked for.
absl::Status Damaged::Connect() {
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                         SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  const bool had_log = StoreFileExists(path_ + "-wal");
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
  made_log_ = !had_log;
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

// The latest moment that the head file names, whichever store's it is: for a meta row that is lost.
std::optional<StoreMeta> AnyHead(const StoreEnd& end) {
  std::optional<StoreMeta> latest;
  for (const std::optional<StoreMeta>& slot : end.head) {
    if (slot.has_value() && (!latest.has_value() || slot->IsAfter(*latest))) latest = slot;
  }
  return latest;
}

void Raise(StoreMeta& newest, const StoreMeta& to) {
  newest.epoch = std::max(newest.epoch, to.epoch);
  newest.revision = std::max(newest.revision, to.revision);
}

bool IsWhole(const Salvage& found) {
  return found.damage.empty() && found.unsound.empty() && !found.records_lost;
}

// Reads the store as a manager would see it. Where that lacks what was acknowledged, it is tried
// with all frames of the log that verify by themselves: a damaged frame often holds a page that was
// written again behind it, and then nothing is lost.
absl::StatusOr<Salvage> Damaged::Read() {
  const absl::StatusOr<StoreEnd> end = StoreEnd::Read(path_);
  if (!end.ok()) return end.status();
  const absl::StatusOr<std::string> main = ReadMainFile(db_, path_);
  if (!main.ok()) return main.status();
  const std::optional<StoreMeta> head = AnyHead(*end);
  absl::StatusOr<Salvage> found = ReadImage(end->log.CopyInto(*main, false), schema_, head);
  if (!found.ok()) return found.status();
  absl::StatusOr<std::string> missing = std::string();
  if (found->has_meta) {
    missing = WhatIsMissing(*end, schema_, found->meta, [&] { return main; });
    if (!missing.ok()) return missing.status();
  }
  is_whole_ = found->has_meta && missing->empty();
  if (!is_whole_) {
    absl::StatusOr<Salvage> later = ReadImage(end->log.CopyInto(*main, true), schema_, head);
    if (!later.ok()) return later.status();
    const bool is_newest =
        head.has_value() ? !head->IsAfter(later->meta) && head->store_id == later->meta.store_id
                         : schema_ <= kPacksSchemaVersion;
    if (IsWhole(*later) && is_newest && (!found->has_meta || later->meta.IsAfter(found->meta))) {
      if (missing->empty()) missing = found->damage.front();
      found = std::move(later);
      found->damage.push_back(absl::StrCat(*missing, "; all of it could be read all the same"));
    } else if (!missing->empty()) {
      found->damage.push_back(absl::StrCat("STORE_INCOMPLETE: ", *missing));
      found->records_lost = found->maybe_stale = true;
    }
  }
  found->newest = found->meta;
  if (head.has_value()) Raise(found->newest, *head);
  return found;
}

// Fills the new database at `path`.
absl::Status Fill(const std::string& path, StoreMeta meta, const std::vector<Row>& rows,
                  const std::vector<SetAside>& quarantined) {
  Connection connection;
  Statement put, put_aside;
  if (sqlite3_open_v2(path.c_str(), &connection.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE,
                      nullptr) != SQLITE_OK ||
      sqlite3_exec(
          connection.db,
          absl::StrCat("PRAGMA journal_mode=OFF;PRAGMA synchronous=OFF;", kQuarantineTable, "BEGIN")
              .c_str(),
          nullptr, nullptr, nullptr) != SQLITE_OK ||
      put.Prepare(connection.db, "INSERT INTO packs VALUES (?1, ?2)") != SQLITE_OK ||
      put_aside.Prepare(connection.db, "INSERT INTO quarantine VALUES (?1, ?2, ?3, ?4, ?5)") !=
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
  meta.clean = true;
  meta.store_id = NewStoreId();
  good = good && ReplaceMetaRow(connection.db, meta) == SQLITE_OK &&
         sqlite3_exec(connection.db, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK;
  return good ? absl::OkStatus() : OpenError(connection.db, path, "fill");
}

// The files as they were found, for people who look into it later. The database's name comes last:
// where it is, its log and its head file are.
absl::Status Damaged::Keep() {
  const std::string kept = path_ + ".before-fsck";
  for (const char* suffix : {"", "-wal", "-head"}) {
    if (StoreFileExists(kept + suffix)) return BackupExistsError(kept + suffix);
  }
  for (const char* suffix : {"-wal", "-head"}) {
    if (!StoreFileExists(path_ + suffix)) continue;
    const absl::StatusOr<std::string> bytes = ReadStoreFile(path_ + suffix);
    if (!bytes.ok()) return bytes.status();
    if (absl::Status status = PublishBytes(*bytes, kept + suffix); !status.ok()) return status;
  }
  const absl::StatusOr<std::string> main = ReadMainFile(db_, path_);
  return main.ok() ? PublishBytes(*main, kept) : main.status();
}

// So that a power cut or a fault during the replacement leaves the old store as one that opens: its
// log goes away first, for the new database must not meet it.
absl::Status Damaged::EndInOrder() {
  StoreMeta meta;
  bool done = sqlite3_exec(db_, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK;
  if (done && schema_ == kSchemaVersion) {
    const MetaRow row = ReadMetaRow(db_, schema_, meta);
    meta.clean = true;
    done = row == MetaRow::kSound ? ReplaceMetaRow(db_, meta) == SQLITE_OK
                                  : row != MetaRow::kUnreadable;  // No manager could open it.
  }
  done = done && sqlite3_exec(db_, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK &&
         sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr) ==
             SQLITE_OK;
  if (done) return absl::OkStatus();
  const absl::Status status = OpenError(db_, path_, "copy the log into");
  if (sqlite3_get_autocommit(db_) == 0) {
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  // Damage is why it is replaced.
  return absl::IsDataLoss(status) ? absl::OkStatus() : status;
}

absl::Status Damaged::Replace(const StoreMeta& meta, const std::vector<Row>& rows,
                              const std::vector<SetAside>& quarantined) {
  if (absl::Status status = Keep(); !status.ok()) return status;
  const absl::StatusOr<std::string> empty = EmptyDatabase(path_, meta);
  if (!empty.ok()) return empty.status();
  const std::string fresh = path_ + ".fsck";
  unlink(fresh.c_str());  // Of a repair that was interrupted.
  absl::Status status = CreateStoreFile(fresh, *empty);
  if (status.ok()) status = Fill(fresh, meta, rows, quarantined);
  if (status.ok() && is_whole_) status = EndInOrder();
  if (status.ok()) status = ReplaceStoreFile(fresh, path_);
  if (!status.ok()) unlink(fresh.c_str());
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DamagedDatabase>> DamagedDatabase::Open(const std::string& path) {
  const absl::StatusOr<std::string> real = CheckStorePath(path, StoreOpener::kCommand);
  if (!real.ok()) return real.status();
  if (!StoreFileExists(*real)) {
    return Refuse(absl::StatusCode::kNotFound, "STORE_MISSING",
                  absl::StrCat("there is no database at ", *real),
                  "name the manager's store.path, or a backup");
  }
  auto database = std::make_unique<Damaged>(*real);
  if (absl::Status status = database->Connect(); !status.ok()) return status;
  return database;
}

}  // namespace cxlpool::fm
