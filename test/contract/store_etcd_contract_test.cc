// The Store on etcd: the contract of every Store, and what members that end or hang do to it.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "etcd/v3/kv.pb.h"
#include "fabric-manager/adapters/store_etcd/etcd_client.h"
#include "fabric-manager/adapters/store_etcd/etcd_layout.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"
#include "test/contract/etcd_harness.h"
#include "test/contract/store_contract.h"
#include "test/rigs/etcd_cluster.h"

namespace cxlpool::fm {
namespace {

// Three members for all tests: each has keys of its own.
EtcdCluster& Cluster() {
  static EtcdCluster cluster(3);
  return cluster;
}

// Small: it folds often.
class EtcdHarness : public EtcdStoreHarness {
 public:
  explicit EtcdHarness(uint64_t fold_bytes = 64 << 10, uint64_t fold_step_bytes = 1 << 20)
      : EtcdStoreHarness(Options(fold_bytes, fold_step_bytes)) {}

 private:
  static EtcdStoreOptions Options(uint64_t fold_bytes, uint64_t fold_step_bytes) {
    static int pools = 0;
    EtcdStoreOptions options;
    options.prefix = absl::StrCat("/pool-", ++pools, "/");
    options.etcd.endpoints = Cluster().endpoints();
    options.fold_bytes = fold_bytes;
    options.fold_step_bytes = fold_step_bytes;
    options.history = absl::ZeroDuration();  // What is replaced cannot be read any more.
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Etcd, StoreContractTest,
                         ::testing::Values(StoreContractParam{
                             "Etcd", [] { return std::make_unique<EtcdHarness>(); }}),
                         [](const auto& info) { return info.param.name; });

// What the store should hold.
using Model = StoreRows;

// A random change of `model` and of the store behind `client`.
absl::Status ChangeBoth(StoreClient& client, Model& model, std::minstd_rand& random) {
  std::vector<Row> puts;
  std::vector<uint64_t> erases;
  for (unsigned i = random() % 20; i > 0; --i) {
    puts.push_back({1 + random() % 500, Noise(random() % 3000, static_cast<unsigned>(random()))});
  }
  for (unsigned i = random() % 4; i > 0; --i) erases.push_back(1 + random() % 500);
  Model changed = model;
  for (const Row& row : puts) changed[row.key] = row.value;
  for (const uint64_t key : erases) changed.erase(key);
  absl::Status status = client.CommitNext(std::move(puts), std::move(erases));
  if (status.ok()) model = std::move(changed);
  return status;
}

// One member is killed or stopped at a time, the leader's turn among them; once two are.
TEST(EtcdStoreTest, EveryCommitIsAnsweredWhileMembersFail) {
  EtcdHarness harness;
  std::minstd_rand random(20261127);
  Model model;
  int commits = 0;
  for (int round = 0; round < 8; ++round) {
    StoreClient client(harness.Make());
    const auto image = client.Open();
    ASSERT_TRUE(image.ok()) << image.status();
    ASSERT_EQ(RowsOf(*image), model) << "round " << round;
    const int member = round % 3;
    const bool hangs = round % 2 == 0;
    const int more = round == 7 ? (member + 1) % 3 : -1;  // Then there is no quorum.
    for (const int one : {member, more}) {
      if (one < 0) continue;
      if (hangs) {
        Cluster().Signal(one, SIGSTOP);
      } else {
        Cluster().Kill(one);
      }
    }
    std::thread committing([&] {
      const absl::Time until = absl::Now() + absl::Milliseconds(2500);
      while (absl::Now() < until) {
        const absl::Status status = ChangeBoth(client, model, random);
        EXPECT_TRUE(status.ok()) << "round " << round << ": " << status;
        if (!status.ok()) break;
        ++commits;
      }
    });
    absl::SleepFor(absl::Milliseconds(1500));
    for (const int one : {member, more}) {
      if (one < 0) continue;
      if (hangs) {
        Cluster().Signal(one, SIGCONT);
      } else {
        Cluster().Start(one);
      }
    }
    committing.join();
  }
  StoreClient client(harness.Make());
  const auto image = client.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), model);
  EXPECT_GT(commits, 100);
}

// A fold's transaction takes so many packs, and so many bytes, whatever the records are like.
TEST(EtcdStoreTest, RecordsOfAnySizeAreFolded) {
  for (const size_t size : {size_t{300}, size_t{2'300}, size_t{4'010}, size_t{8'100},
                            size_t{300'000}, size_t{1'000'000}}) {
    EtcdHarness harness(/*fold_bytes=*/1);
    StoreClient client(harness.Make());
    ASSERT_TRUE(client.Open().ok());
    const auto rows = [&](uint64_t first, uint64_t count, unsigned seed) {
      std::vector<Row> some;
      count = std::min<uint64_t>(count, 3'000'000 / size);
      for (uint64_t key = first; key < first + count; ++key) {
        some.push_back({2 * key, Noise(size, seed + static_cast<unsigned>(key))});
      }
      return some;
    };
    Model model;
    // New ones, most of them anew and many more, and some between two that are there.
    for (auto& change : {rows(1, 60, 0), rows(1, 49, 1000), rows(61, 130, 0), rows(3, 300, 2000)}) {
      for (const Row& row : change) model[row.key] = row.value;
      ASSERT_TRUE(client.CommitNext(change).ok()) << size;
    }
    for (auto& [key, value] : model) {
      if (key % 20 != 0) continue;
      ASSERT_TRUE(client.CommitNext({{key - 1, "between"}}, {key}).ok()) << size;
    }
    for (uint64_t key = 20; key < 700; key += 20) {
      if (model.erase(key) != 0) model[key - 1] = "between";
    }
    StoreClient next(harness.Make());
    const auto image = next.Open();
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_TRUE(RowsOf(*image) == model) << size;
  }
}

TEST(EtcdStoreTest, MoreLargeRecordsThanOneAnswerTakesAreRead) {
  EtcdHarness harness(/*fold_bytes=*/1);
  StoreClient client(harness.Make());
  ASSERT_TRUE(client.Open().ok());
  Model model;
  for (uint64_t key = 1; key <= 80; ++key) {
    model[key] = Noise(1'000'000, static_cast<unsigned>(key));
    ASSERT_TRUE(client.CommitNext({{key, model[key]}}).ok());
  }
  StoreClient next(harness.Make());
  const auto image = next.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_TRUE(RowsOf(*image) == model);
}

// As an owner leaves them that ends between two pieces. The next change of that revision has fewer.
TEST(EtcdStoreTest, PiecesOfACommitThatNeverWasAreNobodys) {
  EtcdHarness harness;
  {
    StoreClient client(harness.Make());
    ASSERT_TRUE(client.Open().ok());
    ASSERT_TRUE(client.CommitNext({{1, "one"}}).ok());
  }
  const auto etcd = EtcdClient::Make(harness.options().etcd);
  ASSERT_TRUE(etcd.ok()) << etcd.status();
  for (const uint64_t piece : {0, 1, 2}) {
    etcdserverpb::TxnRequest txn;
    auto& put = *txn.add_success()->mutable_request_put();
    put.set_key(EtcdKeys(harness.options().prefix).Log(2, piece));
    put.set_value("a piece");
    ASSERT_TRUE((*etcd)->Txn(txn).ok());
  }
  StoreClient next(harness.Make());
  ASSERT_TRUE(next.Open().ok());
  ASSERT_TRUE(next.CommitNext({{2, "two"}}).ok());
  StoreClient last(harness.Make());
  const auto image = last.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), (Model{{1, "one"}, {2, "two"}}));
}

// Each is opened while the one before commits: what that was answered is there, and nothing else.
TEST(EtcdStoreTest, WhoOpensItLastHasItAndLosesNothing) {
  EtcdHarness harness(/*fold_bytes=*/60'000, /*fold_step_bytes=*/1);
  std::minstd_rand random(7);
  Model model;
  auto owner = std::make_unique<StoreClient>(harness.Make());
  ASSERT_TRUE(owner->Open().ok());
  for (int round = 0; round < 20; ++round) {
    absl::Status end;
    std::atomic<bool> stop = false;
    std::thread committing([&] {
      std::minstd_rand own(static_cast<unsigned>(round) + 1);
      while ((end = ChangeBoth(*owner, model, own)).ok() && !stop) {
        absl::SleepFor(absl::Milliseconds(own() % 300));
      }
    });
    absl::SleepFor(absl::Milliseconds(random() % 100));
    std::unique_ptr<StoreClient> next;
    absl::StatusOr<StoreImage> image = absl::UnavailableError("");
    const absl::Time until = absl::Now() + absl::Seconds(60);
    while (absl::IsUnavailable(image.status()) && absl::Now() < until) {
      // The other one was faster each time.
      next = std::make_unique<StoreClient>(harness.Make());
      image = next->Open();
    }
    if (!image.ok()) stop = true;
    committing.join();
    EXPECT_EQ(ReasonOf(end), "STORE_FENCED") << end;
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(RowsOf(*image), model) << "round " << round;
    owner = std::move(next);
  }
}

// The owner folds its log once another has read it: the reader must not claim what is not there.
TEST(EtcdStoreTest, AClaimKnowsWhatWasFoldedMeanwhile) {
  EtcdHarness harness(/*fold_bytes=*/1 << 30, /*fold_step_bytes=*/1);
  std::minstd_rand random(3);
  Model model;
  StoreClient owner(harness.Make());
  ASSERT_TRUE(owner.Open().ok());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(ChangeBoth(owner, model, random).ok());
  OwnersFold fold(harness.options());
  int claims = 0;
  harness.options().before_claim = [&] {
    if (++claims == 1) {
      EXPECT_TRUE(fold.Run().ok());
    }
  };
  harness.options().fold_bytes = 1;
  StoreClient next(harness.Make());
  harness.options().before_claim = nullptr;
  auto image = next.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), model);
  EXPECT_EQ(claims, 2);
  // The second of these waits until all before it is folded.
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(ChangeBoth(next, model, random).ok());
  StoreClient last(harness.Make());
  image = last.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), model);
}

