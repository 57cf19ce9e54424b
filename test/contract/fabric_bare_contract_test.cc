// The driver that FabricShell makes of the barest backend (test/rigs/bare_fabric.h), against the
// contract.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <sstream>
#include <thread>

#include "fabric-manager/ports/fabric_shell.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/contract/fabric_driver_contract.h"
#include "test/rigs/bare_fabric.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kBareGranule = 1 << 20;

World BareWorld(FenceScope fence) {
  World world;
  world.fence = fence;
  world.slots = {4, 7};
  world.devices = {{.id = "cmm-0",
                    .serial = "serial-0",
                    .capacity_bytes = 8 * kBareGranule,
                    .granule_bytes = kBareGranule,
                    .max_lds = 5}};
  return world;
}

class BareRig : public FabricRig {
 public:
  explicit BareRig(FenceScope fence) : world_(BareWorld(fence)) { Restart(); }
  ~BareRig() override { driver_.reset(); }

  FabricDriver& driver() override { return *driver_; }
  void Restart() override {
    driver_.reset();
    FabricShell::Options options;
    options.patience = absl::Milliseconds(200);
    options.recheck = absl::Milliseconds(5);
    auto backend = std::make_unique<BareFabric>(&world_);
    backend_ = backend.get();
    driver_ = std::make_unique<FabricShell>(std::move(backend), options);
  }
  std::string AnotherLife() override { return "2"; }
  std::optional<TopologyTables> Parts() override {
    TopologyTables parts;
    parts.devices = {{.id = "cmm-0",
                      .serial = "serial-0",
                      .capacity_bytes = 8 * kBareGranule,
                      .granule_bytes = kBareGranule}};
    parts.hosts = {{.id = "host-a"}, {.id = "host-b"}};
    return parts;
  }

  void PowerOn(const BoundLd& ld) override { Power(ld, v1::SEGMENT_ONLINE); }
  void PowerOff(const BoundLd& ld) override { Power(ld, v1::SEGMENT_ABSENT); }
  void Remove(const BoundLd& ld) override {
    {
      MutexLock lock(world_.threads->mutex);
      world_.bound.erase(ld.serial);
    }
    backend_->Emit({.kind = FabricEvent::Kind::kLdLost, .host = ld.host, .slot = ld.slot});
  }
  bool Hang(const std::string& host, bool hangs) override {
    MutexLock lock(world_.threads->mutex);
    hangs ? (void)world_.hung.insert(host) : (void)world_.hung.erase(host);
    world_.threads->changed.notify_all();
    return true;
  }

  absl::Status Store(const BoundLd& ld, uint64_t offset, const std::string& bytes) override {
    MutexLock lock(world_.threads->mutex);
    Granule(ld, offset).replace(offset % kBareGranule, bytes.size(), bytes);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Load(const BoundLd& ld, uint64_t offset, size_t size) override {
    MutexLock lock(world_.threads->mutex);
    return Granule(ld, offset).substr(offset % kBareGranule, size);
  }

 private:
  void Power(const BoundLd& ld, v1::SegmentState state) {
    MutexLock lock(world_.threads->mutex);
    const auto on = world_.bound.find(ld.serial);
    if (on != world_.bound.end()) on->second.state = state;
  }
  std::string& Granule(const BoundLd& ld, uint64_t offset) {
    const uint64_t number = ld.slice.dpa_bytes / (8 * kBareGranule);
    const auto& own = world_.lds.at({ld.slice.device, number});
    std::string& bytes = world_.bytes[{ld.slice.device, own.at(offset / kBareGranule)}];
    bytes.resize(kBareGranule);
    return bytes;
  }

  World world_;
  BareFabric* backend_ = nullptr;
  std::unique_ptr<FabricDriver> driver_;
};

absl::StatusOr<std::unique_ptr<FabricRig>> MakeBareRig() {
  return std::make_unique<BareRig>(FenceScope::kNone);
}
absl::StatusOr<std::unique_ptr<FabricRig>> MakeCuttingRig() {
  return std::make_unique<BareRig>(FenceScope::kBinding);
}

// How many threads of this process run a lane of fences (FabricLanes::Open names them).
size_t FenceLanes() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    count += name.rfind("fab-<fence>", 0) == 0 ? 1 : 0;
  }
  return count;
}

