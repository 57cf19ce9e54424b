#include "fabric-manager/service/writer.h"

#include <gtest/gtest.h>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "proto/support/manual_executor.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// A writer with one device, on a disk that tests can break.
class WriterTest : public testing::Test {
 protected:
  void SetUp() override {
    writer.Open({.on_committed = [this](const auto& changes) { committed += changes.size(); },
                 .on_fatal = [this](absl::Status status) { fatal = std::move(status); }},
                [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
    executor.RunReady();
    Submit([](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
      return Proposal::Of(Device{.key = context.next_id(),
                                 .id = "cmm-0",
                                 .serial = "1",
                                 .capacity_bytes = 4ull << 30,
                                 .granule_bytes = 256ull << 20},
                          nullptr);
    });
    executor.Advance(absl::Milliseconds(10));
    writer.SetReachable("cmm-0", true);
    committed = 0;
  }

  void Submit(PlanFn plan, absl::StatusOr<Committed>* answer = nullptr) {
    writer.Submit(Audit{{}, "test", "test", ""}, std::move(plan),
                  [answer](absl::StatusOr<Committed> got) {
                    if (answer != nullptr) *answer = std::move(got);
                  });
  }

  static PlanFn Allocate(const std::string& id, uint64_t size, char request) {
    AllocateSpec spec;
    spec.request = Request{{"test", "AllocateRegion", Uuid(std::string(16, request))}, 1};
    spec.region_id = id;
    spec.size_bytes = size;
    return [spec](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
      auto plan = PlanAllocate(state, spec, context);
      if (!plan.ok()) return plan.status();
      return Proposal{plan->change, plan->region};
    };
  }

  ManualExecutor executor;
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>();
  MemoryStore store{disk, &executor, absl::Milliseconds(1)};
  ViewHolder views;
  WatchHub watch;
  Writer writer{{}, &executor, &executor, &store, &views, &watch};
  size_t committed = 0;
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
  writer.SetReachable("cmm-0", true);
  EXPECT_EQ(views.Get()->regions.Find("a"), nullptr);
  executor.Advance(absl::Milliseconds(2));
  EXPECT_NE(views.Get()->regions.Find("a"), nullptr);
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
  store.FailNextCommit(
      {.status =
           Refusal{absl::StatusCode::kResourceExhausted, "STORE_FULL", "no space", "make some", {}}
               .ToStatus()});
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
          Audit{{}, "test", "test", ""},
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

TEST_F(WriterTest, AFullQueueRefusesAtOnce) {
  Writer small({.max_queue = 2}, &executor, &executor, &store, &views, &watch);
  std::vector<std::string> reasons;
  for (int i = 0; i < 3; ++i) {
    small.Submit(
        Audit{{}, "test", "test", ""}, [](const PoolState&, PlanContext&) { return Proposal{}; },
        [&](const absl::StatusOr<Committed>& got) { reasons.push_back(ReasonOf(got.status())); });
  }
  EXPECT_EQ(reasons, (std::vector<std::string>{"QUEUE_FULL"}));
}

}  // namespace
}  // namespace cxlpool::fm
