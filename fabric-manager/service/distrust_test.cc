// A fabric that fails or does not answer, and hosts that go silent or reboot: what is not proven
// is not believed, and nothing is taken from one host that only another has lost.

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

// An agent that says hello and nothing more.
class SilentAgent : public SessionPeer {
 public:
  void Send(v1::ManagerMessage) override {}
  void Close(const absl::Status&) override {}
  std::string address() const override { return "test:silent"; }
};

class DistrustTest : public ServiceTest {
 protected:
  DistrustTest() { Restart(); }
  ~DistrustTest() override { ExpectLegalEdges(); }
  // As Restart; the first commit of a way back to WANTED fails, and `meanwhile` is called before
  // it.
  void RestartWithAFailingWayBack(std::function<void()> meanwhile = [] {}) {
    rig = std::make_unique<ServiceRig>(
        disk, &world, [this, meanwhile = std::move(meanwhile)](absl::string_view point) {
          if (way_back_failed || point != "before-commit-WANTED") return;
          way_back_failed = true;
          rig->store().FailNextCommit({StoreFull(), false});
          meanwhile();
        });
  }
  static absl::Status StoreFull() {
    return Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL", "full", "wait");
  }
  // No Attachment went from one state to another by an edge that the ladder has not.
  void ExpectLegalEdges() {
    std::map<uint64_t, AttachmentState> last;
    const auto events = rig->watch.Read(rig->watch_floor, 100'000);
    ASSERT_TRUE(events.ok()) << events.status();
    for (const WatchEvent& event : *events) {
      for (const Attachment& attachment : event.region->attachments) {
        const auto [at, first] =
            last.try_emplace(attachment.generation, attachment.settled().state);
        EXPECT_TRUE(MayFollow(at->second, attachment.settled().state))
            << event.region->id << " on " << attachment.host << ": " << ToString(at->second)
            << " to " << ToString(attachment.settled().state);
        at->second = attachment.settled().state;
      }
    }
  }
  static ReleaseSpec Forced(const std::string& id, char request) {
    ReleaseSpec spec = ReleaseOf(id, request);
    spec.force = true;
    spec.reason = "nobody uses it";
    return spec;
  }
  AttachmentState StateOf(const std::string& id) {
    return rig->Find(id)->attachments.at(0).settled().state;
  }

  bool way_back_failed = false;
};

TEST_F(DistrustTest, AFailedScrubIsTriedAgainAndItsBytesAreHeldMeanwhile) {
  Make(AllocateOn("kv", "host-a", 1));
  world.failing_scrubs = 1'000'000;
  ASSERT_TRUE(Release("kv", 2).ok());
  rig->Run(absl::Seconds(30));
  ASSERT_NE(rig->Find("kv"), nullptr);
  EXPECT_EQ(rig->Find("kv")->state, RegionState::kScrubbing);
  EXPECT_NE(rig->Find("kv")->state_reason.find("cannot be cleared"), std::string::npos)
      << rig->Find("kv")->state_reason;
  const uint64_t revision = rig->Find("kv")->revision;
  rig->Run(absl::Seconds(5));
  EXPECT_EQ(rig->Find("kv")->revision, revision) << "said once, not at each try";
  EXPECT_EQ(rig->views.Get()->capacity.free_bytes, 14 * kGranule);
  world.failing_scrubs = 1;
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_EQ(world.scrubbed.size(), 1u);
}

TEST_F(DistrustTest, QuotaCountsBytesUntilTheyAreScrubbed) {
  ASSERT_TRUE(rig->Change(&PlanSetTenant, {0, "ml", 2 * kGranule, 0, 0}).ok());
  AllocateSpec spec = AllocateOn("kv", "host-a", 1);
  spec.tenant = "ml";
  Make(spec);
  world.failing_scrubs = 1'000'000;
  ASSERT_TRUE(Release("kv", 2).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv")->state == RegionState::kScrubbing; }));
  AllocateSpec next = AllocateOn("kw", "host-a", 3);
  next.tenant = "ml";
  EXPECT_EQ(ReasonOf(rig->Allocate(next).status()), "QUOTA_EXCEEDED");
  world.failing_scrubs = 0;
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_TRUE(rig->Allocate(next).ok());
}

TEST_F(DistrustTest, AFenceThatFailsProvesNothing) {
  Make(AllocateOn("kv", "host-a", 1));
  world.refuse_fence = true;
  EXPECT_FALSE(rig->Do([&](Done done) {
                    rig->pool.Fence(Caller::Admin("op"), "host-a", "it hangs", std::move(done));
                  })
                   .ok());
  rig->Run(absl::Seconds(5));
  EXPECT_EQ(rig->Find("kv")->attachments.size(), 1u);
  EXPECT_EQ(world.bound.size(), 1u);
}

TEST_F(DistrustTest, WhereNothingCanFenceTheHostKeepsItsSession) {
  Make(AllocateOn("kv", "host-a", 1));
  world.fence = FenceScope::kNone;
  const absl::Status fenced = rig->Do([&](Done done) {
    rig->pool.Fence(Caller::Admin("op"), "host-a", "it hangs", std::move(done));
  });
  EXPECT_EQ(ReasonOf(fenced), "NO_FENCE") << fenced;
  rig->Run(absl::Seconds(1));
  EXPECT_TRUE(rig->agents["host-a"]->closed.ok()) << rig->agents["host-a"]->closed;
  EXPECT_EQ(world.bound.size(), 1u);
}

// The world aborts if bytes are scrubbed under a bound LD.
TEST_F(DistrustTest, AFenceProvesNothingOfOtherHosts) {
  Make(AllocateOn("kv", "host-a", 1));
  Make(AllocateOn("kw", "host-b", 2));
  world.hold_offline = true;
  ASSERT_TRUE(Release("kw", 3).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return StateOf("kw") == AttachmentState::kReleaseBlocked; }));
  ASSERT_TRUE(rig->Do([&](Done done) {
                   rig->pool.Fence(Caller::Admin("op"), "host-a", "it hangs", std::move(done));
                 })
                  .ok());
  rig->Run(absl::Seconds(5));
  ASSERT_NE(rig->Find("kw"), nullptr);
  EXPECT_EQ(StateOf("kw"), AttachmentState::kReleaseBlocked);
  EXPECT_EQ(world.bound.size(), 1u);
}

