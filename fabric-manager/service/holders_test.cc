// Who uses what: what an agent tells is kept for its session, within limits, and is no pool state.
#include "fabric-manager/service/holders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "test/rigs/each_field_fixture.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

using testing::IsEmpty;

class HoldersOfHostsTest : public ServiceTest {
 protected:
  HoldersOfHostsTest() {
    for (uint32_t slot = 40; slot < 56; ++slot) world.slots.push_back(slot);
    Restart();
    Make(AllocateOn("kv", "host-a", 1));
    Make(AllocateOn("kw", "host-a", 2));
  }

  // A report of the Region on host-a, with `count` holders: pids from 1 on.
  v1::RegionHolders& Add(v1::HoldersReport& report, const std::string& id, int count) {
    const RegionPtr region = rig->Find(id);
    v1::RegionHolders& of = *report.add_regions();
    of.set_region_tag(FormatUuid(region->tag.bytes()));
    of.set_attachment_generation(GenerationOf(id));
    for (int i = 0; i < count; ++i) {
      v1::RegionHolder& holder = *of.add_holders();
      holder.set_pid(static_cast<uint32_t>(i) + 1);
      holder.set_program("kv");
    }
    return of;
  }
  uint64_t GenerationOf(const std::string& id) {
    return rig->Find(id)->FindAttachment("host-a")->generation;
  }
  void Tell(const v1::HoldersReport& holders, const std::string& host = "host-a") {
    v1::AgentMessage message;
    message.set_session(rig->agents[host]->session());
    *message.mutable_report()->mutable_holders() = holders;
    rig->sessions.OnMessage(rig->agents[host].get(), message);
  }
  // As readers see it; null: nothing was told in this session.
  std::shared_ptr<const HolderReport> Told(const std::string& host = "host-a") {
    return rig->views.Get()->hosts.at(host)->runtime->holders;
  }
  size_t Listed(const std::string& id) {
    const auto of = Told()->by_generation.find(GenerationOf(id));
    return of == Told()->by_generation.end() ? 0 : of->second.holders.size();
  }
  uint32_t More(const std::string& id) { return Told()->by_generation.at(GenerationOf(id)).more; }
};

TEST_F(HoldersOfHostsTest, AReportReplacesTheLastAndIsNoChangeOfThePool) {
  EXPECT_EQ(Told(), nullptr);
  const uint64_t revision = rig->writer.revision();
  v1::HoldersReport report;
  Add(report, "kv", 2);
  Add(report, "kw", 1);
  const absl::Time now = rig->executor.Now();
  Tell(report);
  ASSERT_NE(Told(), nullptr);
  EXPECT_EQ(Told()->time, now);
  EXPECT_EQ(Listed("kv"), 2u);
  EXPECT_EQ(Listed("kw"), 1u);
  EXPECT_EQ(Told("host-b"), nullptr);

  report.Clear();
  Add(report, "kw", 3);
  Tell(report);
  EXPECT_EQ(Listed("kv"), 0u) << "what is not named has no holder any more";
  EXPECT_EQ(Listed("kw"), 3u);
  // Other news of the host leave it as it is.
  v1::AgentMessage inventory;
  inventory.set_session(rig->agents["host-a"]->session());
  *inventory.mutable_report()->mutable_inventory() = rig->agents["host-a"]->Hello().inventory();
  rig->sessions.OnMessage(rig->agents["host-a"].get(), inventory);
  rig->Run(absl::Seconds(5));
  EXPECT_EQ(Listed("kw"), 3u);
  EXPECT_EQ(rig->writer.revision(), revision);
  ExpectSound();
}

TEST_F(HoldersOfHostsTest, ItIsForgottenWhenTheSessionEnds) {
  v1::HoldersReport report;
  Add(report, "kv", 2);
  Tell(report);
  ASSERT_NE(Told(), nullptr);
  rig->Connect("host-a");  // Dials again: a new session.
  EXPECT_EQ(Told(), nullptr);
  Tell(report);
  ASSERT_NE(Told(), nullptr);
  rig->sessions.End("host-a", absl::CancelledError("over"));
  EXPECT_EQ(Told(), nullptr);
  rig->Connect("host-a");
  Tell(report);
  ASSERT_NE(Told(), nullptr);
  rig->Run(absl::Seconds(12));  // Silence beyond the lease.
  EXPECT_EQ(Told(), nullptr);
}

