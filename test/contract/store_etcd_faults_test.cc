// The Store on an etcd that answers wrongly, late, twice or not at all: what a real one may do, and
// cannot be made to do when a test wants it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "proto/support/refusal.h"
#include "test/contract/etcd_harness.h"
#include "test/contract/store_contract.h"
#include "test/rigs/fake_etcd.h"

namespace cxlpool::fm {
namespace {

EtcdStoreOptions OptionsOf(const FakeEtcd& etcd) {
  EtcdStoreOptions options;
  options.etcd.endpoints = {etcd.endpoint()};
  options.prefix = "/pool/";
  options.fold_bytes = 4000;               // Small: it folds all the time,
  options.fold_step_bytes = 2000;          // in several steps between two commits,
  options.history = absl::ZeroDuration();  // and what it has replaced cannot be read any more.
  return options;
}

struct Fake {
  FakeEtcd etcd{1};
};
class FakeHarness : private Fake, public EtcdStoreHarness {
 public:
  FakeHarness() : EtcdStoreHarness(OptionsOf(etcd)) {}
};

// That the stand-in is one: where it does nothing wrong, the store is a Store.
INSTANTIATE_TEST_SUITE_P(FakeEtcd, StoreContractTest,
                         ::testing::Values(StoreContractParam{
                             "FakeEtcd", [] { return std::make_unique<FakeHarness>(); }}),
                         [](const auto& info) { return info.param.name; });

// Each of 300 packs gets an edit in one step, and every second answer of etcd is lost: the step is
// begun again, over packs that have its edits already.
TEST(EtcdFaultsTest, AFoldOfManyPacksThatIsBrokenOffGoesOn) {
  FakeEtcd etcd(3);
  EtcdStoreOptions options = OptionsOf(etcd);
  options.fold_bytes = 0;
  options.fold_step_bytes = 8 << 20;
  StoreRows model;
  StoreClient owner(*MakeEtcdStore(options));
  ASSERT_TRUE(owner.Open().ok());
  constexpr uint64_t kRecords = 600;  // Two a pack.
  for (unsigned round = 0; round < 6; ++round) {
    if (round == 1) etcd.Set({.answer_lost = 2});
    std::vector<Row> puts;
    for (uint64_t key = 1; key <= kRecords; key += round == 0 ? 1 : 2) {
      puts.push_back({key, absl::StrCat(round, std::string(3900, 'x'))});
    }
    for (const Row& row : puts) model[row.key] = row.value;
    const absl::Status status = owner.CommitNext(std::move(puts));
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status;
  }
  etcd.Set({});
  StoreClient next(*MakeEtcdStore(options));
  const auto image = next.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), model);
}

// A commit waits for a fold that takes longer than the owner may be silent.
TEST(EtcdFaultsTest, AnOwnerWhoseCommitWaitsGivesSignsOfLife) {
  FakeEtcd etcd(6);
  EtcdStoreOptions options = OptionsOf(etcd);
  options.fold_bytes = 0;
  options.fold_step_bytes = 8 << 20;
  options.takeover = absl::Milliseconds(1500);
  std::atomic<bool> slow = false;
  absl::Duration last, longest;  // On the store's thread.
  options.owned_until = [&](absl::Duration until) {
    if (slow) longest = std::max(longest, until - last);
    last = until;
  };
  StoreRows model;
  {
    StoreClient owner(*MakeEtcdStore(options));
    ASSERT_TRUE(owner.Open().ok());
    // The second of these waits until the first is folded.
    const auto commit_and_fold = [&](std::vector<Row> puts) {
      for (const Row& row : puts) model[row.key] = row.value;
      ASSERT_TRUE(owner.CommitNext(std::move(puts)).ok());
      model[1] = "one";
      ASSERT_TRUE(owner.CommitNext({{1, "one"}}).ok());
    };
    std::vector<Row> puts, edits;
    for (uint64_t key = 2; key <= 400; ++key) puts.push_back({key, std::string(3900, 'x')});
    commit_and_fold(std::move(puts));  // Two a pack.
    etcd.Set({.key_us = 25000});
    slow = true;
    std::thread beating([&] {
      for (; slow; absl::SleepFor(options.takeover / 5)) owner.store().Beat();
    });
    const absl::Time began = absl::Now();
    for (uint64_t key = 2; key <= 240; key += 2) edits.push_back({key, std::string(3900, 'y')});
    commit_and_fold(std::move(edits));
    EXPECT_GT(absl::Now() - began, OwnTerm(options.takeover));
    slow = false;
    beating.join();
  }
  EXPECT_LT(longest, OwnTerm(options.takeover));
  etcd.Set({});
  options.takeover = absl::ZeroDuration();
  options.owned_until = nullptr;
  StoreClient next(*MakeEtcdStore(options));
  const auto image = next.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), model);
}

