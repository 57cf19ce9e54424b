#include "fabric-manager/model/pool/host.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "fabric-manager/model/space/bytes.h"

namespace cxlpool::fm {
namespace {

using enum AttachmentState;

constexpr char kName[] = "ACPI0016:00";

class LookAtTest : public testing::Test {
 protected:
  LookAtTest() {
    bridge_.name = kName;
    bridge_.slots = {3, 1, 2};
    bridge_.max_regions = 4;
    bridge_.window_bytes = 8 * kGiB;
    bridge_.free_window_bytes = 8 * kGiB;
    runtime_.fabric_slots = {1, 2, 3, 7};
  }

  OccupiedSlot& Add(const std::string& region, uint32_t slot, AttachmentState state, bool detaching,
                    uint64_t hpa = 0) {
    OccupiedSlot entry;
    entry.region_id = region;
    entry.generation = 10 + occupied_.size();
    entry.state = state;
    entry.detaching = detaching;
    entry.slot = slot;
    entry.host_bridge = kName;
    entry.serial = 100 + occupied_.size();
    entry.hpa_bytes = hpa;
    entry.length_bytes = kGiB;
    occupied_.push_back(entry);
    return occupied_.back();
  }
  BridgeOutlook Look() const { return LookAt(bridge_, runtime_, occupied_); }

