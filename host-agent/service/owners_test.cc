#include "host-agent/service/owners.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "proto/support/names.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

// The host's processes, as the test says. They outlive an agent.
class FakeProcesses : public ProcessWatch {
 public:
  void Watch(const ProcessId& process, Done ended) override {
    EXPECT_FALSE(watched.contains(process));
    if (cannot_watch) return std::move(ended)(absl::ResourceExhaustedError("no descriptor"));
    if (!alive.contains(process)) return std::move(ended)(absl::OkStatus());
    watched.emplace(process, std::move(ended));
  }
  void Forget(const ProcessId& process) override {
    if (auto node = watched.extract(process); !node.empty()) {
      std::move(node.mapped())(absl::CancelledError(""));
    }
  }
  bool HasEnded(const ProcessId& process) override { return !alive.contains(process); }
  void End(const ProcessId& process) {
    alive.erase(process);
    if (auto node = watched.extract(process); !node.empty()) {
      std::move(node.mapped())(absl::OkStatus());
    }
  }

  std::set<ProcessId> alive;
  std::map<ProcessId, Done> watched;
  bool cannot_watch = false;
};

constexpr ProcessId kOwner = {.pid = 4711, .start_ticks = 99};

struct OwnersRig : CoreRig {
  OwnersRig() {
    processes.alive = {kOwner};
    memory.plugged = {{1, 0x51}, {2, 0x52}, {3, 0x53}};
    StartAgent();
  }

  void StartAgent() {
    owners.reset();
    NewCore();
    owners = std::make_unique<Owners>(core.get(), &executor, &executor, &processes, &link);
    Start();
  }

  static v1::Offer Owned(uint64_t generation, v1::Offer::Want want = kOnline,
                         const ProcessId& process = kOwner,
                         const std::string& incarnation = "boot-1") {
    v1::Offer offer = MakeOffer(generation, want, {{generation, 0x50 + generation}});
    offer.mutable_owner()->set_uid(1000);
    offer.mutable_owner()->set_pid(process.pid);
    offer.mutable_owner()->set_start_ticks(process.start_ticks);
    offer.mutable_owner()->set_incarnation(incarnation);
    return offer;
  }

  void End(const ProcessId& process) {
    processes.End(process);
    executor.RunReady();
  }
  void Withdraw(uint64_t generation) {
    v1::Withdraw withdraw;
    withdraw.set_region_tag(absl::StrCat("tag-", generation));
    withdraw.set_attachment_generation(generation);
    link.handlers.on_withdraw(withdraw);
    executor.RunReady();
  }
  void LoseManager() {
    link.handlers.on_lost(absl::UnavailableError("gone"), false);
    executor.RunReady();
  }
  void Answer(size_t call, const absl::Status& status) {
    if (status.ok()) {
      std::move(link.releases[call].second)(v1::ReleaseRegionResponse());
    } else {
      std::move(link.releases[call].second)(status);
    }
    executor.RunReady();
  }
  std::vector<std::string> Released() const {
    std::vector<std::string> names;
    for (const auto& [request, done] : link.releases) names.push_back(request.name());
    return names;
  }
  // Each call for one Region is the same call.
  bool OneRequestEach() const {
    std::map<std::string, std::string> ids;
    return std::all_of(link.releases.begin(), link.releases.end(), [&](const auto& call) {
      return ids.emplace(call.first.name(), call.first.request_id()).first->second ==
             call.first.request_id();
    });
  }

  FakeProcesses processes;
  std::unique_ptr<Owners> owners;
};

using Names = std::vector<std::string>;

TEST(OwnersTest, ADeadOwnersRegionIsReleasedByItsTagAndOnce) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1), MakeOffer(2, kOnline, {{2, 0x52}})});
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_TRUE(rig.link.releases.empty());
  rig.End(kOwner);
  ASSERT_EQ(rig.Released(), Names{"regions/tag-1"});
  EXPECT_TRUE(rig.link.releases[0].first.detach_all());
  EXPECT_EQ(rig.link.releases[0].first.request_id(), OwnerGoneRequestId("tag-1"));
  EXPECT_EQ(rig.core->meters().owner_releases.value(), 0u);
  rig.Answer(0, absl::OkStatus());
  EXPECT_EQ(rig.core->meters().owner_releases.value(), 1u);
  rig.Offer(OwnersRig::Owned(1, kOffline));
  rig.executor.Advance(absl::Minutes(10));
  rig.Withdraw(1);
  EXPECT_EQ(rig.link.releases.size(), 1u);
  EXPECT_TRUE(rig.processes.watched.empty());
}

