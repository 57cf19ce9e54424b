// SimFabric and SimHostMemory: what their faults do, and what outlives whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "proto/support/refusal.h"
#include "test/sim/sim_fabric.h"
#include "test/sim/sim_host_memory.h"

namespace cxlpool::sim {
namespace {

const std::string kTag = "11111111-1111-1111-1111-111111111111";

class SimPortsTest : public ::testing::Test {
 protected:
  SimPortsTest()
      : rack(&scheduler, {}, [this](const std::string& what) { breaches.push_back(what); }) {
    rack.devices = {{"cmm-0", std::vector<uint32_t>(96)}};
    for (const char* id : {"host-a", "host-b"}) {
      RackHost host;
      host.id = id;
      host.bridges = {{"ACPI0016:00", {1, 2, 3}, 4}};
      rack.hosts[id] = host;
    }
    const auto count = [this](const char* kind) { faults_told.insert(kind); };
    fabric_faults.on_fault = count;
    host_faults.on_fault = count;
    StartManager();
    StartAgent();
  }

  // Ends the one before.
  void StartManager() {
    if (fabric != nullptr) scheduler.End(manager);
    fabric.reset();
    manager = scheduler.Begin();
    fabric =
        std::make_unique<SimFabric>(&scheduler, manager, &rack, &fabric_faults, Random(++seed));
    fabric->Start({.hosts = {}, .epoch = ++epoch},
                  [this](fm::FabricEvent event) { events.push_back(std::move(event)); });
  }
  void StartAgent() {
    if (memory != nullptr) scheduler.End(agent);
    memory.reset();
    agent = scheduler.Begin();
    memory = std::make_unique<SimHostMemory>(&scheduler, agent, &rack, "host-a", &host_faults,
                                             Random(++seed));
    EXPECT_TRUE(Do([&](Done done) { memory->Prepare(std::move(done)); }).ok());
  }

  fm::BindRequest Request(uint32_t slot, uint64_t serial) {
    return {.key = {"host-a", kTag, serial, 0},
            .slot = slot,
            .slice = {"cmm-0", (serial - 100) * 2 * kGranule, 2 * kGranule},
            .read_only = false,
            .serial = serial,
            .incarnation = a.life()};
  }

  // Runs until it is answered; UNKNOWN with "none" where it never is.
  absl::Status Do(const std::function<void(Done)>& call) {
    auto answer = std::make_shared<std::optional<absl::Status>>();
    const int64_t began_us = scheduler.now_us();
    call([answer](absl::Status status) { *answer = std::move(status); });
    while (!answer->has_value() && scheduler.RunOne()) {
    }
    took_us = scheduler.now_us() - began_us;
    return answer->value_or(absl::UnknownError("none"));
  }
  template <typename T>
  absl::Status Get(const std::function<void(DoneWith<T>)>& call, T& got) {
    return Do([&](Done done) {
      call([&got, done = std::move(done)](absl::StatusOr<T> answer) mutable {
        if (answer.ok()) got = *answer;
        std::move(done)(answer.status());
      });
    });
  }
  absl::Status Bind(uint32_t slot, uint64_t serial) {
    fm::BoundLd ld;
    return Get<fm::BoundLd>(
        [&](auto done) { fabric->Bind(Request(slot, serial), std::move(done)); }, ld);
  }
  absl::Status Discover(fm::FabricView& view) {
    return Get<fm::FabricView>([&](auto done) { fabric->Discover(std::move(done)); }, view);
  }
  absl::Status Await(uint64_t serial, absl::Duration timeout) {
    return Do([&](Done done) {
      fabric->AwaitUnbound(Request(1, serial).binding(), timeout, std::move(done));
    });
  }
  absl::Status Scrub(uint64_t serial) {
    return Do([&](Done done) {
      fabric->Scrub(Request(1, serial).slice, {},
                    [done = std::move(done)](absl::StatusOr<fm::ScrubResult> result) mutable {
                      std::move(done)(result.status());
                    });
    });
  }
  bool Bound(uint64_t serial) { return rack.IsBound(Request(1, serial).key); }
  void Next(FabricCall call, FabricFault::Kind kind) { fabric_faults.next.push_back({call, kind}); }
  void Next(HostFault::Kind kind) { host_faults.next.push_back({kind}); }

