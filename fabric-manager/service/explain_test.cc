#include "fabric-manager/service/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

namespace cxlpool::fm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr uint64_t kGiB = uint64_t{1} << 30;
const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

// A sound pool: cmm-0 of 64 GiB, host-a online, and Region "kv" online there.
struct SoundPool {
  SoundPool() {
    region.key = 20;
    region.id = "kv";
    region.tenant = Interned("default");
    region.state = RegionState::kAllocated;
    region.state_since = kNow - absl::Hours(1);
    region.extents = {{Interned("cmm-0"), 0, kGiB}};
    Attachment attachment;
    attachment.host = "host-a";
    attachment.generation = 7;
    Segment segment;
    segment.slot = 1;
    segment.host_bridge = "ACPI0016:00";
    attachment.segments = {segment};
    attachment.settled().state = AttachmentState::kOnline;
    attachment.settled().since = kNow - absl::Hours(1);
    region.attachments = {attachment};

    host.host = {.key = 21, .id = "host-a", .identity = "cxlpool://host/host-a"};
    runtime.online = true;
    runtime.fabric_reachable = true;
    runtime.last_heartbeat = kNow;
    Bridge bridge;
    bridge.name = "ACPI0016:00";
    bridge.slots = {1, 2};
    bridge.max_regions = 4;
    bridge.window_bytes = bridge.free_window_bytes = 64 * kGiB;
    runtime.bridges = {bridge};
    runtime.fabric_slots = {1, 2};

    device.device = {.key = 22,
                     .id = "cmm-0",
                     .serial = "s",
                     .capacity_bytes = 64 * kGiB,
                     .granule_bytes = kGiB / 4,
                     .reachable = true};
    device.largest_free_bytes = 63 * kGiB;
    device.use.held_bytes = kGiB;
    capacity = {.total_bytes = 64 * kGiB,
                .free_bytes = 63 * kGiB,
                .held_bytes = kGiB,
                .largest_free_bytes = 63 * kGiB};
  }

  PoolView View() const {
    PoolView view;
    view.regions = RegionTable::Of({std::make_shared<const Region>(region)});
    HostView with_runtime = host;
    with_runtime.runtime = std::make_shared<const HostRuntime>(runtime);
    view.hosts[host.host.id] = std::make_shared<const HostView>(with_runtime);
    view.devices = std::make_shared<const std::vector<DeviceView>>(std::vector{device});
    view.tenants = std::make_shared<const std::vector<TenantView>>(tenants);
    view.laid_down = std::make_shared<const LaidDown>(laid_down);
    view.capacity = capacity;
    view.scarce_since = std::make_shared<const ScarceSince>(scarce_since);
    view.fabric = fabric;
    return view;
  }

  std::vector<Finding> OfRegion() const { return ExplainRegion(View(), region, kNow); }
  std::vector<Finding> OfHost() const {
    const PoolView view = View();
    return ExplainHost(view, *view.hosts.at("host-a"), kNow);
  }
  std::vector<Finding> OfDevice() const { return *ExplainDevice(View(), "cmm-0"); }
  std::vector<Finding> OfAll(const Caller& caller = Caller::Admin("alice")) const {
    return Diagnose(View(), caller, {}, kNow, 100).findings;
  }

  Attachment& attachment() { return region.attachments.front(); }
  Part& part() { return attachment().settled(); }
  OccupiedSlot Occupied(std::string region_id, uint64_t generation, uint32_t slot) const {
    OccupiedSlot occupied;
    occupied.region_id = std::move(region_id);
    occupied.generation = generation;
    occupied.slot = slot;
    occupied.host_bridge = "ACPI0016:00";
    occupied.state = AttachmentState::kOnline;
    return occupied;
  }

  Region region;
  HostView host;
  HostRuntime runtime;
  DeviceView device;
  std::vector<TenantView> tenants;
  LaidDown laid_down;
  Capacity capacity;
  ScarceSince scarce_since;
  FabricCapabilities fabric = {.driver = "fake",
                               .fence = FenceScope::kHost,
                               .add_device = {"cxlpool device add DEVICE --capacity SIZE"}};
};

