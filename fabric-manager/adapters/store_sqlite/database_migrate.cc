#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "fabric-manager/ports/pack.h"

namespace cxlpool::fm {

absl::Status Database::Execute(const char* sql, absl::string_view doing) {
  return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK
             ? absl::OkStatus()
             : OpenError(db_, path_, doing);
}

// Moves a database of an earlier schema over, in one transaction. From schema 1 twice the space is
// needed for as long as it takes; what the rows had is used again.
//
// The result is marked clean, for its head file is not there yet: TakeOver makes one before
// anything is acknowledged.
absl::Status Database::Migrate() {
  if (absl::Status status = Execute("BEGIN IMMEDIATE", "lock"); !status.ok()) return status;
  absl::Status status = LoadMeta();
  if (status.ok() && schema_ == kRowsSchemaVersion) status = Execute(kPacksTable, "migrate");
  if (status.ok()) status = MakeMetaTableAnew();
  if (status.ok()) status = PrepareAll();
  if (status.ok() && schema_ == kRowsSchemaVersion) {
    status = CopyRowsToPacks();
    if (status.ok()) status = Execute("DROP TABLE records", "migrate");
  }
  if (status.ok()) {
    status =
        Execute(absl::StrCat("PRAGMA user_version=", kSchemaVersion, ";COMMIT").c_str(), "migrate");
  }
  if (!status.ok()) Rollback();
  return status;
}

absl::Status Database::MakeMetaTableAnew() {
  meta_.clean = true;
  meta_.store_id = NewStoreId();
  absl::Status status = Execute(absl::StrCat("DROP TABLE meta;", kMetaTable).c_str(), "migrate");
  if (status.ok() && ReplaceMetaRow(db_, meta_) != SQLITE_OK) {
    status = OpenError(db_, path_, "migrate");
  }
  return status;
}

// From the schema of one row for each record. Some thousand rows are in memory at a time; the copy
// counts as the old table did, or is refused.
absl::Status Database::CopyRowsToPacks() {
  constexpr size_t kRowsAtATime = 4096;
  Statement read;
  if (absl::Status status = Prepare("SELECT key, value, crc FROM records ORDER BY key", read);
      !status.ok()) {
    return status;
  }
  StoreMeta copied;
  int code = SQLITE_ROW;
  while (code == SQLITE_ROW) {
    std::vector<Row> rows;
    rows.reserve(kRowsAtATime);
    while (rows.size() < kRowsAtATime && (code = sqlite3_step(read.get())) == SQLITE_ROW) {
      const auto key = static_cast<uint64_t>(sqlite3_column_int64(read.get(), 0));
      const absl::string_view value = Blob(read, 1);
      if (RecordCrc(key, value) != static_cast<uint64_t>(sqlite3_column_int64(read.get(), 2))) {
        return CorruptError(path_, absl::StrCat("record ", key, " fails its checksum"));
      }
      rows.push_back({key, std::string(value)});
    }
    std::vector<Edit> edits;
    for (const Row& row : rows) edits.push_back({row.key, &row.value});
    if (absl::Status status = Apply(edits, copied); !status.ok()) return status;
  }
  if (code != SQLITE_DONE) return OpenError(db_, path_, "read");
  if (copied.row_count != meta_.row_count || copied.crc_sum != meta_.crc_sum) {
    return CorruptError(path_, absl::StrCat("it has ", copied.row_count, " records where ",
                                            meta_.row_count, " were written, or old ones"));
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
