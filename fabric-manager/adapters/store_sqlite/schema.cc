#include "fabric-manager/adapters/store_sqlite/schema.h"

#include <sqlite3.h>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "fabric-manager/ports/pack.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
// The CRC covers the words that `schema` has: a database of an earlier release is checked as it was
// written.
uint32_t StoreMeta::Crc(int64_t schema) const {
  std::string words;
  for (const uint64_t word : {epoch, revision, row_count, crc_sum}) AppendWord(words, word);
  if (schema > kPacksSchemaVersion) {
    AppendWord(words, clean ? 1 : 0);
    AppendWord(words, store_id);
  }
  return Crc32(0, words);
}

uint64_t NewStoreId() {
  uint64_t id = 0;
  sqlite3_randomness(sizeof(id), &id);
  return id == 0 ? 1 : id;
}

// Says also of a damaged database what is wrong with the row; `out` is set where it could be read.
// Earlier schemas have neither `clean` nor `store_id`: zeroes stand for them.
MetaRow ReadMetaRow(sqlite3* db, int64_t schema, StoreMeta& out) {
  const char* const sql =
      schema > kPacksSchemaVersion
          ? "SELECT epoch, revision, row_count, crc_sum, crc, clean, store_id FROM meta WHERE id = "
            "1"
          : "SELECT epoch, revision, row_count, crc_sum, crc, 0, 0 FROM meta WHERE id = 1";
  sqlite3_stmt* read = nullptr;
  if (sqlite3_prepare_v2(db, sql, -1, &read, nullptr) != SQLITE_OK) return MetaRow::kUnreadable;
  const int code = sqlite3_step(read);
  const auto word = [&](int column) {
    return static_cast<uint64_t>(sqlite3_column_int64(read, column));
  };
  MetaRow found = code == SQLITE_DONE  ? MetaRow::kMissing
                  : code == SQLITE_ROW ? MetaRow::kSound
                                       : MetaRow::kUnreadable;
  if (found == MetaRow::kSound) {
    out = {.epoch = word(0),
           .revision = word(1),
           .row_count = word(2),
           .crc_sum = word(3),
           .clean = word(5) == 1,
           .store_id = word(6)};
    // What is neither 0 nor 1 fails with the rest: the checksum is of one of them.
    if (word(4) != out.Crc(schema) || word(5) > 1) found = MetaRow::kDamaged;
  }
  sqlite3_finalize(read);
  return found;
}

// Answers SQLite's code.
int ReplaceMetaRow(sqlite3* db, const StoreMeta& meta) {
  sqlite3_stmt* put = nullptr;
  int code = sqlite3_prepare_v2(db, "REPLACE INTO meta VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)", -1,
                                &put, nullptr);
  if (code != SQLITE_OK) return code;
  int column = 0;
  for (const uint64_t word :
       {meta.epoch, meta.revision, meta.row_count, meta.crc_sum, uint64_t{meta.clean ? 1u : 0u},
        meta.store_id, uint64_t{meta.Crc()}}) {
    sqlite3_bind_int64(put, ++column, static_cast<sqlite3_int64>(word));
  }
  code = sqlite3_step(put);
  const int finished = sqlite3_finalize(put);
  return code == SQLITE_DONE ? SQLITE_OK : finished;
}

// Before anything is read: a foreign or later database is never written to, an earlier one than the
// first release is damage.
absl::Status CheckVersion(const std::string& path, int64_t application_id, int64_t user_version) {
  if (application_id != kApplicationId) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_FOREIGN",
                  absl::StrCat(path, " is the database of another program"),
                  "give store.path a file of its own");
  }
  if (user_version > kSchemaVersion) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_TOO_NEW",
                  absl::StrCat(path, " was written by a later release: schema ", user_version,
                               ", this one knows ", kSchemaVersion),
                  "run that release, or restore the backup made before the update");
  }
  if (user_version < kRowsSchemaVersion) {
    return CorruptError(path, absl::StrCat("schema version ", user_version));
  }
  return absl::OkStatus();
}

// The bytes of a database without records. Built in memory: nothing is on the disk until the caller
// puts it there in one piece. It gets an id of its own, for it is another store.
absl::StatusOr<std::string> EmptyDatabase(const std::string& path, const StoreMeta& meta) {
  const StoreMeta fresh{
      .epoch = meta.epoch, .revision = meta.revision, .clean = true, .store_id = NewStoreId()};
  sqlite3* db = nullptr;
  const std::string sql = absl::StrCat("PRAGMA page_size=", kPageBytes, ";", kPacksTable,
                                       kMetaTable, "PRAGMA application_id=", kApplicationId,
                                       ";PRAGMA user_version=", kSchemaVersion);
  unsigned char* bytes = nullptr;
  sqlite3_int64 size = 0;
  if (sqlite3_open(":memory:", &db) == SQLITE_OK &&
      sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK &&
      ReplaceMetaRow(db, fresh) == SQLITE_OK) {
    bytes = sqlite3_serialize(db, "main", &size, 0);
  }
  absl::Status status = bytes == nullptr ? OpenError(db, path, "make") : absl::OkStatus();
  std::string image(reinterpret_cast<const char*>(bytes), bytes == nullptr ? 0 : size);
  sqlite3_free(bytes);
  sqlite3_close(db);
  if (!status.ok()) return status;
  return image;
}

}  // namespace cxlpool::fm
