#include "fabric-manager/adapters/store_sqlite/database.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "fabric-manager/adapters/store_sqlite/store_end.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "fabric-manager/ports/pack.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr int kBusyTimeout_ms = 500;  // Covers another process that is just closing.

// Steps a statement that gives no rows, and makes it ready for the next time.
int Run(const Statement& statement) {
  const int code = sqlite3_step(statement.get());
  // Reset repeats the code of a failed step, and the connection keeps its message.
  return code == SQLITE_DONE ? sqlite3_reset(statement.get())
                             : (sqlite3_reset(statement.get()), code);
}

// What a batch comes to: the last word on each key, in order of key.
std::vector<Edit> FinalEdits(const StoreBatch& batch) {
  std::vector<Edit> edits;
  edits.reserve(batch.puts.size() + batch.erases.size());
  for (const Row& row : batch.puts) edits.push_back({row.key, &row.value});
  for (const uint64_t key : batch.erases) edits.push_back({key, nullptr});
  const auto in_order = [](const Edit& a, const Edit& b) { return a.key < b.key; };
  if (!std::is_sorted(edits.begin(), edits.end(), in_order)) {
    std::stable_sort(edits.begin(), edits.end(), in_order);
  }
  size_t kept = 0;
  for (size_t i = 0; i < edits.size(); ++i) {
    if (i + 1 == edits.size() || edits[i + 1].key != edits[i].key) edits[kept++] = edits[i];
  }
  edits.resize(kept);
  return edits;
}

// A failure while the store is being opened: nothing was acknowledged yet, and the next try reads
// what is there.
absl::Status WhileOpening(const absl::Status& status) {
  std::optional<Refusal> refusal = RefusalOf(status);
  if (!absl::IsDataLoss(status) || !refusal.has_value() || refusal->reason != "STORE_IO") {
    return status;
  }
  refusal->code = absl::StatusCode::kUnavailable;
  return refusal->ToStatus();
}

}  // namespace

absl::string_view Blob(const Statement& statement, int column) {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement.get(), column));
  return {data, static_cast<size_t>(sqlite3_column_bytes(statement.get(), column))};
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                         uint64_t max_size_bytes,
                                                         const std::string& vfs) {
  absl::StatusOr<std::string> real = CheckStorePath(path);
  if (!real.ok()) return real.status();
  if (!StoreFileExists(*real)) {
    absl::StatusOr<std::string> empty = EmptyDatabase(*real, StoreMeta{});
    if (!empty.ok()) return empty.status();
    if (absl::Status status = CreateStoreFile(*real, *empty); !status.ok()) return status;
  }
  std::unique_ptr<Database> database(new Database(*std::move(real), vfs));
  absl::Status status = database->Connect(max_size_bytes);
  if (!status.ok()) return status;
  return database;
}

Database::~Database() {
  if (opened_ && !is_evidence_) EndInOrder();
  // One that was refused is left without the empty log that looking at it has made.
  if (made_log_ && !opened_) RemoveEmptyLog(path_);
}