  absl::Status PowerOn(uint32_t slot, uint64_t serial) {
    return Do([&](Done done) { memory->PowerOn(slot, serial, std::move(done)); });
  }
  absl::Status Create(uint64_t serial) {
    agent::HostRegionSpec spec{"ACPI0016:00", {serial}, 0, 2 * kGranule};
    return Do([&](Done done) { memory->CreateHostRegion(spec, std::move(done)); });
  }
  absl::Status BindDax(uint64_t serial, agent::DaxDriver driver = agent::DaxDriver::kDeviceDax) {
    return Do([&](Done done) { memory->BindDax(serial, driver, std::move(done)); });
  }
  absl::Status UnbindDax(uint64_t serial) {
    return Do([&](Done done) { memory->UnbindDax(serial, std::move(done)); });
  }
  std::vector<int> Holders(uint64_t serial) {
    std::vector<agent::ProcessId> holders;
    EXPECT_TRUE(Get<std::vector<agent::ProcessId>>(
                    [&](auto done) { memory->FindHolders(serial, std::move(done)); }, holders)
                    .ok());
    std::vector<int> pids;
    for (const agent::ProcessId& holder : holders) pids.push_back(static_cast<int>(holder.pid));
    return pids;
  }
  // An LD is plugged, its memdev there and a host region made.
  void Take(uint32_t slot, uint64_t serial) {
    ASSERT_TRUE(Bind(slot, serial).ok());
    ASSERT_TRUE(PowerOn(slot, serial).ok());
    ASSERT_TRUE(Create(serial).ok());
  }

  Scheduler scheduler;
  std::vector<std::string> breaches;
  std::set<std::string> faults_told;
  std::vector<fm::FabricEvent> events;
  Rack rack;
  RackHost& a = rack.hosts["host-a"];
  FabricFaults fabric_faults;
  HostFaults host_faults;
  uint64_t seed = 0;
  uint64_t epoch = 0;  // Of the manager that was started last.
  int64_t took_us = 0;
  LifeId manager = 0;
  LifeId agent = 0;
  std::unique_ptr<SimFabric> fabric;
  std::unique_ptr<SimHostMemory> memory;
};

using FabricKind = FabricFault::Kind;
using HostKind = HostFault::Kind;

// --- The fabric.

TEST_F(SimPortsTest, BindGoesWrongInEveryLegalWay) {
  Next(FabricCall::kBind, FabricKind::kFails);
  EXPECT_TRUE(absl::IsUnavailable(Bind(1, 100)));
  EXPECT_FALSE(Bound(100));
  Next(FabricCall::kBind, FabricKind::kUnknownNot);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Bind(1, 100)));
  EXPECT_FALSE(Bound(100));
  Next(FabricCall::kBind, FabricKind::kUnknownDone);
  EXPECT_TRUE(absl::IsUnknown(Bind(1, 100)));
  EXPECT_TRUE(Bound(100));
  Next(FabricCall::kBind, FabricKind::kLies);
  EXPECT_TRUE(absl::IsUnavailable(Bind(2, 101)));
  EXPECT_TRUE(Bound(101));
  Next(FabricCall::kBind, FabricKind::kSlow);
  EXPECT_TRUE(Bind(3, 102).ok());
  EXPECT_EQ(faults_told, (std::set<std::string>{"bind-fails", "bind-unknown-not",
                                                "bind-unknown-done", "bind-lies", "bind-slow"}));
  EXPECT_TRUE(fabric_faults.next.empty());
}

