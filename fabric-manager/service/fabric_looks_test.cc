#include "fabric-manager/service/fabric_looks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/refusal.h"
#include "test/rigs/held_fabric.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Of a pool whose topology nobody has imported: the driver is given none.
class FabricLooksTest : public testing::Test {
 protected:
  struct Taken {
    std::string only;
    uint64_t epoch;
    friend bool operator==(const Taken&, const Taken&) = default;
  };

  // Whom the fabric is being asked about, in order.
  std::vector<std::string> Asked() const {
    std::vector<std::string> asked;
    for (const auto& look : fabric.looks) asked.push_back(look.asked);
    return asked;
  }
  void Answer(absl::StatusOr<FabricView> view = FabricView{}) {
    HeldFabric::AnswerFirst(fabric.looks, std::move(view));
    executor.RunReady();
  }
  Done Into(std::optional<absl::Status>& done) {
    return [&done](absl::Status status) { done = std::move(status); };
  }

  ManualExecutor executor;
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>();
  MemoryStore store{disk, &executor, absl::Milliseconds(1)};
  ViewHolder views;
  WatchHub watch;
  Writer writer{{}, &executor, &executor, &store, &views, &watch};
  HeldFabric fabric;
  uint64_t epoch = 1;
  std::vector<Taken> taken;
  std::function<void()> on_take = [] {};
  FabricLooks looks{{},
                    &executor,
                    &executor,
                    &writer,
                    &fabric,
                    [this] { return epoch; },
                    [this](const std::string& only, const FabricView&, uint64_t began) {
                      taken.push_back({only, began});
                      on_take();
                    }};
};

TEST_F(FabricLooksTest, WhatIsSeenBearsTheEpochInWhichTheLookBegan) {
  std::optional<absl::Status> done;
  looks.Look("host-a", Into(done));
  EXPECT_TRUE(looks.under_way());
  epoch = 5;
  EXPECT_FALSE(done.has_value());
  Answer();
  EXPECT_THAT(taken, ElementsAre(Taken{"host-a", 1}));
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok());
  EXPECT_FALSE(looks.under_way());
  EXPECT_FALSE(looks.has_seen_all());
}

// Of a fabric that claims hosts, on a store that is open.
class FabricLooksClaimTest : public FabricLooksTest {
 protected:
  FabricLooksClaimTest() { fabric.can.claims_hosts = true; }
  void SetUp() override {
    writer.Open({.on_committed = [](const auto&) {},
                 .on_fatal = [this](absl::Status why) { fatal = std::move(why); }},
                [](const absl::Status&) {});
    executor.Advance(absl::Milliseconds(10));
    claiming.emplace(
        FabricLooks::Options{}, &executor, &executor, &writer, &fabric, [] { return uint64_t{1}; },
        [this](const std::string& only, const FabricView&, uint64_t began) {
          taken.push_back({only, began});
        });
  }
  // What a look at host-a shows under this claim; the answer of Look, once it has come.
  void See(uint64_t claim) {
    done.reset();
    claiming->Look("host-a", Into(done));
    FabricView view;
    FabricHost& host = view.hosts.emplace_back();
    host.id = "host-a";
    host.reachable = true;
    host.claim = claim;
    Answer(std::move(view));
  }
  std::optional<FabricLooks> claiming;
  std::optional<absl::Status> done;
  absl::Status fatal;
};

TEST_F(FabricLooksClaimTest, ALookUnderANewClaimIsBelievedAfterACommit) {
  const uint64_t before = writer.revision();
  See(1);
  EXPECT_THAT(taken, IsEmpty());
  EXPECT_EQ(claiming->ClaimOf("host-a"), 0u);
  EXPECT_TRUE(claiming->under_way());
  executor.Advance(absl::Milliseconds(10));
  EXPECT_THAT(taken, ElementsAre(Taken{"host-a", 1}));
  EXPECT_EQ(claiming->ClaimOf("host-a"), 1u);
  EXPECT_EQ(writer.revision(), before + 1);
  See(1);
  EXPECT_EQ(taken.size(), 2u) << "the claim is known";
  EXPECT_EQ(writer.revision(), before + 1);
  See(2);
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_EQ(claiming->ClaimOf("host-a"), 1u);
  executor.Advance(absl::Milliseconds(10));
  EXPECT_EQ(claiming->ClaimOf("host-a"), 2u);
}