bool FenceLanesEnd() {
  for (int i = 0; i < 1000 && FenceLanes() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return FenceLanes() == 0;
}

// A fence by the operator's program, on a switch that cannot fence; the rig is the power supply.
class FenceProgramTest : public ::testing::Test {
 protected:
  FenceProgramTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~FenceProgramTest() override {
    driver_.reset();
    std::filesystem::remove_all(directory_);
  }

  // Binds a LD to host-a, which uses it, on a switch whose fence program is `script`.
  void Open(const std::string& script, absl::Duration timeout = absl::Seconds(20)) {
    const std::string program = directory_ + "/cut-power";
    std::ofstream(program) << "#!/bin/sh\n" << script;
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    FabricShell::Options options;
    options.recheck = absl::Milliseconds(5);
    options.fence_program = {program, timeout};
    options.fence_confirmed = absl::Milliseconds(200);
    options_ = options;
    Start({});
    EXPECT_EQ(driver_->capabilities().fence, FenceScope::kHost);
    const auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
        [&](auto done) { driver_->Discover(std::move(done)); });
    ASSERT_TRUE(view.ok()) << view.status();
    const auto ld = WaitForAnswer<absl::StatusOr<BoundLd>>([&](auto done) {
      driver_->Bind({.key = {.host = "host-a", .tag = FormatUuid(RandomUuid()), .generation = 1},
                     .slot = 4,
                     .slice = {"cmm-0", 0, kBareGranule},
                     .serial = 1,
                     .incarnation = "1"},
                    std::move(done));
    });
    ASSERT_TRUE(ld.ok()) << ld.status();
    Power(true);
  }
  // Another driver takes the place of the last.
  void Start(KnownFabric known) {
    driver_.reset();
    driver_ = std::make_unique<FabricShell>(std::make_unique<BareFabric>(&world_), options_);
    driver_->Start(std::move(known), [](const FabricEvent&) {});
  }
  void Power(bool on) {
    MutexLock lock(world_.threads->mutex);
    if (on) {
      for (auto& [serial, ld] : world_.bound) ld.state = v1::SEGMENT_ONLINE;
    } else {
      world_.bound.clear();
    }
  }
  absl::Status Fence() {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { driver_->Fence("host-a", std::move(done)); });
  }
  // Host-a, where nothing is bound any more, is taken off the list, and forgotten when this
  // returns.
  void Leave() {
    Power(false);
    TopologyTables tables;
    tables.devices = {{.id = "cmm-0",
                       .serial = "serial-0",
                       .capacity_bytes = 8 * kBareGranule,
                       .granule_bytes = kBareGranule}};
    tables.hosts = {{.id = "host-b"}};
    const absl::Status configured = WaitForAnswer<absl::Status>(
        [&](auto done) { driver_->Configure({.tables = tables, .known = {}}, std::move(done)); });
    ASSERT_TRUE(configured.ok()) << configured;
    size_t hosts = 0;
    for (int i = 0; i < 1000 && hosts != 1; ++i) {
      const auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
          [&](auto done) { driver_->Discover(std::move(done)); });
      ASSERT_TRUE(view.ok()) << view.status();
      hosts = view->hosts.size();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_EQ(hosts, 1u);
  }
  std::string Said() const {
    std::stringstream said;
    said << std::ifstream(directory_ + "/said").rdbuf();
    return said.str();
  }

  std::string directory_;
  FabricShell::Options options_;
  World world_ = BareWorld(FenceScope::kNone);
  std::unique_ptr<FabricDriver> driver_;
};

TEST_F(FenceProgramTest, ItsWordIsNotBelieved) {
  Open("exit 0");
  const absl::Status fenced = Fence();
  EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << fenced;
}

// After a restart, before anybody has looked: that the host lives a life is no news.
TEST_F(FenceProgramTest, ItsWordIsNotBelievedOfAHostThatWasNotLookedAt) {
  Open("exit 0");
  for (const KnownFabric& known : {KnownFabric{{{"host-a", "1"}}}, KnownFabric{}}) {
    Start(known);
    const absl::Status fenced = Fence();
    EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << fenced;
  }
}