// The only one; it is of that problem.
Finding Only(const std::vector<Finding>& findings, const std::string& problem) {
  if (findings.size() != 1 || findings.front().problem != problem) {
    std::string seen;
    for (const Finding& finding : findings) seen += finding.problem + " ";
    ADD_FAILURE() << "not just " << problem << " but: " << seen;
    return {};
  }
  return findings.front();
}

TEST(ExplainTest, NothingIsSaidOfASoundPool) { EXPECT_THAT(SoundPool().OfAll(), IsEmpty()); }

TEST(ExplainTest, ABlockedReleaseNamesWhoHoldsIt) {
  SoundPool pool;
  pool.part() = {.state = AttachmentState::kReleaseBlocked,
                 .detaching = true,
                 .reason = "HOLDERS: 2 processes",
                 .since = kNow - absl::Minutes(3)};
  auto report = std::make_shared<HolderReport>();
  report->by_generation[7].holders = {{.pid = 812, .uid = 1000, .program = "python3"}};
  report->by_generation[7].more = 1;
  pool.runtime.holders = report;
  const Finding finding = Only(pool.OfRegion(), "RELEASE_BLOCKED");
  EXPECT_EQ(finding.urgency, Urgency::kWrong);
  EXPECT_EQ(finding.subject, "regions/kv");
  EXPECT_EQ(finding.since, kNow - absl::Minutes(3));
  EXPECT_THAT(finding.text, HasSubstr("HOLDERS: 2 processes"));
  EXPECT_THAT(finding.text, HasSubstr("pid 812 (python3) of user 1000, 1 more"));
  EXPECT_THAT(finding.waits_for, ElementsAre("hosts/host-a"));
  EXPECT_THAT(finding.commands, ElementsAre("cxlpool region holders kv", "on host-a: kill 812",
                                            "cxlpool host fence host-a --reason WHY"));
}

TEST(ExplainTest, AnAgentThatIsAwayIsSaidOfTheHostAndOfWhatWaitsForIt) {
  SoundPool pool;
  pool.runtime.online = false;
  pool.runtime.last_heartbeat = kNow - absl::Minutes(5);
  pool.host.occupied = {pool.Occupied("kv", 7, 1)};
  const Finding of_host = Only(pool.OfHost(), "AGENT_AWAY");
  EXPECT_EQ(of_host.urgency, Urgency::kWrong);
  EXPECT_EQ(of_host.since, kNow - absl::Minutes(5));
  EXPECT_THAT(of_host.commands, ElementsAre("on host-a: cxlpool-agent check",
                                            "on host-a: systemctl restart cxlpool-agent"));
  EXPECT_THAT(pool.OfRegion(), IsEmpty()) << "what is online stays so";
  pool.part().detaching = true;
  EXPECT_EQ(Only(pool.OfRegion(), "AGENT_AWAY").since, kNow - absl::Minutes(5))
      << "not since it is at its rung";
  EXPECT_THAT(Only(pool.OfRegion(), "AGENT_AWAY").commands,
              ElementsAre("on host-a: systemctl restart cxlpool-agent",
                          "cxlpool host fence host-a --reason WHY"));
}

TEST(ExplainTest, AnAgentThatNeverCameIsANote) {
  SoundPool pool;
  pool.runtime.online = false;
  pool.runtime.last_heartbeat = absl::InfinitePast();
  const Finding finding = Only(pool.OfHost(), "AGENT_NEVER_CAME");
  EXPECT_EQ(finding.urgency, Urgency::kNote);
  EXPECT_THAT(finding.commands, ElementsAre("on host-a: cxlpool-agent check",
                                            "on host-a: systemctl enable --now cxlpool-agent",
                                            "cxlpool host retire host-a"));
}

