#include "fabric-manager/model/plans/plan_media.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "fabric-manager/model/ladder/ladder.h"
#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

class PlanMediaTest : public testing::Test, protected ModelRig {
 protected:
  PlanMediaTest() { AddPool(); }
  ~PlanMediaTest() override {
    const absl::Status sound = state().CheckInvariants();
    EXPECT_TRUE(sound.ok()) << sound;
  }

  RegionPtr Now(const std::string& id) { return *state().FindRegionById(id); }
  // ONLINE on host-a, on two Extents.
  void AllocateTwoExtents(const std::string& id, uint64_t size = 2 * kUnit) {
    AllocateSpec spec = Allocation(id, size, "host-a");
    spec.policy = Policy::kSpread;
    spec.max_extents = 2;
    ASSERT_TRUE(Allocate(spec).ok());
    BringUp(id);
  }
  uint64_t SerialOf(const std::string& id, size_t segment = 0) {
    return Now(id)->attachments[0].segments[segment].serial;
  }
  Change Tell(const std::string& host, MediaError error) {
    Change change = PlanMediaErrors(state(), host, {std::move(error)}, context());
    if (!change.empty()) Commit(change);
    return change;
  }
  Change TellPoison(const std::string& id, size_t segment = 0) {
    return Tell("host-a", {SerialOf(id, segment), 0x1000, 64, "POISON"});
  }
  // The end of the Region, as the reconciler records it.
  void Bury(const std::string& id) {
    auto last = std::make_shared<Region>(*Now(id));
    Change change{Tombstone{last, context().now}};
    for (Item& kept : QuarantineBad(state(), *last, 0, context())) change.push_back(kept);
    Commit(change);
  }
  void ComeDown(const std::string& id) {
    ASSERT_TRUE(Release(id, true).ok());
    Rewrite(id, [](Region& region) {
      region.attachments.clear();
      region.state = RegionState::kScrubbing;
    });
    Bury(id);
  }
  RegionPtr Kept() {
    for (const auto& [key, region] : state().regions()) {
      if (absl::StartsWith(region->id, "bad-")) return region;
    }
    return nullptr;
  }
};

TEST_F(PlanMediaTest, MarksTheExtentAndSaysWhereOnTheDevice) {
  ASSERT_TRUE(Allocate(Allocation("first", kUnit)).ok());
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit, "host-a")).ok());
  BringUp("kv");
  const Extent extent = Now("kv")->extents[0];
  ASSERT_EQ(extent.dpa_bytes, kUnit);
  EXPECT_EQ(TellPoison("kv").size(), 1u);
  ASSERT_EQ(Now("kv")->bad.size(), 1u);
  EXPECT_EQ(Now("kv")->bad[0].extent_index, 0u);
  EXPECT_EQ(Now("kv")->bad[0].reason,
            "POISON on device " + extent.device.str() + " at 0x10001000-0x1000103f");
  EXPECT_EQ(Now("kv")->state, RegionState::kAllocated);
  EXPECT_TRUE(absl::StartsWith(Now("kv")->state_reason, "MEDIA_ERROR: POISON on device "));
  EXPECT_EQ(state().GetCapacity().quarantined_bytes, kUnit);
  EXPECT_EQ(state().GetCapacity().held_bytes, kUnit);
}

TEST_F(PlanMediaTest, TheSameAgainChangesNothing) {
  AllocateTwoExtents("kv");
  EXPECT_EQ(TellPoison("kv").size(), 1u);
  EXPECT_TRUE(TellPoison("kv").empty());
  EXPECT_EQ(TellPoison("kv", 1).size(), 1u);
  EXPECT_EQ(Now("kv")->bad.size(), 2u);
  EXPECT_TRUE(absl::StrContains(Now("kv")->state_reason, "and 1 extent more"));
}

TEST_F(PlanMediaTest, SeveralOfOneRegionAreOneChange) {
  AllocateTwoExtents("kv");
  const Change change = PlanMediaErrors(state(), "host-a",
                                        {{SerialOf("kv", 1), 0, 64, "DRAM"},
                                         {SerialOf("kv", 0), 0, 64, "DRAM"},
                                         {SerialOf("kv", 0), 64, 64, "DRAM"}},
                                        context());
  ASSERT_EQ(change.size(), 1u);
  Commit(change);
  ASSERT_EQ(Now("kv")->bad.size(), 2u);
  EXPECT_EQ(Now("kv")->bad[0].extent_index, 0u);
}