TEST(OwnersTest, WhateverStateItDiesIn) {
  for (const bool while_offered : {true, false}) {
    for (const v1::Offer::Want want : {kOnline, kOffline, v1::Offer::WANT_EJECTED}) {
      SCOPED_TRACE(absl::StrCat(while_offered, " ", want));
      OwnersRig rig;
      rig.memory.plugged.clear();  // Nothing comes online.
      rig.Connect();
      if (!while_offered) rig.End(kOwner);
      rig.Offer(OwnersRig::Owned(1, want));
      if (while_offered) rig.End(kOwner);
      EXPECT_EQ(rig.Released(), Names{"regions/tag-1"});
    }
  }
}

TEST(OwnersTest, AnOwnerOfAnotherBootIsDead) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1, kOnline, kOwner, "boot-0")});
  EXPECT_EQ(rig.Released(), Names{"regions/tag-1"});
  EXPECT_TRUE(rig.processes.watched.empty());
}

TEST(OwnersTest, ALaterProcessOfTheSamePidIsNotTheOwner) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1, kOnline, {.pid = kOwner.pid, .start_ticks = 98})});
  EXPECT_EQ(rig.Released(), Names{"regions/tag-1"});
}

TEST(OwnersTest, AnAgentThatRestartsLearnsTheOwnersAgain) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1), OwnersRig::Owned(2)});
  rig.StartAgent();
  EXPECT_TRUE(rig.processes.watched.empty());
  rig.Connect({OwnersRig::Owned(1), OwnersRig::Owned(2)});
  EXPECT_TRUE(rig.link.releases.empty());
  rig.End(kOwner);
  EXPECT_EQ(rig.Released(), (Names{"regions/tag-1", "regions/tag-2"}));
  // Before the answer came: the same calls again.
  rig.StartAgent();
  rig.Connect({OwnersRig::Owned(1), OwnersRig::Owned(2, kOffline)});
  EXPECT_EQ(rig.link.releases.size(), 4u);
  EXPECT_TRUE(rig.OneRequestEach());
}

TEST(OwnersTest, AnOwnerThatDiesWhileNoAgentRunsIsFound) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1)});
  rig.owners.reset();
  rig.core.reset();
  rig.End(kOwner);
  rig.StartAgent();
  rig.Connect({OwnersRig::Owned(1)});
  EXPECT_EQ(rig.Released(), Names{"regions/tag-1"});
}

TEST(OwnersTest, WhileTheManagerIsAwayTheReleaseWaits) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1)});
  rig.LoseManager();
  rig.End(kOwner);
  rig.executor.Advance(absl::Hours(1));
  EXPECT_TRUE(rig.link.releases.empty());
  rig.Connect({OwnersRig::Owned(1)});
  EXPECT_EQ(rig.Released(), Names{"regions/tag-1"});
  rig.Answer(0, absl::OkStatus());
  rig.executor.Advance(absl::Hours(1));
  EXPECT_EQ(rig.link.releases.size(), 1u);
}

TEST(OwnersTest, ACallThatIsLostIsMadeAgainWithBackoff) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1)});
  rig.End(kOwner);
  for (size_t call = 0; call < 12; ++call) {
    ASSERT_EQ(rig.link.releases.size(), call + 1);
    rig.Answer(call, absl::UnavailableError("lost"));
    EXPECT_EQ(rig.link.releases.size(), call + 1);
    rig.executor.Advance(kMaxReleaseBackoff);
  }
  EXPECT_TRUE(rig.OneRequestEach());
  // A new session: no reason to wait any longer.
  rig.Answer(12, absl::UnavailableError("lost"));
  rig.Connect({OwnersRig::Owned(1)});
  EXPECT_EQ(rig.link.releases.size(), 14u);
}

TEST(OwnersTest, WhatIsGoneAlreadyNeedsNoRelease) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1)});
  rig.End(kOwner);
  rig.Answer(0, absl::NotFoundError("no such Region"));
  rig.executor.Advance(absl::Hours(1));
  EXPECT_EQ(rig.link.releases.size(), 1u);
}

TEST(OwnersTest, AManagerWithOlderRecordsIsToldAgain) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1)});
  rig.End(kOwner);
  rig.Answer(0, absl::OkStatus());
  rig.Connect({OwnersRig::Owned(1, kOffline)});
  EXPECT_EQ(rig.link.releases.size(), 1u);
  rig.Connect({OwnersRig::Owned(1)});
  EXPECT_EQ(rig.link.releases.size(), 2u);
  EXPECT_TRUE(rig.OneRequestEach());
}

