// A Writer that follows another manager's commits, and goes on where that one ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/service/record_codec.h"
#include "fabric-manager/service/writer.h"
#include "proto/support/loop.h"
#include "proto/support/refusal.h"
#include "test/rigs/manual_executor.h"
#include "test/rigs/writer_plans.h"

namespace cxlpool::fm {
namespace {

// Keeps what was committed.
class Recorder : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  void Commit(StoreBatch batch, Done done) override {
    batches.push_back(batch);
    MemoryStore::Commit(std::move(batch), std::move(done));
  }
  std::vector<StoreBatch> batches;
};

// Another has it until Give.
class Followed : public Store {
 public:
  void Follow(StoreFollower follower) override { follower_ = std::move(follower); }
  void Open(Done, DoneWith<StoreImage> done) override { opened_ = std::move(done); }
  void Commit(StoreBatch, Done done) override { std::move(done)(absl::OkStatus()); }
  void Backup(std::string, DoneWith<StoreBackup>) override {}

  void Show(StoreImage image) { follower_.on_image(std::move(image)); }
  void Show(const StoreBatch& batch) { follower_.on_batch(batch); }
  void Give(StoreImage image) { std::exchange(opened_, nullptr)(std::move(image)); }

 private:
  StoreFollower follower_;
  DoneWith<StoreImage> opened_;
};

// All bytes of the pool, then again under the same name, in one commit with the end of the first.
std::vector<StoreBatch> Commits() {
  ManualExecutor executor;
  Recorder store(std::make_shared<MemoryDisk>(), &executor, absl::Milliseconds(1));
  ViewHolder views;
  WatchHub watch;
  Writer writer({}, &executor, &executor, &store, &views, &watch);
  writer.Open({.on_committed = [](const auto&) {}, .on_fatal = [](const absl::Status&) {}},
              [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
  executor.RunReady();
  const auto submit = [&](PlanFn plan) {
    writer.Submit(TestAudit(), std::move(plan), [](const absl::StatusOr<Committed>& done) {
      EXPECT_TRUE(done.ok()) << done.status();
    });
  };
  submit(AddDevice);
  executor.Advance(absl::Milliseconds(10));
  writer.SetReachable({{"cmm-0", ""}});
  submit(Allocate("x", 4ull << 30, 1));
  executor.Advance(absl::Milliseconds(10));
  submit([](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
    auto last = std::make_shared<Region>(**state.FindRegionById("x"));
    last->revision = context.revision;
    return Proposal::Of(Tombstone{last, context.now}, nullptr);
  });
  submit(Allocate("x", 4ull << 30, 2));
  executor.Advance(absl::Milliseconds(10));
  submit(Allocate("y", 256ull << 20, 3));
  return store.batches;
}

// What one look of a standby that was away for some time finds.
StoreBatch AsOne(const std::vector<StoreBatch>& batches) {
  std::map<uint64_t, std::optional<std::string>> rows;
  for (const StoreBatch& batch : batches) {
    for (const Row& row : batch.puts) rows[row.key] = row.value;
    for (const uint64_t key : batch.erases) rows[key] = std::nullopt;
  }
  StoreBatch one = batches.back();
  one.puts.clear();
  one.erases.clear();
  // In no order.
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (row->second.has_value()) one.puts.push_back({row->first, *row->second});
    if (!row->second.has_value()) one.erases.push_back(row->first);
  }
  return one;
}

class WriterFollowTest : public testing::Test {
 protected:
  void SetUp() override {
    writer.Open({.on_committed = [](const auto&) {},
                 .on_fatal = [this](absl::Status status) { fatal = std::move(status); }},
                [this](absl::Status status) { opened.set_value(std::move(status)); });
    store.Show(StoreImage());
  }
  ~WriterFollowTest() override { loop.Stop(); }

  // The store, at this revision, is the Writer's from now on.
  void TakeOver(uint64_t revision) {
    store.Give({.epoch = 7,
                .revision = revision,
                .limits = {},
                .rows = {},
                .beat_interval = absl::Seconds(1)});
    ASSERT_TRUE(opened.get_future().get().ok());
    EXPECT_TRUE(writer.has_rivals());
  }

  SystemClock clock;
  Loop loop{"follow-test"};
  Followed store;
  ViewHolder views;
  WatchHub watch;
  Writer writer{{}, &loop, &clock, &store, &views, &watch};
  std::promise<absl::Status> opened;
  absl::Status fatal;
};

TEST_F(WriterFollowTest, ShowsWhatWasCommittedAndGoesOnFromThere) {
  const std::vector<StoreBatch> batches = Commits();
  ASSERT_EQ(batches.size(), 3u);
  for (const StoreBatch& batch : batches) {
    store.Show(batch);
    ASSERT_TRUE(fatal.ok()) << fatal;
  }
  EXPECT_NE(views.Get()->regions.Find("x"), nullptr);
  EXPECT_EQ(views.Get()->capacity.free_bytes, 0u);
  TakeOver(batches.back().revision);
  EXPECT_EQ(writer.epoch(), 7u);
  loop.Post([&] { writer.SetReachable({{"cmm-0", ""}}); });

  std::promise<std::string> refused, done;
  writer.Submit(TestAudit(), Allocate("z", 256ull << 20, 4),
                [&](const auto& answer) { refused.set_value(ReasonOf(answer.status())); });
  EXPECT_EQ(refused.get_future().get(), "POOL_FULL");
  // A request of before has its answer still.
  writer.Submit(TestAudit(), Allocate("x", 4ull << 30, 2),
                [&](const auto& answer) { done.set_value(ReasonOf(answer.status())); });
  EXPECT_EQ(done.get_future().get(), "");
}

TEST_F(WriterFollowTest, TakesManyCommitsAsOne) {
  const std::vector<StoreBatch> batches = Commits();
  store.Show(batches[0]);
  store.Show(batches[1]);
  store.Show(AsOne(batches));
  ASSERT_TRUE(fatal.ok()) << fatal;
  EXPECT_NE(views.Get()->regions.Find("x"), nullptr);
  EXPECT_EQ(views.Get()->capacity.free_bytes, 0u);
}

TEST_F(WriterFollowTest, AWatcherOfTheFormerManagerGoesOnWhereItWas) {
  const std::vector<StoreBatch> batches = Commits();
  store.Show(batches[0]);
  store.Show(batches[1]);  // What it saw last is of this one.
  store.Show(AsOne({batches[2]}));
  TakeOver(batches.back().revision);
  const auto events = watch.Read(batches[1].revision, 10);
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_EQ(events->size(), 2u);
  EXPECT_TRUE(events->at(0).removed);
  EXPECT_EQ(events->at(0).revision, batches[1].revision + 1);
  EXPECT_EQ(events->at(1).region->id, "x");
  EXPECT_EQ(events->at(1).revision, batches[2].revision);
  EXPECT_TRUE(watch.Read(batches.back().revision, 10).ok());
}

// A Region is gone, and no tombstone says how it ended.
TEST_F(WriterFollowTest, AWatcherBeginsAnewWhereTheEndOfARegionWasForgotten) {
  const std::vector<StoreBatch> batches = Commits();
  store.Show(batches[0]);
  store.Show(batches[1]);
  StoreBatch later = batches[2];
  std::erase_if(later.puts, [&](const Row& row) {
    auto record = DecodeRecord(row.key, row.value);
    const Item* item = record.ok() ? std::get_if<Item>(&*record) : nullptr;
    const bool is = item != nullptr && std::holds_alternative<Tombstone>(*item);
    if (is) later.erases.push_back(row.key);
    return is;
  });
  store.Show(later);
  ASSERT_TRUE(fatal.ok()) << fatal;
  EXPECT_EQ(ReasonOf(watch.Read(batches[1].revision, 10).status()), "REVISION_COMPACTED");
}

// The records of one commit come in no order.
TEST_F(WriterFollowTest, AnIdentityMayGoOverToAnotherHostInOneCommit) {
  const auto host = [](const std::string& id, const std::string& identity, bool retired = false) {
    const Key key = id == "a" ? 10 : id == "b" ? 11 : 12;
    return Row{
        key,
        EncodeItem(Host{
            .key = key, .id = id, .identity = "spiffe://rack/" + identity, .retired = retired})};
  };
  uint64_t revision = 0;
  const auto show = [&](std::vector<Row> puts) {
    store.Show(StoreBatch{.base_revision = revision,
                          .revision = revision + 1,
                          .puts = std::move(puts),
                          .erases = {}});
    ++revision;
  };
  const auto owner = [&](const std::string& identity) {
    std::promise<std::string> answer;
    loop.Post([&] {
      const Host* found = writer.state().FindHostByIdentity("spiffe://rack/" + identity);
      answer.set_value(found == nullptr ? "" : found->id);
    });
    return answer.get_future().get();
  };
  show({host("a", "1"), host("b", "2")});
  ASSERT_TRUE(fatal.ok()) << fatal;
  show({host("c", "1"), host("a", "1", /*retired=*/true)});
  ASSERT_TRUE(fatal.ok()) << fatal;
  EXPECT_EQ(owner("1"), "c");
  show({host("a", "1"), host("c", "1", /*retired=*/true)});
  ASSERT_TRUE(fatal.ok()) << fatal;
  EXPECT_EQ(owner("1"), "a");
  show({host("a", "2"), host("b", "1")});
  ASSERT_TRUE(fatal.ok()) << fatal;
  EXPECT_EQ(owner("1"), "b");
  EXPECT_EQ(owner("2"), "a");
  show({host("a", "1"), host("b", "1")});  // No order makes that sound.
  EXPECT_FALSE(fatal.ok());
}

// One row of the audit trail was altered. What comes after it is followed all the same, and goes
// on.
TEST_F(WriterFollowTest, AFlawInTheTrailIsNoReasonNotToFollowTheRest) {
  std::vector<StoreBatch> batches = Commits();
  for (Row& row : batches[0].puts) {
    auto record = DecodeRecord(row.key, row.value);
    Item* item = record.ok() ? std::get_if<Item>(&*record) : nullptr;
    const auto* audit = item == nullptr ? nullptr : std::get_if<AuditRowPtr>(item);
    if (audit == nullptr) continue;
    AuditRow altered = **audit;
    AuditEntry nobody;
    nobody.who = "nobody";
    altered.bytes = EncodeEntries({nobody});
    row.value = EncodeItem(std::make_shared<const AuditRow>(altered));
  }
  for (const StoreBatch& batch : batches) store.Show(batch);
  ASSERT_TRUE(fatal.ok()) << fatal;
  EXPECT_FALSE(writer.meters().audit_chain_ok);
  const AuditTrail::Kept kept = writer.trail().Read();
  ASSERT_EQ(kept.rows.size(), batches.size());
  EXPECT_EQ(kept.bounds.head, kept.rows.back()->head);
  EXPECT_EQ(VerifyChain(kept.bounds, kept.rows).size(), 1u) << "the one that was there";
}

TEST_F(WriterFollowTest, StartsAnewWhereItCannotFollow) {
  const std::vector<StoreBatch> batches = Commits();
  StoreBatch broken = batches[1];
  store.Show(broken);  // The device is not known.
  EXPECT_FALSE(fatal.ok());
}

TEST_F(WriterFollowTest, StartsAnewWhereAllIsToBeReadAgain) {
  store.Show(StoreImage());
  EXPECT_TRUE(absl::IsUnavailable(fatal)) << fatal;
}

}  // namespace
}  // namespace cxlpool::fm