// A call about one of the two is under way at any moment.
TEST_F(DistrustTest, WhatWaitsForProofsInTurnKeepsNoFenceFromBeginning) {
  Make(AllocateOn("kv", "host-a", 1));
  Make(AllocateOn("kw", "host-a", 2));
  auto bound = world.bound;
  for (auto& [serial, on] : bound) on.ld.unbinding = true;
  world.slow_proofs = true;
  ASSERT_TRUE(Release("kv", 3).ok());
  ASSERT_TRUE(Release("kw", 4).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return world.slow.size() == 2; }));
  GoSilent("host-a");
  world.bound = bound;  // It lets go of neither.
  std::optional<absl::Status> fenced;
  rig->pool.Fence(Caller::Admin("op"), "host-a", "it hangs",
                  [&](absl::Status status) { fenced = std::move(status); });
  for (int i = 0; i < 10 && !fenced.has_value(); ++i) {
    if (!world.slow.empty()) {
      const std::function<void()> answer = world.slow.front();
      world.slow.erase(world.slow.begin());
      answer();
    }
    rig->Run(absl::Seconds(3));
  }
  ASSERT_TRUE(fenced.has_value());
  EXPECT_TRUE(fenced->ok()) << *fenced;
  EXPECT_TRUE(rig->RunUntil([&] { return rig->views.Get()->regions.size() == 0; }));
}

