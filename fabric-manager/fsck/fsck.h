// Checks the database of a manager that is stopped, or a backup, and on request repairs it.
//
// Blocking. The file's own checks are the store adapter's (salvage.h), the records' examine.h's.
#ifndef CXLPOOL_FABRIC_MANAGER_FSCK_FSCK_H_
#define CXLPOOL_FABRIC_MANAGER_FSCK_FSCK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/fsck/examine.h"

namespace cxlpool::fm {

struct FsckReport {
  int64_t schema = 0;
  uint64_t revision = 0;
  uint64_t records = 0;  // That can be read,
  uint64_t regions = 0;  // and so many of them are Regions.
  uint64_t set_aside_before = 0;
  std::vector<FsckFinding> findings;  // None: sound.
  std::string copy;  // Of the database before the repair; empty: nothing was changed.
};

// `anchor`: a place that the audit trail had once, as `cxlpool backup` and the journal say it.
// `doing`, where given, is told what begins that may take long.
// `repair`: repairs what it finds, in one step; the database before is kept at PATH.before-fsck.
// An error says why it could not be checked or repaired; then nothing was changed.
// FAILED_PRECONDITION: STORE_BUSY (stop the manager), STORE_FOREIGN, STORE_TOO_NEW.
// NOT_FOUND/STORE_MISSING. DATA_LOSS: STORE_CORRUPT (no database), FSCK_CANNOT_REPAIR.
// ALREADY_EXISTS/BACKUP_EXISTS: PATH.before-fsck is there.
absl::StatusOr<FsckReport> RunFsck(const std::string& path, bool repair, absl::Time now,
                                   std::optional<AuditHead> anchor = std::nullopt,
                                   const std::function<void(const std::string&)>& doing = nullptr);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_FSCK_FSCK_H_
