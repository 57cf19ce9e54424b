// Memory that loses bytes, from the host's word to the operator's: nothing is acknowledged before
// it is durable, and no bad byte is free before an operator frees it.

#include "fabric-manager/service/media_keeper.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

class MediaKeeperTest : public ServiceTest {
 protected:
  MediaKeeperTest() { Restart(); }
  ~MediaKeeperTest() override { ExpectSound(); }
  uint64_t SerialOf(const std::string& id, size_t segment = 0) {
    return rig->Find(id)->attachments.front().segments[segment].serial;
  }
  static v1::HostEvent Poison(uint64_t sequence, uint64_t serial) {
    v1::HostEvent event;
    event.set_sequence(sequence);
    event.set_serial(serial);
    event.set_kind(v1::HostEvent::POISON);
    event.set_severity(v1::HostEvent::FAILURE);
    event.set_bytes_lost(true);
    event.set_dpa_bytes(0x1000);
    event.set_length_bytes(64);
    return event;
  }
  void Tell(const std::string& host, const std::vector<v1::HostEvent>& events) {
    v1::AgentMessage message;
    message.set_session(rig->agents[host]->session());
    for (const v1::HostEvent& event : events) *message.mutable_report()->add_events() = event;
    rig->sessions.OnMessage(rig->agents[host].get(), message);
  }
  uint64_t Seen(const std::string& host = "host-a") { return rig->agents[host]->events_seen; }
  void Release(const std::string& id, char request) {
    ASSERT_TRUE(rig->Call(&PoolService::Release, ReleaseOf(id, request)).ok());
  }
  RegionPtr Kept() {
    for (const auto& [key, region] : rig->writer.state().regions()) {
      if (absl::StartsWith(region->id, "bad-")) return region;
    }
    return nullptr;
  }
  Capacity capacity() { return rig->views.Get()->capacity; }
  // How many Extents of any device are counted as having lost bytes, since this manager began.
  uint64_t Lost() {
    uint64_t all = 0;
    for (const auto& [device, count] : rig->writer.meters().media_errors_lost.Values()) {
      all += count;
    }
    return all;
  }
};

TEST_F(MediaKeeperTest, MarksTheExtentAndThenAcknowledges) {
  Make(AllocateOn("kv", "host-a", 1));
  Tell("host-a", {Poison(1, SerialOf("kv")), Poison(2, SerialOf("kv"))});
  EXPECT_EQ(Seen(), 0u) << "the commit takes a millisecond";
  EXPECT_TRUE(rig->Find("kv")->bad.empty());
  rig->Run(absl::Milliseconds(20));
  EXPECT_EQ(Seen(), 2u);
  ASSERT_EQ(rig->Find("kv")->bad.size(), 1u);
  EXPECT_TRUE(absl::StartsWith(rig->Find("kv")->state_reason, "MEDIA_ERROR: POISON on device "));
  EXPECT_EQ(rig->Find("kv")->state, RegionState::kAllocated);
  EXPECT_EQ(rig->Find("kv")->attachments[0].settled().state, AttachmentState::kOnline);
  EXPECT_EQ(capacity().quarantined_bytes, 2 * kGranule);
  Restart();
  EXPECT_EQ(rig->Find("kv")->bad.size(), 1u);
}

TEST_F(MediaKeeperTest, WhatLostNoBytesIsAcknowledgedAndNoMore) {
  Make(AllocateOn("kv", "host-a", 1));
  const uint64_t revision = rig->writer.revision();
  v1::HostEvent event = Poison(5, SerialOf("kv"));
  event.set_bytes_lost(false);
  event.set_kind(v1::HostEvent::AER_CORRECTABLE);
  Tell("host-a", {event});
  EXPECT_EQ(Seen(), 5u);
  EXPECT_EQ(rig->writer.revision(), revision);
}

