#include "fabric-manager/adapters/store_sqlite/schema.h"

#include <sqlite3.h>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/record_crc.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kMetaTable[] =
    "CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL,"
    " revision INTEGER NOT NULL, row_count INTEGER NOT NULL, crc_sum INTEGER NOT NULL,"
    " crc INTEGER NOT NULL) STRICT;";

void AppendWord(std::string& out, uint64_t word) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(word >> (8 * i)));
}

}  // namespace

uint32_t StoreMeta::Crc() const {
  std::string words;
  for (const uint64_t word : {epoch, revision, row_count, crc_sum}) AppendWord(words, word);
  return Crc32(0, words);
}

absl::Status CheckVersion(const std::string& path, int64_t application_id, int64_t user_version) {
  if (application_id != kApplicationId) {
    return Refusal{absl::StatusCode::kFailedPrecondition,
                   "STORE_FOREIGN",
                   absl::StrCat(path, " is the database of another program"),
                   "give store.path a file of its own",
                   {}}
        .ToStatus();
  }
  if (user_version > kSchemaVersion) {
    return Refusal{absl::StatusCode::kFailedPrecondition,
                   "STORE_TOO_NEW",
                   absl::StrCat(path, " was written by a later release: schema ", user_version,
                                ", this one knows ", kSchemaVersion),
                   "run that release, or restore the backup made before the update",
                   {}}
        .ToStatus();
  }
  if (user_version < kRowsSchemaVersion) {
    return CorruptError(path, absl::StrCat("schema version ", user_version));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> EmptyDatabase(const std::string& path, const StoreMeta& meta) {
  const StoreMeta fresh{meta.epoch, meta.revision, 0, 0};
  sqlite3* db = nullptr;
  const std::string sql = absl::StrCat(
      "PRAGMA page_size=", kPageBytes, ";", kPacksTable, kMetaTable, "INSERT INTO meta VALUES (1,",
      fresh.epoch, ",", fresh.revision, ",0,0,", fresh.Crc(),
      ");PRAGMA application_id=", kApplicationId, ";PRAGMA user_version=", kSchemaVersion, ";");
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

}  // namespace cxlpool::fm