TEST_F(FenceProgramTest, TheFabricConfirmsIt) {
  Open("echo $# $1 $CXLPOOL_HOST $CXLPOOL_INCARNATION > $(dirname $0)/said");
  std::thread power([&] {
    while (Said().empty()) std::this_thread::yield();
    Power(false);
  });
  const absl::Status fenced = Fence();
  power.join();
  EXPECT_TRUE(fenced.ok()) << fenced;
  EXPECT_EQ(Said(), "1 host-a host-a 1\n");
}

TEST_F(FenceProgramTest, AFailureOrAHangIsAFailure) {
  Open("exit 3");
  absl::Status fenced = Fence();
  EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << fenced;
  EXPECT_NE(fenced.message().find("status 3"), std::string::npos) << fenced;
  Power(false);
  Open("sleep 1000", absl::Milliseconds(50));
  fenced = Fence();
  EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << fenced;
  EXPECT_NE(fenced.message().find("took longer"), std::string::npos) << fenced;
}

// Whose program says that the host is off, and which then takes for ever to note it.
class StuckFabric : public BareFabric {
 public:
  StuckFabric(World* world, std::shared_future<void> released)
      : BareFabric(world), released_(std::move(released)) {}
  bool SeesEnds() const override { return false; }
  absl::Status EndLife(const std::string& /*host*/, const std::string& /*life*/) override {
    released_.wait();
    return absl::OkStatus();
  }

 private:
  const std::shared_future<void> released_;
};

// As one that not even SIGKILL ends. The second caller's never begins. The lane outlives the host.
TEST_F(FenceProgramTest, WhatDoesNotEndIsAnsweredFor) {
  Open("test $CXLPOOL_ACTION = off || exit 2", absl::Seconds(2));
  std::promise<void> release;
  driver_.reset();
  options_.operation = absl::Milliseconds(100);
  driver_ = std::make_unique<FabricShell>(
      std::make_unique<StuckFabric>(&world_, release.get_future().share()), options_);
  driver_->Start(KnownFabric{{{"host-a", "1"}}}, [](const FabricEvent&) {});
  for (const char* why : {"or what comes of it, does not end", "an earlier run"}) {
    const absl::Status fenced = Fence();
    EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << fenced;
    EXPECT_NE(fenced.message().find(why), std::string::npos) << fenced;
  }
  Leave();
  EXPECT_EQ(FenceLanes(), 1u);
  release.set_value();
  EXPECT_TRUE(FenceLanesEnd());
}

TEST_F(FenceProgramTest, ItsLaneGoesWithTheHost) {
  Open("exit 3");
  EXPECT_EQ(ReasonOf(Fence()), "FENCE_FAILED");
  EXPECT_EQ(FenceLanes(), 1u);
  Leave();
  EXPECT_TRUE(FenceLanesEnd());
}

TEST_F(FenceProgramTest, TheEndOfTheDriverEndsIt) {
  Open("sleep 1000", absl::Minutes(10));
  auto promise = std::make_shared<std::promise<absl::Status>>();
  auto answer = promise->get_future();
  driver_->Fence("host-a", [promise](absl::Status status) { promise->set_value(status); });
  driver_.reset();
  ASSERT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_TRUE(absl::IsCancelled(answer.get()));
}

// Host a's look is answered and its lane still in the middle of that, for as long as host b does
// not answer, when its time is up. Who keeps the time comes to host a first.
TEST(FabricShellTest, AHostWhoseLookCameInTheLastMomentIsNotSilent) {
  World world = BareWorld(FenceScope::kNone);
  world.hung = {"host-b"};
  FabricShell::Options options;
  options.patience = absl::Milliseconds(500);
  FabricShell shell(std::make_unique<BareFabric>(&world), options);
  shell.Start({}, [](const FabricEvent&) {});
  const auto look = [&shell](const std::string& host) {
    const auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
        [&](auto done) { shell.DiscoverHost(host, std::move(done)); });
    return view.ok() && view->hosts.size() == 1 && view->hosts[0].reachable;
  };
  std::promise<bool> answered;
  shell.DiscoverHost("host-a", [&](const absl::StatusOr<FabricView>& view) {
    answered.set_value(view.ok() && view->hosts.at(0).reachable && !look("host-b"));
  });
  EXPECT_TRUE(answered.get_future().get());
  EXPECT_TRUE(look("host-a"));
}

