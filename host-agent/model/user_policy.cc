#include "host-agent/model/user_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

bool Holds(const std::vector<uint32_t>& list, uint32_t id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

absl::Status OverLimit(uint32_t uid, const std::string& key, uint64_t max, uint64_t used,
                       absl::string_view unit) {
  return Refusal{absl::StatusCode::kResourceExhausted,
                 "USER_LIMIT",
                 absl::StrCat("the processes of user id ", uid, " own ", used, " ", unit,
                              " on this host; ", key, " is ", max),
                 "end one of them or release what it owns, or ask the operator for more",
                 {{"key", key}, {"used", absl::StrCat(used)}, {"max", absl::StrCat(max)}}}
      .ToStatus();
}

}  // namespace

const UserRule* FindRule(const std::vector<UserRule>& rules, uint32_t uid,
                         const std::vector<uint32_t>& gids) {
  for (const UserRule& rule : rules) {
    if (Holds(rule.uids, uid)) return &rule;
    if (std::any_of(gids.begin(), gids.end(),
                    [&](uint32_t gid) { return Holds(rule.gids, gid); })) {
      return &rule;
    }
  }
  return nullptr;
}

absl::Status CheckAllocate(const UserRule& rule, uint32_t uid, const UserUsage& used,
                           uint64_t size_bytes, bool persistent) {
  if (!rule.may_allocate) {
    return Refusal{
        absl::StatusCode::kPermissionDenied,
        "ALLOCATE_NOT_ALLOWED",
        absl::StrCat("user id ", uid, " may open Regions on this host, not allocate any"),
        "ask the operator to allocate it, or for may_allocate in [[applications.user]]",
        {}}
        .ToStatus();
  }
  if (persistent && !rule.persistent) {
    return Refusal{
        absl::StatusCode::kPermissionDenied,
        "PERSISTENT_NOT_ALLOWED",
        absl::StrCat("user id ", uid, " may not allocate Regions that outlive the process"),
        "allocate it without persistent, or ask the operator for one",
        {}}
        .ToStatus();
  }
  if (rule.max_regions.has_value() && used.regions >= *rule.max_regions) {
    return OverLimit(uid, "max_regions", *rule.max_regions, used.regions, "Regions");
  }
  if (rule.max_bytes.has_value() &&
      (used.bytes > *rule.max_bytes || size_bytes > *rule.max_bytes - used.bytes)) {
    return OverLimit(uid, "max_bytes", *rule.max_bytes, used.bytes,
                     absl::StrCat("bytes (and want ", size_bytes, " more)"));
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::agent
