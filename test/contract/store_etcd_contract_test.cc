// The Store on etcd: the contract of every Store, and what members that end or hang do to it.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "test/contract/store_contract.h"
#include "test/rigs/etcd_cluster.h"

namespace cxlpool::fm {
namespace {

// Three members for all tests: each has keys of its own.
EtcdCluster& Cluster() {
  static auto* const cluster = new EtcdCluster(3);
  return *cluster;
}

class EtcdHarness : public StoreHarness {
 public:
  explicit EtcdHarness(uint64_t fold_bytes = 64 << 10, uint64_t fold_step_bytes = 1 << 20) {
    static int pools = 0;
    options_.prefix = absl::StrCat("/pool-", ++pools, "/");
    options_.etcd.endpoints = Cluster().endpoints();
    options_.fold_bytes = fold_bytes;  // Small: it folds often.
    options_.fold_step_bytes = fold_step_bytes;
    options_.max_bytes = uint64_t{256} << 20;
  }

  EtcdStoreOptions& options() { return options_; }

  std::unique_ptr<Store> Make() override {
    auto store = MakeEtcdStore(options_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  std::unique_ptr<Store> MakeSmall(uint64_t bytes) override {
    options_.max_bytes = bytes;
    return Make();
  }
  std::string BackupPath() override { return ""; }
  void Restore(const std::string&) override {}

 private:
  EtcdStoreOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Etcd, StoreContractTest,
                         ::testing::Values(StoreContractParam{
                             "Etcd", [] { return std::make_unique<EtcdHarness>(); }}),
                         [](const auto& info) { return info.param.name; });

// What the store should hold.
using Model = std::map<uint64_t, std::string>;

Model RowsOf(const StoreImage& image) {
  Model rows;
  for (const Row& row : image.rows) rows[row.key] = row.value;
  return rows;
}

// A random change of `model` and of the store behind `client`.
absl::Status ChangeBoth(StoreClient& client, Model& model, std::minstd_rand& random) {
  std::vector<Row> puts;
  std::vector<uint64_t> erases;
  for (unsigned i = random() % 20; i > 0; --i) {
    puts.push_back({1 + random() % 500, std::string(random() % 3000, static_cast<char>(random()))});
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

// The owner folds its log while another reads it: the reader must not claim what is not there.
TEST(EtcdStoreTest, AClaimKnowsWhatWasFoldedMeanwhile) {
  EtcdHarness harness(/*fold_bytes=*/1 << 30, /*fold_step_bytes=*/1);
  std::minstd_rand random(3);
  Model model;
  {
    StoreClient client(harness.Make());
    ASSERT_TRUE(client.Open().ok());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(ChangeBoth(client, model, random).ok());
  }
  harness.options().fold_bytes = 1;
  StoreClient owner(harness.Make());
  ASSERT_TRUE(owner.Open().ok());
  {
    harness.options().before_claim = [] { absl::SleepFor(absl::Seconds(1)); };
    StoreClient next(harness.Make());
    harness.options().before_claim = nullptr;
    ASSERT_TRUE(ChangeBoth(owner, model, random).ok());  // It begins to fold, a change at a time.
    const auto image = next.Open();
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(RowsOf(*image), model);
    ASSERT_TRUE(ChangeBoth(next, model, random).ok());
  }  // It ends after a step or two.
  StoreClient last(harness.Make());
  const auto image = last.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), model);
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
