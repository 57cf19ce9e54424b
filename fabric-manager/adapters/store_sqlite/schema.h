// What a database of ours is made of: its header, its tables, and the meta row.
//
//   1  a row a record
//   2  some ten records in a row
//   3  the meta row also says whether the store was closed in order, and has the store's own number
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SCHEMA_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SCHEMA_H_

#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cxlpool::fm {

inline constexpr int64_t kApplicationId = 0x43584c50;  // "CXLP"
inline constexpr int64_t kSchemaVersion = 3;
inline constexpr int64_t kPacksSchemaVersion = 2;
inline constexpr int64_t kRowsSchemaVersion = 1;  // A row a record.
inline constexpr int kPageBytes = 4096;
inline constexpr char kPacksTable[] =
    "CREATE TABLE packs (first INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;";
inline constexpr char kMetaTable[] =
    "CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL,"
    " revision INTEGER NOT NULL, row_count INTEGER NOT NULL, crc_sum INTEGER NOT NULL,"
    " clean INTEGER NOT NULL, store_id INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;";

// What the header of the database at `path` says: is it ours, and do we know it?
// FAILED_PRECONDITION/STORE_FOREIGN, STORE_TOO_NEW. DATA_LOSS/STORE_CORRUPT.
absl::Status CheckVersion(const std::string& path, int64_t application_id, int64_t user_version);

// The one row of the table meta; also what PATH-head keeps of it (head_file.h).
struct StoreMeta {
  uint64_t epoch = 0;
  uint64_t revision = 0;
  uint64_t row_count = 0;
  uint64_t crc_sum = 0;
  // The store was closed in order, or is a copy that is complete by itself: nothing is in a log
  // that is not in the database. Before schema 3 that was not recorded.
  bool clean = false;
  uint64_t store_id = 0;  // Random: distinguishes the files of one store from those of another.

  // The row's own checksum in a database of that schema.
  uint32_t Crc(int64_t schema = kSchemaVersion) const;

  // Whether this is of a later moment of the store than `other`.
  bool IsAfter(const StoreMeta& other) const {
    return epoch > other.epoch || revision > other.revision;
  }
};

// A number for a store that is made, from SQLite's source of them; never 0.
uint64_t NewStoreId();

// Reads the meta row of a database of that schema.
enum class MetaRow {
  kSound,
  kMissing,
  kDamaged,
  kUnreadable
};  // Unreadable: SQLite's error says why.
MetaRow ReadMetaRow(sqlite3* db, int64_t schema, StoreMeta& out);

// Sets `meta`, of this schema, in place of whatever the row was. An SQLite result code.
int ReplaceMetaRow(sqlite3* db, const StoreMeta& meta);

// The bytes of a database without records at `meta`'s epoch and revision, clean, with a store id of
// its own; `path` is for errors.
absl::StatusOr<std::string> EmptyDatabase(const std::string& path, const StoreMeta& meta);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SCHEMA_H_