TEST(ExplainTest, AFabricThatCannotBeAskedGoesBeforeAllElse) {
  SoundPool pool;
  pool.runtime.fabric_reachable = false;
  pool.runtime.fabric_reason = "QMP: connection refused";
  pool.part() = {.state = AttachmentState::kWanted};
  EXPECT_THAT(Only(pool.OfRegion(), "FABRIC_AWAY").text, HasSubstr("QMP: connection refused"));
  EXPECT_THAT(Only(pool.OfHost(), "FABRIC_AWAY").text, HasSubstr("QMP: connection refused"));
  EXPECT_EQ(Only(pool.OfHost(), "FABRIC_AWAY").since, absl::InfinitePast());
  pool.runtime.wrong_since = {{"FABRIC_AWAY", kNow - absl::Minutes(2)}};
  pool.part().since = kNow - absl::Hours(3);
  EXPECT_EQ(Only(pool.OfHost(), "FABRIC_AWAY").since, kNow - absl::Minutes(2));
  EXPECT_EQ(Only(pool.OfRegion(), "FABRIC_AWAY").since, kNow - absl::Minutes(2));
}

TEST(ExplainTest, ABlockedBridgeNamesTheRegionThatHasToGo) {
  SoundPool pool;
  pool.runtime.bridges[0].blocked = true;
  pool.runtime.bridges[0].blocking_serial = 0xc0;
  pool.part() = {.state = AttachmentState::kBound};
  OccupiedSlot above = pool.Occupied("old", 5, 2);
  above.serial = 0xc0;
  pool.host.occupied = {above};
  const Finding finding = Only(pool.OfRegion(), "BRIDGE_BLOCKED");
  EXPECT_THAT(finding.waits_for, ElementsAre("hosts/host-a", "regions/old"));
  EXPECT_THAT(finding.commands, ElementsAre("cxlpool region detach old --host host-a",
                                            "cxlpool region detach kv --host host-a"));
  pool.runtime.wrong_since = {{"BRIDGE_BLOCKED ACPI0016:00", kNow - absl::Minutes(2)}};
  const Finding of_host = Only(pool.OfHost(), "BRIDGE_BLOCKED");
  EXPECT_THAT(of_host.waits_for, ElementsAre("regions/old"));
  EXPECT_EQ(of_host.since, kNow - absl::Minutes(2));
}

TEST(ExplainTest, WhatComesUpOrGoesDownOnlyWaits) {
  SoundPool pool;
  pool.part() = {.state = AttachmentState::kBound, .reason = "REBIND"};
  EXPECT_EQ(Only(pool.OfRegion(), "COMING_UP").urgency, Urgency::kWaits);
  pool.part() = {.state = AttachmentState::kOffline, .detaching = true};
  EXPECT_EQ(Only(pool.OfRegion(), "GOING_DOWN").urgency, Urgency::kWaits);
}

TEST(ExplainTest, AnUnbindThatIsNotProvenForLongNeedsAFence) {
  SoundPool pool;
  pool.part() = {.state = AttachmentState::kEjecting,
                 .detaching = true,
                 .reason = "STILL_BOUND",
                 .since = kNow - absl::Seconds(10)};
  Only(pool.OfRegion(), "GOING_DOWN");
  pool.part().since = kNow - kSlowUnbind - absl::Seconds(1);
  const Finding finding = Only(pool.OfRegion(), "UNBIND_NOT_PROVEN");
  EXPECT_EQ(finding.urgency, Urgency::kWrong);
  EXPECT_THAT(finding.commands, ElementsAre("cxlpool host fence host-a --reason WHY"));
}

