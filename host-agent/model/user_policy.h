// What the local users of a host may do: [applications] and [[applications.user]].
//
// A Region belongs to the user who made it. Others of the same tenant open it where its maker or an
// operator opened it to them (open_to), or where their rule has may_open = "tenant"; they release
// it where their rule has may_release = "tenant". Root and the agent's own user may all.
//
// The first rule that names a user holds for them, and no other does. A rule by groups holds for
// each of their members by itself: what one uses is not taken from the others. A user whom no rule
// names is under the general keys of [applications].
//
// Persistent Regions have no owner, so they cannot be counted for a user: a rule with a limit
// allows none.
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

// Whose Regions, of the user's own tenant.
enum class Reach {
  kOwn,     // Those that the user made; and, to open, those that are open to the user.
  kTenant,  // All of the tenant on this host, an operator's included.
};

struct UserRule {
  std::vector<uint32_t> uids;
  std::vector<uint32_t> gids;  // Primary or supplementary, as the process had them.
  std::string tenant;          // tenants/{tenant}
  bool may_allocate = true;
  bool persistent = false;            // May make Regions that outlive the process.
  std::optional<uint64_t> max_bytes;  // Of all Regions that their processes own here.
  std::optional<uint64_t> max_regions;
  Reach may_open = Reach::kOwn;
  Reach may_release = Reach::kOwn;
};

// Who may use the local socket, and in whose name.
struct LocalPolicy {
  std::string tenant = "tenants/default";  // Of every user but root and the agent's own.
  Reach may_open = Reach::kOwn;
  Reach may_release = Reach::kOwn;
  std::vector<uint32_t> allowed_uids = {};  // Empty: every user. Root and the agent's own always.
  uint32_t agent_uid = 0;
  std::vector<UserRule> users = {};  // For whom one holds, what stands above does not.
};

// The facts of a Region that decide who may use it on this host.
struct RegionRights {
  std::string name;                   // For refusals.
  std::string tenant;                 // tenants/{tenant}
  std::optional<uint32_t> maker_uid;  // Nothing: no user of this host made it.
  std::vector<uint32_t> open_uids;
  std::vector<uint32_t> open_gids;
  bool open_to_everybody = false;  // Who acts for its tenant.
};

// What the processes of one user own on this host, or are about to.
struct UserUsage {
  uint64_t bytes = 0;
  uint64_t regions = 0;
};

// Null: none names the user.
const UserRule* FindRule(const std::vector<UserRule>& rules, uint32_t uid,
                         const std::vector<uint32_t>& gids);

// Root, and the agent's own user.
bool IsPrivileged(const LocalPolicy& policy, uint32_t uid);

// Whether the user may connect at all. PERMISSION_DENIED/USER_NOT_ALLOWED.
absl::Status CheckUser(const LocalPolicy& policy, uint32_t uid, const std::vector<uint32_t>& gids);

// In whose name the user acts.
const std::string& TenantFor(const LocalPolicy& policy, uint32_t uid,
                             const std::vector<uint32_t>& gids);

// Whether the user may open the Region, see it in a list, and get reports of its faults; and
// whether the user may release it. Includes CheckUser, so that no caller can forget it.
// PERMISSION_DENIED: USER_NOT_ALLOWED, WRONG_TENANT, REGION_NOT_YOURS. The messages give away
// nothing about the Region except its name.
absl::Status CheckOpen(const LocalPolicy& policy, uint32_t uid, const std::vector<uint32_t>& gids,
                       const RegionRights& region);
absl::Status CheckRelease(const LocalPolicy& policy, uint32_t uid,
                          const std::vector<uint32_t>& gids, const RegionRights& region);

// Whether the user may give a new Region this id; empty: the manager names it.
// PERMISSION_DENIED/NAME_NOT_YOURS: it is a claim's of Kubernetes (kClaimRegionPrefix).
absl::Status CheckNewName(const LocalPolicy& policy, uint32_t uid, const std::string& region_id);

// Whether the user may allocate `size_bytes` on top of `used`.
// PERMISSION_DENIED: ALLOCATE_NOT_ALLOWED, PERSISTENT_NOT_ALLOWED. RESOURCE_EXHAUSTED: USER_LIMIT.
absl::Status CheckAllocate(const UserRule& rule, uint32_t uid, const UserUsage& used,
                           uint64_t size_bytes, bool persistent);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_MODEL_USER_POLICY_H_