TEST_F(PlanMediaTest, AnAddressThatTheExtentDoesNotHaveMarksItAll) {
  AllocateTwoExtents("kv");
  Tell("host-a", {SerialOf("kv"), 1ull << 60, 64, "POISON"});
  ASSERT_EQ(Now("kv")->bad.size(), 1u);
  EXPECT_TRUE(absl::StrContains(Now("kv")->bad[0].reason, "somewhere in 0x0-0x"));
  Tell("host-a", {SerialOf("kv", 1), kUnit - 64, UINT64_MAX, "POISON"});
  ASSERT_EQ(Now("kv")->bad.size(), 2u);
  EXPECT_TRUE(absl::StrContains(Now("kv")->bad[1].reason, " at 0xfffffc0-0xfffffff"));
}

TEST_F(PlanMediaTest, AHostSpeaksOfItsOwnAlone) {
  AllocateTwoExtents("kv");
  EXPECT_TRUE(Tell("host-b", {SerialOf("kv"), 0, 64, "POISON"}).empty());
  EXPECT_TRUE(Tell("host-a", {4711, 0, 64, "POISON"}).empty());
  EXPECT_TRUE(Now("kv")->bad.empty());
}

TEST_F(PlanMediaTest, WhatGoesDownKeepsItsReason) {
  AllocateTwoExtents("kv");
  ReleaseSpec spec;
  spec.caller = Caller::Admin("cxlpool://operator/alice");
  spec.request = NewRequest("ReleaseRegion");
  spec.region_id = "kv";
  spec.force = true;
  state().SetRuntime("host-a", {});
  spec.reason = "the host burned";
  Commit(PlanRelease(state(), spec, context())->change);
  TellPoison("kv");
  EXPECT_EQ(Now("kv")->bad.size(), 1u);
  EXPECT_EQ(Now("kv")->state_reason, "FORCED: the host burned");
}

TEST_F(PlanMediaTest, TheEndOfTheRegionKeepsTheBadExtentAndFreesTheOther) {
  AllocateTwoExtents("kv");
  const Extent bad = Now("kv")->extents[1];
  const uint64_t free = state().GetCapacity().free_bytes;
  TellPoison("kv", 1);
  ComeDown("kv");
  const RegionPtr kept = Kept();
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->id, "bad-" + bad.device.str() + "-" + std::to_string(kept->key));
  EXPECT_EQ(kept->state, RegionState::kQuarantined);
  EXPECT_EQ(kept->extents, std::vector<Extent>{bad});
  EXPECT_EQ(kept->tenant, "default");
  EXPECT_TRUE(absl::StrContains(kept->state_reason, "when Region \"kv\" had it"));
  EXPECT_TRUE(KeepsBadAlone(*kept));
  EXPECT_EQ(state().GetCapacity().free_bytes, free + kUnit);
  EXPECT_EQ(state().GetCapacity().quarantined_bytes, kUnit);
  // Nobody gets it back, however much is asked for.
  ASSERT_TRUE(Allocate(Allocation("other", kUnit)).ok());
  AllocateSpec all = Allocation("all", state().GetCapacity().free_bytes);
  all.max_extents = 16;
  ASSERT_TRUE(Allocate(all).ok());
  EXPECT_EQ(state().GetCapacity().free_bytes, 0u);
}

TEST_F(PlanMediaTest, TheOperatorsWordFreesIt) {
  AllocateTwoExtents("kv");
  TellPoison("kv");
  ComeDown("kv");
  const std::string id = Kept()->id;
  EXPECT_EQ(ReasonOf(Release(id).status()), "REGION_QUARANTINED");
  ReleaseSpec spec;
  spec.caller = Caller::Admin("cxlpool://operator/alice");
  spec.request = NewRequest("ReleaseRegion");
  spec.region_id = id;
  spec.force = true;
  spec.reason = "the module was replaced";
  Commit(PlanRelease(state(), spec, context())->change);
  EXPECT_TRUE(Now(id)->bad.empty());
  Rewrite(id, [](Region& region) { region.state = RegionState::kScrubbing; });
  Bury(id);
  EXPECT_EQ(Kept(), nullptr);
  EXPECT_EQ(state().GetCapacity().quarantined_bytes, 0u);
}

