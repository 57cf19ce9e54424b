#include "fabric-manager/service/writer.h"

#include <gtest/gtest.h>

#include <set>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "proto/support/refusal.h"
#include "test/rigs/manual_executor.h"
#include "test/rigs/writer_plans.h"

namespace cxlpool::fm {
namespace {

// A writer with one device, on a disk that tests can break.
class WriterTest : public testing::Test {
 protected:
  void SetUp() override {
    writer.Open(
        {.on_committed = [this](const auto& changes) { committed += changes.size(); },
         .on_space = [this](const absl::Status& status) { space.push_back(ReasonOf(status)); },
         .on_fatal = [this](absl::Status status) { fatal = std::move(status); }},
        [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
    executor.RunReady();
    Submit(AddDevice);
    executor.Advance(absl::Milliseconds(10));
    writer.SetReachable({{"cmm-0", ""}});
    committed = 0;
  }

  void Submit(PlanFn plan, absl::StatusOr<Committed>* answer = nullptr) {
    writer.Submit(TestAudit(), std::move(plan), [answer](absl::StatusOr<Committed> got) {
      if (answer != nullptr) *answer = std::move(got);
    });
  }

  ManualExecutor executor;
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>();
  MemoryStore store{disk, &executor, absl::Milliseconds(1)};
  ViewHolder views;
  WatchHub watch;
  Writer writer{{}, &executor, &executor, &store, &views, &watch};
  size_t committed = 0;
  std::vector<std::string> space;  // Reasons.
  absl::Status fatal;
};

TEST_F(WriterTest, NobodyHearsBeforeTheCommit) {
  absl::StatusOr<Committed> answer = absl::UnknownError("");
  Submit(Allocate("a", 1 << 28, 1), &answer);
  executor.RunReady();
  EXPECT_FALSE(answer.ok());
  EXPECT_EQ(views.Get()->regions.Find("a"), nullptr);
  executor.Advance(absl::Milliseconds(2));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_NE(views.Get()->regions.Find("a"), nullptr);
  EXPECT_EQ(answer->revision, disk->revision());
}

TEST_F(WriterTest, WhatAHostSaysMeanwhileShowsNothingOfACommitUnderWay) {
  Submit(Allocate("a", 1 << 28, 1));
  executor.RunReady();
  writer.SetRuntime("host-a", HostRuntime{});
  writer.SetReachable({{"cmm-0", ""}});
  EXPECT_EQ(views.Get()->regions.Find("a"), nullptr);
  executor.Advance(absl::Milliseconds(2));
  EXPECT_NE(views.Get()->regions.Find("a"), nullptr);
}

TEST_F(WriterTest, SinceWhenAHostOrADeviceIsAwayIsKeptUntilItIsBack) {
  const auto of_device = [this] { return views.Get()->devices->front().device.unreachable_since; };
  EXPECT_EQ(of_device(), absl::InfinitePast());
  const absl::Time away = executor.Now();
  HostRuntime runtime;
  const auto of_host = [&] {
    writer.SetRuntime("host-a", runtime);
    const auto& wrong = writer.state().Runtime("host-a").wrong_since;
    const auto since = wrong.find("FABRIC_AWAY");
    return since == wrong.end() ? absl::InfinitePast() : since->second;
  };
  runtime.fabric_reason = "no such file";
  writer.SetReachable({{"cmm-0", "no such file"}});
  EXPECT_EQ(of_host(), away);
  executor.Advance(absl::Minutes(1));
  writer.SetReachable({{"cmm-0", "no answer"}});
  EXPECT_EQ(of_device(), away);
  runtime.fabric_reason = "no answer";
  EXPECT_EQ(of_host(), away);
  writer.SetReachable({{"cmm-0", ""}});
  EXPECT_EQ(of_device(), absl::InfinitePast());
  runtime.fabric_reachable = true;
  EXPECT_EQ(of_host(), absl::InfinitePast());
  writer.SetReachable({{"cmm-0", "no answer"}});
  EXPECT_EQ(of_device(), away + absl::Minutes(1));
  // What is over is remembered.
  for (const char* name : {"hosts/host-a", "devices/cmm-0"}) {
    const std::vector<PastTrouble> past = views.PastOf(name);
    ASSERT_EQ(past.size(), 1u) << name;
    EXPECT_EQ(past[0].since, away);
    EXPECT_EQ(past[0].until, away + absl::Minutes(1));
  }
  EXPECT_EQ(views.PastOf("hosts/host-a")[0].what, "FABRIC_AWAY");
  EXPECT_EQ(views.PastOf("devices/cmm-0")[0].what, "DEVICE_UNREACHABLE");
}

TEST_F(WriterTest, SinceWhenThePoolIsFullIsNotedAtTheCommitThatFillsIt) {
  Submit(Allocate("a", 3ull << 30, 1));
  executor.Advance(absl::Milliseconds(5));
  EXPECT_TRUE(views.Get()->scarce_since->empty());
  Submit(Allocate("b", 1ull << 30, 2));
  const absl::Time before = executor.Now();
  executor.Advance(absl::Milliseconds(5));
  const absl::Time full = executor.Now();
  executor.Advance(absl::Minutes(1));                // Nobody looks meanwhile.
  writer.SetReachable({{"cmm-0", "no such file"}});  // Which reads the numbers anew.
  const std::shared_ptr<const ScarceSince> scarce = views.Get()->scarce_since;
  ASSERT_EQ(scarce->size(), 1u);
  const absl::Time since = scarce->at("POOL_FULL");
  EXPECT_TRUE(before <= since && since <= full) << since;
}

TEST_F(WriterTest, AGroupSharesOneCommitAndSeesItself) {
  absl::StatusOr<Committed> answers[3] = {absl::UnknownError(""), absl::UnknownError(""),
                                          absl::UnknownError("")};
  Submit(Allocate("a", 3ull << 30, 1), &answers[0]);
  Submit(Allocate("b", 3ull << 30, 2), &answers[1]);  // Does not fit beside the first.
  Submit(Allocate("c", 1ull << 30, 3), &answers[2]);
  executor.RunReady();
  for (const auto& answer : answers) EXPECT_FALSE(answer.ok());
  executor.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(answers[0].ok()) << answers[0].status();
  EXPECT_EQ(ReasonOf(answers[1].status()), "POOL_FULL");
  EXPECT_TRUE(answers[2].ok()) << answers[2].status();
  EXPECT_EQ(committed, 2u);
}

TEST_F(WriterTest, AFailedCommitIsUndoneWhole) {
  const Capacity before = views.Get()->capacity;
  store.FailNextCommit({.status = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                                         "no space", "make some")});
  absl::StatusOr<Committed> answer = absl::UnknownError("");
  Submit(Allocate("a", 1 << 28, 1), &answer);
  executor.Advance(absl::Milliseconds(5));
  EXPECT_EQ(ReasonOf(answer.status()), "STORE_FULL");
  EXPECT_EQ(writer.state().FindRegionById("a"), nullptr);
  EXPECT_EQ(views.Get()->capacity.free_bytes, before.free_bytes);
  EXPECT_TRUE(fatal.ok());
  Submit(Allocate("a", 1 << 28, 1), &answer);
  executor.Advance(absl::Milliseconds(5));
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(writer.state().CheckInvariants().ok());
}

TEST_F(WriterTest, AStoreThatIsLostBetweenCommitsIsTheEnd) {
  store.Lose(absl::AbortedError("another manager has taken over"));
  executor.RunReady();
  EXPECT_TRUE(absl::IsAborted(fatal)) << fatal;
  bool planned = false;
  absl::StatusOr<Committed> answer = absl::UnknownError("");
  Submit(
      [&](const PoolState&, PlanContext&) -> absl::StatusOr<Proposal> {
        planned = true;
        return Proposal{};
      },
      &answer);
  executor.Advance(absl::Milliseconds(5));
  EXPECT_EQ(ReasonOf(answer.status()), "STORE_FAILED");
  EXPECT_FALSE(planned);
}

TEST_F(WriterTest, AGroupIsWithinWhatItsStoreTakes) {
  StoreLimits limits;
  limits.max_batch_rows = 16;
  MemoryStore small(std::make_shared<MemoryDisk>(1 << 20, limits), &executor,
                    absl::Milliseconds(1));
  Writer own({}, &executor, &executor, &small, &views, &watch);
  own.Open({.on_committed = [](const auto&) {},
            .on_fatal = [this](absl::Status status) { fatal = std::move(status); }},
           [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
  executor.RunReady();
  int done = 0;
  for (int i = 0; i < 50; ++i) {
    own.Submit(
        TestAudit(),
        [i](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
          return Proposal::Of(Device{.key = context.next_id(),
                                     .id = absl::StrCat("cmm-", i),
                                     .serial = absl::StrCat(i),
                                     .capacity_bytes = 1ull << 30,
                                     .granule_bytes = 256ull << 20},
                              nullptr);
        },
        [&done](const absl::StatusOr<Committed>& committed) { done += committed.ok() ? 1 : 0; });
  }
  executor.Advance(absl::Milliseconds(100));
  EXPECT_EQ(done, 50);
  EXPECT_TRUE(fatal.ok()) << fatal;
}

TEST_F(WriterTest, ABatchThatTheStoreRefusesIsNotTheEnd) {
  store.FailNextCommit({.status = Refuse(absl::StatusCode::kInvalidArgument, "STORE_BAD_BATCH",
                                         "a change of 70000 rows", "split it")});
  absl::StatusOr<Committed> answer = absl::UnknownError("");
  Submit(Allocate("a", 1 << 28, 1), &answer);
  executor.Advance(absl::Milliseconds(5));
  EXPECT_EQ(ReasonOf(answer.status()), "STORE_BAD_BATCH") << "which nobody tries again";
  EXPECT_TRUE(fatal.ok()) << fatal;
  Submit(Allocate("a", 1 << 28, 1), &answer);
  executor.Advance(absl::Milliseconds(5));
  EXPECT_TRUE(answer.ok()) << answer.status();
}

// A writer whose records have the size that a test wants.
class LargeRecords : public WriterTest {
 protected:
  void SetUp() override {
    large.Open({.on_committed = [](const auto&) {},
                .on_fatal = [this](absl::Status status) { fatal = std::move(status); }},
               [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
    executor.RunReady();
    large.Submit(
        TestAudit(),
        [](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
          return Proposal::Of(Device{.key = context.next_id(),
                                     .id = "cmm-0",
                                     .serial = "1",
                                     .capacity_bytes = 1ull << 40,
                                     .granule_bytes = 256ull << 20},
                              nullptr);
        },
        [](const absl::StatusOr<Committed>& done) { ASSERT_TRUE(done.ok()) << done.status(); });
    executor.Advance(absl::Milliseconds(10));
    large.SetReachable({{"cmm-0", ""}});
  }

  void Ask(const std::string& id, char request) {
    large.Submit(TestAudit(), Allocate(id, 1 << 28, request),
                 [this](const absl::StatusOr<Committed>& done) {
                   ++answered;
                   reasons.insert(done.ok() ? "OK" : ReasonOf(done.status()));
                 });
  }

  size_t bytes = 900 << 10;
  size_t answered = 0;
  std::multiset<std::string> reasons;
  Writer large{{.encode =
                    [this](const Item& item) {
                      const auto* region = std::get_if<RegionPtr>(&item);
                      return std::string(region == nullptr ? 100 : bytes, 'x');
                    }},
               &executor,
               &executor,
               &store,
               &views,
               &watch};
};

TEST_F(LargeRecords, AGroupHasNoMoreThanTheStoreTakes) {
  for (char i = 1; i <= 100; ++i) Ask(absl::StrCat("r", static_cast<int>(i)), i);
  executor.Advance(absl::Milliseconds(50));
  EXPECT_EQ(answered, 100u);
  EXPECT_EQ(reasons.count("OK"), 100u);
  EXPECT_TRUE(fatal.ok()) << fatal;
  EXPECT_TRUE(large.state().CheckInvariants().ok());
}

TEST_F(LargeRecords, OneThatIsTooLargeByItselfIsRefusedAndHarmsNoOther) {
  Ask("before", 1);
  bytes = (1 << 20) + 1;
  Ask("huge", 2);
  executor.Advance(absl::Milliseconds(50));
  EXPECT_EQ(reasons.count("CHANGE_TOO_LARGE"), 2u) << "both are planned with that size";
  bytes = 100;
  Ask("after", 3);
  executor.Advance(absl::Milliseconds(50));
  EXPECT_EQ(reasons.count("OK"), 1u);
  EXPECT_EQ(large.state().FindRegionById("huge"), nullptr);
  EXPECT_TRUE(fatal.ok()) << fatal;
  EXPECT_TRUE(large.state().CheckInvariants().ok());
}

TEST_F(LargeRecords, ABatchHasAsManyCommitsAsItNeeds) {
  Outcomes outcomes;
  large.SubmitBatch(
      TestAudit(), 100,
      [this](size_t item, const PoolState& state, PlanContext& context) {
        bytes = item == 50 ? (1 << 20) + 1 : 900 << 10;
        return Allocate(absl::StrCat("r", item), 1 << 28, static_cast<char>(item + 1))(state,
                                                                                       context);
      },
      [&](Outcomes got) { outcomes = std::move(got); });
  executor.Advance(absl::Milliseconds(50));
  ASSERT_EQ(outcomes.size(), 100u);
  for (size_t item = 0; item < 100; ++item) {
    if (item == 50) {
      EXPECT_EQ(ReasonOf(outcomes[item].status()), "CHANGE_TOO_LARGE") << "by itself";
      continue;
    }
    ASSERT_TRUE(outcomes[item].ok()) << item << ": " << outcomes[item].status();
    EXPECT_EQ(outcomes[item]->region->id, absl::StrCat("r", item));
  }
  EXPECT_TRUE(fatal.ok()) << fatal;
  EXPECT_TRUE(large.state().CheckInvariants().ok());
}

TEST_F(LargeRecords, WhatOneCommitOfABatchComesToIsSaidOfItsItemsOnly) {
  store.FailNextCommit({.status = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                                         "no space", "make some")});
  Outcomes outcomes;
  large.SubmitBatch(
      TestAudit(), 100,
      [](size_t item, const PoolState& state, PlanContext& context) {
        return Allocate(absl::StrCat("r", item), 1 << 28, static_cast<char>(item + 1))(state,
                                                                                       context);
      },
      [&](Outcomes got) { outcomes = std::move(got); });
  Ask("later", 101);
  executor.Advance(absl::Milliseconds(50));
  ASSERT_EQ(outcomes.size(), 100u);
  EXPECT_EQ(ReasonOf(outcomes.front().status()), "STORE_FULL");
  EXPECT_TRUE(outcomes.back().ok()) << outcomes.back().status();
  EXPECT_EQ(large.state().FindRegionById("r0"), nullptr);
  EXPECT_NE(large.state().FindRegionById("r99"), nullptr);
  EXPECT_EQ(reasons.count("OK"), 1u);
  EXPECT_TRUE(large.state().CheckInvariants().ok());
}

TEST_F(WriterTest, AFullStoreIsToldOfEachTimeAndOnceWhenItIsOver) {
  char request = 1;
  const auto allocate = [&](bool is_full) {
    if (is_full) {
      store.FailNextCommit({.status = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                                             "no space on /store", "make some")});
    }
    Submit(Allocate(absl::StrCat("r", static_cast<int>(request)), 1 << 28, request));
    ++request;
    executor.Advance(absl::Milliseconds(5));
  };
  for (const bool full : {false, true, true, false, false, true}) allocate(full);
  EXPECT_EQ(space, (std::vector<std::string>{"STORE_FULL", "STORE_FULL", "", "STORE_FULL"}));
  // A commit that changes nothing shows it, too.
  Submit([](const PoolState&, PlanContext&) -> absl::StatusOr<Proposal> {
    Proposal proposal;
    proposal.commits = true;
    return proposal;
  });
  executor.Advance(absl::Milliseconds(5));
  EXPECT_EQ(space.back(), "");
}

TEST_F(WriterTest, AnUnknownOutcomeEndsTheManager) {
  store.FailNextCommit({.status = absl::UnknownError("the disk hangs"), .applied = true});
  absl::StatusOr<Committed> answer = absl::UnknownError("");
  Submit(Allocate("a", 1 << 28, 1), &answer);
  executor.Advance(absl::Milliseconds(5));
  EXPECT_EQ(ReasonOf(answer.status()), "STORE_FAILED");
  EXPECT_FALSE(fatal.ok());
  Submit(Allocate("b", 1 << 28, 2), &answer);
  executor.Advance(absl::Milliseconds(5));
  EXPECT_EQ(ReasonOf(answer.status()), "STORE_FAILED");
}

TEST_F(WriterTest, IdsAreNeverGivenTwiceOverRestarts) {
  std::set<uint64_t> seen;
  for (int life = 0; life < 5; ++life) {
    MemoryStore again(disk, &executor, absl::Milliseconds(1));
    Writer next({}, &executor, &executor, &again, &views, &watch);
    next.Open({.on_committed = [](const auto&) {}, .on_fatal = [](const absl::Status&) {}},
              [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
    executor.RunReady();
    for (int i = 0; i < 3; ++i) {
      next.Submit(
          TestAudit(),
          [&seen](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
            EXPECT_TRUE(seen.insert(context.next_id()).second);
            return Proposal{};
          },
          [](const absl::StatusOr<Committed>&) {});
    }
    executor.Advance(absl::Milliseconds(10));
  }
  EXPECT_EQ(seen.size(), 15u);
}

// It is what the pool gave out before it was put back to an earlier state.
TEST_F(WriterTest, TheIdsOfAStrayAreNobodyElses) {
  uint64_t stray_id = 0;
  Submit([](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
    Host host;
    host.key = context.next_id();
    host.id = "host-a";
    host.identity = "cxlpool://host/host-a";
    return Proposal::Of(host, nullptr);
  });
  Submit([&](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
    auto stray = std::make_shared<Region>();
    stray->key = stray->generation = context.next_id();
    stray->id = "stray";
    stray->tag = context.make_tag();
    stray->state = RegionState::kQuarantined;
    stray->extents = {{Interned("cmm-0"), 0, uint64_t{256} << 20}};
    Attachment attachment;
    attachment.host = "host-a";
    attachment.held = true;
    attachment.generation = stray_id = stray->key + 100;
    Segment segment;
    segment.serial = kSerialBase | (stray_id + 1);
    attachment.segments.push_back(segment);
    stray->attachments.push_back(attachment);
    return Proposal::Of(RegionPtr(stray), stray);
  });
  std::set<uint64_t> given;
  Submit([&](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
    for (int i = 0; i < 200; ++i) given.insert(context.next_id());
    return Proposal{};
  });
  executor.Advance(absl::Milliseconds(10));
  EXPECT_NE(writer.state().FindRegionById("stray"), nullptr);
  EXPECT_EQ(given.size(), 200u);
  EXPECT_TRUE(given.contains(stray_id - 1));
  EXPECT_FALSE(given.contains(stray_id));
  EXPECT_FALSE(given.contains(stray_id + 1));
  EXPECT_TRUE(given.contains(stray_id + 2));
}

TEST_F(WriterTest, AFullQueueRefusesAtOnce) {
  Writer small({.max_queue = 2}, &executor, &executor, &store, &views, &watch);
  std::vector<std::string> reasons;
  for (int i = 0; i < 3; ++i) {
    small.Submit(
        TestAudit(), [](const PoolState&, PlanContext&) { return Proposal{}; },
        [&](const absl::StatusOr<Committed>& got) { reasons.push_back(ReasonOf(got.status())); });
  }
  EXPECT_EQ(reasons, (std::vector<std::string>{"QUEUE_FULL"}));
}

}  // namespace
}  // namespace cxlpool::fm