// Another manager has the store, and has claimed the host or is about to.
TEST_F(FabricLooksClaimTest, ALookOfAManagerThatIsNoneAnyMoreIsNotBelieved) {
  MemoryStore other{disk, &executor, absl::Milliseconds(1)};
  other.Open([](const absl::Status&) {}, [](const absl::StatusOr<StoreImage>&) {});
  executor.Advance(absl::Milliseconds(10));
  See(1);
  executor.Advance(absl::Milliseconds(10));
  EXPECT_FALSE(fatal.ok());
  EXPECT_THAT(taken, IsEmpty());
  EXPECT_EQ(claiming->ClaimOf("host-a"), 0u);
  ASSERT_TRUE(done.has_value());
  EXPECT_FALSE(done->ok());
}

// The driver goes on without what it waits for from such a host, so the word has to be given for
// good.
TEST_F(FabricLooksClaimTest, TheDriverIsToldOfHostsThatAreRetiredByACommit) {
  const auto submit = [&](PlanFn plan) {
    writer.Submit(
        Audit{{}, "test", "test", ""}, std::move(plan),
        [](const absl::StatusOr<Committed>& done) { EXPECT_TRUE(done.ok()) << done.status(); });
  };
  const auto put = [&](const std::string& id, bool retired) {
    submit([=](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
      const Host* known = state.FindHost(id);
      return Proposal::Of(Host{.key = known == nullptr ? context.next_id() : known->key,
                               .id = id,
                               .identity = "cxlpool://host/" + id,
                               .retired = retired},
                          nullptr);
    });
  };
  const auto told = [&] {
    claiming->TopologyChanged();
    claiming->Look("");
    std::set<std::string> retired = fabric.configures.front().asked.retired;
    HeldFabric::AnswerFirst(fabric.configures, absl::OkStatus());
    executor.RunReady();
    Answer();
    executor.Advance(absl::Milliseconds(10));
    return retired;
  };
  submit([](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
    return Proposal{PlanImport(state, TopologyTables(), "fm.toml", context), nullptr};
  });
  put("host-a", false);
  put("host-b", false);
  executor.Advance(absl::Milliseconds(10));
  ASSERT_TRUE(IsImported(writer.state()));
  EXPECT_THAT(told(), IsEmpty());
  put("host-a", true);
  executor.Advance(absl::Milliseconds(10));
  EXPECT_THAT(told(), ElementsAre("host-a"));
  put("host-b", true);
  executor.RunReady();
  ASSERT_TRUE(writer.state().FindHost("host-b")->retired);
  EXPECT_THAT(told(), ElementsAre("host-a")) << "its commit is under way";
  EXPECT_THAT(told(), ElementsAre("host-a", "host-b"));
}

TEST_F(FabricLooksTest, AHostThatIsBeingLookedAtIsLookedAtAgainOnceForAllThatAsk) {
  looks.Look("host-a");
  std::optional<absl::Status> done;
  looks.Look("host-a", Into(done));
  looks.Look("host-a");
  EXPECT_TRUE(done.has_value()) << "it does not wait for the look that follows";
  looks.Look("host-b");
  EXPECT_THAT(Asked(), ElementsAre("host-a", "host-b"));
  Answer();
  EXPECT_THAT(Asked(), ElementsAre("host-b", "host-a"));
  Answer();
  Answer();
  EXPECT_THAT(Asked(), IsEmpty());
  EXPECT_EQ(taken.size(), 3u);
}

TEST_F(FabricLooksTest, ALookAtEverythingCoversEveryHost) {
  looks.Look("");
  looks.Look("");
  looks.Look("host-a");
  EXPECT_THAT(Asked(), ElementsAre(""));
  Answer();
  EXPECT_TRUE(looks.has_seen_all());
  EXPECT_THAT(Asked(), ElementsAre("host-a")) << "what happened there may have come after it";
}

