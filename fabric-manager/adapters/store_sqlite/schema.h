// What a database of ours is made of: its header, its tables, and the meta row.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SCHEMA_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SCHEMA_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cxlpool::fm {

inline constexpr int64_t kApplicationId = 0x43584c50;  // "CXLP"
inline constexpr int64_t kSchemaVersion = 2;
inline constexpr int64_t kRowsSchemaVersion = 1;  // A row a record.
inline constexpr int kPageBytes = 4096;
inline constexpr char kPacksTable[] =
    "CREATE TABLE packs (first INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;";

// What the header of the database at `path` says: is it ours, and do we know it?
// FAILED_PRECONDITION/STORE_FOREIGN, STORE_TOO_NEW. DATA_LOSS/STORE_CORRUPT.
absl::Status CheckVersion(const std::string& path, int64_t application_id, int64_t user_version);

// The one row of the table meta. Its own checksum is Crc().
struct StoreMeta {
  uint64_t epoch = 0;
  uint64_t revision = 0;
  uint64_t row_count = 0;
  uint64_t crc_sum = 0;
  uint32_t Crc() const;
};

// The bytes of a database without records at `meta`'s epoch and revision; `path` is for errors.
absl::StatusOr<std::string> EmptyDatabase(const std::string& path, const StoreMeta& meta);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SCHEMA_H_
