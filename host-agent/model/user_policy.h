// Which local users may allocate, how much, and as which tenant: [[applications.user]].
//
// The first rule that names a user holds for them, and no other does. A rule by groups holds for
// each of their members by itself: what one uses is not taken from the others. Whoever no rule
// names is under the general keys of [applications].
//
// Persistent Regions have no owner, so nobody could count them: a rule with a limit gives none.
//
// Pure; any thread.
#ifndef CXLPOOL_HOST_AGENT_MODEL_USER_POLICY_H_
#define CXLPOOL_HOST_AGENT_MODEL_USER_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cxlpool::agent {

struct UserRule {
  std::vector<uint32_t> uids;
  std::vector<uint32_t> gids;  // Primary or supplementary, as the process had them.
  std::string tenant;          // tenants/{tenant}
  bool may_allocate = true;
  bool persistent = false;            // May make Regions that outlive the process.
  std::optional<uint64_t> max_bytes;  // Of all Regions that their processes own here.
  std::optional<uint64_t> max_regions;
};

// What the processes of one user own on this host, or are about to.
struct UserUsage {
  uint64_t bytes = 0;
  uint64_t regions = 0;
};

// Null: none names the user.
const UserRule* FindRule(const std::vector<UserRule>& rules, uint32_t uid,
                         const std::vector<uint32_t>& gids);

// Whether the user may allocate `size_bytes` on top of `used`.
// PERMISSION_DENIED: ALLOCATE_NOT_ALLOWED, PERSISTENT_NOT_ALLOWED. RESOURCE_EXHAUSTED: USER_LIMIT.
absl::Status CheckAllocate(const UserRule& rule, uint32_t uid, const UserUsage& used,
                           uint64_t size_bytes, bool persistent);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_MODEL_USER_POLICY_H_
