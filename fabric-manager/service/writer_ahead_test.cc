// A Writer that plans the next group while its store is busy with one.
#include <gtest/gtest.h>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/service/writer.h"
#include "proto/support/refusal.h"
#include "test/rigs/manual_executor.h"
#include "test/rigs/writer_plans.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kOneGiB = uint64_t{1} << 30;

// Answers when the test says so.
class HeldStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  void Commit(StoreBatch batch, Done done) override {
    EXPECT_EQ(held_, nullptr) << "two commits at once";
    batches.push_back(batch);
    MemoryStore::Commit(std::move(batch),
                        [this, done = std::move(done)](absl::Status status) mutable {
                          if (!holds) return std::move(done)(std::move(status));
                          held_ = [done = std::move(done), status = std::move(status)]() mutable {
                            std::move(done)(std::move(status));
                          };
                        });
  }
  bool is_held() const { return held_ != nullptr; }
  void Release() { std::exchange(held_, nullptr)(); }

  bool holds = false;
  std::vector<StoreBatch> batches;

 private:
  absl::AnyInvocable<void()> held_;
};

// With one device of 4 GiB.
class AheadTest : public testing::Test {
 protected:
  void SetUp() override { Start(/*plan_ahead=*/1); }

  void Start(size_t plan_ahead) {
    writer = std::make_unique<Writer>(Writer::Options{.plan_ahead = plan_ahead}, &executor,
                                      &executor, &store, &views, &watch);
    writer->Open({.on_committed = [this](const auto& changes) { committed += changes.size(); },
                  .on_fatal = [this](absl::Status status) { fatal = std::move(status); }},
                 [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
    executor.RunReady();
    if (writer->state().FindDevice("cmm-0") == nullptr) Submit(AddDevice);
    executor.RunReady();
    writer->SetReachable({{"cmm-0", ""}});
    committed = 0;
    store.batches.clear();
    store.holds = true;
  }

  // Goes on until the store has the next commit, or there is nothing to do.
  void Submit(PlanFn plan, absl::StatusOr<Committed>* answer = nullptr) {
    writer->Submit(TestAudit(), std::move(plan), [answer](absl::StatusOr<Committed> got) {
      if (answer != nullptr) *answer = std::move(got);
    });
    executor.RunReady();
  }
  void Release() {
    store.Release();
    executor.RunReady();
  }
  bool IsShown(const std::string& id) const { return views.Get()->regions.Find(id) != nullptr; }
  uint64_t FreeBytes() const { return views.Get()->capacity.free_bytes; }

  // What each entry of the trail is about. Fails if its chain has a flaw.
  std::vector<std::string> Told() const {
    const AuditTrail::Kept kept = writer->trail().Read();
    for (const AuditFlaw& flaw : VerifyChain(kept.bounds, kept.rows)) ADD_FAILURE() << flaw.what;
    std::vector<std::string> told;
    for (const AuditRowPtr& row : kept.rows) {
      const auto entries = DecodeEntries(*row);
      EXPECT_TRUE(entries.ok()) << entries.status();
      for (const AuditEntry& entry : *entries) told.push_back(entry.target);
    }
    return told;
  }

  ManualExecutor executor;
  HeldStore store{std::make_shared<MemoryDisk>(), &executor};
  ViewHolder views;
  WatchHub watch;
  std::unique_ptr<Writer> writer;
  size_t committed = 0;
  absl::Status fatal;
};

// Gives the Region a reason; it has to be there.
PlanFn Explain(const std::string& id, const std::string& reason) {
  return [=](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
    auto changed = std::make_shared<Region>(**state.FindRegionById(id));
    changed->state_reason = reason;
    changed->revision = context.revision;
    return Proposal::Of(RegionPtr(std::move(changed)), nullptr);
  };
}

TEST_F(AheadTest, WhatIsPlannedMeanwhileIsSeenOnceItIsDurable) {
  absl::StatusOr<Committed> first = absl::UnknownError("");
  absl::StatusOr<Committed> second = absl::UnknownError("");
  Submit(Allocate("a", kOneGiB, 1), &first);
  Submit(Allocate("b", kOneGiB, 2), &second);
  EXPECT_NE(writer->state().FindRegionById("b"), nullptr);
  EXPECT_FALSE(IsShown("a"));

  Release();
  EXPECT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(committed, 1u);
  EXPECT_TRUE(IsShown("a"));
  EXPECT_FALSE(IsShown("b"));
  EXPECT_EQ(FreeBytes(), 3 * kOneGiB) << "the second is in nobody's numbers yet";
  EXPECT_EQ(views.Get()->revision, first->revision);
  EXPECT_FALSE(second.ok());
  EXPECT_EQ(Told().back(), "regions/a");

  Release();
  EXPECT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->revision, first->revision + 1);
  EXPECT_EQ(committed, 2u);
  EXPECT_TRUE(IsShown("b"));
  EXPECT_EQ(FreeBytes(), 2 * kOneGiB);
  EXPECT_EQ(Told().back(), "regions/b");
}

// A Region that is not there by then, an answer that needs no commit, and a refusal: they rest on
// the first commit, and are taken back with it.
TEST_F(AheadTest, WhatIsPlannedMeanwhileFailsWithTheCommitThatItRestsOn) {
  const std::vector<std::string> told = Told();
  store.FailNextCommit({.status = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                                         "no space", "make some")});
  absl::StatusOr<Committed> answers[4] = {absl::UnknownError(""), absl::UnknownError(""),
                                          absl::UnknownError(""), absl::UnknownError("")};
  Submit(Allocate("a", 3 * kOneGiB, 1), &answers[0]);
  Submit(Explain("a", "blue"), &answers[1]);
  Submit([](const PoolState&, PlanContext&) { return Proposal{}; }, &answers[2]);
  Submit(Allocate("b", 3 * kOneGiB, 2), &answers[3]);
  Release();
  for (const auto& answer : answers) EXPECT_EQ(ReasonOf(answer.status()), "STORE_FULL");
  EXPECT_TRUE(fatal.ok()) << fatal;
  EXPECT_FALSE(store.is_held()) << "nothing is left of them";
  EXPECT_EQ(committed, 0u);
  EXPECT_TRUE(writer->state().regions().empty());
  EXPECT_TRUE(writer->state().CheckInvariants().ok());
  EXPECT_EQ(FreeBytes(), 4 * kOneGiB);
  EXPECT_EQ(Told(), told);