// Opens the connection, and with the first read locks the database for good. Nothing is written
// before CheckEnd has found that nothing is missing.
absl::Status Database::Connect(uint64_t max_size_bytes) {
  const bool had_log = StoreFileExists(path_ + "-wal");
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                         SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  if (sqlite3_open_v2(path_.c_str(), &db_, kFlags, vfs_.empty() ? nullptr : vfs_.c_str()) !=
      SQLITE_OK) {
    return OpenError(db_, path_, "open");
  }
  sqlite3_busy_timeout(db_, kBusyTimeout_ms);
  sqlite3_limit(db_, SQLITE_LIMIT_LENGTH,
                static_cast<int>(StoreLimits().max_row_bytes) + kPageBytes);
  // Until it is known to be ours, closing it must not write to it either.
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  // Exclusive before anything is read: then the index of the log lives in this process's memory,
  // and the lock is held for good from the first write on.
  if (sqlite3_exec(db_, "PRAGMA locking_mode=EXCLUSIVE", nullptr, nullptr, nullptr) != SQLITE_OK) {
    return OpenError(db_, path_, "lock");
  }
  const absl::StatusOr<int64_t> version = CheckHeader();
  if (!version.ok()) return version.status();
  schema_ = *version;
  made_log_ = !had_log;  // Locked by now: if there is one, it belongs to no one else.
  if (absl::Status status = CheckEnd(); !status.ok()) return status;
  const std::string setup = absl::StrCat(
      "PRAGMA journal_mode=WAL;PRAGMA synchronous=",
      CXLPOOL_MUTANT("store-no-sync") ? "OFF" : "FULL",
      ";PRAGMA wal_autocheckpoint=0;PRAGMA cell_size_check=ON;PRAGMA temp_store=MEMORY;"
      "PRAGMA mmap_size=0;"
      "PRAGMA journal_size_limit=67108864;PRAGMA cache_size=-65536;PRAGMA max_page_count=",
      std::max<uint64_t>(max_size_bytes / kPageBytes, 1));
  if (sqlite3_exec(db_, setup.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return OpenError(db_, path_, "set up");
  }
  sqlite3_wal_hook(
      db_,
      [](void* self, sqlite3*, const char*, int pages) {
        auto* const database = static_cast<Database*>(self);
        database->wal_pages_ = database->log_frames_ = pages;
        return SQLITE_OK;
      },
      this);
  return schema_ < kSchemaVersion ? Migrate() : PrepareAll();
}

// Holds the database, as SQLite shows it with its log, against the other files of the store. The
// log has been recovered, which reads it and writes nothing.
absl::Status Database::CheckEnd() {
  if (absl::Status status = LoadMeta(); !status.ok()) return status;
  const absl::StatusOr<StoreEnd> end = StoreEnd::Read(path_);
  if (!end.ok()) return end.status();
  const absl::StatusOr<std::string> missing =
      WhatIsMissing(*end, schema_, meta_, [this] { return ReadMainFile(db_, path_); });
  if (!missing.ok()) return missing.status();
  if (!missing->empty()) return IncompleteError(path_, *missing);
  return end->log.has_more() ? CutOffUnfinished(end->log.committed_end()) : absl::OkStatus();
}

// Makes the log, durably, no longer than `end`. A code of SQLite's.
int Database::CutLog(uint64_t end) {
  sqlite3_file* log = nullptr;
  int code = sqlite3_file_control(db_, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  if (code == SQLITE_OK && (log == nullptr || log->pMethods == nullptr)) code = SQLITE_NOTFOUND;
  if (code == SQLITE_OK) code = log->pMethods->xTruncate(log, static_cast<sqlite3_int64>(end));
  if (code == SQLITE_OK) code = log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
  return code;
}

// Cuts off what a power cut has left of a transaction that was never synced. What this process
// writes next comes in its place, and rests of it behind that would later pass for commits that
// follow a damaged frame.
absl::Status Database::CutOffUnfinished(uint64_t end) {
  const int code = CutLog(end);
  if (code == SQLITE_OK) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kUnavailable, "STORE_IO",
      absl::StrCat("cannot cut the unfinished end off ", path_, "-wal: ", sqlite3_errstr(code)),
      "check the disk and the kernel log, then start again");
}

// Cuts off what a change that was refused for want of space has left in the log. SQLite leaves it
// there, for the next change to write over. But what the next one leaves of it stands behind that
// one's frames and verifies, as commits behind a damaged frame do. And the write that failed may
// have left its last frame as it was meant to be, where the rest of the page was there already: at
// the next start a change that was refused would have happened.
//
// DATA_LOSS: it is still there, so do not go on.
absl::Status Database::CutOffRefused() {
  if (CXLPOOL_MUTANT("store-keeps-what-was-refused")) return absl::OkStatus();
  int frames = log_frames_, code = SQLITE_OK;
  if (wal_pages_ == 0) {
    // All of the log has been copied, so the change may have begun a new round at its beginning.
    // SQLite knows that, and a checkpoint, which has nothing to do, answers it.
    code = sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_PASSIVE, &frames, nullptr);
    const absl::StatusOr<LogFile> log = LogFile::Read(path_ + "-wal");
    // Where the new header was not written to its end, no frame was. Those of the round before show
    // that they have been copied: they stay.
    if (code == SQLITE_OK && log.ok() && !log->header_is_sound()) return absl::OkStatus();
  }
  if (code == SQLITE_OK) code = CutLog(LogFile::EndOf(static_cast<size_t>(frames)));
  if (code == SQLITE_OK) return absl::OkStatus();
  return Refuse(absl::StatusCode::kDataLoss, "STORE_IO",
                absl::StrCat("cannot cut a change that was refused off ", path_,
                             "-wal: ", sqlite3_errstr(code)),
                "check the disk and the kernel log, then restart the manager: it reads what was "
                "really stored");
}

absl::StatusOr<int64_t> Database::ReadPragma(const std::string& name) {
  Statement pragma;
  if (pragma.Prepare(db_, absl::StrCat("PRAGMA ", name).c_str()) != SQLITE_OK ||
      sqlite3_step(pragma.get()) != SQLITE_ROW) {
    return OpenError(db_, path_, "read");
  }
  return sqlite3_column_int64(pragma.get(), 0);
}

