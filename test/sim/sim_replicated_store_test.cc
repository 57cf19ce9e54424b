// The store that two managers share: who may have it, and what becomes of transactions whose
// outcome nobody heard.
#include "test/sim/sim_replicated_store.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>

#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

class SimReplicatedStoreTest : public testing::Test {
 protected:
  // One process that wants the store, and what it knows of it.
  struct Manager {
    Manager(Scheduler* scheduler, LifeId of) : life(of), executor(scheduler, of) {}

    const LifeId life;
    SimExecutor executor;
    std::map<uint64_t, std::string> rows;  // As it was told.
    uint64_t revision = 0;
    int images = 0, batches = 0;
    std::optional<fm::StoreImage> opened;
    int64_t opened_us = 0;
    std::optional<absl::Status> lost;
    bool ended = false;  // By its own timer.
    std::unique_ptr<SimReplicatedStore> store;
  };

  std::unique_ptr<Manager> Start() {
    auto made = std::make_unique<Manager>(&scheduler, scheduler.Begin());
    Manager* const m = made.get();
    m->store = std::make_unique<SimReplicatedStore>(
        SimReplicatedStore::World{&scheduler, &etcd, &shelf, &faults, &met}, &m->executor,
        Random(++seed), [this, m] {
          m->ended = true;
          scheduler.End(m->life);
        });
    m->store->Follow({.on_owner = nullptr,
                      .on_image =
                          [m](fm::StoreImage image) {
                            ++m->images;
                            m->rows.clear();
                            for (fm::Row& row : image.rows) m->rows[row.key] = row.value;
                            m->revision = image.revision;
                          },
                      .on_batch =
                          [m](fm::StoreBatch batch) {
                            ++m->batches;
                            EXPECT_EQ(batch.base_revision, m->revision);
                            for (fm::Row& row : batch.puts) m->rows[row.key] = row.value;
                            m->revision = batch.revision;
                          }});
    m->store->Open([m](absl::Status why) { m->lost = std::move(why); },
                   [this, m](absl::StatusOr<fm::StoreImage> image) {
                     ASSERT_TRUE(image.ok()) << image.status();
                     m->opened = *std::move(image);
                     m->opened_us = scheduler.now_us();
                     Beat(*m);
                   });
    return made;
  }
  // As the Writer does.
  void Beat(Manager& m) {
    m.store->Beat();
    scheduler.At(m.life, kBeatUs, [this, &m] { Beat(m); });
  }
  void Kill(Manager& m) { scheduler.End(m.life); }
  void Run(int64_t for_us) { scheduler.RunUntil(scheduler.now_us() + for_us); }

