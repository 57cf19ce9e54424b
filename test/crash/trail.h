// Holds the audit trail of a pool against its records, over all lives of its manager.
//
//   the chain is whole, and goes on from where it was seen to end in the life before; each revision
//   has exactly one change in it, or is that of a commit that changes nothing, which says so or has
//   a row of refused calls; each Region is as the change says that is newest of its name; one that
//   is gone has a change that says so.
#ifndef CXLPOOL_TEST_CRASH_TRAIL_H_
#define CXLPOOL_TEST_CRASH_TRAIL_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "test/crash/audit.h"
#include "test/crash/client.h"

namespace cxlpool::crash {

class TrailSeen {
 public:
  // `seen` was looked at before, in this life. An error is a broken promise.
  absl::Status Check(Client& client, const PoolSeen& seen);

  uint64_t changes() const { return changes_.size(); }

 private:
  absl::Status ReadNew(Client& client);
  absl::Status CheckRevisions(uint64_t revision);
  absl::Status CheckRegions(const PoolSeen& seen) const;

  std::string head_;                       // Of the life before.
  uint64_t row_ = 0;                       // Rows up to here have been read.
  uint64_t checked_ = 0;                   // Revisions up to here have been held against them.
  std::map<uint64_t, v1::Event> changes_;  // By revision.
  std::set<uint64_t> without_change_;      // Revisions of commits that change nothing.
};

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_TRAIL_H_