// Where etcd does not answer the fold that a commit waits for, the work hangs: the owner is to be
// replaced, though its signs of life would come through.
TEST(EtcdFaultsTest, AnOwnerWhoseFoldHangsGivesNoSignOfLife) {
  FakeEtcd etcd(6);
  EtcdStoreOptions options = OptionsOf(etcd);
  options.fold_bytes = 0;
  options.takeover = absl::Milliseconds(1500);
  std::atomic<int> signs = 0;
  options.owned_until = [&](absl::Duration) { ++signs; };
  StoreClient owner(*MakeEtcdStore(options));
  ASSERT_TRUE(owner.Open().ok());
  etcd.Set({.range_us = 1'500'000});  // A call waits a fifth of that.
  ASSERT_TRUE(owner.CommitNext({{1, "one"}}).ok());
  std::thread waiting([&] { EXPECT_TRUE(owner.CommitNext({{2, "two"}}).ok()); });
  const auto beat_for = [&](absl::Duration time) {
    const absl::Time until = absl::Now() + time;
    for (; absl::Now() < until; absl::SleepFor(options.takeover / 5)) owner.store().Beat();
    return signs.exchange(0);
  };
  beat_for(options.takeover / 2);  // What is under way still comes through.
  EXPECT_EQ(beat_for(options.takeover), 0);
  etcd.Set({});
  waiting.join();
  EXPECT_GT(beat_for(options.takeover), 0);
}

// A page of all there is would take three times as long as a call may.
TEST(EtcdFaultsTest, WhatTakesTooLongIsReadInSmallerPages) {
  FakeEtcd etcd(4);
  EtcdStoreOptions options = OptionsOf(etcd);
  options.fold_bytes = 0;
  options.fold_step_bytes = 8 << 20;
  options.etcd.call_timeout = absl::Milliseconds(300);
  StoreRows model;
  {
    StoreClient owner(*MakeEtcdStore(options));
    ASSERT_TRUE(owner.Open().ok());
    std::vector<Row> puts;
    for (uint64_t key = 1; key <= 600; ++key) puts.push_back({key, std::string(3900, 'x')});
    for (const Row& row : puts) model[row.key] = row.value;
    ASSERT_TRUE(owner.CommitNext(std::move(puts)).ok());
    ASSERT_TRUE(owner.CommitNext({{1, "y"}}).ok());  // By now the first is folded.
    model[1] = "y";
  }
  etcd.Set({.key_us = 3000});
  StoreClient next(*MakeEtcdStore(options));
  const absl::Time began = absl::Now();
  const auto image = next.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), model);
  EXPECT_LT(absl::Now() - began, absl::Seconds(20));
}

// Nobody wants anything of it, so that nothing is ever folded.
TEST(EtcdFaultsTest, SignsOfLifeAreForgotten) {
  FakeEtcd etcd(5);
  StoreClient owner(*MakeEtcdStore(OptionsOf(etcd)));
  ASSERT_TRUE(owner.Open().ok());
  ASSERT_TRUE(owner.CommitNext({{1, "one"}}).ok());
  for (int i = 0; i < 2100; ++i) owner.store().Beat();
  ASSERT_TRUE(owner.CommitNext({{2, "two"}}).ok());  // After them.
  EXPECT_GT(etcd.revision(), 2100);
  EXPECT_GT(etcd.compacted(), etcd.revision() - 1100);
  StoreClient next(*MakeEtcdStore(OptionsOf(etcd)));
  const auto image = next.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), (StoreRows{{1, "one"}, {2, "two"}}));
}

// Commits and folds some fifty times a second, and each eighth time has etcd forget.
class BusyOwner {
 public:
  BusyOwner(EtcdStoreOptions options, absl::Duration history)
      : client_(*MakeEtcdStore(Busy(std::move(options), history))) {
    EXPECT_TRUE(client_.Open().ok());
    thread_ = std::thread([this] {
      for (unsigned i = 0; !stop_; ++i) {
        const absl::Status status = client_.CommitNext({{1 + i % 20, Noise(300, i)}});
        EXPECT_TRUE(status.ok()) << status;
        if (!status.ok()) return;
        absl::SleepFor(absl::Milliseconds(15));
      }
    });
  }
  ~BusyOwner() { Stop(); }

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  static EtcdStoreOptions Busy(EtcdStoreOptions options, absl::Duration history) {
    options.fold_bytes = 0;
    options.history = history;
    return options;
  }