TEST_F(FabricLooksTest, ALookThatBeganBeforeOneAtEverythingIsNotTaken) {
  looks.Look("host-a");
  looks.Look("");
  Answer();
  EXPECT_THAT(taken, IsEmpty());
  EXPECT_THAT(Asked(), ElementsAre("")) << "the host is covered";
  Answer();
  EXPECT_THAT(taken, ElementsAre(Taken{"", 1}));
  EXPECT_THAT(Asked(), ElementsAre("host-a"));
}

TEST_F(FabricLooksTest, WhoTakesALookMayAskForAnother) {
  on_take = [this] {
    if (taken.size() == 1) looks.LookAgain("host-a");
  };
  looks.Look("host-a");
  Answer();
  EXPECT_THAT(Asked(), ElementsAre("host-a"));
  Answer();
  EXPECT_THAT(Asked(), IsEmpty());
}

TEST_F(FabricLooksTest, ALookThatFailedIsAnsweredAndNotTaken) {
  std::optional<absl::Status> done;
  looks.Look("", Into(done));
  Answer(absl::UnavailableError("the switch does not answer"));
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(taken, IsEmpty());
  EXPECT_FALSE(looks.has_seen_all());
}

TEST_F(FabricLooksTest, EverythingIsLookedAtPeriodicallyAndSoonerWhenAsked) {
  looks.Tick();
  EXPECT_THAT(Asked(), ElementsAre(""));
  Answer();
  looks.Tick();
  EXPECT_THAT(Asked(), IsEmpty());
  looks.LookSoon();
  looks.LookSoon();
  EXPECT_THAT(Asked(), IsEmpty());
  looks.Tick();
  EXPECT_THAT(Asked(), ElementsAre(""));
  Answer();
  executor.Advance(absl::Seconds(10));
  looks.Tick();
  EXPECT_THAT(Asked(), ElementsAre(""));
}

TEST_F(FabricLooksTest, TheFirstLookIsTriedUntilItWorks) {
  std::optional<absl::Status> done;
  looks.LookFirst(Into(done));
  Answer(absl::UnavailableError("not yet"));
  EXPECT_THAT(Asked(), IsEmpty());
  executor.Advance(absl::Milliseconds(500));
  EXPECT_FALSE(done.has_value());
  Answer();
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok());
}

TEST_F(FabricLooksTest, TheFirstLookEndsWithItsErrorInTheEnd) {
  std::optional<absl::Status> done;
  looks.LookFirst(Into(done));
  while (!done.has_value() && !fabric.looks.empty()) {
    Answer(absl::UnavailableError("not yet"));
    executor.Advance(absl::Milliseconds(500));
  }
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->message(), "not yet");
}

TEST_F(FabricLooksTest, TheFirstLookWaitsAWhileForAnotherManagerToEnd) {
  std::optional<absl::Status> done;
  looks.LookFirst(Into(done));
  int looked = 0;
  for (; !done.has_value() && !fabric.looks.empty(); ++looked) {
    Answer(Refuse(absl::StatusCode::kFailedPrecondition, "FABRIC_BUSY", "taken", "end the other"));
    executor.Advance(absl::Milliseconds(500));
  }
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(IsFabricBusy(*done));
  EXPECT_EQ(looked, 11) << "half of what another error is tried for";
}

TEST_F(FabricLooksTest, AChangedTopologyWaitsForTheLookThatMayHavePassedItBy) {
  looks.Look("");
  std::optional<absl::Status> done;
  looks.FollowTopology(Into(done));
  EXPECT_THAT(Asked(), ElementsAre(""));
  Answer();
  EXPECT_FALSE(done.has_value());
  executor.Advance(absl::Milliseconds(20));
  EXPECT_THAT(Asked(), ElementsAre(""));
  Answer();
  EXPECT_TRUE(done.has_value());
}

}  // namespace
}  // namespace cxlpool::fm