TEST_F(SimPortsTest, AProofIsNeverFalse) {
  ASSERT_TRUE(Bind(1, 100).ok());
  EXPECT_FALSE(Legal(FabricCall::kAwaitUnbound, FabricKind::kUnknownDone));
  EXPECT_FALSE(Legal(FabricCall::kFence, FabricKind::kUnknownDone));
  for (const FabricKind kind : {FabricKind::kFails, FabricKind::kUnknownDone,
                                FabricKind::kUnknownNot, FabricKind::kSlow, FabricKind::kLies}) {
    Next(FabricCall::kAwaitUnbound, kind);
    EXPECT_FALSE(Await(100, absl::Milliseconds(50)).ok());
    Next(FabricCall::kFence, kind);
    const absl::Status fenced = Do([&](Done done) { fabric->Fence("host-a", std::move(done)); });
    EXPECT_EQ(fenced.ok(), kind == FabricKind::kSlow);
    EXPECT_EQ(fenced.ok(), !a.powered);
    if (!fenced.ok()) continue;
    rack.PowerBack(a);
    ASSERT_TRUE(Bind(1, 100).ok());
  }
  fabric_faults.can_fence = false;
  EXPECT_EQ(ReasonOf(Do([&](Done done) { fabric->Fence("host-a", std::move(done)); })),
            "FENCE_FAILED");
  EXPECT_TRUE(a.powered);
  EXPECT_EQ(ReasonOf(Do([&](Done done) { fabric->Fence("nowhere", std::move(done)); })),
            "UNKNOWN_HOST");
}

TEST_F(SimPortsTest, EveryCallEndsWithinTheDeadline) {
  for (int i = 0; i < 200; ++i) {
    for (int kind = 0; kind < FabricFault::kKinds; ++kind) {
      Next(FabricCall::kDiscover, static_cast<FabricKind>(kind));
      fm::FabricView view;
      Discover(view).IgnoreError();
      EXPECT_LE(took_us, kDeadlineUs);
      Next(FabricCall::kScrub, static_cast<FabricKind>(kind));
      Scrub(107).IgnoreError();
      EXPECT_LE(took_us, kDeadlineUs);
      Next(FabricCall::kBeginUnbind, static_cast<FabricKind>(kind));
      Do([&](Done done) {
        fabric->BeginUnbind(Request(1, 100).binding(), std::move(done));
      }).IgnoreError();
      EXPECT_LE(took_us, kDeadlineUs);
    }
  }
  for (int call = 0; call < kFabricCalls; ++call) {
    for (int kind = 0; kind < FabricFault::kKinds; ++kind) {
      EXPECT_EQ(Legal(static_cast<FabricCall>(call), static_cast<FabricKind>(kind)),
                *NameOf(static_cast<FabricCall>(call), static_cast<FabricKind>(kind)) != '\0');
    }
  }
}