TEST_F(PlanMediaTest, AForcedReleaseOfTheRegionItselfDoesNotFreeIt) {
  AllocateTwoExtents("kv");
  TellPoison("kv");
  ReleaseSpec spec;
  spec.caller = Caller::Admin("cxlpool://operator/alice");
  spec.request = NewRequest("ReleaseRegion");
  spec.region_id = "kv";
  spec.force = true;
  state().SetRuntime("host-a", {});
  spec.reason = "the host burned";
  Commit(PlanRelease(state(), spec, context())->change);
  Rewrite("kv", [](Region& region) {
    region.attachments.clear();
    region.state = RegionState::kScrubbing;
  });
  Bury("kv");
  EXPECT_NE(Kept(), nullptr);
}

TEST_F(PlanMediaTest, ABadTailIsKept) {
  AllocateTwoExtents("kv");
  TellPoison("kv", 1);
  ASSERT_TRUE(Resize("kv", kUnit).ok());
  EXPECT_TRUE(absl::StartsWith(Now("kv")->state_reason, "MEDIA_ERROR"));
  Rewrite("kv", [](Region& region) {
    region.attachments[0].segments.resize(1);
    region.attachments[0].Join();
  });
  auto edited = std::make_shared<Region>(*Now("kv"));
  ASSERT_TRUE(RecordTailMove(*edited, RegionMoveKind::kDropTail));
  EXPECT_TRUE(edited->bad.empty());
  EXPECT_TRUE(edited->state_reason.empty());
  Change change{RegionPtr(edited)};
  for (Item& kept : QuarantineBad(state(), *Now("kv"), edited->extents.size(), context())) {
    change.push_back(kept);
  }
  Commit(change);
  ASSERT_NE(Kept(), nullptr);
  EXPECT_EQ(state().GetCapacity().quarantined_bytes, kUnit);
}

TEST_F(PlanMediaTest, GrowthKeepsTheMarkAndItsReason) {
  AllocateTwoExtents("kv", kUnit);
  TellPoison("kv");
  const std::string reason = Now("kv")->state_reason;
  ASSERT_TRUE(Resize("kv", 2 * kUnit).ok());
  EXPECT_EQ(Now("kv")->bad.size(), 1u);
  EXPECT_EQ(Now("kv")->state_reason, reason);
}

TEST_F(PlanMediaTest, AFailedDeviceNeedsNoQuarantine) {
  AllocateTwoExtents("kv");
  TellPoison("kv");
  const std::string device = Now("kv")->extents[0].device.str();
  Commit(*PlanFailDevice(state(), device, "it burned", context()));
  Rewrite("kv", [](Region& region) {
    region.attachments.clear();
    region.state = RegionState::kScrubbing;
  });
  Bury("kv");
  EXPECT_EQ(Kept(), nullptr);
}

TEST_F(PlanMediaTest, ItsNameIsOneThatNobodyHas) {
  AllocateTwoExtents("kv");
  TellPoison("kv");
  const std::string device = Now("kv")->extents[0].device.str();
  AllocateSpec squatter = Allocation("x", kUnit);
  const Key next = next_id() + 2;  // After the squatter's own.
  squatter.region_id = "bad-" + device + "-" + std::to_string(next);
  ASSERT_TRUE(Allocate(squatter).ok());
  ASSERT_EQ(next_id(), next);
  ComeDown("kv");
  const RegionPtr* kept = state().FindRegion(next + 1);
  ASSERT_NE(kept, nullptr);
  EXPECT_TRUE(KeepsBadAlone(**kept));
}

TEST_F(PlanMediaTest, MarksThatFitNoExtentAreRefused) {
  AllocateTwoExtents("kv");
  for (const std::vector<BadExtent>& bad : std::vector<std::vector<BadExtent>>{
           {{2, "x"}}, {{0, ""}}, {{1, "x"}, {0, "x"}}, {{0, "x"}, {0, "x"}}}) {
    auto edited = std::make_shared<Region>(*Now("kv"));
    edited->bad = bad;
    EXPECT_FALSE(state().Apply({RegionPtr(edited)}).ok());
  }
}

}  // namespace
}  // namespace cxlpool::fm
