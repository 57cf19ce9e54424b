// Whether the store, as its files are found, holds everything that was acknowledged.
//
// Three things say how the store ended, each in another file, so that no single damage of what was
// durable passes for an end (docs/adr/0023):
//   - the mark `clean` in the meta row. It is taken away, durably and in the database itself,
//   before
//     a manager's first change, and comes back with the last one of an orderly stop;
//   - PATH-head: a revision that was acknowledged (head_file.h);
//   - what lies in the log behind the last frame that verifies (log_file.h).
//
// What a power cut may do to files that were not synced is never taken for damage.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_STORE_END_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_STORE_END_H_

#include <sqlite3.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/adapters/store_sqlite/head_file.h"
#include "fabric-manager/adapters/store_sqlite/log_file.h"
#include "fabric-manager/adapters/store_sqlite/schema.h"

namespace cxlpool::fm {

// The files of the store at `path` beside the database.
struct StoreEnd {
  LogFile log{""};
  HeadSlots head;
  bool has_head_file = false;

  // UNAVAILABLE/STORE_IO.
  static absl::StatusOr<StoreEnd> Read(const std::string& path);

  // The latest moment that the head file names, of the store with that id. Nothing: it names none.
  std::optional<StoreMeta> Latest(uint64_t store_id) const;
};

// What shows that something acknowledged is missing: a clause for people. Empty: nothing does.
// `meta` is the row as SQLite shows it, log included, in a database of `schema`; `main` gives the
// bytes of the database file without the log, and is asked for them only where they decide.
absl::StatusOr<std::string> WhatIsMissing(const StoreEnd& end, int64_t schema,
                                          const StoreMeta& meta,
                                          const std::function<absl::StatusOr<std::string>()>& main);

// DATA_LOSS/STORE_INCOMPLETE: the store at `path` lacks `what`; the remedy is how to go on.
absl::Status IncompleteError(const std::string& path, const std::string& what);

// The bytes of the database file that `db` has open. Never by a descriptor of one's own: closing
// that would take away the lock that SQLite holds on the file. UNAVAILABLE/STORE_IO.
absl::StatusOr<std::string> ReadMainFile(sqlite3* db, const std::string& path);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_STORE_END_H_