TEST_F(SimPortsTest, WaitForTheProofEndsWithTheEject) {
  ASSERT_TRUE(Bind(1, 100).ok());
  ASSERT_TRUE(PowerOn(1, 100).ok());
  const fm::Binding ld = Request(1, 100).binding();
  ASSERT_TRUE(Do([&](Done done) { fabric->BeginUnbind(ld, std::move(done)); }).ok());
  EXPECT_EQ(ReasonOf(Await(100, absl::Milliseconds(200))), "UNBIND_NOT_PROVEN");
  EXPECT_GE(took_us, 200'000);
  scheduler.At(kWorld, 700'000, [&] { rack.PowerOff(a, 1, 100).IgnoreError(); });
  EXPECT_TRUE(Await(100, absl::Seconds(5)).ok());
  EXPECT_GE(took_us, 690'000);
  EXPECT_LE(took_us, 702'000);
  EXPECT_TRUE(events.empty());
}

TEST_F(SimPortsTest, NoProofFromAHostThatCannotBeAsked) {
  ASSERT_TRUE(Bind(1, 100).ok());
  a.reachable = false;
  rack.Remove(a, 1);
  EXPECT_EQ(ReasonOf(Await(100, absl::Milliseconds(200))), "UNBIND_NOT_PROVEN");
  scheduler.At(kWorld, 300'000, [&] { a.reachable = true; });
  EXPECT_TRUE(Await(100, absl::Seconds(5)).ok());
  EXPECT_GE(took_us, 290'000);
  EXPECT_TRUE(events.empty()) << "it could not see it go";
}

TEST_F(SimPortsTest, SurpriseRemovalIsToldToWhoIsAlive) {
  ASSERT_TRUE(Bind(1, 100).ok());
  ASSERT_TRUE(Bind(2, 101).ok());
  rack.Remove(a, 1);
  scheduler.RunUntil(scheduler.now_us() + 1000);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, fm::FabricEvent::Kind::kLdLost);
  EXPECT_EQ(events[0].key, Request(1, 100).key);
  scheduler.End(manager);
  rack.Remove(a, 2);
  scheduler.RunUntil(scheduler.now_us() + 1000);
  EXPECT_EQ(events.size(), 1u);
}

// The manager before is stopped with a bind in its hand, or the bind is on its way. Whatever comes
// later than the claim is dropped, and the look shows the rest.
TEST_F(SimPortsTest, WhatAFormerManagerSentHasNoEffectAfterTheClaim) {
  int seen = 0, dropped = 0;
  for (uint64_t serial = 100; serial < 140; ++serial) {
    if (serial % 2 == 0) Next(FabricCall::kBind, FabricKind::kSlow);
    fabric->Bind(Request(1, serial), [](const auto&) {});
    scheduler.RunUntil(scheduler.now_us() + static_cast<int64_t>(Random(seed).Below(500)));
    StartManager();
    fm::FabricView view;
    ASSERT_TRUE(Discover(view).ok());
    scheduler.RunUntil(scheduler.now_us() + 2 * kDeadlineUs);
    EXPECT_EQ(Bound(serial), !view.bound.empty());
    ++(view.bound.empty() ? dropped : seen);
    rack.Remove(a, 1);
  }
  EXPECT_GT(seen, 0);
  EXPECT_GT(dropped, 0);
}

// And if nobody claims, it has: that is what the claim is for.
TEST_F(SimPortsTest, WithoutAClaimACommandThatCameLateTakesEffect) {
  fabric->Bind(Request(1, 100), [](const auto&) {});
  epoch = UINT64_MAX;  // The next one: 0.
  StartManager();
  fm::FabricView view;
  ASSERT_TRUE(Discover(view).ok());
  scheduler.RunUntil(scheduler.now_us() + 400'000);
  EXPECT_TRUE(Bound(100));
}

// The manager before stands still, and another one has taken over.
class TwoManagersTest : public SimPortsTest {
 protected:
  void StartNext() {
    next = std::make_unique<SimFabric>(&scheduler, scheduler.Begin(), &rack, &fabric_faults,
                                       Random(++seed));
    next->Start({.hosts = {}, .epoch = ++epoch}, [](const fm::FabricEvent&) {});
  }
  // What is bound, as one of the two sees it; and under which claim of host-a that is.
  size_t Look(SimFabric& from) {
    fm::FabricView view;
    EXPECT_TRUE(Get<fm::FabricView>([&](auto done) { from.Discover(std::move(done)); }, view).ok());
    for (const fm::FabricHost& host : view.hosts) {
      if (host.id == "host-a") claim = host.claim;
    }
    return view.bound.size();
  }
  absl::Status BindUnder(SimFabric& by, uint64_t serial, uint64_t of_claim) {
    fm::BindRequest request = Request(1, serial);
    request.claim = of_claim;
    fm::BoundLd ld;
    return Get<fm::BoundLd>([&](auto done) { by.Bind(request, std::move(done)); }, ld);
  }

  std::unique_ptr<SimFabric> next;
  uint64_t claim = 0;
};

TEST_F(TwoManagersTest, WhoLooksLastHasTheHost) {
  Look(*fabric);
  ASSERT_EQ(claim, 1u);
  StartNext();
  Look(*next);
  ASSERT_EQ(claim, 1u);
  EXPECT_TRUE(absl::IsUnavailable(BindUnder(*fabric, 100, 1)));
  EXPECT_FALSE(Bound(100));
  scheduler.RunUntil(scheduler.now_us() + 1000);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].kind, fm::FabricEvent::Kind::kHostReachable);
  // It takes the host again, and what was decided before that has no effect, either side.
  Look(*fabric);
  EXPECT_EQ(claim, 2u);
  EXPECT_TRUE(absl::IsUnavailable(BindUnder(*fabric, 100, 1)));
  EXPECT_TRUE(absl::IsUnavailable(BindUnder(*next, 101, 1)));
  EXPECT_EQ(breaches, std::vector<std::string>());
  // Nor may it use what no commit has confirmed.
  EXPECT_TRUE(BindUnder(*fabric, 100, 2).ok());
  EXPECT_EQ(breaches.size(), 1u);
  Look(*next);
  EXPECT_EQ(claim, 2u);
  EXPECT_TRUE(absl::IsUnavailable(BindUnder(*next, 101, 1)));
}

TEST_F(TwoManagersTest, WhatIsInTheHandOfWhoStandsStillComesLateAndHasNoEffect) {
  int seen = 0, dropped = 0;
  for (uint64_t serial = 100; serial < 140; ++serial) {
    Look(*fabric);
    const uint64_t held = claim;
    fm::BindRequest request = Request(1, serial);
    request.claim = held;
    fabric->Bind(request, [](const auto&) {});
    scheduler.Pause(manager, scheduler.now_us() + 1'000'000);
    scheduler.RunUntil(scheduler.now_us() + 500'000);
    StartNext();
    const bool there = Look(*next) > 0;
    EXPECT_EQ(Bound(serial), there);
    scheduler.RunUntil(scheduler.now_us() + 2'000'000);
    EXPECT_EQ(Bound(serial), there);
    ++(there ? seen : dropped);
    rack.Remove(a, 1);
    StartManager();
  }
  EXPECT_GT(seen, 0);
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(rack.dropped_binds, static_cast<uint64_t>(dropped));
  EXPECT_EQ(breaches, std::vector<std::string>());
}

TEST_F(TwoManagersTest, WhoStoodStillClearsNothing) {
  Look(*fabric);
  rack.devices[0].content.assign(96, 7);
  std::optional<absl::Status> answer;
  fabric->Scrub(Request(1, 100).slice, {}, [&](auto result) { answer = result.status(); });
  scheduler.Pause(manager, scheduler.now_us() + 1'000'000);
  StartNext();
  Look(*next);
  scheduler.RunUntil(scheduler.now_us() + 2'000'000);
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*answer));
  EXPECT_EQ(rack.devices[0].content, std::vector<uint32_t>(96, 7));
  EXPECT_GT(rack.dropped_scrubs, 0u);
}

TEST_F(SimPortsTest, WhatWasSentToAHostThatWentDarkDoesNotReachTheNextPower) {
  for (int i = 0; i < 20; ++i) {
    fabric->Bind(Request(1, 100), [](const auto&) {});
    rack.PowerLost(a);
    rack.PowerBack(a);
    scheduler.RunUntil(scheduler.now_us() + 10'000);
    EXPECT_FALSE(Bound(100));
  }
}

TEST_F(SimPortsTest, AFailedOrKilledScrubHasClearedAPart) {
  std::vector<uint32_t>& content = rack.devices[0].content;
  const auto left = [&] { return 2 - std::count(content.begin(), content.begin() + 2, 0u); };
  std::set<ptrdiff_t> seen;
  for (int i = 0; i < 50; ++i) {
    std::fill(content.begin(), content.end(), 7u);
    Next(FabricCall::kScrub, FabricKind::kFails);
    EXPECT_FALSE(Scrub(100).ok());
    EXPECT_GT(left(), 0);
    seen.insert(left());
    fabric->Scrub(Request(1, 100).slice, {}, [](const auto&) { FAIL(); });
    scheduler.RunUntil(scheduler.now_us() + static_cast<int64_t>(Random(seed).Below(1000)));
    StartManager();
    scheduler.RunUntil(scheduler.now_us() + 10'000);
    seen.insert(left());
    EXPECT_TRUE(Scrub(100).ok());
    EXPECT_EQ(left(), 0);
  }
  EXPECT_EQ(seen, (std::set<ptrdiff_t>{1, 2}));
}

// --- A host that sees the devices whole, and stands still.

class SharedSimPortsTest : public SimPortsTest {
 protected:
  SharedSimPortsTest() {
    rack.shared = a.shared = b.shared = true;
    rack.session_of = [this](const RackHost& host) -> Rack::AgentSession {
      if (!agents.contains(host.id)) return {};
      return {agents[host.id], host.id == "host-a" && scheduler.now_us() < until_us};
    };
    agents["host-a"] = scheduler.Begin();
  }
  void Pause() {
    until_us = scheduler.now_us() + 1'000'000;
    scheduler.Pause(agents["host-a"], until_us);
  }
  void GoOn() { scheduler.RunUntil(until_us + 1); }

  RackHost& b = rack.hosts["host-b"];
  std::map<std::string, LifeId> agents;  // That have a session.
  int64_t until_us = 0;
};

TEST_F(SharedSimPortsTest, WhoIsToClearDoesItLateAndNobodyGetsTheBytesBefore) {
  std::vector<uint32_t>& content = rack.devices[0].content;
  std::fill(content.begin(), content.end(), 7u);
  Pause();
  EXPECT_TRUE(absl::IsUnknown(Scrub(100)));
  EXPECT_EQ(content[0], 7u);
  agents.erase("host-a");
  agents["host-b"] = scheduler.Begin();
  EXPECT_FALSE(Scrub(100).ok()) << "though host-b could";
  StartManager();
  EXPECT_FALSE(Scrub(100).ok()) << "in another manager's life";
  EXPECT_EQ(content[0], 7u);
  EXPECT_TRUE(Scrub(101).ok()) << "other bytes";
  GoOn();
  EXPECT_EQ(content[0], 0u) << "late";
}

// The agent whose life it was in is the one that does it.
TEST_F(SharedSimPortsTest, WhatCameToAnAgentThatEndedIsNotDone) {
  Pause();
  EXPECT_TRUE(absl::IsUnknown(Bind(1, 100)));
  scheduler.End(agents["host-a"]);
  agents["host-a"] = scheduler.Begin();
  GoOn();
  EXPECT_TRUE(rack.CanAsk(a));
  EXPECT_FALSE(Bound(100));
}

TEST_F(SharedSimPortsTest, GrantsAndRevocationsComeLateAndBeforeAnyLook) {
  Pause();
  EXPECT_TRUE(absl::IsUnknown(Bind(1, 100)));
  EXPECT_TRUE(absl::IsUnknown(Bind(2, 101)));
  EXPECT_FALSE(Await(100, absl::Milliseconds(50)).ok());
  while (scheduler.now_us() < until_us) ASSERT_TRUE(scheduler.RunOne());
  EXPECT_TRUE(Bound(100) || !rack.CanAsk(a)) << "a look would come before it";
  GoOn();
  EXPECT_TRUE(Bound(100) && Bound(101));
  Pause();
  EXPECT_TRUE(absl::IsUnknown(
      Do([&](Done done) { fabric->BeginUnbind(Request(1, 100).binding(), std::move(done)); })));
  EXPECT_FALSE(a.slots.at(1).ld.unbinding);
  GoOn();
  EXPECT_TRUE(a.slots.at(1).ld.unbinding);
}

// --- The host.

TEST_F(SimPortsTest, RungsGoWrongInEveryLegalWay) {
  ASSERT_TRUE(Bind(1, 100).ok());
  Next(HostKind::kFails);
  EXPECT_EQ(ReasonOf(PowerOn(1, 100)), "MEMDEV_TIMEOUT");
  EXPECT_FALSE(a.slots.at(1).powered);
  Next(HostKind::kNoEffect);
  EXPECT_TRUE(PowerOn(1, 100).ok());
  EXPECT_FALSE(a.slots.at(1).powered);
  Next(HostKind::kFailsDone);
  EXPECT_FALSE(PowerOn(1, 100).ok());
  EXPECT_TRUE(a.slots.at(1).powered);
  Next(HostKind::kTimesOut);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Create(100)));
  EXPECT_TRUE(a.regions.empty());
  scheduler.RunUntil(scheduler.now_us() + 5'000'000);
  EXPECT_EQ(a.regions.size(), 1u);
  ASSERT_TRUE(Bind(2, 101).ok());
  Next(HostKind::kPermanent);
  ASSERT_TRUE(PowerOn(2, 101).ok());
  EXPECT_TRUE(absl::IsUnimplemented(Create(101)));
  EXPECT_TRUE(absl::IsUnimplemented(Create(101))) << "and never will";
  EXPECT_EQ(faults_told, (std::set<std::string>{"rung-fails", "rung-no-effect", "rung-fails-done",
                                                "rung-times-out", "rung-permanent"}));
  EXPECT_TRUE(breaches.empty());
}

TEST_F(SimPortsTest, PowerOnWaitsForTheLd) {
  scheduler.At(kWorld, 100'000, [&] { rack.Bind(Request(1, 100)).IgnoreError(); });
  EXPECT_TRUE(PowerOn(1, 100).ok());
  EXPECT_EQ(ReasonOf(PowerOn(2, 101)), "MEMDEV_TIMEOUT");
}

TEST_F(SimPortsTest, ARungOfADeadAgentStillTakesEffect) {
  ASSERT_TRUE(Bind(1, 100).ok());
  memory->PowerOn(1, 100, [](const auto&) { FAIL() << "answered a dead agent"; });
  StartAgent();
  scheduler.RunUntil(scheduler.now_us() + 10'000);
  EXPECT_TRUE(a.slots.at(1).powered);
  EXPECT_TRUE(breaches.empty());
}

TEST_F(SimPortsTest, ARungFromBeforeTheResetDoesNotReachTheNewKernel) {
  ASSERT_TRUE(Bind(1, 100).ok());
  memory->PowerOn(1, 100, [](const auto&) {});
  rack.Reset(a);
  scheduler.RunUntil(scheduler.now_us() + 10'000);
  EXPECT_FALSE(a.slots.at(1).powered);
}

TEST_F(SimPortsTest, NothingHappensWhileTheHostIsPaused) {
  ASSERT_TRUE(Bind(1, 100).ok());
  const int64_t until_us = scheduler.now_us() + 1'000'000;
  host_faults.paused_until_us = until_us;
  scheduler.Pause(agent, until_us);
  memory->PowerOn(1, 100, [](const auto&) {});
  scheduler.RunUntil(until_us - 1);
  EXPECT_FALSE(a.slots.at(1).powered);
  scheduler.RunUntil(until_us + 10'000);
  EXPECT_TRUE(a.slots.at(1).powered);
}

TEST_F(SimPortsTest, HoldersAreShownAndRunOverOnlyInABreach) {
  Take(1, 100);
  ASSERT_TRUE(BindDax(100).ok());
  EXPECT_TRUE(Holders(100).empty());
  a.held.insert(100);
  ASSERT_TRUE(UnbindDax(100).ok()) << "it came after the look";
  EXPECT_TRUE(breaches.empty());
  ASSERT_TRUE(BindDax(100).ok());
  EXPECT_EQ(Holders(100), std::vector<int>{4100});
  ASSERT_TRUE(UnbindDax(100).ok()) << "the kernel lets it";
  ASSERT_EQ(breaches.size(), 1u);
  EXPECT_NE(breaches[0].find("a process has it open"), std::string::npos);
}

TEST_F(SimPortsTest, TwoRungsAtATimeAreABreach) {
  memory->UnbindDax(100, [](const auto&) {});
  memory->UnbindDax(101, [](const auto&) {});
  ASSERT_EQ(breaches.size(), 1u);
  EXPECT_NE(breaches[0].find("two rungs at a time on host-a"), std::string::npos);
}

TEST_F(SimPortsTest, AHostRegionBeforePrepareIsABreach) {
  ASSERT_TRUE(Bind(1, 100).ok());
  ASSERT_TRUE(PowerOn(1, 100).ok());
  a.prepared = false;
  ASSERT_TRUE(Create(100).ok());
  ASSERT_EQ(breaches.size(), 1u);
  EXPECT_NE(breaches[0].find("before Prepare"), std::string::npos);
}

TEST_F(SimPortsTest, DescriptorsOfDevdaxAlone) {
  Take(1, 100);
  EXPECT_EQ(ReasonOf(memory->OpenDax(100, false).status()), "NOT_DEVDAX");
  ASSERT_TRUE(BindDax(100).ok());
  EXPECT_TRUE(memory->OpenDax(100, false).ok());
  a.slots.at(1).ld.read_only = true;
  EXPECT_EQ(ReasonOf(memory->OpenDax(100, false).status()), "ATTACHMENT_READ_ONLY");
  EXPECT_TRUE(memory->OpenDax(100, true).ok());
}

}  // namespace
}  // namespace cxlpool::sim