absl::StatusOr<int64_t> Database::CheckHeader() {
  const absl::StatusOr<int64_t> application = ReadPragma("application_id");
  if (!application.ok()) return application.status();
  const absl::StatusOr<int64_t> version = ReadPragma("user_version");
  if (!version.ok()) return version.status();
  absl::Status status = CheckVersion(path_, *application, *version);
  if (!status.ok()) return status;
  return version;
}

absl::Status Database::PrepareAll() {
  const std::pair<Statement*, const char*> statements[] = {
      {&begin_, "BEGIN IMMEDIATE"},
      {&commit_, "COMMIT"},
      {&rollback_, "ROLLBACK"},
      {&find_, "SELECT first, body FROM packs WHERE first <= ?1 ORDER BY first DESC LIMIT 1"},
      {&find_next_, "SELECT first FROM packs WHERE first > ?1 ORDER BY first LIMIT 1"},
      {&put_, "REPLACE INTO packs (first, body) VALUES (?1, ?2)"},
      {&erase_, "DELETE FROM packs WHERE first = ?1"},
      // The guards are compared here, inside the transaction: no row, no commit.
      {&write_meta_,
       "UPDATE meta SET epoch = ?1, revision = ?2, row_count = ?3, crc_sum = ?4, clean = ?5, crc = "
       "?6"
       " WHERE id = 1 AND epoch = ?7 AND revision = ?8"},
  };
  for (const auto& [statement, sql] : statements) {
    if (absl::Status status = Prepare(sql, *statement); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Database::Prepare(const char* sql, Statement& statement) {
  if (statement.Prepare(db_, sql) == SQLITE_OK) return absl::OkStatus();
  // A table of ours that is not there is damage, not a mistake in the SQL.
  if ((sqlite3_errcode(db_) & 0xff) == SQLITE_ERROR) {
    return CorruptError(path_, sqlite3_errmsg(db_));
  }
  return OpenError(db_, path_, "read");
}

// In this order, so that each power cut and each kill in between leaves a store that opens: the
// head file is durable before the mark `clean` goes; the mark goes in a transaction of the log,
// whose name is durable before the database itself says that there is a log; and nothing is
// acknowledged before the end of it.
absl::StatusOr<StoreImage> Database::TakeOver() {
  if (Run(begin_) != SQLITE_OK) return OpenError(db_, path_, "lock");
  StoreImage image;
  schema_ = kSchemaVersion;
  absl::Status status = LoadMeta();
  if (status.ok()) {
    absl::StatusOr<std::vector<Row>> rows = LoadRows();
    status = rows.status();
    if (rows.ok()) image.rows = *std::move(rows);
  }
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<HeadFile>> head = HeadFile::Open(path_, vfs_, meta_);
    status = WhileOpening(head.status());
    if (head.ok()) head_ = *std::move(head);
  }
  StoreMeta next = meta_;
  ++next.epoch;
  next.clean = meta_.clean && CXLPOOL_MUTANT("store-stays-clean");
  if (status.ok() && (WriteMeta(next) != SQLITE_OK || Run(commit_) != SQLITE_OK)) {
    status = OpenError(db_, path_, "take over");
  }
  // The log is there now. SQLite syncs its name, too, but does not look whether that succeeds; and
  // every commit from here on is in it.
  if (status.ok()) status = SyncStoreDirectory(path_);
  if (!status.ok()) {
    Rollback();
    return status;
  }
  meta_ = next;
  // On a full disk only the log shows that the store is in use; that is no reason not to start.
  status = Checkpoint();
  if (!status.ok() && !absl::IsResourceExhausted(status)) return WhileOpening(status);
  status = head_->Write(meta_);
  if (status.ok()) status = head_->Settle();
  if (!status.ok()) return WhileOpening(status);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  opened_ = true;
  image.epoch = meta_.epoch;
  image.revision = meta_.revision;
  return image;
}

// The last transaction of an orderly stop says that it is one. If it cannot be made, the next start
// finds a store that was not closed in order, which is true and does no harm.
void Database::EndInOrder() {
  StoreMeta last = meta_;
  last.clean = true;
  if (Run(begin_) != SQLITE_OK || WriteMeta(last) != SQLITE_OK || Run(commit_) != SQLITE_OK) {
    Rollback();
    LeaveAsIs();  // Closing would copy the log and remove it, which the next start takes for
                  // damage.
    return;
  }
  meta_ = last;
  if (!Checkpoint().ok()) return;
  if (head_->Write(meta_).ok()) head_->Settle().IgnoreError();
}

absl::Status Database::LoadMeta() {
  switch (ReadMetaRow(db_, schema_, meta_)) {
    case MetaRow::kSound:
      return absl::OkStatus();
    case MetaRow::kMissing:
      return CorruptError(path_, "its meta row is missing");
    case MetaRow::kDamaged:
      return CorruptError(path_, "its meta row fails its checksum");
    case MetaRow::kUnreadable:
      break;
  }
  // A table of ours that is not there is damage, not a mistake in the SQL.
  if ((sqlite3_errcode(db_) & 0xff) == SQLITE_ERROR) {
    return CorruptError(path_, sqlite3_errmsg(db_));
  }
  return OpenError(db_, path_, "read");
}

// All records, each by its checksum, in ascending order, and as many as were written: the sum of
// the checksums detects a pack that is missing, or an old one in its place. Anything else is
// DATA_LOSS: a pool that is half read would hand out bytes twice.
absl::StatusOr<std::vector<Row>> Database::LoadRows() {
  Statement read;
  if (absl::Status status = Prepare("SELECT first, body FROM packs ORDER BY first", read);
      !status.ok()) {
    return status;
  }
  std::vector<Row> rows;
  rows.reserve(meta_.row_count);
  uint64_t crc_sum = 0, bad = 0, first_bad = 0, least = 0;
  int code = 0;
  while ((code = sqlite3_step(read.get())) == SQLITE_ROW) {
    const auto first = static_cast<uint64_t>(sqlite3_column_int64(read.get(), 0));
    bool ordered = first >= least;
    const bool framed = ReadPack(Blob(read, 1), [&](const Entry& entry) {
      ordered = ordered && entry.key >= std::max(first, least);
      least = entry.key + 1;
      const bool sound =
          entry.crc == RecordCrc(entry.key, entry.value) || CXLPOOL_MUTANT("store-skip-crc");
      if (!sound && bad++ == 0) first_bad = entry.key;
      crc_sum += entry.crc;
      rows.push_back({entry.key, std::string(entry.value)});
    });
    if (!framed || !ordered) {
      return CorruptError(path_, absl::StrCat("the pack of records from ", first, " is broken"));
    }
  }
  if (code != SQLITE_DONE) return OpenError(db_, path_, "read");
  if (bad > 0) {
    return CorruptError(path_,
                        absl::StrCat("record ", first_bad, " fails its checksum",
                                     bad > 1 ? absl::StrCat(", and ", bad - 1, " more do") : ""));
  }
  if (rows.size() != meta_.row_count || crc_sum != meta_.crc_sum) {
    return CorruptError(path_, absl::StrCat("it has ", rows.size(), " records where ",
                                            meta_.row_count, " were written, or old ones"));
  }
  return rows;
}

// A commit that was synced is put down in the head file before it is acknowledged: so the head file
// never names what the log has not, and after a kill it names the last change of all.
absl::Status Database::Commit(const StoreBatch& batch) {
  absl::Status status = Transact(batch);
  if (absl::IsResourceExhausted(status) && wal_pages_ > 0) {
    // The log itself may be what has no room to grow. Copied into the database it starts again
    // from its beginning, so releases still go through on a full disk.
    if (absl::Status copied = Checkpoint(); absl::IsDataLoss(copied)) return copied;
    status = Transact(batch);
  }
  if (status.ok() && !CXLPOOL_MUTANT("store-head-left-behind")) status = head_->Write(meta_);
  if (absl::IsDataLoss(status)) LeaveAsIs();
  return status;
}

// What is on the disk is evidence now: closing must not write to it.
void Database::LeaveAsIs() {
  is_evidence_ = true;
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

// A change that was refused leaves nothing behind in the log.
absl::Status Database::Transact(const StoreBatch& batch) {
  const int written = PagesWritten();
  if (Run(begin_) != SQLITE_OK) return CommitError(db_, path_, "begin a change of");
  StoreMeta next = meta_;
  next.revision = batch.revision;
  absl::Status status = Apply(FinalEdits(batch), next);
  if (status.ok()) {
    const int code = WriteMeta(next);
    if (code == SQLITE_ABORT) {
      status = Refuse(absl::StatusCode::kAborted, "STORE_FENCED",
                      absl::StrCat("another process has changed ", path_), "stop");
    } else if (code != SQLITE_OK || Run(commit_) != SQLITE_OK) {
      status = CommitError(db_, path_, "commit to");
    }
  }
  if (!status.ok()) {
    Rollback();
    if (absl::IsResourceExhausted(status) && PagesWritten() != written) {
      if (absl::Status cut = CutOffRefused(); !cut.ok()) return cut;
    }
    return status;
  }
  meta_ = next;
  return absl::OkStatus();
}

// How many pages SQLite has tried to write to the log until now.
int Database::PagesWritten() const {
  int written = 0, unused = 0;
  sqlite3_db_status(db_, SQLITE_DBSTATUS_CACHE_WRITE, &written, &unused, 0);
  return written;
}

absl::Status Database::Apply(const std::vector<Edit>& edits, StoreMeta& meta) {
  PackSums sums;
  const Edit* const end = edits.data() + edits.size();
  for (const Edit* edit = edits.data(); edit != end;) {
    const absl::StatusOr<const Edit*> next = ApplyToOnePack(edit, end, sums);
    if (!next.ok()) return next.status();
    edit = *next;
  }
  meta.row_count += sums.records;
  meta.crc_sum += sums.crc_sum;
  return absl::OkStatus();
}

absl::Status Database::StepFailed(const Statement& statement) {
  absl::Status status = Failed("read");  // Before the reset, which a connection may forget it by.
  sqlite3_reset(statement.get());
  return status;
}

// In a change, or in the move from an older schema, which is a part of opening.
absl::Status Database::Failed(absl::string_view doing) {
  return opened_ ? CommitError(db_, path_, doing) : OpenError(db_, path_, doing);
}

// Applies those of the edits, from the first on, that fall into the same pack; answers the next.
absl::StatusOr<const Edit*> Database::ApplyToOnePack(const Edit* begin, const Edit* end,
                                                     PackSums& sums) {
  const auto key = static_cast<sqlite3_int64>(begin->key);
  sqlite3_bind_int64(find_next_.get(), 1, key);
  const int found_next = sqlite3_step(find_next_.get());
  const auto next_first = static_cast<uint64_t>(sqlite3_column_int64(find_next_.get(), 0));
  if (found_next != SQLITE_ROW && found_next != SQLITE_DONE) return StepFailed(find_next_);
  sqlite3_reset(find_next_.get());
  sqlite3_bind_int64(find_.get(), 1, key);
  const int found = sqlite3_step(find_.get());
  if (found != SQLITE_ROW && found != SQLITE_DONE) return StepFailed(find_);
  const bool at_end = found_next == SQLITE_DONE;
  if (!at_end) {
    end = std::find_if(begin, end, [&](const Edit& edit) { return edit.key >= next_first; });
  }
  uint64_t first = begin->key;
  absl::string_view old;
  if (found == SQLITE_ROW) {
    first = static_cast<uint64_t>(sqlite3_column_int64(find_.get(), 0));
    old = Blob(find_, 1);
  }
  std::vector<Pack> packs;
  const bool framed = EditPack(first, old, begin, end, at_end, sums, packs);
  sqlite3_reset(find_.get());
  if (!framed) {
    return CorruptError(path_, absl::StrCat("the pack of records from ", first, " is broken"));
  }
  if (absl::Status status = WritePacks(first, packs); !status.ok()) return status;
  return end;
}

// In place of what the row `first` had.
absl::Status Database::WritePacks(uint64_t first, const std::vector<Pack>& packs) {
  if (packs.empty()) {
    sqlite3_bind_int64(erase_.get(), 1, static_cast<sqlite3_int64>(first));
    if (Run(erase_) != SQLITE_OK) return Failed("write to");
  }
  for (const Pack& pack : packs) {
    sqlite3_bind_int64(put_.get(), 1, static_cast<sqlite3_int64>(pack.first));
    sqlite3_bind_blob64(put_.get(), 2, pack.body.data(), pack.body.size(), SQLITE_STATIC);
    if (Run(put_) != SQLITE_OK) return Failed("write to");
  }
  return absl::OkStatus();
}

// SQLITE_ABORT: the row in the database is not the one that was read (meta_).
int Database::WriteMeta(const StoreMeta& meta) {
  int column = 0;
  for (const uint64_t word :
       {meta.epoch, meta.revision, meta.row_count, meta.crc_sum, uint64_t{meta.clean ? 1u : 0u},
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
  return Settle();
}

absl::Status Database::Settle() {
  if (settled()) return absl::OkStatus();
  absl::Status status = head_->Settle();
  if (!status.ok()) LeaveAsIs();
  return status;
}

}  // namespace cxlpool::fm
