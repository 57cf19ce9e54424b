#include "fabric-manager/service/host_fences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "proto/support/refusal.h"
#include "test/rigs/recorded_region.h"

namespace cxlpool::fm {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class HostFencesTest : public RecordedRegionTest {
 protected:
  void SetUp() override {
    RecordedRegionTest::SetUp();
    fabric.can.fence = FenceScope::kHost;
    track = &tracks.Of(region(), attached());
    for (SegmentKnown& known : track->known) known.fabric = FabricSide::kBound;
  }
  void Fence(std::optional<absl::Status>& done) {
    fences.Fence("host-a", Audit{{}, "test", "FenceHost", ""},
                 [&done](absl::Status status) { done = std::move(status); });
  }
  void BeginUnbind() {
    calls.BeginUnbind(region(), attached(), 0, *track,
                      {.kind = MoveKind::kBeginUnbind, .segments = {0}, .reason = {}});
  }

  HostSessions sessions{{}, &executor, &executor, &writer};
  HostFences fences{{},        &executor, &executor, &writer, &fabric,
                    &sessions, &tracks,   &calls,    &active};
  Track* track = nullptr;
};

TEST_F(HostFencesTest, WhatAHostThatWasCutOffHadIsUnboundOnceThatIsDurable) {
  std::optional<absl::Status> done;
  Fence(done);
  ASSERT_EQ(fabric.fences.size(), 1u);
  EXPECT_TRUE(fences.UnderWay("host-a"));
  EXPECT_EQ(track->known[0].fabric, FabricSide::kBound);
  HeldFabric::AnswerFirst(fabric.fences, absl::OkStatus());
  executor.RunReady();
  EXPECT_EQ(track->known[0].fabric, FabricSide::kUnbound);
  EXPECT_FALSE(done.has_value());
  executor.Advance(absl::Milliseconds(10));
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok()) << *done;
  EXPECT_FALSE(fences.UnderWay("host-a"));
  EXPECT_EQ(attached().settled().state, AttachmentState::kUnbound);
  EXPECT_THAT(attached().settled().reason, HasSubstr("FENCED"));
  EXPECT_TRUE(region().compensating) << "it was still coming up";
}

TEST_F(HostFencesTest, CallsAboutTheHostAreWaitedForFirst) {
  BeginUnbind();
  std::optional<absl::Status> done;
  Fence(done);
  executor.Advance(absl::Seconds(1));
  EXPECT_THAT(fabric.fences, IsEmpty());
  HeldFabric::AnswerFirst(fabric.unbinds, absl::OkStatus());
  executor.Advance(absl::Seconds(1));
  EXPECT_EQ(fabric.fences.size(), 1u);
}

TEST_F(HostFencesTest, CallsThatDoNotEndAreNotWaitedForWithoutLimit) {
  BeginUnbind();
  std::optional<absl::Status> done;
  Fence(done);
  executor.Advance(absl::Seconds(21));
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(ReasonOf(*done), "FENCE_FAILED");
  EXPECT_THAT(fabric.fences, IsEmpty());
  EXPECT_FALSE(fences.UnderWay("host-a"));
}

TEST_F(HostFencesTest, AFenceThatFailsProvesNothing) {
  std::optional<absl::Status> done;
  Fence(done);
  HeldFabric::AnswerFirst(fabric.fences, absl::UnknownError("nobody knows"));
  executor.Advance(absl::Milliseconds(10));
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->message(), "nobody knows");
  EXPECT_EQ(track->known[0].fabric, FabricSide::kBound);
  EXPECT_EQ(attached().settled().state, AttachmentState::kWanted);
}

TEST_F(HostFencesTest, ASecondFenceAndOneThatTheFabricHasNoWayToAreRefused) {
  std::optional<absl::Status> first;
  std::optional<absl::Status> second;
  Fence(first);
  Fence(second);
  EXPECT_FALSE(first.has_value());
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(ReasonOf(*second), "FENCE_FAILED");
  fabric.can.fence = FenceScope::kNone;
  Fence(second);
  EXPECT_EQ(ReasonOf(*second), "NO_FENCE");
  EXPECT_EQ(HowToCutOff(fabric.can, "host-a"), "reboot it");
  fabric.can.fence = FenceScope::kBinding;
  EXPECT_EQ(HowToCutOff(fabric.can, "host-a"), "`cxlpool host fence host-a --reason WHY`");
}

}  // namespace
}  // namespace cxlpool::fm