// While the fence is being recorded the reconciler goes on with what was recorded before it.
TEST_F(DistrustTest, AFenceIsNotUndoneByAStepThatCameBetween) {
  for (int ms = 0; ms < 256; ++ms) {
    SCOPED_TRACE(ms);
    world = World();
    disk = std::make_shared<MemoryDisk>();
    Restart();
    AllocateSpec spec = AllocateOn("kv", "host-a", 1);
    spec.sharing = Sharing::kMultiWriter;
    Make(spec);
    world.slow_binds = true;  // On host-b it is never up, so every tick looks at both.
    rig->pool.Attach({.request = TestRequest("AttachRegion", 2),
                      .caller = Caller::Admin("op"),
                      .region_id = "kv",
                      .host = "host-b"},
                     false, [](const absl::StatusOr<Committed>&) {});
    rig->Run(absl::Milliseconds(100));
    rig->executor.Advance(absl::Milliseconds(ms));
    ASSERT_TRUE(rig->Do([&](Done done) {
                     rig->pool.Fence(Caller::Admin("op"), "host-a", "it hangs", std::move(done));
                   })
                    .ok());
    rig->Run(absl::Seconds(1));
    EXPECT_EQ(rig->Find("kv")->FindAttachment("host-a"), nullptr);
    ExpectLegalEdges();
  }
}