  Bridge bridge_;
  HostRuntime runtime_;
  std::vector<OccupiedSlot> occupied_;
};

TEST_F(LookAtTest, AnEmptyBridgeIsUsable) {
  const BridgeOutlook look = Look();
  EXPECT_TRUE(look.usable);
  EXPECT_EQ(look.free_slots, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(look.stack, 0u);
  EXPECT_FALSE(look.full || look.leaving || look.blocked);
  EXPECT_EQ(look.free_window_bytes, 8 * kGiB);
}

TEST_F(LookAtTest, SlotsMustBeKnownToAgentAndFabricAndFree) {
  runtime_.fabric_slots = {2, 3};
  Add("kv", 3, kOnline, false);
  EXPECT_EQ(Look().free_slots, (std::vector<uint32_t>{2}));
  Add("kw", 2, kEjecting, true);
  EXPECT_TRUE(Look().free_slots.empty());
  EXPECT_FALSE(Look().usable);
}

TEST_F(LookAtTest, OtherBridgesDoNotCount) {
  OccupiedSlot& other = Add("kv", 7, kOnline, false);
  other.host_bridge = "ACPI0016:01";
  EXPECT_EQ(Look().stack, 0u);
}

TEST_F(LookAtTest, ASlotOfTheBridgeCountsUnderAnyName) {
  Add("stray", 2, kBound, true).host_bridge = "";
  EXPECT_TRUE(Look().leaving);
}

TEST_F(LookAtTest, PendingOnesTakeDecoderAndWindow) {
  Add("a", 1, kWanted, false);
  Add("b", 2, kBound, false);
  BridgeOutlook look = Look();
  EXPECT_TRUE(look.usable);
  EXPECT_EQ(look.stack, 2u);
  EXPECT_EQ(look.free_window_bytes, 6 * kGiB);
  bridge_.free_window_bytes = kGiB;  // Less than what is planned: none is left, never a wrap.
  EXPECT_EQ(Look().free_window_bytes, 0u);
}

TEST_F(LookAtTest, RegionsThatThePoolDidNotMakeCount) {
  bridge_.live_regions = 3;
  Add("a", 1, kOnline, false);
  EXPECT_EQ(Look().stack, 3u);
  Add("b", 2, kWanted, false);
  EXPECT_EQ(Look().stack, 4u);
  EXPECT_TRUE(Look().full);
  EXPECT_FALSE(Look().usable);
}

TEST_F(LookAtTest, OneBeingMadeIsNotCountedTwice) {
  bridge_.live_regions = 1;  // That of "a", made but not yet recorded as online.
  Add("a", 1, kBound, false, 4 * kGiB);
  EXPECT_EQ(Look().stack, 1u);
}

TEST_F(LookAtTest, AStripeSetTakesOneDecoderAndTheWindowOfItsMembers) {
  for (const uint32_t slot : {1, 2}) {
    OccupiedSlot& entry = Add("set", slot, kWanted, false);
    entry.generation = 50;
    entry.set = 0;
    entry.ways = 2;
  }
  EXPECT_EQ(Look().stack, 1u);
  EXPECT_EQ(Look().free_window_bytes, 6 * kGiB);
  // Another set of the same Attachment has a decoder of its own.
  OccupiedSlot& other = Add("set", 3, kWanted, false);
  other.generation = 50;
  other.set = 2;
  EXPECT_EQ(Look().stack, 2u);
}

TEST_F(LookAtTest, ALiveStripeSetCountsOnce) {
  bridge_.live_regions = 1;
  for (const uint32_t slot : {1, 2}) {
    OccupiedSlot& entry = Add("set", slot, kOnline, false, 4 * kGiB);
    entry.generation = 50;
    entry.ways = 2;
  }
  EXPECT_EQ(Look().stack, 1u);
  // Made, and not yet recorded as online.
  for (OccupiedSlot& entry : occupied_) entry.state = kBound;
  EXPECT_EQ(Look().stack, 1u);
}

TEST_F(LookAtTest, ABridgeWithoutDecodersTakesNothing) {
  bridge_.max_regions = 0;
  EXPECT_FALSE(Look().usable);
}

TEST_F(LookAtTest, ADepthThatIsNotKnownYetIsTakenToBeUsual) {
  bridge_.slots = {1, 2, 3, 4, 5, 6};
  runtime_.fabric_slots = bridge_.slots;
  bridge_.max_regions = 1;
  for (uint32_t slot = 1; slot <= kAssumedDepth; ++slot) {
    bridge_.depth_unknown = true;
    EXPECT_TRUE(Look().usable) << slot;
    bridge_.depth_unknown = false;
    EXPECT_EQ(Look().usable, slot == 1) << slot;
    Add("r", slot, kWanted, false);
  }
  bridge_.depth_unknown = true;
  EXPECT_TRUE(Look().full);
  // What is known to be deeper stays so.
  bridge_.max_regions = kAssumedDepth + 1;
  EXPECT_TRUE(Look().usable);
}

TEST_F(LookAtTest, TheAgentsWordBlocksAndItsSerialNamesTheRegion) {
  Add("low", 1, kOnline, true);
  Add("top", 2, kOnline, true);
  bridge_.blocked = true;
  bridge_.blocking_serial = 101;
  const BridgeOutlook look = Look();
  EXPECT_TRUE(look.blocked);
  EXPECT_EQ(look.blocked_by, "top");
  EXPECT_FALSE(look.usable);  // Though all are leaving: not now.
  bridge_.blocking_serial = 0;
  occupied_.clear();
  EXPECT_TRUE(Look().blocked);
  EXPECT_EQ(Look().blocked_by, "");
}

TEST_F(LookAtTest, ALeavingOneUnderOneThatStaysBlocks) {
  Add("low", 1, kOnline, true);
  Add("top", 2, kWanted, false);
  const BridgeOutlook look = Look();
  EXPECT_TRUE(look.blocked);
  EXPECT_TRUE(look.leaving);
  EXPECT_EQ(look.blocked_by, "top");
  EXPECT_EQ(look.stack, 2u);
}

TEST_F(LookAtTest, TheHostAddressDecidesWhoIsAbove) {
  Add("first", 1, kOnline, false, 8 * kGiB);
  Add("second", 2, kReleaseBlocked, true, 4 * kGiB);  // Younger, but under it.
  EXPECT_TRUE(Look().blocked);
  EXPECT_EQ(Look().blocked_by, "first");
}

TEST_F(LookAtTest, TheTopmostOfThoseThatStayIsNamed) {
  Add("hole", 1, kOnline, true, 1 * kGiB);
  Add("middle", 2, kOnline, false, 2 * kGiB);
  Add("top", 3, kOnline, false, 3 * kGiB);
  EXPECT_EQ(Look().blocked_by, "top");
}

TEST_F(LookAtTest, TheTopmostLeavingIsWaitedForAndBlocksNobody) {
  Add("low", 1, kOnline, false);
  Add("top", 2, kOnline, true);
  const BridgeOutlook look = Look();
  EXPECT_FALSE(look.blocked);
  EXPECT_TRUE(look.leaving);
  EXPECT_FALSE(look.usable);
  EXPECT_EQ(look.blocked_by, "top");
}

TEST_F(LookAtTest, TwoThatLeaveBlockNobody) {
  Add("low", 1, kOnline, true, 1 * kGiB);
  Add("top", 2, kReleaseBlocked, true, 2 * kGiB);
  const BridgeOutlook look = Look();
  EXPECT_FALSE(look.blocked) << "both go, and then nothing lies above a hole";
  EXPECT_TRUE(look.leaving);
}

TEST_F(LookAtTest, OneTurnedRoundHalfWayMayHoldADecoder) {
  Add("half", 1, kBound, true);
  EXPECT_TRUE(Look().leaving);
  EXPECT_EQ(Look().stack, 1u);
}

TEST_F(LookAtTest, WhatHasLeftItsDecoderBlocksOnlyAsAHole) {
  Add("gone", 1, kEjecting, true, 1 * kGiB);
  BridgeOutlook look = Look();
  EXPECT_TRUE(look.usable);
  EXPECT_EQ(look.stack, 0u);
  EXPECT_EQ(look.free_slots, (std::vector<uint32_t>{2, 3}));
  Add("top", 2, kOnline, false, 2 * kGiB);
  look = Look();
  EXPECT_TRUE(look.blocked);
  EXPECT_EQ(look.blocked_by, "top");
}

TEST_F(LookAtTest, WhatNeverGotADecoderLeavesNoHole) {
  Add("failed", 1, kEjecting, true);
  Add("top", 2, kOnline, false, 2 * kGiB);
  EXPECT_FALSE(Look().blocked);
  EXPECT_TRUE(Look().usable);
}

// Where hosts see devices whole there is no decoder stack: only slots and their number count.
TEST_F(LookAtTest, ABridgeOfAnyOrderIsNeitherBlockedNorLeft) {
  bridge_.any_order = true;
  bridge_.blocked = true;
  bridge_.free_window_bytes = 0;
  Add("low", 1, kOnline, true, 1 * kGiB);
  Add("top", 2, kOnline, false, 2 * kGiB);
  BridgeOutlook look = Look();
  EXPECT_TRUE(look.usable);
  EXPECT_FALSE(look.blocked || look.leaving);
  EXPECT_EQ(look.blocked_by, "");
  EXPECT_EQ(look.free_slots, (std::vector<uint32_t>{3}));
  EXPECT_GT(look.free_window_bytes, 64 * kGiB);
  bridge_.max_regions = 2;
  look = Look();
  EXPECT_TRUE(look.full);
  EXPECT_FALSE(look.usable);
}

TEST(WrongSinceTest, WhatGoesOnKeepsItsTimeAndWhatIsOverGoes) {
  const absl::Time begin = absl::FromUnixSeconds(1'700'000'000);
  const absl::Time later = begin + absl::Minutes(3);
  HostRuntime sound;
  sound.online = sound.fabric_reachable = true;
  sound.last_heartbeat = begin - absl::Seconds(7);
  EXPECT_TRUE(WrongSince(HostRuntime(), sound, begin).empty());
  HostRuntime wrong = sound;
  wrong.unfit_reason = "NO_CXL: no module";
  wrong.unreached = {{"cmm-1", "no mark"}};
  Bridge bridge;
  bridge.name = kName;
  bridge.blocked = true;
  wrong.bridges = {bridge};
  wrong.wrong_since = WrongSince(sound, wrong, begin);
  const std::map<std::string, absl::Time> seen = {
      {"BRIDGE_BLOCKED ACPI0016:00", begin}, {"DEVICE_NOT_REACHED cmm-1", begin}, {"UNFIT", begin}};
  EXPECT_EQ(wrong.wrong_since, seen);
  HostRuntime away = wrong;
  away.online = away.fabric_reachable = false;
  away.fabric_reason = "no answer";
  away.unfit_reason = "NO_CXL: in other words";
  away.unreached.clear();
  away.bridges[0].blocked = false;
  const std::map<std::string, absl::Time> then = {{"AGENT_AWAY", begin - absl::Seconds(7)},
                                                  {"DEVICE_NOT_REACHED cmm-1", begin},
                                                  {"FABRIC_AWAY", later},
                                                  {"UNFIT", begin}};
  EXPECT_EQ(WrongSince(wrong, away, later), then) << "nobody knows that it reaches the device";
  away.wrong_since = then;
  HostRuntime back = wrong;
  back.unreached.clear();
  back.wrong_since = WrongSince(away, back, later);
  EXPECT_EQ(back.wrong_since.at("DEVICE_NOT_REACHED cmm-1"), begin) << "it is looked at anew";
  EXPECT_EQ(WrongSince(back, wrong, later).at("DEVICE_NOT_REACHED cmm-1"), begin);
  EXPECT_FALSE(WrongSince(back, back, later).contains("DEVICE_NOT_REACHED cmm-1"));
}

}  // namespace
}  // namespace cxlpool::fm
