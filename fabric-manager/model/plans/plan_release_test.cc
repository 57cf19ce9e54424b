// Forced releases: where an operator's word may stand for a proof.

#include <gtest/gtest.h>

#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

class PlanReleaseTest : public testing::Test, protected ModelRig {
 protected:
  PlanReleaseTest() {
    AddPool();
    AllocateSpec spec = Allocation("kv", kUnit, "host-a");
    spec.sharing = Sharing::kMultiWriter;
    EXPECT_TRUE(Allocate(spec).ok());
    BringUp("kv");
    EXPECT_TRUE(Attach("kv", "host-b").ok());
    BringUp("kv");
  }

  absl::StatusOr<RegionPtr> Force(bool fence = false) {
    ReleaseSpec spec;
    spec.caller = Caller::Admin("cxlpool://operator/alice");
    spec.request = NewRequest("ReleaseRegion");
    spec.region_id = "kv";
    spec.force = true;
    spec.fence = fence;
    spec.reason = "the host burned";
    const auto plan = PlanRelease(state(), spec, context());
    if (!plan.ok()) return plan.status();
    Commit(plan->change);
    return plan->region;
  }
  void GoSilent(const std::string& host) { state().SetRuntime(host, {}); }
  void Fenced(const std::string& host) {
    Rewrite("kv", [&](Region& region) {
      Attachment& attachment = *region.FindAttachment(absl::string_view(host));
      attachment.TurnDown("FENCED", Uuid());
      attachment.settled().state = AttachmentState::kUnbound;
    });
  }
  // Of whom it is said that they must be fenced; "": it went through.
  std::string ToFence(const absl::StatusOr<RegionPtr>& answer) {
    if (answer.ok()) return "";
    EXPECT_EQ(ReasonOf(answer.status()), "FENCE_REQUIRED") << answer.status();
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kFailedPrecondition);
    return MetadataOf(answer.status(), "hosts");
  }
  RegionPtr Now() { return *state().FindRegionById("kv"); }
};

TEST_F(PlanReleaseTest, TheEndSaysOfEachByteWhatBecameOfIt) {
  Region region = *Now();
  region.extents = {{"cmm-0", 0, 256ull << 20}, {"cmm-1", 0, 512ull << 20}};
  EXPECT_EQ(EndOfBytes(state(), region), "768 MiB scrubbed and free");
  region.bad = {{1, "poison"}};
  EXPECT_EQ(
      EndOfBytes(state(), region),
      "256 MiB scrubbed and free; 512 MiB of cmm-1 have lost bytes and are kept from everybody, "
      "NOT scrubbed");
  const auto failed = PlanFailDevice(state(), "cmm-0", "it smokes", context());
  ASSERT_TRUE(failed.ok()) << failed.status();
  Commit(*failed);
  region.bad.clear();
  EXPECT_EQ(EndOfBytes(state(), region),
            "512 MiB scrubbed and free; 256 MiB stay on failed device cmm-0, NOT scrubbed");
  region.extents.pop_back();
  EXPECT_EQ(EndOfBytes(state(), region), "256 MiB stay on failed device cmm-0, NOT scrubbed");
}

TEST_F(PlanReleaseTest, ForceNeedsAFenceWhereAHostIsThere) {
  const RegionPtr before = Now();
  EXPECT_EQ(ToFence(Force()), "host-a,host-b");
  GoSilent("host-a");
  EXPECT_EQ(ToFence(Force()), "host-b");
  HostRuntime runtime;
  runtime.fabric_reachable = true;
  state().SetRuntime("host-b", runtime);
  EXPECT_EQ(ToFence(Force()), "host-b") << "the fabric can be asked";
  runtime = {};
  runtime.online = true;
  state().SetRuntime("host-b", runtime);
  EXPECT_EQ(ToFence(Force()), "host-b") << "its agent is alive";
  EXPECT_EQ(*Now(), *before);
}

TEST_F(PlanReleaseTest, ForceTakesTheWordForHostsThatNobodyHearsOf) {
  GoSilent("host-a");
  GoSilent("host-b");
  ASSERT_EQ(ToFence(Force()), "");
  EXPECT_TRUE(Now()->forced);
  EXPECT_EQ(Now()->state, RegionState::kReleasing);
  for (const Attachment& attachment : Now()->attachments) EXPECT_TRUE(attachment.operator_vouched);
}

TEST_F(PlanReleaseTest, AHostThatIsFencedNeedsNoOther) {
  Fenced("host-a");
  EXPECT_EQ(ToFence(Force()), "host-b");
  Fenced("host-b");
  EXPECT_EQ(ToFence(Force()), "") << "they may be up again, and reachable";
}

// While it is released it may be bound still.
TEST_F(PlanReleaseTest, AReleaseUnderWayNeedsItToo) {
  ASSERT_TRUE(Release("kv", true).ok());
  EXPECT_EQ(ToFence(Force()), "host-a,host-b");
  GoSilent("host-a");
  GoSilent("host-b");
  EXPECT_EQ(ToFence(Force()), "");
  for (const char* host : {"host-a", "host-b"}) {
    state().SetRuntime(host, MakeRuntime(4, 2));
  }
  EXPECT_EQ(ToFence(Force()), "") << "it is vouched for already: nothing changes";
}

TEST_F(PlanReleaseTest, QuarantinedWithoutHostsNeedsNone) {
  Rewrite("kv", [](Region& region) { region.state = RegionState::kQuarantined; });
  EXPECT_EQ(ToFence(Force()), "host-a,host-b");
  Rewrite("kv", [](Region& region) { region.attachments.clear(); });
  EXPECT_EQ(ToFence(Force()), "");
  EXPECT_EQ(Now()->state, RegionState::kReleasing);
}

TEST_F(PlanReleaseTest, WithFenceNothingRestsOnTheWord) {
  GoSilent("host-a");
  EXPECT_EQ(ToFence(Force(true)), "host-a,host-b");
  Fenced("host-a");
  EXPECT_EQ(ToFence(Force(true)), "host-b");
  Fenced("host-b");
  EXPECT_EQ(ToFence(Force(true)), "");
}

TEST_F(PlanReleaseTest, FenceWithoutForceIsRefused) {
  ReleaseSpec spec;
  spec.caller = Caller::Admin("cxlpool://operator/alice");
  spec.region_id = "kv";
  spec.detach_all = true;
  spec.fence = true;
  const absl::Status status = PlanRelease(state(), spec, context()).status();
  EXPECT_EQ(ReasonOf(status), "BAD_FENCE");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PlanReleaseTest, ALeaseThatWasRenewedMeanwhileDoesNotEnd) {
  const absl::Time before = context().now + absl::Seconds(10);
  Rewrite("kv", [&](Region& region) {
    region.ttl = absl::Seconds(10);
    region.expire_time = before;
  });
  RenewSpec renew;
  renew.caller = Caller::Admin("cxlpool://operator/alice");
  renew.request = NewRequest("RenewRegion");
  renew.region_id = "kv";
  context().now += absl::Seconds(10);
  const auto plan = PlanRenew(state(), renew, context());
  ASSERT_TRUE(plan.ok()) << plan.status();
  Commit(plan->change);
  // The expiry waited in the queue while the renewal went before it.
  EXPECT_TRUE(PlanExpiry(state(), Now()->key, before, context()).empty());
  EXPECT_FALSE(PlanExpiry(state(), Now()->key, Now()->expire_time, context()).empty());
}

}  // namespace
}  // namespace cxlpool::fm