// A fence would be refused there: NO_FENCE.
TEST(ExplainTest, WhereTheFabricCannotFenceARebootIsOffered) {
  SoundPool pool;
  pool.fabric.fence = FenceScope::kNone;
  const std::string reboot =
      "on host-a: reboot it; to cut it off from afar, set fabric.fence_program";
  pool.part() = {
      .state = AttachmentState::kEjecting, .detaching = true, .since = kNow - kSlowUnbind * 2};
  EXPECT_THAT(Only(pool.OfRegion(), "UNBIND_NOT_PROVEN").commands, ElementsAre(reboot));
  pool.part() = {.state = AttachmentState::kReleaseBlocked, .detaching = true};
  EXPECT_EQ(Only(pool.OfRegion(), "RELEASE_BLOCKED").commands.back(), reboot);
  pool.runtime.online = false;
  pool.part() = {.state = AttachmentState::kOnline, .detaching = true};
  EXPECT_EQ(Only(pool.OfRegion(), "AGENT_AWAY").commands.back(), reboot);
  pool.runtime.fabric_reachable = false;
  EXPECT_EQ(Only(pool.OfRegion(), "FABRIC_AWAY").commands.back(), reboot);
  // What can cut off one binding after the other can cut off a host.
  pool.fabric.fence = FenceScope::kBinding;
  EXPECT_EQ(Only(pool.OfRegion(), "FABRIC_AWAY").commands.back(),
            "cxlpool host fence host-a --reason WHY");
}

TEST(ExplainTest, AStrayIsDetachedThenReleasedByForce) {
  SoundPool pool;
  pool.region.state = RegionState::kQuarantined;
  pool.region.state_reason = "STRAY: found bound";
  pool.attachment().held = true;
  EXPECT_THAT(Only(pool.OfRegion(), "QUARANTINED").commands,
              ElementsAre("cxlpool region detach kv --host host-a",
                          "cxlpool region release kv --detach-all --force --reason WHY"));
}

TEST(ExplainTest, AScrubWaitsForItsDevice) {
  SoundPool pool;
  pool.region.attachments.clear();
  pool.region.state = RegionState::kScrubbing;
  EXPECT_EQ(Only(pool.OfRegion(), "SCRUBBING").urgency, Urgency::kWaits);
  EXPECT_EQ(Only(ExplainRegion(pool.View(), pool.region, kNow, kGiB / 4), "SCRUBBING").text,
            "its bytes are being cleared; 256 MiB of 1 GiB are left");
  pool.device.device.reachable = false;
  pool.device.device.unreachable_reason = "no such file";
  const Finding finding = Only(pool.OfRegion(), "SCRUB_WAITS");
  EXPECT_THAT(finding.waits_for, ElementsAre("devices/cmm-0"));
  pool.device.device.unreachable_since = kNow - absl::Minutes(2);
  const Finding of_device = Only(pool.OfDevice(), "DEVICE_UNREACHABLE");
  EXPECT_THAT(of_device.text, HasSubstr("no such file"));
  EXPECT_THAT(of_device.text, HasSubstr("only if it is broken for good"))
      << "nothing takes it back";
  EXPECT_EQ(of_device.since, kNow - absl::Minutes(2));
  EXPECT_THAT(of_device.commands,
              ElementsAre("cxlpool device show cmm-0", "cxlpool device fail cmm-0 --reason WHY"));
}

// They are the fabric.
TEST(ExplainTest, OnSharedDevicesTheAgentsThatAreAwayAreBroughtBack) {
  SoundPool pool;
  pool.fabric = {.driver = "fake", .asks_agents = true};
  pool.runtime.online = pool.runtime.fabric_reachable = false;
  pool.device.device.reachable = false;
  const Finding of_device = Only(pool.OfDevice(), "DEVICE_UNREACHABLE");
  EXPECT_THAT(of_device.waits_for, ElementsAre("hosts/host-a"));
  EXPECT_EQ(of_device.commands.front(), "on host-a: systemctl restart cxlpool-agent");
  pool.part() = {.state = AttachmentState::kWanted};
  EXPECT_THAT(
      Only(pool.OfRegion(), "FABRIC_AWAY").commands,
      ElementsAre("cxlpool explain host/host-a", "on host-a: systemctl restart cxlpool-agent",
                  "on host-a: reboot it; to cut it off from afar, set "
                  "fabric.fence_program"));
}