// A Bind that took effect though its answer was lost. A release that comes before anybody looked
// has to look.
TEST_F(DistrustTest, ABindOfUnknownOutcomeIsNotTakenForNone) {
  world.lose_binds = true;
  ASSERT_TRUE(rig->Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_EQ(world.binds, 1);
  ASSERT_TRUE(Release("kv", 2).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_TRUE(world.bound.empty());
  EXPECT_EQ(world.scrubbed.size(), 1u);
}

// Not even an error that says so is a proof that nothing was done.
TEST_F(DistrustTest, ABindThatSaysItDidNothingIsReadBack) {
  world.lose_binds = true;
  for (const absl::Status& lie :
       {absl::UnavailableError("the host is down"), absl::NotFoundError("no such slot")}) {
    world.lost_bind = lie;
    world.scrubbed.clear();
    const std::string id = absl::IsNotFound(lie) ? "kv-1" : "kv-2";
    const char request = absl::IsNotFound(lie) ? 1 : 3;
    ASSERT_TRUE(rig->Allocate(AllocateOn(id, "host-a", request)).ok());
    ASSERT_FALSE(world.bound.empty());
    ASSERT_TRUE(Release(id, static_cast<char>(request + 1)).ok());
    ASSERT_TRUE(rig->RunUntil([&] { return rig->Find(id) == nullptr; }));
    EXPECT_TRUE(world.bound.empty());
    EXPECT_EQ(world.scrubbed.size(), 1u);
  }
}

// It was bound, lost, and the manager restarted before any of it was recorded: the host may have
// met the serial. (The world aborts where a serial is bound twice.)
TEST_F(DistrustTest, AfterARestartNothingIsBoundUnderASerialFromBefore) {
  world.lose_binds = true;
  ASSERT_TRUE(rig->Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_EQ(world.binds, 1);
  rig->Kill();
  world.bound.clear();
  world.lose_binds = false;
  Restart();
  ASSERT_TRUE(rig->RunUntil([&] { return Online(rig->Find("kv")); }));
  EXPECT_EQ(world.binds, 2);
}

// What the host said is forgotten with the serials it was said of, and not before: an agent says
// nothing twice.
TEST_F(DistrustTest, ACommitThatFailedForgetsNothing) {
  RestartWithAFailingWayBack();
  Make(AllocateOn("kv", "host-a", 1));
  const BoundLd lost = world.bound.begin()->second.ld;
  world.bound.clear();
  rig->fabric.Emit({FabricEvent::Kind::kLdLost, "host-a", lost.key});
  ASSERT_TRUE(rig->RunUntil([&] { return world.binds == 2 && Online(rig->Find("kv")); }));
  EXPECT_TRUE(way_back_failed);
}

// A report of the old serials comes while the change to new ones is under way, which then fails.
// The serials are those of the first bind, and those of a later one.
TEST_F(DistrustTest, WhatIsSaidDuringACommitThatFailsIsKept) {
  uint64_t serial = 0;
  const auto say = [&](v1::SegmentState state) {
    SegmentReports reports;
    reports.Add()->set_serial(serial);
    reports.at(0).set_state(state);
    rig->reconciler.OnSegments("host-a", reports, false);
  };
  const auto lose = [&] {
    const BoundLd lost = world.bound.begin()->second.ld;
    serial = lost.serial;
    world.bound.clear();
    rig->fabric.Emit({FabricEvent::Kind::kLdLost, "host-a", lost.key});
  };
  for (const bool bound_again : {false, true}) {
    SCOPED_TRACE(bound_again);
    world = World();
    disk = std::make_shared<MemoryDisk>();
    way_back_failed = bound_again;  // Not the first time.
    RestartWithAFailingWayBack([&] {
      say(v1::SEGMENT_STOPPING);
      rig->executor.PostAfter(absl::Microseconds(500), [&] { say(v1::SEGMENT_ABSENT); });
    });
    Make(AllocateOn("kv", "host-a", 1));
    if (bound_again) {
      lose();
      ASSERT_TRUE(rig->RunUntil([&] { return world.binds == 2 && Online(rig->Find("kv")); }));
      way_back_failed = false;
    }
    rig->agents.erase("host-a");  // From here on only what this test says is heard.
    lose();
    rig->Run(absl::Milliseconds(100));
    say(v1::SEGMENT_ABSENT);
    rig->Run(absl::Milliseconds(500));
    EXPECT_TRUE(way_back_failed);
    EXPECT_EQ(world.binds, bound_again ? 3 : 2);
  }
}

// What is on a failed device needs no scrub; but not before it is durable that it failed.
TEST_F(DistrustTest, ADeviceWhoseFailureIsNotRecordedIsScrubbed) {
  AllocateSpec spec = AllocateOn("kv", "", 1);
  spec.device = "cmm-0";
  ASSERT_TRUE(rig->Allocate(spec).ok());
  world.failing_scrubs = 1'000'000;
  ASSERT_TRUE(Release("kv", 2).ok());
  rig->Run(absl::Seconds(1));
  rig->store().FailNextCommit({StoreFull(), false});
  absl::Status failed;
  rig->pool.FailDevice(Caller::Admin("op"), "cmm-0", "smoke",
                       [&](absl::Status status) { failed = status; });
  rig->reconciler.OnSegments("host-a", {}, false);  // It looks at everything, before the commit.
  rig->Run(absl::Seconds(1));
  ASSERT_EQ(ReasonOf(failed), "STORE_FULL") << failed;
  world.failing_scrubs = 0;
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_EQ(world.scrubbed.size(), 1u);
}

// The host was out of sight when he gave it, and is back before the bind under way has ended.
TEST_F(DistrustTest, AnOperatorsWordDoesNotBeatAFabricThatCanBeAsked) {
  world.slow_binds = true;
  world.lose_binds = true;
  ASSERT_TRUE(rig->Allocate(AllocateOn("kv", "host-a", 1)).ok());
  world.unreachable = {"host-a"};
  rig->fabric.Emit({FabricEvent::Kind::kHostUnreachable, "host-a", {}});
  GoSilent("host-a");
  rig->Run(absl::Milliseconds(100));
  ASSERT_TRUE(rig->Call(&PoolService::Release, Forced("kv", 2)).ok());
  world.unreachable.clear();
  rig->fabric.Emit({FabricEvent::Kind::kHostReachable, "host-a", {}});
  rig->Run(absl::Milliseconds(100));
  ASSERT_EQ(world.slow.size(), 1u);
  world.slow.front()();
  rig->Run(absl::Seconds(5));
  ASSERT_NE(rig->Find("kv"), nullptr) << "it is bound";
  rig->Connect("host-a");
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_TRUE(world.bound.empty());
  EXPECT_EQ(world.scrubbed.size(), 1u);
}

TEST_F(DistrustTest, ForceTakesTheWordForAHostThatNobodyHearsOf) {
  Make(AllocateOn("kv", "host-a", 1));
  world.unreachable = {"host-a"};
  world.bound.clear();  // It burned.
  GoSilent("host-a");
  rig->fabric.Emit({FabricEvent::Kind::kHostUnreachable, "host-a", {}});
  rig->Run(absl::Seconds(1));
  ASSERT_TRUE(rig->Call(&PoolService::Release, Forced("kv", 2)).ok());
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
}

// It hangs on to the memory: force would have changed nothing, and was believed once the fabric
// lost sight of the host.
TEST_F(DistrustTest, ForceOnAHostThatIsThereIsRefusedAndLosesNothing) {
  Make(AllocateOn("kv", "host-a", 1));
  world.hold_offline = true;
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, Forced("kv", 2)).status()), "FENCE_REQUIRED");
  rig->Run(absl::Seconds(5));
  EXPECT_TRUE(Online(rig->Find("kv")));
  EXPECT_FALSE(rig->Find("kv")->forced);
  ASSERT_TRUE(Release("kv", 3).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return StateOf("kv") == AttachmentState::kReleaseBlocked; }));
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, Forced("kv", 4)).status()), "FENCE_REQUIRED");
  GoSilent("host-a");
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, Forced("kv", 5)).status()), "FENCE_REQUIRED")
      << "the fabric reaches it";
  EXPECT_EQ(world.bound.size(), 1u);
}

