#include "fabric-manager/service/metered_fabric.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "test/rigs/held_fabric.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {
namespace {

uint64_t AnswersOf(const FabricTimes& times, TimedCall call) {
  const metrics::Histogram& of = times.calls[static_cast<size_t>(call)];
  uint64_t count = 0;
  for (size_t i = 0; i <= of.bounds().size(); ++i) count += of.bucket(i);
  return count;
}

TEST(MeteredFabricTest, EachCallIsTimedUntilItsAnswer) {
  ManualExecutor clock;
  FabricTimes times;
  auto held = std::make_unique<HeldFabric>();
  HeldFabric& fabric = *held;
  MeteredFabric metered(std::move(held), &clock, &times);
  absl::Status unbound = absl::UnknownError("no answer");
  absl::StatusOr<BoundLd> bound;
  metered.Bind({}, [&](absl::StatusOr<BoundLd> answer) { bound = std::move(answer); });
  metered.AwaitUnbound({}, absl::Seconds(9), [&](absl::Status answer) { unbound = answer; });
  EXPECT_EQ(AnswersOf(times, TimedCall::kBind), 0u);
  clock.Advance(absl::Seconds(2));
  BoundLd ld;
  ld.serial = 4711;
  HeldFabric::AnswerFirst(fabric.binds, ld);
  clock.Advance(absl::Seconds(1));
  HeldFabric::AnswerFirst(fabric.waits, absl::UnavailableError("not yet"));
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->serial, 4711u);
  EXPECT_TRUE(absl::IsUnavailable(unbound));
  EXPECT_EQ(AnswersOf(times, TimedCall::kBind), 1u);
  EXPECT_DOUBLE_EQ(times.calls[static_cast<size_t>(TimedCall::kBind)].sum(), 2);
  EXPECT_DOUBLE_EQ(times.calls[static_cast<size_t>(TimedCall::kAwaitUnbound)].sum(), 3);
  EXPECT_EQ(AnswersOf(times, TimedCall::kScrub), 0u);
}

}  // namespace
}  // namespace cxlpool::fm
