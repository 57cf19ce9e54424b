#include "proto/support/refusal.h"

#include <gtest/gtest.h>

namespace cxlpool {
namespace {

TEST(RefusalTest, SurvivesTheTripThroughStatus) {
  const Refusal refusal{.code = absl::StatusCode::kResourceExhausted,
                        .reason = "POOL_FULL",
                        .message = "region \"kv:1\" needs 1 GiB",
                        .remedy = "release a Region",
                        .metadata = {{"free_bytes", "0"}, {"odd", "3:abc\n"}}};
  const absl::Status status = refusal.ToStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "region \"kv:1\" needs 1 GiB (release a Region)");
  const auto back = RefusalOf(status);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->reason, refusal.reason);
  EXPECT_EQ(back->message, refusal.message);
  EXPECT_EQ(back->remedy, refusal.remedy);
  EXPECT_EQ(back->metadata, refusal.metadata);
}

TEST(RefusalTest, OtherStatusesHaveNone) {
  EXPECT_FALSE(RefusalOf(absl::OkStatus()).has_value());
  EXPECT_EQ(ReasonOf(absl::NotFoundError("x")), "");
}

TEST(RefusalTest, AReasonIsOneThatIsDocumented) {
  for (const char* reason : {"POOL_FULL", "HOLDERS", "CANNOT_LISTEN"}) {
    EXPECT_TRUE(IsReason(reason)) << reason;
  }
  for (const char* text : {"", "POOL", "POOL_FUL", "POOL_FULL ", "pool_full", "ZZZ"}) {
    EXPECT_FALSE(IsReason(text)) << text;
  }
}

}  // namespace
}  // namespace cxlpool