TEST_F(DistrustTest, ForceWithAFenceFencesEveryHostThatHasItFirst) {
  AllocateSpec spec = AllocateOn("kv", "host-a", 1);
  spec.sharing = Sharing::kMultiWriter;
  Make(spec);
  rig->pool.Attach({.request = TestRequest("AttachRegion", 2),
                    .caller = Caller::Admin("op"),
                    .region_id = "kv",
                    .host = "host-b"},
                   false, [](const absl::StatusOr<Committed>&) {});
  ASSERT_TRUE(rig->RunUntil(
      [&] { return Online(rig->Find("kv")) && rig->Find("kv")->attachments.size() == 2; }));
  Make(AllocateOn("other", "host-a", 3));
  world.hold_offline = true;
  ReleaseSpec force = Forced("kv", 4);
  force.fence = true;
  const auto released = rig->Call(&PoolService::Release, force);
  ASSERT_TRUE(released.ok()) << released.status();
  EXPECT_TRUE(world.bound.empty());
  EXPECT_TRUE(released->region->forced);
  const auto again = rig->Call(&PoolService::Release, force);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->region->generation, released->region->generation);
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_EQ(rig->Find("other")->state, RegionState::kAllocated);
  EXPECT_TRUE(rig->Find("other")->attachments.empty()) << "fenced, with all that the host had";
}

TEST_F(DistrustTest, AFenceThatFailsStopsTheForcedRelease) {
  Make(AllocateOn("kv", "host-a", 1));
  world.refuse_fence = true;
  ReleaseSpec force = Forced("kv", 2);
  force.fence = true;
  EXPECT_EQ(rig->Call(&PoolService::Release, force).status().code(),
            absl::StatusCode::kFailedPrecondition);
  rig->Run(absl::Seconds(1));
  EXPECT_EQ(rig->Find("kv")->state, RegionState::kAllocated);
  EXPECT_FALSE(rig->Find("kv")->forced);
  EXPECT_EQ(world.bound.size(), 1u);
}

TEST_F(DistrustTest, NobodyIsFencedForAReleaseThatIsRefusedAnyway) {
  Make(AllocateOn("kv", "host-a", 1));
  ReleaseSpec force = Forced("kv", 2);
  force.fence = true;
  force.etag = "another";
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, force).status()), "ETAG_MISMATCH");
  force.etag.clear();
  std::vector<absl::StatusOr<ReleaseSpec>> batch = {force};
  Outcomes outcomes;
  rig->pool.ReleaseBatch(std::move(batch), [&](Outcomes got) { outcomes = std::move(got); });
  rig->Run(absl::Seconds(1));
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(ReasonOf(outcomes[0].status()), "BAD_FENCE");
  EXPECT_TRUE(Online(rig->Find("kv")));
}

TEST_F(DistrustTest, AHostThatCannotBeAskedAboutIsNotUnbound) {
  Make(AllocateOn("kv", "host-a", 1));
  world.unreachable = {"host-a"};
  GoSilent("host-a");
  ASSERT_TRUE(Release("kv", 2).ok());
  rig->Run(absl::Minutes(1));
  ASSERT_NE(rig->Find("kv"), nullptr);
  EXPECT_EQ(rig->Find("kv")->attachments.size(), 1u);
  EXPECT_TRUE(world.scrubbed.empty());
}