  StoreClient client_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Waits for its turn, and hears what the owner does.
struct Follower {
  explicit Follower(EtcdStoreOptions options) : client(*MakeEtcdStore(Waits(std::move(options)))) {
    client.store().Follow({.on_owner =
                               [this](const StoreOwner& owner) {
                                 EXPECT_TRUE(images > 0 || !owner.is_followed);
                                 is_followed = owner.is_followed;
                               },
                           .on_image = [this](const StoreImage&) { ++images; },
                           .on_batch = [](const StoreBatch&) {}});
    opening = client.StartOpen();
  }
  static EtcdStoreOptions Waits(EtcdStoreOptions options) {
    options.takeover = absl::Seconds(6);
    return options;
  }

  bool FollowsWithin(absl::Duration limit) const {
    const absl::Time until = absl::Now() + limit;
    while (!is_followed && absl::Now() < until) absl::SleepFor(absl::Milliseconds(20));
    return is_followed;
  }

  std::atomic<int> images = 0;
  std::atomic<bool> is_followed = false;
  StoreClient client;  // Calls the above until it ends.
  std::future<absl::StatusOr<StoreImage>> opening;
};

// While all is read, which takes three times as long as a read, the owner folds many times, and has
// etcd forget nothing that is younger than its history.
TEST(EtcdFaultsTest, WhoBeginsToFollowABusyOwnerIsNotLeftBehind) {
  constexpr absl::Duration kHistory = absl::Seconds(4);
  FakeEtcd etcd(7);
  BusyOwner owner(OptionsOf(etcd), kHistory);
  etcd.Set({.as_of_us = 300'000});
  std::vector<std::pair<absl::Time, int64_t>> revisions = {{absl::Now(), etcd.revision()}};
  Follower follower(OptionsOf(etcd));
  while (!follower.FollowsWithin(absl::Milliseconds(20)) &&
         absl::Now() - revisions.front().first < absl::Seconds(15)) {
    revisions.emplace_back(absl::Now(), etcd.revision());
  }
  EXPECT_TRUE(follower.is_followed);
  const int64_t forgotten = etcd.compacted();
  const absl::Time oldest = absl::Now() - kHistory;
  const auto kept = std::find_if(revisions.begin(), revisions.end(),
                                 [&](const auto& seen) { return seen.first >= oldest; });
  ASSERT_NE(kept, revisions.end());
  EXPECT_LE(forgotten, kept->second);
}

// Where it is left behind all the same it says so, once, and does not count as one that follows.
TEST(EtcdFaultsTest, WhoCannotFollowSaysSo) {
  FakeEtcd etcd(8);
  testing::internal::CaptureStderr();
  {
    BusyOwner owner(OptionsOf(etcd), /*history=*/absl::ZeroDuration());
    etcd.Set({.as_of_us = 300'000});
    Follower follower(OptionsOf(etcd));
    EXPECT_FALSE(follower.FollowsWithin(absl::Seconds(2)));
    owner.Stop();
    EXPECT_TRUE(follower.FollowsWithin(absl::Seconds(15)));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t said = log.find("etcd has compacted what this manager was still reading");
  ASSERT_NE(said, std::string::npos) << log;
  EXPECT_EQ(log.find("etcd has compacted", said + 1), std::string::npos) << log;
  EXPECT_NE(log.find("this manager can take over", said), std::string::npos) << log;
}

// Who reads all there is, and gets no answer to any of it, can be told to end.
TEST(EtcdFaultsTest, WhoIsReadingCanBeClosed) {
  FakeEtcd etcd(9);
  {
    StoreClient owner(*MakeEtcdStore(OptionsOf(etcd)));
    ASSERT_TRUE(owner.Open().ok());
    ASSERT_TRUE(owner.CommitNext({{1, "one"}}).ok());
  }
  etcd.Set({.as_of_us = 1'500'000});  // A call waits one second.
  auto follower = std::make_unique<Follower>(OptionsOf(etcd));
  auto opening = std::move(follower->opening);
  absl::SleepFor(absl::Milliseconds(300));
  const absl::Time told = absl::Now();
  follower = nullptr;
  EXPECT_LT(absl::Now() - told, absl::Seconds(10));
  EXPECT_TRUE(absl::IsCancelled(opening.get().status()));
}

// The end of a fold comes once more, after the end of the next.
TEST(EtcdFaultsTest, TheEndOfAFoldThatComesAgainLateHasNoEffect) {
  FakeEtcd etcd(5);
  EtcdStoreOptions options = OptionsOf(etcd);
  options.fold_step_bytes = 1;  // One change a step.
  StoreRows model;
  {
    StoreClient owner(*MakeEtcdStore(options));
    ASSERT_TRUE(owner.Open().ok());
    for (unsigned key = 1; key <= 12; ++key) {
      // The last one sends several small ones into the packs.
      const std::string value = Noise(key == 12 ? 3500 : 250, key);
      model[key] = value;
      ASSERT_TRUE(owner.CommitNext({{key, value}}).ok());
    }
    // Until it folds no more.
    for (int64_t seen = 0; seen != etcd.revision();) {
      seen = etcd.revision();
      absl::SleepFor(absl::Milliseconds(300));
    }
    ASSERT_TRUE(etcd.RepeatBeforeLast("/pool/folded"));
  }
  StoreClient next(*MakeEtcdStore(options));
  const auto image = next.Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(RowsOf(*image), model);
}

// Who had the store goes on with what it was folding, after another has claimed it, and perhaps
// folded that and more.
TEST(EtcdFaultsTest, AFoldOfAFormerOwnerHasNoEffect) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    const bool next_folds = seed % 2 == 0;
    FakeEtcd etcd(seed);
    EtcdStoreOptions options = OptionsOf(etcd);
    options.fold_bytes = 1 << 30;
    options.commit_deadline = absl::Seconds(5);
    StoreClient owner(*MakeEtcdStore(options));
    ASSERT_TRUE(owner.Open().ok());
    ASSERT_TRUE(owner.CommitNext({{1, "one"}, {2, "two"}}).ok());
    OwnersFold fold(options);

    if (next_folds) options.fold_bytes = 0;
    StoreClient next(*MakeEtcdStore(options));
    ASSERT_TRUE(next.Open().ok());
    ASSERT_TRUE(next.CommitNext({{1, "another"}}).ok());
    ASSERT_TRUE(next.CommitNext({{3, "three"}}).ok());
    ASSERT_TRUE(next.CommitNext({}, {3}).ok());  // By now the others are folded, or none is.
    etcd.Set({.stale_read = 1});                 // Some are from before there was anything.
    ASSERT_EQ(ReasonOf(fold.Run()), "STORE_FENCED") << "seed " << seed;
    etcd.Set({});
    StoreClient last(*MakeEtcdStore(options));
    const auto image = last.Open();
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(RowsOf(*image), (StoreRows{{1, "another"}, {2, "two"}}));
  }
}

// One pool through all that. Answers how much went wrong; failures are the test's.
uint64_t Trial(unsigned seed) {
  std::minstd_rand random(seed);
  FakeEtcd etcd(seed);
  const EtcdFaults faults = {
      .answer_lost = 15, .refused = 25, .no_space = 30, .late = 20, .doubled = 5, .stale_read = 6};
  StoreRows model;
  std::unique_ptr<StoreClient> owner;
  const auto take_over = [&] {
    auto next = std::make_unique<StoreClient>(*MakeEtcdStore(OptionsOf(etcd)));
    auto image = next->Open();
    for (int i = 0; i < 50 && absl::IsUnavailable(image.status()); ++i) {
      next = std::make_unique<StoreClient>(*MakeEtcdStore(OptionsOf(etcd)));
      image = next->Open();
    }
    ASSERT_TRUE(image.ok()) << image.status();
    ASSERT_EQ(RowsOf(*image), model);
    // Whoever had it hears of that at its next commit.
    if (owner != nullptr) {
      EXPECT_EQ(ReasonOf(owner->CommitNext({{1, "too late"}})), "STORE_FENCED");
    }
    owner = std::move(next);
  };
  for (int i = 0; i < 80 && !::testing::Test::HasFailure(); ++i) {
    etcd.Set(faults);
    if (i % 20 == 0) take_over();
    if (::testing::Test::HasFailure()) break;
    std::vector<Row> puts;
    std::vector<uint64_t> erases;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      puts.push_back({1 + random() % 40, Noise(random() % 900, static_cast<unsigned>(random()))});
    }
    if (random() % 2 == 0) erases.push_back(1 + random() % 40);
    for (const Row& row : puts) model[row.key] = row.value;
    for (const uint64_t key : erases) model.erase(key);
    const absl::Status status = owner->CommitNext(std::move(puts), std::move(erases));
    EXPECT_TRUE(status.ok()) << "seed " << seed << ", change " << i << ": " << status;
  }
  if (!::testing::Test::HasFailure()) take_over();
  return etcd.faults_done();
}

TEST(EtcdFaultsTest, NothingIsLostWhateverEtcdAnswers) {
  int trials = 8, first = 1;
  const auto read = [](const char* name, int& number) {
    const char* text = std::getenv(name);
    return text == nullptr || absl::SimpleAtoi(text, &number);
  };
  ASSERT_TRUE(read("CXLPOOL_TRIALS", trials) && read("CXLPOOL_SEED", first));
  uint64_t faults = 0;
  for (int seed = first; seed < first + trials && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    faults += Trial(static_cast<unsigned>(seed));
  }
  std::cout << trials << " trials from seed " << first << ", " << faults << " faults\n";
  EXPECT_GT(faults, static_cast<uint64_t>(trials) * 20);
}

}  // namespace
}  // namespace cxlpool::fm