// There is nothing to clear on it, and it seldom shows any more: the rest goes on.
TEST(ExplainTest, AScrubDoesNotWaitForADeviceThatFailed) {
  SoundPool pool;
  pool.region.attachments.clear();
  pool.region.state = RegionState::kScrubbing;
  pool.device.device.service = DeviceService::kFailed;
  pool.device.device.reachable = false;
  pool.region.extents.push_back({Interned("cmm-1"), 0, kGiB});
  EXPECT_EQ(Only(pool.OfRegion(), "SCRUBBING").urgency, Urgency::kWaits);
  pool.region.state_reason = "WAITS: its bytes cannot be cleared";
  EXPECT_THAT(Only(pool.OfRegion(), "SCRUB_WAITS").waits_for, ElementsAre("devices/cmm-1"));
}

TEST(ExplainTest, AScrubThatFailsIsForAPerson) {
  SoundPool pool;
  pool.region.attachments.clear();
  pool.region.state = RegionState::kScrubbing;
  pool.region.state_reason =
      "WAITS: its bytes cannot be cleared, which is tried again and again: no";
  const Finding finding = Only(pool.OfRegion(), "SCRUB_WAITS");
  EXPECT_EQ(finding.urgency, Urgency::kWrong);
  EXPECT_THAT(finding.text, StartsWith("its bytes cannot be cleared"));
  EXPECT_THAT(finding.text, HasSubstr("only if it is broken for good"));
  EXPECT_THAT(finding.waits_for, ElementsAre("devices/cmm-0"));
  EXPECT_THAT(finding.commands,
              ElementsAre("cxlpool device show cmm-0", "cxlpool device fail cmm-0 --reason WHY"));
}

TEST(ExplainTest, AShrinkThatWaitsForItsScrubIsForAPerson) {
  SoundPool pool;
  pool.region.extents.push_back({Interned("cmm-1"), 0, kGiB});
  pool.region.tail_extents = 1;
  pool.region.tail_leaving = true;
  EXPECT_THAT(pool.OfRegion(), IsEmpty());
  pool.region.state_reason = "WAITS: device cmm-1 has to be reached to clear its bytes: no";
  const Finding finding = Only(pool.OfRegion(), "SCRUB_WAITS");
  EXPECT_EQ(finding.urgency, Urgency::kWrong);
  EXPECT_EQ(finding.since, absl::InfinitePast());
  EXPECT_THAT(finding.waits_for, ElementsAre("devices/cmm-1"));
}

TEST(ExplainTest, WhatCouldNotBeMadeAndWaitsForItsScrubIsForAPerson) {
  SoundPool pool;
  pool.region.attachments.clear();
  pool.region.state = RegionState::kFailed;
  EXPECT_EQ(Only(pool.OfRegion(), "FAILED").urgency, Urgency::kWaits);
  pool.region.state_reason = "WAITS: its bytes cannot be cleared: no; before that: no answer";
  EXPECT_EQ(Only(pool.OfRegion(), "SCRUB_WAITS").urgency, Urgency::kWrong);
}

TEST(ExplainTest, LostBytesSayWhatToDoWithRegionAndDevice) {
  SoundPool pool;
  pool.region.bad = {{0, "MEDIA_ERROR at 0x1000"}};
  pool.region.state_reason = "MEDIA_ERROR: at 0x1000: bytes are lost";
  EXPECT_EQ(Only(pool.OfRegion(), "LOST_BYTES").since, absl::InfinitePast())
      << "not since it is allocated";
  EXPECT_THAT(Only(pool.OfRegion(), "LOST_BYTES").commands,
              ElementsAre("cxlpool region release kv --detach-all", "cxlpool device drain cmm-0"));
}