TEST(OwnersTest, WhatCannotBeWatchedIsAskedAgain) {
  OwnersRig rig;
  rig.processes.cannot_watch = true;
  rig.Connect({OwnersRig::Owned(1)});
  rig.End(kOwner);
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_TRUE(rig.link.releases.empty());
  rig.processes.cannot_watch = false;
  rig.executor.Advance(kWatchAgain);
  EXPECT_EQ(rig.Released(), Names{"regions/tag-1"});
}

TEST(OwnersTest, AProcessIsWatchedOnceAndForgottenWithItsLastRegion) {
  OwnersRig rig;
  const ProcessId other = {.pid = 5, .start_ticks = 6};
  rig.processes.alive.insert(other);
  rig.Connect({OwnersRig::Owned(1), OwnersRig::Owned(2), OwnersRig::Owned(3, kOnline, other)});
  EXPECT_EQ(rig.processes.watched.size(), 2u);
  rig.Withdraw(1);
  EXPECT_EQ(rig.processes.watched.size(), 2u);
  rig.Withdraw(2);
  EXPECT_EQ(rig.processes.watched.size(), 1u);
  rig.Connect();  // A Welcome without it.
  EXPECT_TRUE(rig.processes.watched.empty());
  rig.Connect({OwnersRig::Owned(1)});
  rig.End(other);
  EXPECT_TRUE(rig.link.releases.empty());
  rig.End(kOwner);
  EXPECT_EQ(rig.Released(), Names{"regions/tag-1"});
}

TEST(OwnersTest, ARegionThatIsAttachedAnewKeepsItsOwner) {
  OwnersRig rig;
  v1::Offer anew = OwnersRig::Owned(2);
  anew.set_region_tag("tag-1");
  rig.Connect({OwnersRig::Owned(1, kOffline), anew});
  rig.Withdraw(1);
  EXPECT_EQ(rig.processes.watched.size(), 1u);
  rig.End(kOwner);
  EXPECT_EQ(rig.Released(), Names{"regions/tag-1"});
}

TEST(OwnersTest, ARegionThatLosesItsOwnerIsKept) {
  OwnersRig rig;
  rig.Connect({OwnersRig::Owned(1), OwnersRig::Owned(2)});
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}));  // An operator has detached it.
  rig.End(kOwner);
  EXPECT_EQ(rig.Released(), Names{"regions/tag-2"});
}

TEST(OwnersTest, SoManyReleasesAtOnceAndNoMore) {
  OwnersRig rig;
  std::vector<v1::Offer> offers;
  constexpr size_t kMany = 20;
  for (uint64_t i = 1; i <= kMany; ++i) offers.push_back(OwnersRig::Owned(i));
  rig.Connect(std::move(offers));
  rig.End(kOwner);
  EXPECT_EQ(rig.link.releases.size(), static_cast<size_t>(kMaxReleasesAtOnce));
  for (size_t call = 0; call < kMany; ++call) {
    ASSERT_GT(rig.link.releases.size(), call);
    rig.Answer(call, absl::OkStatus());
  }
  Names names = rig.Released();
  EXPECT_EQ(names.size(), kMany);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(OwnersTest, TheRequestIdIsOneAUUIDForEachTag) {
  const std::string a = "0f8fad5b-d9cb-469f-a165-70867728950e";
  const std::string b = "0f8fad5b-d9cb-469f-a165-70867728950f";
  Uuid uuid;
  EXPECT_TRUE(ParseUuid(OwnerGoneRequestId(a), uuid));
  EXPECT_EQ(OwnerGoneRequestId(a), OwnerGoneRequestId(a));
  EXPECT_NE(OwnerGoneRequestId(a), OwnerGoneRequestId(b));
  EXPECT_NE(OwnerGoneRequestId(a), a);
  EXPECT_EQ(OwnerGoneRequestId(a)[14], '8');
}

// An Offer's tag is known to be not empty, and no more.
TEST(OwnersTest, ARequestIdIsMadeOfAnyTag) {
  Uuid uuid;
  for (const char* tag :
       {"t", "tag-1", "0123456789abcdef", "a tag that is longer than any UUID is"}) {
    EXPECT_TRUE(ParseUuid(OwnerGoneRequestId(tag), uuid)) << tag;
  }
}

}  // namespace
}  // namespace cxlpool::agent
