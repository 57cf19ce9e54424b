// Holds the records of a store against every promise about records, and makes of them a set that
// the manager can load: what fsck finds, and what its repair would do.
//
// A repair never gives bytes to anybody. Of two Regions that claim the same bytes, name or number,
// the one with the lower key stays as it is, QUARANTINED; the other becomes a QUARANTINED Region
// without Attachments on those of its bytes that nobody else holds. A record that cannot be read is
// taken out, kept word for word (Removed); where its bytes are not known, everything that is free
// is held by QUARANTINED Regions named fsck-hold-N, and the pool's record says that devices which
// no record knows are to be held, too. Where records may be of an earlier moment, every Region is
// QUARANTINED. An operator releases them, by force, once the hosts are known to have let go. Bytes
// that were lost (ExtentRecord.bad_reason) stay marked, no matter which Region holds them after the
// repair. Where the audit trail is not as it was written, all of its rows are taken out.
//
// Nor does it make anybody an admin: a pool without a role that may have lost its last one gets a
// role of nobody, for in a pool without roles every operator is an admin.
//
// Pure: values in, values out.
#ifndef CXLPOOL_FABRIC_MANAGER_FSCK_EXAMINE_H_
#define CXLPOOL_FABRIC_MANAGER_FSCK_EXAMINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "fabric-manager/model/audit/audit_chain.h"
#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

struct FsckFinding {
  uint64_t key = 0;    // Of the record; 0: of none.
  std::string what;    // What is wrong.
  std::string repair;  // What the repair does about it.
};

// A record that the repair takes out or makes another of, as it was.
struct Removed {
  uint64_t key = 0;
  std::string value;
  std::string reason;
};

struct ExamineOptions {
  // Records were lost that were not found: what they held is not known.
  bool records_lost = false;
  // The records may be of an earlier moment than the last that was acknowledged: every Region of
  // them may have changed since, or be gone.
  bool maybe_stale = false;
  // A place that the audit trail had once.
  std::optional<AuditHead> anchor = std::nullopt;
  absl::Time now;
  std::function<std::string()> make_tag;  // 16 bytes, a UUID never used before.
};

struct Examination {
  std::vector<FsckFinding> findings;  // None: sound.
  // After the repair, in order of key.
  std::vector<Row> rows;
  std::vector<Removed> removed;
  uint64_t greatest_revision = 0;  // Of any Region.
  // The trail does not have the anchor, or it cannot be looked for. It may be an anchor of another
  // pool: so nothing is repaired for it.
  std::optional<FsckFinding> anchor = std::nullopt;
};

Examination Examine(const std::vector<Row>& rows, const ExamineOptions& options);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_FSCK_EXAMINE_H_