TEST_F(MediaKeeperTest, AHostCannotSpoilWhatIsNotItsOwn) {
  Make(AllocateOn("kv", "host-a", 1));
  const uint64_t revision = rig->writer.revision();
  Tell("host-b", {Poison(1, SerialOf("kv")), Poison(2, 4711), Poison(3, 0)});
  rig->Run(absl::Milliseconds(20));
  EXPECT_EQ(Seen("host-b"), 3u) << "it means nothing here: not to be reported again";
  EXPECT_TRUE(rig->Find("kv")->bad.empty());
  EXPECT_EQ(rig->writer.revision(), revision);
}

TEST_F(MediaKeeperTest, OverReconnectsAndAgainIsHarmless) {
  Make(AllocateOn("kv", "host-a", 1));
  Tell("host-a", {Poison(7, SerialOf("kv"))});
  rig->Connect("host-a");  // Before it is durable: the old session is over.
  rig->Run(absl::Milliseconds(20));
  EXPECT_EQ(Seen(), 0u) << "this session has reported nothing yet";
  const uint64_t revision = rig->writer.revision();
  Tell("host-a", {Poison(1, SerialOf("kv"))});
  rig->Run(absl::Milliseconds(20));
  EXPECT_EQ(Seen(), 1u);
  EXPECT_EQ(rig->Find("kv")->bad.size(), 1u);
  EXPECT_EQ(rig->writer.revision(), revision) << "it is marked already";
}

// Prometheus sees an increase only where bytes are lost that nobody knew of.
TEST_F(MediaKeeperTest, LostBytesAreCountedOnce) {
  Make(AllocateOn("kv", "host-a", 1));
  const std::string device = rig->Find("kv")->extents[0].device.str();
  Tell("host-a", {Poison(1, SerialOf("kv")), Poison(2, SerialOf("kv"))});
  EXPECT_EQ(Lost(), 0u) << "it is not durable yet";
  rig->Run(absl::Milliseconds(20));
  EXPECT_EQ(rig->writer.meters().media_errors_lost.Values(),
            (std::map<std::string, uint64_t>{{device, 1}}));
  rig->Connect("host-a");  // As an agent does that began anew and looked at the poison list.
  Tell("host-a", {Poison(1, SerialOf("kv")), Poison(2, 4711)});
  rig->Run(absl::Milliseconds(20));
  EXPECT_EQ(Seen(), 2u);
  EXPECT_EQ(Lost(), 1u);
  Restart();
  Tell("host-a", {Poison(1, SerialOf("kv"))});
  rig->Run(absl::Milliseconds(20));
  EXPECT_EQ(Seen(), 1u);
  EXPECT_EQ(Lost(), 0u) << "old news";
  Make(AllocateOn("other", "host-a", 2));
  Tell("host-a", {Poison(2, SerialOf("other"))});
  rig->Run(absl::Milliseconds(20));
  EXPECT_EQ(Lost(), 1u);
}

