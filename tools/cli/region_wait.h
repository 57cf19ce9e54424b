// Waits until a Region is where the operator wants it, as the manager reports it by Watch.
//
// Reached is pure; WaitForRegion follows the Region and applies it to each change.
#ifndef CXLPOOL_TOOLS_CLI_REGION_WAIT_H_
#define CXLPOOL_TOOLS_CLI_REGION_WAIT_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/cli/connection.h"

namespace cxlpool::cli {

struct WaitGoal {
  enum class Kind {
    kAllocated,  // The bytes are held.
    kOnline,     // `host` can use it.
    kDetached,   // `host` has proven to have let go.
    kGone,       // The bytes are free again.
    kResized,    // It has `size_bytes`, wherever it is attached.
  };
  Kind kind = Kind::kAllocated;
  std::string host;                    // hosts/{host}, for kOnline and kDetached.
  uint64_t attachment_generation = 0;  // Of the Attachment meant; 0: whichever comes.
  uint64_t size_bytes = 0;             // For kResized.
};

// `region` is the Region the wait is about: the same tag.
// True: reached. False: not yet. ABORTED/REGION_FAILED, REGION_QUARANTINED, REGION_RELEASING,
// ATTACHMENT_FAILED, RESIZE_UNDONE: it will never be; the message carries the manager's reason.
absl::StatusOr<bool> Reached(const WaitGoal& goal, const v1::Region& region);

// The same once the Region is gone; `last` is what it was before.
absl::Status ReachedByRemoval(const WaitGoal& goal, const v1::Region& last);

// "regions/kv is ALLOCATED; hosts/host-a is WANTED: <reason>"
std::string DescribeProgress(const WaitGoal& goal, const v1::Region& region);

// From `region`, as of `revision`, until the goal is reached; answers the Region as it is then (as
// it was last, once gone). Errors as for Reached; DEADLINE_EXCEEDED/WAIT_TIMEOUT after `limit`: the
// work goes on. The manager may be away meanwhile. `on_change` is called for each change.
absl::StatusOr<v1::Region> WaitForRegion(Connection& connection, const WaitGoal& goal,
                                         const v1::Region& region, uint64_t revision,
                                         absl::Duration limit,
                                         absl::FunctionRef<void(const v1::Region&)> on_change);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_REGION_WAIT_H_