  fm::StoreBatch Put(const Manager& m, uint64_t base, uint64_t key) {
    return {m.opened->epoch, base, base + 1, {{key, std::to_string(base + 1)}}, {}};
  }
  // Runs until it is answered, for at most some seconds.
  absl::Status Commit(Manager& m, uint64_t base, uint64_t key) {
    auto answer = std::make_shared<std::optional<absl::Status>>();
    m.store->Commit(Put(m, base, key), [answer](absl::Status s) { *answer = std::move(s); });
    for (int i = 0; i < 500 && !answer->has_value(); ++i) Run(10'000);
    return answer->value_or(absl::UnknownError("none"));
  }
  uint64_t OnDisk() { return disk->revision(); }

  Scheduler scheduler;
  std::shared_ptr<fm::MemoryDisk> disk = std::make_shared<fm::MemoryDisk>();
  SimEtcd etcd{&scheduler, disk};
  RecordShelf shelf;
  StoreFaults faults;
  StoreMet met;
  uint64_t seed = 0;
};

TEST_F(SimReplicatedStoreTest, AClaimComparesAllThatWasSeen) {
  ASSERT_TRUE(etcd.Claim({}, 1));
  const SimEtcd::Signs seen = etcd.now();
  EXPECT_FALSE(etcd.Claim({}, 2));
  ASSERT_TRUE(etcd.Beat(seen.epoch));
  EXPECT_FALSE(etcd.Claim(seen, 2));  // The owner gave a sign of life.
  const SimEtcd::Signs later = etcd.now();
  ASSERT_TRUE(etcd.Commit({seen.epoch, 0, 1, {{1, "a"}}, {}}));
  EXPECT_FALSE(etcd.Claim(later, 2));  // And here a commit.
  ASSERT_TRUE(etcd.Claim(etcd.now(), 2));
  EXPECT_FALSE(etcd.Beat(seen.epoch));
  EXPECT_FALSE(etcd.Commit({seen.epoch, 1, 2, {{1, "b"}}, {}}));
  EXPECT_EQ(etcd.takeovers(), 1u);
}

TEST_F(SimReplicatedStoreTest, OfTwoThatComeFirstOneHasIt) {
  for (int i = 0; i < 20; ++i) {
    const auto a = Start();
    const auto b = Start();
    Run(3 * kTakeoverUs);
    EXPECT_NE(a->opened.has_value(), b->opened.has_value());
    Kill(*a);
    Kill(*b);
  }
}

TEST_F(SimReplicatedStoreTest, AStandbyKnowsAllWhenItTakesOver) {
  const auto a = Start();
  Run(10'000);
  ASSERT_TRUE(a->opened.has_value());
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(Commit(*a, i, i).ok());
  const auto b = Start();
  Run(200'000);
  for (uint64_t i = 5; i < 10; ++i) ASSERT_TRUE(Commit(*a, i, i).ok());
  // On its way when its sender dies: carried out all the same.
  a->store->Commit(Put(*a, 10, 10), nullptr);
  const int64_t killed_us = scheduler.now_us();
  Kill(*a);
  Run(3 * kTakeoverUs);
  ASSERT_TRUE(b->opened.has_value());
  EXPECT_GE(b->opened_us - killed_us, kTakeoverUs - kBeatUs);
  EXPECT_EQ(b->opened->epoch, 2u);
  EXPECT_EQ(b->opened->revision, 11u);
  EXPECT_TRUE(b->opened->rows.empty());
  EXPECT_EQ(b->rows.size(), 11u);
  EXPECT_EQ(b->images, 1);
  EXPECT_GT(b->batches, 0);
  EXPECT_TRUE(Commit(*b, 11, 1).ok());
}

TEST_F(SimReplicatedStoreTest, AnIdleLeaderStays) {
  faults.troubled = true;
  const auto a = Start();
  Run(20 * kLookUs);
  ASSERT_TRUE(a->opened.has_value());
  const auto b = Start();
  Run(60'000'000);
  EXPECT_FALSE(b->opened.has_value());
  EXPECT_FALSE(a->ended);
}

TEST_F(SimReplicatedStoreTest, WhoStoodStillIsFencedAndEnds) {
  const auto a = Start();
  Run(10'000);
  ASSERT_TRUE(Commit(*a, 0, 1).ok());
  const auto b = Start();
  Run(200'000);
  scheduler.Pause(a->life, scheduler.now_us() + 3 * kTakeoverUs);
  Run(3 * kTakeoverUs - 1);
  ASSERT_TRUE(b->opened.has_value());
  ASSERT_TRUE(Commit(*b, 1, 2).ok());
  EXPECT_FALSE(a->store->IsOurs());
  Run(1);
  EXPECT_FALSE(a->ended);  // Its timer stood still, too.
  EXPECT_EQ(ReasonOf(Commit(*a, 1, 3)), "STORE_FENCED");
  EXPECT_EQ(etcd.now().revision, 2u);
  Run(kOwnTermUs);
  EXPECT_TRUE(a->ended);
  EXPECT_TRUE(a->lost.has_value());
}

TEST_F(SimReplicatedStoreTest, WhoIsCutOffEndsBeforeTheNextOneComes) {
  for (const bool done : {false, true}) {
    const auto a = Start();
    Run(2 * kTakeoverUs);
    ASSERT_TRUE(a->opened.has_value());
    const auto b = Start();
    Run(200'000);
    faults.next = done ? StoreFaults::Next::kFailsDone : StoreFaults::Next::kFailsNotDone;
    a->store->Commit(Put(*a, OnDisk(), 1), nullptr);
    while (!a->ended) Run(1'000);
    EXPECT_FALSE(b->opened.has_value());
    Run(kTakeoverUs);
    ASSERT_TRUE(b->opened.has_value());
    EXPECT_EQ(b->rows.size(), done ? 1u : 0u);
    Kill(*b);
  }
}

// Lost, late and doubled: each commit that was answered was carried out once, in its order.
TEST_F(SimReplicatedStoreTest, AnOutcomeThatWasNotHeardIsFoundOut) {
  faults.troubled = true;
  const auto a = Start();
  Run(20 * kLookUs);
  const auto b = Start();
  for (uint64_t i = 0; i < 1'000; ++i) {
    ASSERT_TRUE(Commit(*a, i, i).ok()) << i;
    ASSERT_EQ(OnDisk(), i + 1);
  }
  Run(kTakeoverUs / 2);
  EXPECT_EQ(b->revision, 1'000u);
  std::map<uint64_t, std::string> rows;
  for (fm::Row& row : disk->Read().rows) rows[row.key] = row.value;
  EXPECT_EQ(b->rows, rows);
  EXPECT_GT(met.lost, 0u);
  EXPECT_GT(met.found_out, 0u);
  EXPECT_GT(met.doubled, 0u);
}

TEST_F(SimReplicatedStoreTest, WhoIsFarBehindReadsAllAgain) {
  const auto a = Start();
  Run(10'000);
  const auto b = Start();
  Run(200'000);
  EXPECT_EQ(b->images, 1);
  scheduler.Pause(b->life, scheduler.now_us() + 20'000'000);
  for (uint64_t i = 0; i < 400; ++i) ASSERT_TRUE(Commit(*a, i, i).ok());
  Run(20'000'000);
  EXPECT_EQ(b->images, 2);
  EXPECT_EQ(b->rows.size(), 400u);
}

}  // namespace
}  // namespace cxlpool::sim