TEST_F(MediaKeeperTest, AFullStoreIsTriedAgainAndNothingLaterIsAcknowledgedBefore) {
  Make(AllocateOn("kv", "host-a", 1));
  rig->store().FailNextCommit(
      {Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL", "no space", "make some")});
  Tell("host-a", {Poison(1, SerialOf("kv"))});
  rig->Run(absl::Milliseconds(20));
  v1::HostEvent harmless = Poison(2, SerialOf("kv"));
  harmless.set_bytes_lost(false);
  Tell("host-a", {harmless});
  rig->Run(absl::Milliseconds(100));
  EXPECT_EQ(Seen(), 0u);
  ASSERT_TRUE(rig->RunUntil([&] { return Seen() == 2; }));
  EXPECT_EQ(rig->Find("kv")->bad.size(), 1u);
}

TEST_F(MediaKeeperTest, MoreEventsThanAreAllowedEndTheSession) {
  Tell("host-a", std::vector<v1::HostEvent>(257, Poison(1, 1)));
  EXPECT_EQ(ReasonOf(rig->agents["host-a"]->closed), "BAD_REPORT");
}

TEST_F(MediaKeeperTest, MoreMemdevsThanAHostHasEndTheSession) {
  uint64_t serial = 1;
  for (int i = 0; i < 17; ++i) {
    std::vector<v1::HostEvent> events;
    for (int k = 0; k < 256; ++k, ++serial) events.push_back(Poison(serial, serial));
    Tell("host-a", events);
  }
  EXPECT_EQ(ReasonOf(rig->agents["host-a"]->closed), "BAD_REPORT");
}

TEST_F(MediaKeeperTest, TheEndOfTheRegionKeepsTheBytesUntilAnOperatorFreesThem) {
  Make(AllocateOn("kv", "host-a", 1));
  const Extent extent = rig->Find("kv")->extents[0];
  Tell("host-a", {Poison(1, SerialOf("kv"))});
  Release("kv", 2);
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  ASSERT_NE(Kept(), nullptr);
  EXPECT_EQ(Kept()->extents, std::vector<Extent>{extent});
  EXPECT_EQ(Kept()->state, RegionState::kQuarantined);
  EXPECT_EQ(capacity().quarantined_bytes, 2 * kGranule);
  EXPECT_TRUE(world.scrubbed.empty()) << "nobody gets them";

  const std::string id = Kept()->id;
  ReleaseSpec forced = ReleaseOf(id, 3);
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, forced).status()), "REGION_QUARANTINED");
  forced = ReleaseOf(id, 4);
  forced.force = true;
  forced.reason = "the module was replaced";
  ASSERT_TRUE(rig->Call(&PoolService::Release, forced).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find(id) == nullptr; }));
  EXPECT_EQ(Kept(), nullptr);
  EXPECT_EQ(world.scrubbed.size(), 1u) << "scrubbed: that clears poison";
  EXPECT_EQ(capacity().free_bytes, capacity().total_bytes);
}

TEST_F(MediaKeeperTest, BytesThatTheirDeviceCannotClearAreKeptFromEverybody) {
  Make(AllocateOn("kv", "host-a", 1));
  const Extent extent = rig->Find("kv")->extents[0];
  world.not_scrubbable = {extent.device.str()};
  Release("kv", 2);
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  ASSERT_NE(Kept(), nullptr);
  EXPECT_EQ(Kept()->extents, std::vector<Extent>{extent});
  EXPECT_EQ(Kept()->state, RegionState::kQuarantined);
  EXPECT_EQ(Kept()->state_reason.rfind("NOT_SCRUBBABLE: ", 0), 0u) << Kept()->state_reason;
  EXPECT_EQ(capacity().quarantined_bytes, 2 * kGranule);

  // By force it is tried once more: kept again, or clear.
  for (const bool clears : {false, true}) {
    if (clears) world.not_scrubbable.clear();
    const std::string id = Kept()->id;
    ReleaseSpec forced = ReleaseOf(id, clears ? 4 : 3);
    forced.force = true;
    forced.reason = "the device has new firmware";
    ASSERT_TRUE(rig->Call(&PoolService::Release, forced).ok());
    ASSERT_TRUE(rig->RunUntil([&] { return rig->Find(id) == nullptr; }));
    EXPECT_EQ(Kept() == nullptr, clears);
  }
  EXPECT_EQ(capacity().free_bytes, capacity().total_bytes);
}

TEST_F(MediaKeeperTest, WhatIsToldOnTheWayDownCounts) {
  Make(AllocateOn("kv", "host-a", 1));
  world.hold_offline = true;
  Release("kv", 2);
  Tell("host-a", {Poison(1, SerialOf("kv"))});
  rig->Run(absl::Milliseconds(20));
  EXPECT_EQ(Seen(), 1u);
  world.hold_offline = false;
  rig->agents.clear();
  rig->Connect("host-a");
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_NE(Kept(), nullptr);
}

TEST_F(MediaKeeperTest, AnAllocationThatFailedKeepsThem) {
  world.slow_binds = true;
  ASSERT_TRUE(rig->Allocate(AllocateOn("kv", "host-a", 1)).ok());
  rig->Run(absl::Milliseconds(50));
  Tell("host-a", {Poison(1, SerialOf("kv"))});
  world.refuse_online = true;
  world.slow_binds = false;
  for (const auto& bind : std::exchange(world.slow, {})) bind();
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_NE(Kept(), nullptr);
  EXPECT_EQ(capacity().free_bytes, capacity().total_bytes - 2 * kGranule);
}

