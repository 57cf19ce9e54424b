// SQLite's result codes as Status, in one table.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SQLITE_ERROR_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SQLITE_ERROR_H_

#include <sqlite3.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cxlpool::fm {

// What failed while the store was being opened: nothing has been changed.
// FAILED_PRECONDITION: STORE_BUSY, STORE_UNUSABLE. DATA_LOSS/STORE_CORRUPT.
// RESOURCE_EXHAUSTED/STORE_FULL. UNAVAILABLE/STORE_IO.
absl::Status OpenError(sqlite3* db, const std::string& path, absl::string_view doing);

// What failed in a transaction that has been, or will be, rolled back.
// RESOURCE_EXHAUSTED/STORE_FULL: no space; nothing changed, the connection stays usable.
// DATA_LOSS/STORE_CORRUPT, DATA_LOSS/STORE_IO: after a failed write or sync it is not known what is
// on
//   the disk; do not go on.
absl::Status CommitError(sqlite3* db, const std::string& path, absl::string_view doing);

// DATA_LOSS/STORE_CORRUPT: `what` is wrong with the database at `path`.
absl::Status CorruptError(const std::string& path, absl::string_view what);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SQLITE_ERROR_H_