// What a standby has heard of the store.
struct Standby {
  explicit Standby(std::unique_ptr<Store> store) : client(std::move(store)) {
    client.store().Follow({.on_owner =
                               [this](const StoreOwner& seen) {
                                 MutexLock lock(mutex);
                                 owner = seen;
                               },
                           .on_image =
                               [this](const StoreImage& image) {
                                 MutexLock lock(mutex);
                                 rows = RowsOf(image);
                                 ++images;
                               },
                           .on_batch =
                               [this](StoreBatch batch) {
                                 MutexLock lock(mutex);
                                 for (Row& row : batch.puts) rows[row.key] = std::move(row.value);
                                 for (const uint64_t key : batch.erases) rows.erase(key);
                                 ++batches;
                               }});
    opening = client.StartOpen();
  }

  bool is_waiting() const {
    return opening.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  }

  absl::StatusOr<StoreImage> Wait() { return client.WaitOpen(opening); }

  Mutex mutex;
  StoreOwner owner ABSL_GUARDED_BY(mutex);
  Model rows ABSL_GUARDED_BY(mutex);
  int images ABSL_GUARDED_BY(mutex) = 0;
  int batches ABSL_GUARDED_BY(mutex) = 0;
  StoreClient client;  // Calls the above until it ends.
  std::future<absl::StatusOr<StoreImage>> opening;
};