TEST(ExplainTest, ALeaseThatEndsSoonIsANote) {
  SoundPool pool;
  pool.region.expire_time = kNow + kLeaseEndsSoon + absl::Seconds(1);
  EXPECT_THAT(pool.OfRegion(), IsEmpty());
  pool.region.expire_time = kNow + absl::Minutes(1);
  EXPECT_THAT(Only(pool.OfRegion(), "LEASE_ENDS").commands,
              ElementsAre("cxlpool region renew kv --ttl 1h"));
}

// PlanExpiry leaves such Regions as they are.
TEST(ExplainTest, ALeaseIsNotSaidToEndWhatItDoesNot) {
  SoundPool pool;
  pool.region.expire_time = kNow + absl::Minutes(1);
  pool.region.state = RegionState::kQuarantined;
  Only(pool.OfRegion(), "QUARANTINED");
  pool.region.state = RegionState::kFailed;
  Only(pool.OfRegion(), "FAILED");
  pool.region.state = RegionState::kReserved;
  pool.region.compensating = true;
  EXPECT_THAT(pool.OfRegion(), IsEmpty());
}

TEST(ExplainTest, HostsThatCannotTakeAnything) {
  SoundPool pool;
  pool.runtime.unfit_reason = "NO_CXL: the kernel has no cxl_mem";
  pool.runtime.wrong_since = {{"UNFIT", kNow - absl::Minutes(2)},
                              {"DEVICE_NOT_REACHED cmm-0", kNow - absl::Minutes(1)}};
  EXPECT_THAT(Only(pool.OfHost(), "UNFIT").text, HasSubstr("NO_CXL"));
  EXPECT_EQ(Only(pool.OfHost(), "UNFIT").since, kNow - absl::Minutes(2));
  pool.runtime.unfit_reason = "";
  pool.runtime.unreached = {{"cmm-0", "no DAX device has its mark"}};
  const Finding unreached = Only(pool.OfHost(), "DEVICE_NOT_REACHED");
  EXPECT_THAT(unreached.waits_for, ElementsAre("devices/cmm-0"));
  EXPECT_EQ(unreached.since, kNow - absl::Minutes(1));
  pool.runtime.unreached.clear();
  pool.host.host.retired = true;
  EXPECT_THAT(pool.OfHost(), IsEmpty()) << "it is to come no more";
}

TEST(ExplainTest, ACertificateThatEnds) {
  SoundPool pool;
  pool.runtime.certificate_serial = "0a";
  pool.runtime.certificate_end = kNow + kCertificateEndsSoon + absl::Hours(1);
  EXPECT_THAT(pool.OfHost(), IsEmpty());
  pool.runtime.certificate_end = kNow + absl::Hours(1);
  EXPECT_EQ(Only(pool.OfHost(), "CERTIFICATE_ENDS").urgency, Urgency::kNote);
  pool.runtime.certificate_end = kNow;
  EXPECT_EQ(Only(pool.OfHost(), "CERTIFICATE_ENDS").urgency, Urgency::kWrong);
}

TEST(ExplainTest, ADrainWaitsForWhoHasBytesThere) {
  SoundPool pool;
  pool.device.device.service = DeviceService::kDraining;
  pool.device.device.service_since = kNow - absl::Minutes(2);
  const Finding finding = Only(pool.OfDevice(), "DRAINING");
  EXPECT_EQ(finding.since, kNow - absl::Minutes(2));
  EXPECT_THAT(finding.waits_for, ElementsAre("regions/kv"));
  EXPECT_THAT(finding.commands,
              ElementsAre("cxlpool region release kv --detach-all", "cxlpool device add cmm-0"));
  pool.device.use = {};
  pool.scarce_since = {{"DRAINED cmm-0", kNow - absl::Minutes(1)}};
  EXPECT_EQ(Only(pool.OfDevice(), "DRAINED").since, kNow - absl::Minutes(1));
  EXPECT_THAT(Only(pool.OfDevice(), "DRAINED").commands,
              ElementsAre("cxlpool device remove cmm-0", "cxlpool device add cmm-0"));
  pool.device.device.service = DeviceService::kRemoved;
  EXPECT_THAT(pool.OfDevice(), IsEmpty());
}