TEST_F(DistrustTest, WhileItsAgentIsAwayNothingIsPulledFromUnderAHost) {
  Make(AllocateOn("kv", "host-a", 1));
  GoSilent("host-a");
  ASSERT_TRUE(Release("kv", 2).ok());
  rig->Run(absl::Minutes(1));
  ASSERT_NE(rig->Find("kv"), nullptr);
  EXPECT_EQ(StateOf("kv"), AttachmentState::kOnline);
  ASSERT_EQ(world.bound.size(), 1u);
  EXPECT_FALSE(world.bound.begin()->second.ld.unbinding);
  rig->Connect("host-a");
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
}

TEST_F(DistrustTest, WhatARebootedHostHadIsNotWhatItHas) {
  Make(AllocateOn("kv", "host-a", 1));
  v1::Hello hello = rig->agents["host-a"]->Hello();
  rig->agents.erase("host-a");
  hello.set_incarnation("boot-2");
  hello.set_agent_id("00000000-0000-4000-8000-000000000009");
  hello.clear_segments();
  rig->sessions.OnHello(std::make_shared<SilentAgent>(), {"", true}, hello);
  rig->Run(absl::Seconds(1));
  EXPECT_EQ(StateOf("kv"), AttachmentState::kBound);
  EXPECT_TRUE(absl::StartsWith(rig->Find("kv")->attachments[0].settled().reason, "HOST_RESTARTED"))
      << rig->Find("kv")->attachments[0].settled().reason;
}

TEST_F(DistrustTest, ARestartedManagerOffersAgainWhatStands) {
  Make(AllocateOn("kv", "host-a", 1));
  Restart();
  rig->Run(absl::Seconds(15));
  EXPECT_EQ(rig->agents["host-a"]->offers.size(), 1u);
}

// The decoders of a bridge are a stack: none goes while another is being made on it.
TEST_F(DistrustTest, NothingGoesDownOnABridgeWhereAnotherComesUp) {
  Make(AllocateOn("kv", "host-a", 1));
  const std::string bridge = rig->Find("kv")->attachments[0].segments[0].host_bridge;
  world.slow_binds = true;
  // Two bridges of two slots each: one of these is beside the first.
  for (char i = 2; i < 5; ++i) {
    ASSERT_TRUE(rig->Allocate(AllocateOn(std::string(1, 'a' + i), "host-a", i)).ok());
  }
  ASSERT_TRUE(Release("kv", 9).ok());
  rig->Run(absl::Seconds(10));
  EXPECT_EQ(StateOf("kv"), AttachmentState::kOnline) << "on " << bridge;
  EXPECT_EQ(rig->agents["host-a"]->offers.begin()->second.want(), v1::Offer::WANT_ONLINE);
  world.slow_binds = false;
  for (const auto& bind : world.slow) bind();
  world.slow.clear();
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
}

TEST_F(DistrustTest, WithoutADecoderStackOneGoesDownWhileAnotherComesUp) {
  world.any_order = true;
  Restart();
  Make(AllocateOn("kv", "host-a", 1));
  world.slow_binds = true;
  for (char i = 2; i < 5; ++i) {
    ASSERT_TRUE(rig->Allocate(AllocateOn(std::string(1, 'a' + i), "host-a", i)).ok());
  }
  ASSERT_TRUE(Release("kv", 9).ok());
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  world.slow_binds = false;
  for (const auto& bind : world.slow) bind();
  world.slow.clear();
}

// By an Attachment's key the fabric shows other bytes than the record's: neither bound nor gone.
TEST_F(DistrustTest, AnotherLdByTheSameKeyIsNotUnbound) {
  Make(AllocateOn("kv", "host-a", 1));
  const uint64_t serial = rig->Find("kv")->attachments[0].segments[0].serial;
  World::HostLd moved = world.bound.at(serial);
  world.bound.erase(serial);
  moved.ld.slice = {"cmm-1", 4 * kGranule, 2 * kGranule};
  moved.ld.serial = serial + 4096;
  world.bound[moved.ld.serial] = moved;
  Restart();
  ASSERT_TRUE(Release("kv", 2).ok());
  rig->Run(absl::Seconds(30));
  ASSERT_NE(rig->Find("kv"), nullptr);
  ASSERT_EQ(world.bound.size(), 1u);
  EXPECT_FALSE(world.bound.begin()->second.ld.unbinding);
  EXPECT_TRUE(world.scrubbed.empty());
}

}  // namespace
}  // namespace cxlpool::fm