  Submit(Allocate("c", kOneGiB, 3), &answers[0]);
  Release();
  EXPECT_TRUE(answers[0].ok()) << answers[0].status();
  EXPECT_TRUE(IsShown("c"));
  EXPECT_EQ(Told().size(), told.size() + 1);
}

TEST_F(AheadTest, AnAnswerThatNeedsNoCommitWaitsForTheOneItRestsOn) {
  absl::StatusOr<Committed> answer = absl::UnknownError("");
  Submit(Allocate("a", kOneGiB, 1));
  Submit(
      [](const PoolState& state, PlanContext&) -> absl::StatusOr<Proposal> {
        return Proposal{.change = {}, .region = *state.FindRegionById("a")};
      },
      &answer);
  EXPECT_FALSE(answer.ok());
  Release();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->region->id, "a");
  EXPECT_FALSE(store.is_held());
}

TEST_F(AheadTest, DurableIsWhatTheLastCommitLeft) {
  Submit(Allocate("a", kOneGiB, 1));
  Release();
  const Key key = (*writer->state().FindRegionById("a"))->key;
  const auto durable = [&] { return writer->Durable(key)->state_reason; };
  Submit(Explain("a", "blue"));
  Submit(Explain("a", "red"));
  EXPECT_EQ(durable(), "");
  EXPECT_FALSE(writer->IsDurable(key));
  Release();
  EXPECT_EQ(durable(), "blue");
  EXPECT_FALSE(writer->IsDurable(key));
  Release();
  EXPECT_EQ(durable(), "red");
  EXPECT_TRUE(writer->IsDurable(key));
}

// A fence that is only told of in the trail changes no record, but it has a revision.
TEST_F(AheadTest, NoViewIsOfARevisionThatIsPlanned) {
  Submit(Allocate("a", kOneGiB, 1));
  Audit fence = TestAudit();
  fence.target = "hosts/host-a";
  writer->Submit(
      std::move(fence), [](const PoolState&, PlanContext&) { return Proposal{}; },
      [](const absl::StatusOr<Committed>&) {});
  executor.RunReady();
  writer->SetReachable({{"cmm-0", "it was pulled"}});
  Release();
  EXPECT_EQ(views.Get()->revision, store.batches.front().revision);
  Release();
  EXPECT_EQ(views.Get()->revision, store.batches.back().revision);
  EXPECT_EQ(store.batches.size(), 2u);
  EXPECT_FALSE(views.Get()->devices->front().device.reachable);
}

