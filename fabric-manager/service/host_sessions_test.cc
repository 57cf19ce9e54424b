#include "fabric-manager/service/host_sessions.h"

#include <gtest/gtest.h>

#include "test/rigs/each_field_fixture.h"
#include "test/rigs/service_rig.h"

namespace cxlpool::fm {
namespace {

// Says hello as `edit` makes it, on a fresh stream, and gives the stream back.
template <typename Edit>
std::shared_ptr<FakeAgent> Hello(ServiceRig& rig, World& world, const SessionIdentity& identity,
                                 Edit edit) {
  auto agent = std::make_shared<FakeAgent>("host-a", &world);
  v1::Hello hello = agent->Hello();
  edit(hello);
  rig.sessions.OnHello(agent, identity, hello);
  return agent;
}

constexpr auto kAsItIs = [](v1::Hello&) {};
const SessionIdentity kLocal{"", true};

class HostSessionsTest : public testing::Test {
 protected:
  World world;
  ServiceRig rig{std::make_shared<MemoryDisk>(), &world};
};

TEST_F(HostSessionsTest, RefusesOtherProtocolVersions) {
  const auto older = Hello(rig, world, kLocal, [](v1::Hello& h) { h.set_protocol_version(0); });
  EXPECT_EQ(ReasonOf(older->closed), "PROTOCOL_TOO_OLD");
  const auto newer = Hello(rig, world, kLocal, [](v1::Hello& h) { h.set_protocol_version(99); });
  EXPECT_EQ(ReasonOf(newer->closed), "PROTOCOL_TOO_NEW");
  EXPECT_NE(newer->closed.message().find("99"), absl::string_view::npos);
  EXPECT_TRUE(rig.sessions.Online("host-a"));
}

TEST_F(HostSessionsTest, RefusesASecondAgentWhileTheFirstIsAlive) {
  const auto rival = Hello(rig, world, kLocal, [](v1::Hello& h) {
    h.set_agent_id("00000000-0000-4000-8000-000000000009");
  });
  EXPECT_EQ(ReasonOf(rival->closed), "SESSION_ACTIVE");
  EXPECT_TRUE(rig.agents["host-a"]->closed.ok());
}

TEST_F(HostSessionsTest, TheSameAgentsNewestSessionWins) {
  const auto first = rig.agents["host-a"];
  const auto second = Hello(rig, world, kLocal, kAsItIs);
  EXPECT_EQ(ReasonOf(first->closed), "SESSION_REPLACED");
  EXPECT_TRUE(second->closed.ok());
  rig.sessions.OnClosed(first.get());  // The late end of the old stream.
  EXPECT_TRUE(rig.sessions.Online("host-a"));
}

TEST_F(HostSessionsTest, ARebootedHostReplacesItsOldSession) {
  const auto rebooted = Hello(rig, world, kLocal, [](v1::Hello& h) {
    h.set_incarnation("boot-2");
    h.set_agent_id("00000000-0000-4000-8000-000000000009");
  });
  EXPECT_TRUE(rebooted->closed.ok()) << rebooted->closed;
  EXPECT_EQ(ReasonOf(rig.agents["host-a"]->closed), "SESSION_REPLACED");
}

TEST_F(HostSessionsTest, RefusesTheWrongCertificate) {
  const auto wrong = Hello(rig, world, {"cxlpool://host/host-b", false}, kAsItIs);
  EXPECT_EQ(ReasonOf(wrong->closed), "WRONG_IDENTITY");
  const auto right = Hello(rig, world, {"cxlpool://host/host-a", false}, kAsItIs);
  EXPECT_TRUE(right->closed.ok()) << right->closed;
}

TEST_F(HostSessionsTest, RefusesWhatIsRevokedAndEndsTheSessionThatStands) {
  const auto revoke = [&](const std::string& subject) {
    Revocation revocation;
    revocation.subject = subject;
    revocation.reason = "lost";
    EXPECT_TRUE(rig.Change(&PlanRevoke, revocation).ok());
    rig.Run(absl::Milliseconds(50));
  };
  const SessionIdentity old{"cxlpool://host/host-a", false, "7a01"};
  const SessionIdentity next{"cxlpool://host/host-a", false, "7a02"};
  const auto first = Hello(rig, world, old, kAsItIs);
  EXPECT_TRUE(first->closed.ok()) << first->closed;
  revoke("7a01");
  EXPECT_EQ(ReasonOf(first->closed), "CERTIFICATE_REVOKED");
  EXPECT_FALSE(rig.sessions.Online("host-a"));
  EXPECT_EQ(ReasonOf(Hello(rig, world, old, kAsItIs)->closed), "CERTIFICATE_REVOKED");
  const auto second = Hello(rig, world, next, kAsItIs);
  EXPECT_TRUE(second->closed.ok()) << second->closed;
  revoke("cxlpool://host/host-a");
  EXPECT_EQ(ReasonOf(second->closed), "CERTIFICATE_REVOKED");
  // Without TLS nothing is shown that could be revoked.
  EXPECT_TRUE(Hello(rig, world, kLocal, kAsItIs)->closed.ok());
}

TEST_F(HostSessionsTest, RefusesRetiredAndUnknownHosts) {
  EXPECT_TRUE(rig.Change(&PlanRetire, "host-a").ok());
  EXPECT_EQ(ReasonOf(rig.agents["host-a"]->closed), "HOST_RETIRED");
  EXPECT_EQ(ReasonOf(Hello(rig, world, kLocal, kAsItIs)->closed), "HOST_RETIRED");
  const auto unknown = Hello(rig, world, kLocal, [](v1::Hello& h) { h.set_host("hosts/x"); });
  EXPECT_EQ(ReasonOf(unknown->closed), "UNKNOWN_HOST");
}

TEST_F(HostSessionsTest, RefusesMalformedHellos) {
  for (const auto& edit : std::vector<std::function<void(v1::Hello&)>>{
           [](v1::Hello& h) { h.set_host("host-a"); }, [](v1::Hello& h) { h.set_incarnation(""); },
           [](v1::Hello& h) { h.set_agent_id("me"); },
           [](v1::Hello& h) {
             for (int i = 0; i < 1000; ++i) h.mutable_inventory()->add_bridges();
           },
           [](v1::Hello& h) {
             for (int i = 0; i < 5000; ++i) h.add_segments();
           }}) {
    EXPECT_EQ(Hello(rig, world, kLocal, edit)->closed.code(), absl::StatusCode::kInvalidArgument);
  }
}

// An agent may dial as often as it likes, and say each time what it likes.
TEST_F(HostSessionsTest, WhatAHelloSaysOfNobodysMemoryIsOneLineInTheLog) {
  testing::internal::CaptureStderr();
  const auto agent = Hello(rig, world, kLocal, [](v1::Hello& h) {
    h.set_agent_version(std::string(100'000, 'v'));
    for (uint64_t i = 0; i < 100; ++i) h.add_segments()->set_serial(0xbeef000 + i);
  });
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(agent->closed.ok()) << agent->closed;
  EXPECT_NE(log.find("holds serial beef000"), std::string::npos) << log.substr(0, 2000);
  EXPECT_NE(log.find("no Attachment of its own, and 99 more"), std::string::npos);
  EXPECT_EQ(log.find("beef001"), std::string::npos);
  EXPECT_LT(log.size(), 4096u);
}

TEST_F(HostSessionsTest, TakesAnAgentsWordForWhatItsHostCannot) {
  const auto agent = Hello(rig, world, kLocal, [](v1::Hello& h) {
    h.mutable_inventory()->set_unfit_reason(std::string(5000, 'x'));
    h.mutable_inventory()->mutable_bridges(0)->set_depth_unknown(true);
  });
  EXPECT_TRUE(agent->closed.ok()) << agent->closed;
  const HostRuntime before = rig.writer.state().Runtime("host-a");
  EXPECT_EQ(before.unfit_reason, std::string(1024, 'x'));
  EXPECT_TRUE(before.bridges.at(0).depth_unknown);
  EXPECT_FALSE(before.bridges.at(1).depth_unknown);
  v1::AgentMessage fixed;
  fixed.set_session(agent->session());
  *fixed.mutable_report()->mutable_inventory() = agent->Hello().inventory();
  rig.sessions.OnMessage(agent.get(), fixed);
  EXPECT_EQ(rig.writer.state().Runtime("host-a").unfit_reason, "");
}

TEST_F(HostSessionsTest, AUnitThatWouldSpoilEverybodysMakesThatHostUnfit) {
  for (const uint64_t unit : {uint64_t{64} << 30, uint64_t{4} << 30}) {
    const auto agent = Hello(rig, world, kLocal, [unit](v1::Hello& h) {
      h.mutable_inventory()->set_region_granule_bytes(unit);
    });
    EXPECT_TRUE(agent->closed.ok()) << agent->closed;
    const HostRuntime runtime = rig.writer.state().Runtime("host-a");
    EXPECT_NE(runtime.unfit_reason.find("at most 2 GiB"), std::string::npos)
        << runtime.unfit_reason;
    EXPECT_EQ(rig.Allocate(AllocateOn(absl::StrCat("others-", unit >> 20), "", 1 + (unit >> 30)))
                  ->region->held_bytes(),
              2 * kGranule)
        << "as without that host";
    EXPECT_EQ(ReasonOf(rig.Allocate(AllocateOn("kv", "host-a", 100)).status()), "HOST_UNFIT");
  }
  const auto fixed = Hello(rig, world, kLocal, [](v1::Hello& h) {
    h.mutable_inventory()->set_region_granule_bytes(uint64_t{2} << 30);
  });
  EXPECT_EQ(rig.writer.state().Runtime("host-a").unfit_reason, "") << "8 granules of this pool";
}

TEST_F(HostSessionsTest, AWelcomeTellsThePoolsGranule) {
  const auto agent = Hello(rig, world, kLocal, kAsItIs);
  EXPECT_EQ(agent->welcome.granule_bytes(), kGranule);
}

TEST_F(HostSessionsTest, SilenceEndsASessionAndProvesNothing) {
  ASSERT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  rig.Run(absl::Seconds(1));
  rig.Run(absl::Seconds(12));
  EXPECT_EQ(ReasonOf(rig.agents["host-a"]->closed), "LEASE_EXPIRED");
  EXPECT_EQ(world.bound.size(), 1u);
  EXPECT_EQ(rig.views.Get()->capacity.held_bytes, 2 * kGranule);
}

TEST_F(HostSessionsTest, HeartbeatsOfTheCurrentSessionAloneKeepItAlive) {
  const auto agent = rig.agents["host-a"];
  const uint64_t current = agent->session();
  const absl::Time began = rig.executor.Now();
  for (int i = 0; i < 20; ++i) {
    rig.sessions.OnHeartbeat(*agent, current);
    rig.Run(absl::Seconds(1));
  }
  EXPECT_TRUE(agent->closed.ok());
  EXPECT_GE(rig.views.Get()->hosts.at("host-a")->runtime->last_heartbeat,
            began + absl::Seconds(18));
  for (int i = 0; i < 20; ++i) {
    rig.sessions.OnHeartbeat(*agent, current + 77);
    rig.Run(absl::Seconds(1));
  }
  EXPECT_EQ(ReasonOf(agent->closed), "LEASE_EXPIRED");
}

// What readers are shown of heartbeats is older, where there are many hosts.
TEST_F(HostSessionsTest, AnAgentIsAwaySinceItWasLastHeard) {
  const auto agent = rig.agents["host-a"];
  rig.Run(absl::Milliseconds(1300));
  rig.sessions.OnHeartbeat(*agent, agent->session());
  const absl::Time heard = rig.executor.Now();
  rig.sessions.OnClosed(agent.get());
  const HostRuntime& runtime = rig.writer.state().Runtime("host-a");
  EXPECT_FALSE(runtime.online);
  EXPECT_EQ(runtime.last_heartbeat, heard);
  EXPECT_EQ(runtime.wrong_since.at("AGENT_AWAY"), heard);
}

TEST_F(HostSessionsTest, MessagesOfAnotherSessionAreDropped) {
  ASSERT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  rig.Run(absl::Seconds(1));
  v1::AgentMessage stale;
  stale.set_session(77);
  v1::SegmentReport& report = *stale.mutable_report()->add_segments();
  report.set_serial(world.bound.begin()->first);
  report.set_state(v1::SEGMENT_ABSENT);
  rig.sessions.OnMessage(rig.agents["host-a"].get(), stale);
  rig.Run(absl::Seconds(1));
  EXPECT_EQ(rig.Find("kv")->attachments[0].settled().state, AttachmentState::kOnline);
}

// --- Every field is carried.

class EveryWordOfTheAgentTest : public HostSessionsTest {
 protected:
  static v1::HostInventory FullInventory() {
    v1::HostInventory inventory;
    FillAll(inventory);
    inventory.set_memory_block_bytes(kGranule / 2);  // Units are powers of two.
    inventory.set_region_granule_bytes(kGranule);
    return inventory;
  }
  // What is known of host-a, but for when it was heard of.
  HostRuntime Known() {
    HostRuntime runtime = rig.writer.state().Runtime("host-a");
    runtime.last_heartbeat = absl::InfinitePast();
    return runtime;
  }
};

TEST_F(EveryWordOfTheAgentTest, OfAnInventoryIsKnownOfTheHost) {
  const v1::HostInventory full = FullInventory();
  const auto by_hello = [&](const v1::HostInventory& inventory) {
    const auto agent =
        Hello(rig, world, kLocal, [&](v1::Hello& h) { *h.mutable_inventory() = inventory; });
    EXPECT_TRUE(agent->closed.ok()) << agent->closed;
    return Known();
  };
  EXPECT_EQ(FieldsNotSet(full), std::vector<std::string>());
  EXPECT_EQ(FieldsThatAreDropped(full, by_hello), std::vector<std::string>());

  const HostRuntime known = by_hello(full);
  EXPECT_EQ(known.memory_block_bytes, full.memory_block_bytes());
  EXPECT_EQ(known.region_granule_bytes, full.region_granule_bytes());
  EXPECT_EQ(known.page_struct_spare_bytes, full.page_struct_spare_bytes());
  EXPECT_EQ(known.unfit_reason, full.unfit_reason());
  const v1::BridgeInventory& reported = full.bridges(0);
  ASSERT_EQ(known.bridges.size(), 1u);
  const auto& [name, slots, max_regions, depth_unknown, live_regions, blocked, blocking_serial,
               window_bytes, free_window_bytes, any_order] = known.bridges.front();
  EXPECT_EQ(name, reported.name());
  EXPECT_EQ(slots, std::vector<uint32_t>(reported.slots().begin(), reported.slots().end()));
  EXPECT_EQ(max_regions, reported.max_regions());
  EXPECT_EQ(depth_unknown, reported.depth_unknown());
  EXPECT_EQ(live_regions, reported.live_regions());
  EXPECT_EQ(blocked, reported.blocked());
  EXPECT_EQ(blocking_serial, reported.blocking_serial());
  EXPECT_EQ(window_bytes, reported.window_bytes());
  EXPECT_EQ(free_window_bytes, reported.free_window_bytes());
  EXPECT_EQ(any_order, reported.any_order());

  // What a report says of it later counts as much.
  const auto by_report = [&](const v1::HostInventory& inventory) {
    v1::AgentMessage message;
    message.set_session(rig.agents["host-a"]->session());
    *message.mutable_report()->mutable_inventory() = inventory;
    rig.sessions.OnMessage(rig.agents["host-a"].get(), message);
    return Known();
  };
  rig.Connect("host-a");
  EXPECT_EQ(by_report(full), known);
  EXPECT_EQ(FieldsThatAreDropped(full, by_report), std::vector<std::string>());
}

TEST_F(EveryWordOfTheAgentTest, OfAHelloIsKnownOfTheHost) {
  v1::Hello full;
  FillAll(full);
  *full.mutable_inventory() = FullInventory();
  full.set_protocol_version(kHostProtocolVersion);
  full.set_host("hosts/host-a");
  full.set_agent_id("00000000-0000-4000-8000-000000000009");
  const auto by_hello = [&](const v1::Hello& hello) {
    rig.sessions.End("host-a", absl::CancelledError("another one comes"));
    auto agent = std::make_shared<FakeAgent>("host-a", &world);
    rig.sessions.OnHello(agent, SessionIdentity{"", true, "7a01", absl::FromUnixSeconds(42)},
                         hello);
    return std::pair(agent->closed.ok(), Known());
  };
  // Segments go to the Reconciler: DistrustTest, LifecycleTest.
  for (const std::string& name : FieldsThatAreDropped(full, by_hello)) {
    EXPECT_EQ(name.rfind("segments.", 0), 0u) << name << " of a hello is not taken";
  }
  EXPECT_EQ(Known().incarnation, full.incarnation());
  EXPECT_EQ(Known().agent_version, full.agent_version());
  EXPECT_EQ(Known().kernel_release, full.kernel_release());
  EXPECT_EQ(Known().certificate_serial, "7a01");
  EXPECT_EQ(Known().certificate_end, absl::FromUnixSeconds(42));
}

TEST_F(EveryWordOfTheAgentTest, AWelcomeSaysAllThereIsToSay) {
  const HostSessions::Options options;
  rig.sessions.SetOffer("host-a", v1::Offer());
  rig.sessions.SetEpoch(7);
  const v1::Welcome welcome = rig.Connect("host-a")->welcome;
  const auto* type = v1::Welcome::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* field = type->field(i);
    EXPECT_TRUE(field->is_repeated() ? welcome.GetReflection()->FieldSize(welcome, field) > 0
                                     : welcome.GetReflection()->HasField(welcome, field))
        << field->full_name() << ": say it in OnHello";
  }
  EXPECT_EQ(welcome.heartbeat_ms(), absl::ToInt64Milliseconds(options.heartbeat));
  EXPECT_EQ(welcome.lease_ms(), absl::ToInt64Milliseconds(options.lease));
}

}  // namespace
}  // namespace cxlpool::fm