TEST(ExplainTest, ABrokenDevice) {
  SoundPool pool;
  pool.device.device.service = DeviceService::kFailed;
  pool.region.state = RegionState::kQuarantined;
  const Finding held = Only(pool.OfDevice(), "DEVICE_FAILED");
  EXPECT_EQ(held.urgency, Urgency::kWrong);
  EXPECT_THAT(held.waits_for, ElementsAre("regions/kv"));
  EXPECT_THAT(held.commands,
              ElementsAre("cxlpool region detach kv --host host-a",
                          "cxlpool region release kv --detach-all --force --reason WHY",
                          "cxlpool device remove cmm-0"))
      << "a word stands for no proof that the host can give";
  pool.part().detaching = true;
  EXPECT_EQ(Only(pool.OfDevice(), "DEVICE_FAILED").commands.size(), 2u);
  pool.region.state = RegionState::kScrubbing;
  EXPECT_THAT(Only(pool.OfDevice(), "DEVICE_FAILED").commands,
              ElementsAre("cxlpool device remove cmm-0"));
  pool.device.use = {};
  EXPECT_EQ(Only(pool.OfDevice(), "DEVICE_FAILED").urgency, Urgency::kNote);
}

TEST(ExplainTest, ADeviceWithoutAFreeLd) {
  SoundPool pool;
  pool.device.max_lds = 4;
  pool.device.use.lds = 3;
  EXPECT_THAT(pool.OfDevice(), IsEmpty());
  pool.device.use.lds = 4;
  EXPECT_THAT(Only(pool.OfDevice(), "LDS_TAKEN").commands,
              ElementsAre("cxlpool region list --filter \"device = cmm-0\"",
                          "cxlpool region release NAME --detach-all"));
  pool.scarce_since = {{"LDS_TAKEN cmm-0", kNow - absl::Minutes(2)}};
  EXPECT_EQ(Only(pool.OfDevice(), "LDS_TAKEN").since, kNow - absl::Minutes(2));
}

TEST(ExplainTest, ADeviceThatTheFabricHasNeverShown) {
  SoundPool pool;
  pool.laid_down.unseen_devices["cmm-9"] = "no such file";
  EXPECT_EQ(Only(pool.OfAll(), "DEVICE_UNREACHABLE").subject, "devices/cmm-9");
  EXPECT_THAT(ExplainDevice(pool.View(), "cmm-9"), ::testing::Optional(::testing::SizeIs(1)));
  EXPECT_EQ(ExplainDevice(pool.View(), "cmm-8"), std::nullopt);
}

TEST(ExplainTest, WhatIsTrueOfThePoolAsAWhole) {
  SoundPool pool;
  pool.capacity.free_bytes = 2 * kGiB;
  pool.capacity.largest_free_bytes = 2 * kGiB;
  EXPECT_EQ(Only(pool.OfAll(), "POOL_FULL").subject, "");
  EXPECT_EQ(Only(pool.OfAll(), "POOL_FULL").since, absl::InfinitePast());
  const absl::Time since = kNow - absl::Minutes(2);
  pool.scarce_since = {{"POOL_FULL", since}, {"POOL_FRAGMENTED", since}, {"TENANT_FULL ml", since}};
  EXPECT_EQ(Only(pool.OfAll(), "POOL_FULL").since, since);
  // In pieces is what is so on each device: that there are many makes no piece small.
  pool.capacity.free_bytes = 32 * kGiB;
  EXPECT_EQ(Only(pool.OfAll(), "POOL_FRAGMENTED").since, since);
  pool.device.use.held_bytes = 45 * kGiB;
  EXPECT_TRUE(pool.OfAll().empty());
  pool.device = SoundPool().device;
  pool.capacity = SoundPool().capacity;
  pool.tenants = {
      {.tenant = {.id = "ml", .quota_bytes = 20 * kGiB}, .use = {.held_bytes = 19 * kGiB}}};
  EXPECT_EQ(Only(pool.OfAll(), "TENANT_FULL").subject, "tenants/ml");
  EXPECT_EQ(Only(pool.OfAll(), "TENANT_FULL").since, since);
  pool.capacity = {};
  pool.tenants.clear();
  EXPECT_THAT(Only(pool.OfAll(), "NO_DEVICE").commands,
              ElementsAre("cxlpool device add DEVICE --capacity SIZE"));
}