// Its scrubs hang until they are let go.
class HangingScrubs : public BareFabric {
 public:
  HangingScrubs(World* world, std::atomic<bool>* has_begun, std::shared_future<void> let_go)
      : BareFabric(world), has_begun_(has_begun), let_go_(std::move(let_go)) {}

  absl::StatusOr<std::unique_ptr<FabricScrub>> BeginScrub(const Slice&) override {
    has_begun_->store(true);
    has_begun_->notify_all();
    return std::make_unique<Scrub>(let_go_);
  }

 private:
  class Scrub : public FabricScrub {
   public:
    explicit Scrub(std::shared_future<void> let_go) : let_go_(std::move(let_go)) {}
    absl::StatusOr<bool> Step(absl::Duration) override {
      let_go_.wait();
      return true;
    }
    uint64_t done_bytes() const override { return 0; }

   private:
    const std::shared_future<void> let_go_;
  };

  std::atomic<bool>* const has_begun_;
  const std::shared_future<void> let_go_;
};

TEST(FabricShellTest, AScrubBehindOneThatHangsIsAnsweredFor) {
  World world = BareWorld(FenceScope::kNone);
  FabricShell::Options options;
  options.scrub_begins = absl::Seconds(3);
  std::atomic<bool> has_begun = false;
  std::promise<void> let_go;
  FabricShell shell(
      std::make_unique<HangingScrubs>(&world, &has_begun, let_go.get_future().share()), options);
  shell.Start({}, [](const FabricEvent&) {});
  const auto slice = [](uint64_t number) {
    return Slice{
        .device = "cmm-0", .dpa_bytes = number * 8 * kBareGranule, .length_bytes = kBareGranule};
  };
  std::promise<absl::Status> first;
  shell.Scrub(slice(0), {},
              [&](const absl::StatusOr<ScrubResult>& result) { first.set_value(result.status()); });
  has_begun.wait(false);
  const auto scrub = [&](uint64_t number) {
    return WaitForAnswer<absl::StatusOr<ScrubResult>>(
               [&](auto done) { shell.Scrub(slice(number), {}, std::move(done)); })
        .status();
  };
  const absl::Status behind = scrub(1);
  EXPECT_EQ(ReasonOf(behind), "SCRUB_TIMEOUT") << behind;
  EXPECT_NE(behind.message().find("did not begin"), std::string::npos) << behind;
  let_go.set_value();
  EXPECT_TRUE(first.get_future().get().ok()) << "it had begun in time";
  EXPECT_TRUE(scrub(1).ok());
}

// Each of its scrubs takes most of a second.
class SlowScrubs : public BareFabric {
 public:
  using BareFabric::BareFabric;
  absl::StatusOr<std::unique_ptr<FabricScrub>> BeginScrub(const Slice&) override {
    return std::make_unique<Scrub>();
  }

 private:
  class Scrub : public FabricScrub {
   public:
    absl::StatusOr<bool> Step(absl::Duration) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
      return true;
    }
    uint64_t done_bytes() const override { return 0; }
  };
};

// Or the last of very many would never have its turn: each time it comes anew it is the last again.
TEST(FabricShellTest, AScrubBehindManyThatGoOnKeepsItsPlace) {
  World world = BareWorld(FenceScope::kNone);
  FabricShell::Options options;
  options.scrub_begins = absl::Seconds(3);
  FabricShell shell(std::make_unique<SlowScrubs>(&world), options);
  shell.Start({}, [](const FabricEvent&) {});
  std::vector<std::future<absl::Status>> answers;
  for (uint64_t i = 0; i < 5; ++i) {
    const auto promise = std::make_shared<std::promise<absl::Status>>();
    answers.push_back(promise->get_future());
    shell.Scrub(
        {.device = "cmm-0", .dpa_bytes = i * 8 * kBareGranule, .length_bytes = kBareGranule}, {},
        [promise](const absl::StatusOr<ScrubResult>& result) {
          promise->set_value(result.status());
        });
  }
  for (std::future<absl::Status>& answer : answers) {
    const absl::Status status = answer.get();
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Bare, FabricDriverContract, ::testing::Values(MakeBareRig));
INSTANTIATE_TEST_SUITE_P(BareThatCuts, FabricDriverContract, ::testing::Values(MakeCuttingRig));

}  // namespace cxlpool::fm