TEST_F(MediaKeeperTest, ABadTailIsKeptWhenTheRegionShrinks) {
  Make(AllocateOn("kv", "host-a", 1));
  ASSERT_TRUE(rig->Resize("kv", 5 * kGranule, 2).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  Tell("host-a", {Poison(1, SerialOf("kv", 1))});
  rig->Run(absl::Milliseconds(20));
  ASSERT_TRUE(rig->Resize("kv", 2 * kGranule, 3).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  EXPECT_TRUE(rig->Find("kv")->bad.empty());
  EXPECT_TRUE(rig->Find("kv")->state_reason.empty());
  ASSERT_NE(Kept(), nullptr);
  EXPECT_EQ(Kept()->extents[0].length_bytes, 3 * kGranule);
  EXPECT_EQ(capacity().quarantined_bytes, 3 * kGranule);
  // It grows again, and not into what is kept.
  ASSERT_TRUE(rig->Resize("kv", 5 * kGranule, 4).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
}

// The manager is killed at every rung of mark, shrink and end in turn: in the end the bytes are
// with nobody but their own Region, whichever that is.
TEST(MediaKillTest, BadBytesAreNeverFreeAtAnyRung) {
  for (int fatal = 0; fatal < 200; ++fatal) {
    World world;
    const auto disk = std::make_shared<MemoryDisk>();
    int passed = 0;
    bool killed = false;
    std::unique_ptr<ServiceRig> rig;
    const Probe probe = [&](absl::string_view) {
      if (rig == nullptr || killed || passed++ != fatal) return;
      killed = true;
      rig->Kill();
    };
    rig = std::make_unique<ServiceRig>(disk, &world, probe);
    ASSERT_TRUE(rig->Allocate(AllocateOn("kv", "host-a", 1)).ok());
    rig->RunUntil([&] { return Settled(rig->Find("kv")); });
    bool reported = false;
    for (int life = 0; life < 3; ++life) {
      if (rig->stopped) {
        rig.reset();
        rig = std::make_unique<ServiceRig>(disk, &world);
      }
      const auto region = [&]() -> RegionPtr {
        const RegionPtr* found = rig->writer.state().FindRegionById("kv");
        return found == nullptr ? nullptr : *found;
      };
      rig->RunUntil([&] {
        return region() == nullptr || Settled(region()) ||
               region()->state != RegionState::kReserved;
      });
      if (region() == nullptr) break;
      if (!reported && !region()->attachments.empty()) {
        v1::AgentMessage message;
        message.set_session(rig->agents["host-a"]->session());
        v1::HostEvent& event = *message.mutable_report()->add_events();
        event.set_sequence(1);
        event.set_serial(region()->attachments[0].segments[0].serial);
        event.set_kind(v1::HostEvent::POISON);
        event.set_bytes_lost(true);
        event.set_length_bytes(64);
        rig->sessions.OnMessage(rig->agents["host-a"].get(), message);
        rig->RunUntil([&] { return rig->agents["host-a"]->events_seen == 1; });
        reported = rig->agents["host-a"]->events_seen == 1;
      }
      if (!rig->stopped) rig->Call(&PoolService::Release, ReleaseOf("kv", 2)).IgnoreError();
      rig->RunUntil([&] { return region() == nullptr; });
    }
    ASSERT_TRUE(reported) << "killed at rung " << fatal;
    const Capacity capacity = rig->views.Get()->capacity;
    EXPECT_EQ(capacity.quarantined_bytes, 2 * kGranule) << "killed at rung " << fatal;
    EXPECT_EQ(capacity.free_bytes + 2 * kGranule, capacity.total_bytes);
    if (!killed) {
      EXPECT_GT(fatal, 10);
      return;
    }
  }
  FAIL() << "there is no end to the rungs";
}

}  // namespace
}  // namespace cxlpool::fm
