// Reads a database that may be damaged, as far as it goes, and writes a sound one in its place: the
// parts of fsck that touch the file. What the records mean is fsck's own (fabric-manager/fsck).
//
// Blocking; no other process may have the database open (STORE_BUSY).
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SALVAGE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SALVAGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/adapters/store_sqlite/schema.h"
#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

// A record that was taken out of the pool, as the table `quarantine` keeps it.
struct SetAside {
  uint64_t key = 0;   // As far as it is known.
  std::string value;  // The bytes as they were found.
  uint32_t crc = 0;   // As stored with them.
  std::string reason;
  std::string time;  // RFC 3339.
};

struct Salvage {
  int64_t schema = 0;
  StoreMeta meta;  // As far as it can be read; what it counts is `rows` and `unsound`, if nothing
                   // is lost.
  bool has_meta = false;
  // The greatest epoch and revision that anything here names: no later one was acknowledged, unless
  // records are lost.
  StoreMeta newest;
  std::vector<Row> rows;              // Whose checksum fits: ascending, one a key.
  std::vector<SetAside> unsound;      // Whose checksum does not, or that cannot be distinguished.
  std::vector<SetAside> quarantined;  // By an earlier repair.
  std::vector<std::string> damage;    // To the file itself, a sentence each.
  bool records_lost = false;          // There may have been records that are neither of these.
  // `rows` may be of an earlier moment than what was acknowledged last: any of them may have
  // changed.
  bool maybe_stale = false;
};

// What can be read of `image`, the bytes of a database of `schema` with its log copied into it: by
// SQL, and where that does not come to the end, from each page by itself. `head`: what the head
// file knows, which may stand in for the meta row. UNAVAILABLE/STORE_IO: there is no memory for it.
absl::StatusOr<Salvage> ReadImage(std::string image, int64_t schema,
                                  const std::optional<StoreMeta>& head);

class DamagedDatabase {
 public:
  // STORE_BUSY, STORE_FOREIGN, STORE_TOO_NEW, STORE_CORRUPT (no database at all), and what
  // CheckStorePath says; NOT_FOUND/STORE_MISSING.
  static absl::StatusOr<std::unique_ptr<DamagedDatabase>> Open(const std::string& path);
  virtual ~DamagedDatabase() = default;

  // Changes nothing. UNAVAILABLE/STORE_IO: there is no memory for it.
  virtual absl::StatusOr<Salvage> Read() = 0;

  // Copies the store's files to PATH.before-fsck, PATH.before-fsck-wal and PATH.before-fsck-head
  // (ALREADY_EXISTS/BACKUP_EXISTS), then puts a new database in its place in one step: these
  // records and `quarantined`. Its revision is `meta`'s; its counts are made here. Close this, then
  // open it.
  virtual absl::Status Replace(const StoreMeta& meta, const std::vector<Row>& rows,
                               const std::vector<SetAside>& quarantined) = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SALVAGE_H_