// Sanitizers are slow, and an owner is to have the time for its signs of life.
#ifdef CXLPOOL_SANITIZED
constexpr absl::Duration kTakeover = absl::Seconds(5);
#else
constexpr absl::Duration kTakeover = absl::Milliseconds(1500);
#endif

// An owner that commits, idles and folds keeps the store for as long as it gives signs of life; the
// standby has every change. Then the owner is silent.
TEST(EtcdStoreTest, AStandbyFollowsAndTakesOverOnceTheOwnerIsSilent) {
  for (const uint64_t fold_bytes : {uint64_t{200'000}, uint64_t{1}}) {
    EtcdHarness harness(fold_bytes, /*fold_step_bytes=*/100'000);
    harness.options().takeover = kTakeover;
    harness.options().address = "first:7600";
    SystemClock clock;
    std::atomic<int64_t> until = 0;  // ms
    harness.options().owned_until = [&](absl::Duration owned) {
      until = owned / absl::Milliseconds(1);
    };
    std::minstd_rand random(static_cast<unsigned>(fold_bytes));
    Model model;
    StoreClient owner(harness.Make());
    ASSERT_TRUE(owner.Open().ok());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(ChangeBoth(owner, model, random).ok());

    harness.options().owned_until = nullptr;
    harness.options().address = "";
    Standby standby(harness.Make());
    const absl::Duration end = clock.Elapsed() + 2 * kTakeover;
    while (clock.Elapsed() < end) {
      if (random() % 4 == 0) {
        absl::SleepFor(kTakeover / 5);
        owner.store().Beat();
      } else {
        ASSERT_TRUE(ChangeBoth(owner, model, random).ok());
      }
    }
    ASSERT_TRUE(standby.is_waiting()) << "an owner that lives was deposed";
    const absl::Duration silent = clock.Elapsed();
    const auto image = standby.Wait();
    const absl::Duration took = clock.Elapsed() - silent;
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_GT(clock.Elapsed(), absl::Milliseconds(until.load()))
        << "the owner may take the store for its own still";
    EXPECT_LT(took, 2 * kTakeover);  // How fast it is, cxlpool-ha-trials says.
    EXPECT_TRUE(image->rows.empty());
    EXPECT_EQ(image->revision, owner.revision());
    EXPECT_GT(image->epoch, owner.epoch());
    {
      MutexLock lock(standby.mutex);
      EXPECT_EQ(standby.rows, model);
      EXPECT_EQ(standby.owner.address, "first:7600");
      EXPECT_EQ(standby.owner.epoch, owner.epoch());
      EXPECT_EQ(standby.owner.revision, owner.revision());
      // Where the log is folded at once, all is read again and again.
      EXPECT_GT(fold_bytes == 1 ? standby.images - 1 : standby.batches, 0);
    }
    EXPECT_EQ(ReasonOf(owner.CommitNext({{1, "too late"}})), "STORE_FENCED");

    // What it took over can be folded and read by the next.
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(ChangeBoth(standby.client, model, random).ok());
    harness.options().takeover = absl::ZeroDuration();
    StoreClient last(harness.Make());
    const auto all = last.Open();
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(RowsOf(*all), model);
  }
}

// It is twice as large as the log that is left between two commits, so the owner folds it at once
// while the standby reads it. Either works on all of it meanwhile, which takes a busy machine many
// seconds, so nothing is made of silence.
TEST(EtcdStoreTest, AStandbyFollowsThroughACommitOfExactlyTheLimits) {
  const absl::Duration patient = absl::Minutes(1);
  const auto as_run = EtcdStoreOptions();
  EtcdHarness harness;
  const StoreLimits limits = harness.options().limits;
  harness.options().fold_bytes = limits.max_batch_bytes / 2;
  harness.options().fold_step_bytes = as_run.fold_step_bytes;
  harness.options().history = as_run.history;
  harness.options().takeover = patient;
  auto owner = std::make_unique<StoreClient>(harness.Make());
  ASSERT_TRUE(owner->Open().ok());
  ASSERT_TRUE(owner->CommitNext({{1, "before"}}).ok());
  // Made before somebody else waits for the owner's next sign of life.
  std::vector<Row> rows = LargestBatch(limits);
  Model model;
  for (const Row& row : rows) model[row.key] = row.value;
  Standby standby(harness.Make());
  const auto knows = [&](size_t count) {
    MutexLock lock(standby.mutex);
    return standby.rows.size() == count;
  };
  const auto wait_until_it_knows = [&](size_t count) {
    const absl::Time end = absl::Now() + absl::Seconds(120);
    while (!knows(count) && absl::Now() < end) {
      owner->store().Beat();
      absl::SleepFor(kTakeover / 5);
    }
    return knows(count);
  };
  ASSERT_TRUE(wait_until_it_knows(1));

  const absl::Status largest = owner->CommitNext(std::move(rows));
  ASSERT_TRUE(largest.ok()) << largest;
  model[limits.max_batch_rows + 1] = "after";
  ASSERT_TRUE(owner->CommitNext({{limits.max_batch_rows + 1, "after"}}).ok());
  ASSERT_TRUE(wait_until_it_knows(model.size()));
  ASSERT_TRUE(standby.is_waiting()) << "an owner that lives was deposed";
  const uint64_t revision = owner->revision();
  owner = nullptr;  // It lets go, however much is left to be folded.
  const auto image = standby.Wait();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_TRUE(image->rows.empty());
  EXPECT_EQ(image->revision, revision);
  MutexLock lock(standby.mutex);
  EXPECT_TRUE(standby.rows == model);
}

TEST(EtcdStoreTest, OneOfTwoThatFindNothingHasItAndTheOtherFollows) {
  EtcdHarness harness;
  harness.options().takeover = kTakeover;
  Standby first(harness.Make());
  ASSERT_TRUE(first.Wait().ok());
  Standby second(harness.Make());
  std::minstd_rand random(1);
  Model model;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(ChangeBoth(first.client, model, random).ok());
    absl::SleepFor(kTakeover / 5);
    EXPECT_TRUE(second.is_waiting());
  }
  MutexLock lock(second.mutex);
  EXPECT_EQ(second.rows, model);
}

TEST(EtcdStoreTest, AStandbyDoesNotWaitForOneThatLetGo) {
  EtcdHarness harness;
  harness.options().takeover = kTakeover;
  Model model;
  std::minstd_rand random(1);
  auto owner = std::make_unique<StoreClient>(harness.Make());
  ASSERT_TRUE(owner->Open().ok());
  Standby standby(harness.Make());
  ASSERT_TRUE(ChangeBoth(*owner, model, random).ok());
  ASSERT_TRUE(standby.is_waiting());
  const absl::Time gone = absl::Now();
  owner = nullptr;
  ASSERT_TRUE(standby.Wait().ok());
  EXPECT_LT(absl::Now() - gone, kTakeover / 2);
  MutexLock lock(standby.mutex);
  EXPECT_EQ(standby.rows, model);
}

// A sign of life comes between the last look and the claim: the owner keeps the store.
TEST(EtcdStoreTest, AClaimComparesTheLastSignOfLife) {
  EtcdHarness harness;
  harness.options().takeover = kTakeover;
  StoreClient owner(harness.Make());
  ASSERT_TRUE(owner.Open().ok());
  std::atomic<int> claims = 0;
  harness.options().before_claim = [&] {
    ++claims;
    owner.store().Beat();
    absl::SleepFor(absl::Milliseconds(300));
  };
  Standby standby(harness.Make());
  absl::SleepFor(3 * kTakeover);
  EXPECT_GT(claims, 1);
  EXPECT_TRUE(standby.is_waiting());
  EXPECT_TRUE(owner.CommitNext({{1, "still here"}}).ok());
  harness.options().before_claim = nullptr;
}

// Who waits can be told to end.
TEST(EtcdStoreTest, AStandbyCanBeClosed) {
  EtcdHarness harness;
  harness.options().takeover = kTakeover;
  StoreClient owner(harness.Make());
  ASSERT_TRUE(owner.Open().ok());
  auto waiting = harness.Make();
  std::promise<absl::Status> opened;
  waiting->Open([](absl::Status) {},
                [&](absl::StatusOr<StoreImage> image) { opened.set_value(image.status()); });
  absl::SleepFor(absl::Milliseconds(300));
  waiting = nullptr;
  EXPECT_TRUE(absl::IsCancelled(opened.get_future().get()));
  EXPECT_TRUE(owner.CommitNext({{1, "mine"}}).ok());
}

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (cxlpool::fm::EtcdCluster::Program().empty()) {
    std::cerr << "no etcd here: qemu-cxl/fetch --with etcd brings it\n";
    return 77;
  }
  return RUN_ALL_TESTS();
}
