#include "host-agent/service/size_table.h"

#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

const AttachmentKey kFirst = {.generation = 1, .tag = "tag-1"};

// A core whose one Region has up to two segments of kTestLength.
struct SizeRig : CoreRig {
  SizeRig() {
    memory.plugged = {{1, 0x51}, {3, 0x52}};
    Start();
    Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  }
  void Want(v1::Offer::Want first, v1::Offer::Want second) {
    v1::Offer offer = MakeOffer(1, first, {{1, 0x51}, {3, 0x52}});
    offer.mutable_segments(1)->set_want(second);
    Offer(offer);
  }
  SizeTable::Size Size() const {
    const auto size = core->sizes().sizes().find(kFirst);
    return size == core->sizes().sizes().end() ? SizeTable::Size{} : size->second;
  }
};

TEST(SizeTableTest, AChangeGetsANumberAndOnlyAChange) {
  SizeRig rig;
  const SizeTable::Size first = rig.Size();
  EXPECT_EQ(first.bytes, kTestLength);
  EXPECT_GT(first.sequence, 0u);
  rig.executor.Advance(absl::Minutes(1));  // It is looked at again and again.
  EXPECT_EQ(rig.Size().sequence, first.sequence);
  rig.Want(kOnline, kOnline);
  const SizeTable::Size grown = rig.Size();
  EXPECT_EQ(grown.bytes, 2 * kTestLength);
  EXPECT_GT(grown.sequence, first.sequence);
  rig.Want(kOnline, kOffline);
  EXPECT_EQ(rig.Size().bytes, kTestLength);
  EXPECT_GT(rig.Size().sequence, grown.sequence);
}

TEST(SizeTableTest, WhatIsToGoIsToldBeforeItsUsersAreWaitedFor) {
  SizeRig rig;
  rig.Want(kOnline, kOnline);
  rig.core->opens().Open(kFirst, {7, {7, 99}, "regions/r1"}, {0x51, 0x52});
  rig.Want(kOnline, kOffline);
  EXPECT_EQ(rig.ReportedError(0x52), "HOLDERS");
  EXPECT_EQ(rig.Size().bytes, kTestLength);
  rig.Want(kOffline, kOffline);
  EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS");
  EXPECT_EQ(rig.Size().bytes, 0u);
}

TEST(SizeTableTest, WhatCannotBeOpenedYetIsNoNewsAndASizeGoesWithItsAttachment) {
  SizeRig rig;
  rig.memory.plugged[2] = 0x54;
  rig.memory.failures["BindDax"] = absl::InternalError("busy");
  rig.Offer(MakeOffer(2, kOnline, {{2, 0x54}}));
  EXPECT_EQ(rig.core->sizes().sizes().size(), 1u);
  rig.memory.failures.clear();
  rig.executor.Advance(absl::Seconds(10));
  EXPECT_EQ(rig.core->sizes().sizes().size(), 2u);
  v1::Withdraw gone;
  gone.set_region_tag("tag-1");
  gone.set_attachment_generation(1);
  rig.link.handlers.on_withdraw(gone);
  rig.executor.RunReady();
  EXPECT_EQ(rig.Size().sequence, 0u);
  EXPECT_EQ(rig.core->sizes().sizes().size(), 1u);
}

// The table has one line for each Attachment, however often it is resized.
TEST(SizeTableTest, OnlyTheLastSizeIsKept) {
  SizeRig rig;
  for (int i = 0; i < 20; ++i) rig.Want(kOnline, i % 2 == 0 ? kOnline : kOffline);
  EXPECT_EQ(rig.core->sizes().sizes().size(), 1u);
  EXPECT_EQ(rig.Size().bytes, kTestLength);
}

}  // namespace
}  // namespace cxlpool::agent