// Why the fabric does not show a device is forgotten once it has a record, and not before.
TEST_F(AheadTest, AnUnseenDeviceIsSeenOnceItsRecordIsDurable) {
  Submit([](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
    DeviceEntry entry;
    entry.id = "cmm-1";
    return Proposal::Of(TopologyEntry{.key = context.next_id(), .what = entry}, nullptr);
  });
  Release();
  writer->SetReachable({{"cmm-1", "it is not there"}});
  const auto add = [this] {
    Submit([](const PoolState&, PlanContext& context) -> absl::StatusOr<Proposal> {
      return Proposal::Of(Device{.key = context.next_id(),
                                 .id = "cmm-1",
                                 .serial = "2",
                                 .capacity_bytes = kOneGiB,
                                 .granule_bytes = 256ull << 20},
                          nullptr);
    });
  };
  const auto is_unseen = [this] {
    const bool known = writer->UnseenDevices().contains("cmm-1");
    EXPECT_EQ(views.Get()->laid_down->unseen_devices.contains("cmm-1"), known);
    return known;
  };
  EXPECT_TRUE(is_unseen());
  store.FailNextCommit({.status = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                                         "no space", "make some")});
  add();
  EXPECT_TRUE(is_unseen());
  Release();
  EXPECT_TRUE(is_unseen());
  add();
  Release();
  EXPECT_FALSE(is_unseen());
}

// What is known without a record is shown with the second, whose state it is a part of.
TEST_F(AheadTest, WhatTheFabricSaysMeanwhileShowsNothingOfEither) {
  Submit(Allocate("a", kOneGiB, 1));
  Submit(Allocate("b", kOneGiB, 2));
  writer->SetReachable({{"cmm-0", "it was pulled"}});
  EXPECT_FALSE(IsShown("a"));
  EXPECT_TRUE(views.Get()->devices->front().device.reachable);
  Release();
  EXPECT_TRUE(IsShown("a"));
  EXPECT_FALSE(IsShown("b"));
  Release();
  EXPECT_TRUE(IsShown("b"));
  EXPECT_FALSE(views.Get()->devices->front().device.reachable);
}

TEST_F(AheadTest, AFewWaitUntilTheStoreIsFree) {
  store.holds = false;
  Start(/*plan_ahead=*/3);
  Submit(Allocate("a", 1 << 28, 1));
  Submit(Allocate("b", 1 << 28, 2));
  Submit(Allocate("c", 1 << 28, 3));
  EXPECT_EQ(writer->state().FindRegionById("b"), nullptr);
  Submit(Allocate("d", 1 << 28, 4));
  EXPECT_NE(writer->state().FindRegionById("b"), nullptr);
  EXPECT_NE(writer->state().FindRegionById("d"), nullptr);
  Release();
  Release();
  EXPECT_TRUE(IsShown("d"));
  EXPECT_EQ(store.batches.size(), 2u);
}

// Or the store would be idle while much is planned. Half as much as the commit before had is worth
// a commit.
TEST_F(AheadTest, PlanningEndsWithTheCommitOnceItIsWorthOne) {
  for (int i = 0; i < 4; ++i) {
    writer->Submit(
        TestAudit(),
        Allocate(std::string(1, static_cast<char>('a' + i)), 1 << 28, static_cast<char>(1 + i)),
        [](const absl::StatusOr<Committed>&) {});
  }
  executor.RunReady();  // Four in one commit.
  for (int i = 4; i < 8; ++i) {
    writer->Submit(
        TestAudit(),
        [this, i,
         plan = Allocate(std::string(1, static_cast<char>('a' + i)), 1 << 28,
                         static_cast<char>(1 + i))](const PoolState& state,
                                                    PlanContext& context) mutable {
          if (i == 4) store.Release();
          return std::move(plan)(state, context);
        },
        [](const absl::StatusOr<Committed>&) {});
  }
  executor.RunReady();
  const auto regions_of = [&](size_t batch) {
    return store.batches.at(batch).revision - store.batches.at(batch).base_revision;
  };
  EXPECT_EQ(regions_of(0), 4u);
  EXPECT_EQ(regions_of(1), 2u);
  Release();
  EXPECT_EQ(regions_of(2), 2u);
  Release();
  EXPECT_TRUE(IsShown("h"));
}

}  // namespace
}  // namespace cxlpool::fm