TEST(ExplainTest, ADeviceIsAddedAsTheDriverFindsIt) {
  SoundPool pool;
  pool.capacity = {};
  pool.fabric.add_device = {"cxlpool device discover",
                            "cxlpool device add DEVICE --path HOST/NAME"};
  EXPECT_THAT(Only(pool.OfAll(), "NO_DEVICE").commands,
              ElementsAre("cxlpool device discover", "cxlpool device add DEVICE --path HOST/NAME"));
  pool.capacity = SoundPool().capacity;
  pool.capacity.free_bytes = pool.capacity.largest_free_bytes = kGiB;
  EXPECT_THAT(Only(pool.OfAll(), "POOL_FULL").commands,
              ElementsAre("cxlpool region list --order-by \"size_bytes desc\"",
                          "cxlpool device discover", "cxlpool device add DEVICE --path HOST/NAME"));
}

TEST(ExplainTest, TheWorstComesFirstAndCausesBeforeWhatTheyBringAbout) {
  SoundPool pool;
  pool.capacity.free_bytes = kGiB;
  pool.runtime.online = false;
  pool.host.occupied = {pool.Occupied("kv", 7, 1)};
  pool.part().detaching = true;
  pool.region.expire_time = kNow;
  std::vector<std::string> order;
  for (const Finding& finding : pool.OfAll())
    order.push_back(finding.subject + " " + finding.problem);
  EXPECT_THAT(order, ElementsAre("hosts/host-a AGENT_AWAY", "regions/kv AGENT_AWAY", " POOL_FULL",
                                 "regions/kv LEASE_ENDS"));
  const Diagnosis cut = Diagnose(pool.View(), Caller::Admin("alice"), {}, kNow, 1);
  ASSERT_EQ(cut.findings.size(), 1u);
  EXPECT_EQ(cut.findings[0].subject, "hosts/host-a");
  EXPECT_EQ(cut.left_out, 3u);
}

// The manager's own findings, hosts and devices are no tenant's.
TEST(DiagnoseTest, ATenantHearsOfItsOwn) {
  SoundPool pool;
  pool.region.tenant = "ml";
  pool.region.requests = {{{"bob", "AllocateRegion", Uuid("0123456789abcdef")}, 1}};
  pool.region.expire_time = kNow + absl::Minutes(5);
  pool.runtime.online = false;
  pool.device.device.reachable = false;
  for (const char* id : {"giraffe", "ml"}) {
    pool.tenants.push_back({.tenant = {.id = id, .quota_bytes = 1}, .use = {.held_bytes = 1}});
  }
  const auto told = [&](const std::string& tenant) {
    std::vector<std::string> subjects;
    const Caller caller = Caller::User("bob", PoolRole::kTenant, {tenant});
    const PoolView view = pool.View();
    for (const Finding& finding : Diagnose(view, caller, {}, kNow, 100).findings) {
      subjects.push_back(finding.subject);
    }
    return subjects;
  };
  EXPECT_THAT(told("ml"), ElementsAre("tenants/ml", "regions/kv"));
  EXPECT_THAT(told("giraffe"), ElementsAre("tenants/giraffe"));
  EXPECT_THAT(told("nobody"), IsEmpty());
}

}  // namespace
}  // namespace cxlpool::fm