TEST_F(HoldersOfHostsTest, WhatIsTooLongIsCutAndCounted) {
  v1::HoldersReport report;
  v1::RegionHolders& kv = Add(report, "kv", 33);
  kv.set_more(7);
  kv.mutable_holders(0)->set_program(std::string(63, 'x') + "\xc3\xbc");
  kv.mutable_holders(1)->set_program(
      "\xff"
      "ab");
  Add(report, "kw", 40).set_more(std::numeric_limits<uint32_t>::max());
  Tell(report);
  EXPECT_TRUE(rig->agents["host-a"]->closed.ok()) << "the session goes on";
  EXPECT_EQ(Listed("kv"), kMaxHoldersOfAttachment);
  EXPECT_EQ(More("kv"), 8u);
  EXPECT_EQ(More("kw"), std::numeric_limits<uint32_t>::max());
  const auto& holders = Told()->by_generation.at(GenerationOf("kv")).holders;
  EXPECT_EQ(holders[0].program, std::string(63, 'x'));
  EXPECT_EQ(holders[1].program, "?ab");
}

// What is no time of this epoch cannot be written as one for whoever asks.
TEST_F(HoldersOfHostsTest, ATimeThatCannotBeIsBroughtIntoBounds) {
  const auto kept = [&](int64_t seconds) {
    v1::HoldersReport report;
    Add(report, "kv", 0).mutable_unopened_since()->set_seconds(seconds);
    Tell(report);
    return *Told()->by_generation.at(GenerationOf("kv")).unopened_since;
  };
  EXPECT_EQ(kept(std::numeric_limits<int64_t>::min()), absl::UnixEpoch());
  EXPECT_EQ(kept(17), absl::FromUnixSeconds(17));
  EXPECT_EQ(kept(std::numeric_limits<int64_t>::max()), rig->executor.Now());
}

TEST_F(HoldersOfHostsTest, AHostHasAtMostSoManyInAll) {
  v1::HoldersReport report;
  uint64_t listed = 0;
  uint64_t more = 0;
  for (char i = 0; i < 9; ++i) {
    const std::string id = absl::StrCat("r-", static_cast<int>(i));
    AllocateSpec spec = AllocateOn(id, "host-a", static_cast<char>(10 + i));
    spec.size_bytes = kGranule;
    Make(spec);
    Add(report, id, 32);
  }
  Tell(report);
  for (const auto& [generation, of] : Told()->by_generation) {
    listed += of.holders.size();
    more += of.more;
  }
  EXPECT_EQ(Told()->by_generation.size(), 9u);
  EXPECT_EQ(listed, kMaxHoldersOfHost);
  EXPECT_EQ(more, 32u);
}

TEST_F(HoldersOfHostsTest, WhatTheHostDoesNotHaveIsLeftOut) {
  v1::HoldersReport report;
  Add(report, "kv", 1).set_attachment_generation(GenerationOf("kw"));
  Add(report, "kv", 1).set_attachment_generation(GenerationOf("kv") + 1000);
  Add(report, "kv", 1).set_region_tag("00000000-0000-4000-8000-000000000001");
  Add(report, "kv", 1).set_region_tag("kv");
  Tell(report);
  ASSERT_NE(Told(), nullptr);
  EXPECT_THAT(Told()->by_generation, IsEmpty());
  report.Clear();
  Add(report, "kv", 1);
  Tell(report, "host-b");
  ASSERT_NE(Told("host-b"), nullptr);
  EXPECT_THAT(Told("host-b")->by_generation, IsEmpty()) << "it is host-a's";
  // Twice: the first counts.
  Add(report, "kv", 5);
  Tell(report);
  EXPECT_EQ(Listed("kv"), 1u);
}

TEST_F(HoldersOfHostsTest, EveryWordOfTheAgentIsKept) {
  v1::HoldersReport full;
  FillAll(full);
  full.mutable_regions(0)->set_region_tag(FormatUuid(rig->Find("kv")->tag.bytes()));
  full.mutable_regions(0)->set_attachment_generation(GenerationOf("kv"));
  EXPECT_THAT(FieldsNotSet(full), IsEmpty());
  EXPECT_THAT(FieldsThatAreDropped(full,
                                   [&](const v1::HoldersReport& report) {
                                     Tell(report);
                                     return Told()->by_generation;
                                   }),
              IsEmpty());
}

}  // namespace
}  // namespace cxlpool::fm
