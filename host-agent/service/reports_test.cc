#include "host-agent/service/reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_join.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

absl::Status BlocksBusy(std::string blocks) {
  return Refusal{absl::StatusCode::kFailedPrecondition,
                 "BLOCKS_BUSY",
                 "blocks stay online",
                 "end the programs",
                 {{"cause", "timeout"}, {"blocks", std::move(blocks)}, {"zone", "Normal"}}}
      .ToStatus();
}

TEST(ReportsTest, AnErrorNamesTheBlocksThatStayOnline) {
  const v1::SegmentError error = ErrorOf(BlocksBusy("34,35"));
  EXPECT_EQ(error.reason(), "BLOCKS_BUSY");
  EXPECT_EQ(error.message(), "blocks stay online (end the programs)");
  EXPECT_THAT(error.blocks(), ElementsAre(34, 35));
  EXPECT_EQ(error.zone(), "Normal");
  EXPECT_EQ(error.cause(), "timeout");
  EXPECT_FALSE(error.permanent());
}

TEST(ReportsTest, AnErrorNamesWhoUsesTheMemory) {
  const v1::SegmentError error = ErrorOf(Refusal{
      .code = absl::StatusCode::kFailedPrecondition,
      .reason = "BLOCKS_BUSY",
      .message = "",
      .remedy = "",
      .metadata = {{"pids", "17,4711,x"}}}.ToStatus());
  EXPECT_THAT(error.holder_pids(), ElementsAre(17, 4711));
}

TEST(ReportsTest, AnErrorNamesNoMoreBlocksThanItMay) {
  std::vector<uint64_t> blocks(100);
  std::iota(blocks.begin(), blocks.end(), 1000);
  const v1::SegmentError error = ErrorOf(BlocksBusy(absl::StrJoin(blocks, ",")));
  ASSERT_EQ(error.blocks_size(), kMaxReportedBlocks);
  EXPECT_EQ(error.blocks(kMaxReportedBlocks - 1), 1031u);
}

TEST(ReportsTest, AnErrorWithoutDetailsHasNone) {
  EXPECT_THAT(ErrorOf(BlocksBusy("")).blocks(), IsEmpty());
  const v1::SegmentError error = ErrorOf(absl::InvalidArgumentError("no"));
  EXPECT_EQ(error.reason(), "INVALID_ARGUMENT");
  EXPECT_EQ(error.cause(), "");
  EXPECT_TRUE(error.permanent());
}

}  // namespace
}  // namespace cxlpool::agent
