#include "host-agent/model/user_policy.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

UserRule For(std::vector<uint32_t> uids, std::vector<uint32_t> gids, std::string tenant) {
  UserRule rule;
  rule.uids = std::move(uids);
  rule.gids = std::move(gids);
  rule.tenant = std::move(tenant);
  return rule;
}

TEST(UserPolicyTest, TheFirstRuleThatNamesTheUserHolds) {
  const std::vector<UserRule> rules = {For({1000}, {}, "a"), For({1001}, {50}, "b"),
                                       For({1000}, {60}, "c")};
  const auto tenant = [&](uint32_t uid, std::vector<uint32_t> gids) {
    const UserRule* rule = FindRule(rules, uid, gids);
    return rule == nullptr ? "" : rule->tenant;
  };
  EXPECT_EQ(tenant(1000, {60, 50}), "a");
  EXPECT_EQ(tenant(1001, {}), "b");
  EXPECT_EQ(tenant(1002, {60, 50}), "b");
  EXPECT_EQ(tenant(1002, {7, 60}), "c");
  EXPECT_EQ(tenant(1002, {1000}), "");  // A group is no user.
  EXPECT_EQ(FindRule({}, 0, {0}), nullptr);
}

TEST(UserPolicyTest, WhatARuleDoesNotSayIsFree) {
  const UserUsage much = {.bytes = std::numeric_limits<uint64_t>::max(), .regions = 1'000'000};
  EXPECT_TRUE(CheckAllocate(UserRule{}, 1000, much, kGiB, false).ok());
}

TEST(UserPolicyTest, RefusalsSayWhatAndWhatToDo) {
  struct Row {
    const char* reason;
    UserRule rule;
    UserUsage used;
    uint64_t size_bytes;
    bool persistent;
  };
  UserRule reader, limited;
  reader.may_allocate = false;
  limited.max_bytes = 2 * kGiB;
  limited.max_regions = 3;
  const Row kTable[] = {
      {"ALLOCATE_NOT_ALLOWED", reader, {}, 1, false},
      {"ALLOCATE_NOT_ALLOWED", reader, {}, 1, true},
      {"PERSISTENT_NOT_ALLOWED", UserRule{}, {}, 1, true},
      {"USER_LIMIT", limited, {.bytes = kGiB, .regions = 1}, kGiB + 1, false},
      {"USER_LIMIT", limited, {.bytes = 5 * kGiB, .regions = 1}, 1, false},
      {"USER_LIMIT", limited, {}, std::numeric_limits<uint64_t>::max(), false},
      {"USER_LIMIT", limited, {.bytes = 0, .regions = 3}, 1, false},
      {"", limited, {.bytes = kGiB, .regions = 2}, kGiB, false},
  };
  for (const Row& row : kTable) {
    SCOPED_TRACE(row.reason);
    const absl::Status status =
        CheckAllocate(row.rule, 1000, row.used, row.size_bytes, row.persistent);
    EXPECT_EQ(ReasonOf(status), row.reason) << status;
    if (status.ok()) continue;
    EXPECT_NE(status.message().find("1000"), absl::string_view::npos);
    EXPECT_FALSE(RefusalOf(status)->remedy.empty());
  }
}

TEST(UserPolicyTest, ARuleMayGivePersistentRegions) {
  UserRule rule;
  rule.persistent = true;
  EXPECT_TRUE(CheckAllocate(rule, 1000, {}, kGiB, true).ok());
}

}  // namespace
}  // namespace cxlpool::agent
