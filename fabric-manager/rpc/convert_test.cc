// What the API shows of records, of what agents say, and of what both come to.
#include "fabric-manager/rpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "test/rigs/each_field_fixture.h"
#include "test/rigs/full_records_fixture.h"

namespace cxlpool::fm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const FabricCapabilities kFabric{
    .driver = "fake", .isolates = true, .enforces_read_only = true, .hardware_coherent = true};

// Every value of the records is another one, so that two that are swapped are seen here.
void ExpectShows(const google::protobuf::Message& message, const std::string& text) {
  EXPECT_EQ(message.DebugString(), text.substr(1));
}

TEST(EveryFieldTest, OfARegionIsShown) {
  const v1::Region shown = ToProto(*FullRegion(), kFabric);
  EXPECT_THAT(FieldsNotSet(shown), IsEmpty()) << "set it in FillRegion";
  ExpectShows(shown, R"(
name: "regions/kv"
tag: "30313233-3435-3637-3839-616263646500"
generation: 78
tenant: "tenants/acme"
size_bytes: 8192
requested_bytes: 1000
sharing: MULTI_WRITER
state: QUARANTINED
state_reason: "why"
extents {
  device: "devices/cmm-0"
  dpa_bytes: 4096
  length_bytes: 8192
  bad_reason: "poison"
}
extents {
  device: "devices/cmm-1"
  dpa_bytes: 16384
  length_bytes: 4096
}
attachments {
  host: "hosts/host-a"
  mode: SYSTEM_RAM
  access: READ_ONLY
  coherence: HARDWARE
  state: RELEASE_BLOCKED
  state_reason: "shrunk"
  detaching: true
  generation: 80
  segments {
    extent_index: 1
    slot: 9
    host_bridge: "ACPI0016:00"
    serial: 864691128455135313
    memdev: "mem3"
    host_region: "region2"
    dax_device: "dax2.0"
    numa_node: 5
    hpa_bytes: 1099511627776
    online_blocks: 3
    total_blocks: 4
  }
  zone: KERNEL
  enforced_by: FABRIC
  state_time {
    seconds: 1600000005
    nanos: 1000
  }
}
create_time {
  seconds: 1600000000
  nanos: 1000
}
etag: "4e-63"
revision: 99
policy: ISOLATE
interleave_ways: 2
interleave_granularity_bytes: 512
resizing: true
expire_time {
  seconds: 1600000090
  nanos: 1000
}
owner {
  uid: 1
  pid: 2
  start_ticks: 3
  incarnation: "boot-1"
}
maker {
  host: "hosts/host-a"
  uid: 1000
}
open_to {
  uids: 7
  uids: 0
  gids: 8
  everybody: true
}
isolation: FABRIC
state_time {
  seconds: 1600000004
  nanos: 1000
}
)");
}

// A view of the hosts that a Region is attached to.
PoolView ViewOf(const std::vector<std::pair<std::string, HostRuntime>>& hosts) {
  PoolView view;
  for (const auto& [id, runtime] : hosts) {
    view.hosts[id] =
        std::make_shared<HostView>(HostView{Host{.key = 1, .id = id, .identity = ""},
                                            std::make_shared<const HostRuntime>(runtime),
                                            {}});
  }
  return view;
}

TEST(EveryFieldTest, OfHoldersIsShown) {
  v1::ListRegionHoldersResponse shown;
  FillHolders(*FullRegion(), Caller::Admin("alice"), ViewOf({{"host-a", FullRuntime()}}), &shown);
  EXPECT_THAT(FieldsNotSet(shown), IsEmpty()) << "set it in FillHolders";
  ExpectShows(shown, R"(
hosts {
  host: "hosts/host-a"
  report_time {
    seconds: 1600000003
    nanos: 1000
  }
  holders {
    pid: 31
    start_ticks: 32
    uid: 33
    program: "python3"
    open_bytes: 34
    mapped_bytes: 35
    live_bytes: 36
    slack_bytes: 37
    pins: 38
  }
  more: 41
  unopened_since {
    seconds: 1600000004
    nanos: 1000
  }
}
)");
}

// A Region on host-a (generation 80) and host-b (90), and what their agents told of both.
TEST(HoldersTest, AHostIsShownItsOwnAlone) {
  Region region = *FullRegion();
  region.attachments.push_back(region.attachments.front());
  region.attachments.back().host = "host-b";
  region.attachments.back().generation = 90;
  HostRuntime silent = FullRuntime();
  silent.holders = nullptr;
  const PoolView view = ViewOf({{"host-a", FullRuntime()}, {"host-b", silent}});
  const auto hosts_for = [&](const Caller& caller) {
    v1::ListRegionHoldersResponse shown;
    FillHolders(region, caller, view, &shown);
    std::vector<std::string> hosts;
    for (const v1::HostHolders& of : shown.hosts()) {
      hosts.push_back(
          absl::StrCat(of.host(), of.has_report_time() ? " told " : " silent ", of.holders_size()));
    }
    return hosts;
  };
  const std::vector<std::string> all = {"hosts/host-a told 1", "hosts/host-b silent 0"};
  EXPECT_EQ(hosts_for(Caller::Admin("alice")), all);
  EXPECT_EQ(hosts_for(Caller::Local("")), all);
  EXPECT_THAT(hosts_for(Caller::OfHost("host-a", "a")), ElementsAre("hosts/host-a told 1"));
  EXPECT_THAT(hosts_for(Caller::OfHost("host-b", "b")), ElementsAre("hosts/host-b silent 0"));
  EXPECT_THAT(hosts_for(Caller::OfHost("host-c", "c")), IsEmpty());
  EXPECT_THAT(hosts_for(Caller()), IsEmpty());
}

// Attached again is another Attachment: what was told of the former one is not said of it.
TEST(HoldersTest, OfAFormerAttachmentNothingIsShown) {
  Region region = *FullRegion();
  region.attachments.front().generation = 81;
  v1::ListRegionHoldersResponse shown;
  FillHolders(region, Caller::Admin("alice"), ViewOf({{"host-a", FullRuntime()}}), &shown);
  ASSERT_EQ(shown.hosts_size(), 1);
  EXPECT_TRUE(shown.hosts(0).has_report_time());
  EXPECT_EQ(shown.hosts(0).holders_size(), 0);
  EXPECT_EQ(shown.hosts(0).more(), 0u);
}

TEST(HoldersTest, AnAnswerStaysSmallAndCountsTheRest) {
  constexpr int kHosts = 600;
  constexpr int kOfEach = 32;
  Region region = *FullRegion();
  const Attachment attachment = region.attachments.front();
  region.attachments.clear();
  HostRuntime runtime = FullRuntime();
  auto report = std::make_shared<HolderReport>();
  Holder largest;
  largest.pid = largest.uid = largest.pins = UINT32_MAX;
  largest.start_ticks = largest.open_bytes = largest.mapped_bytes = UINT64_MAX;
  largest.live_bytes = largest.slack_bytes = UINT64_MAX;
  largest.program = std::string(64, 'x');
  report->by_generation[80].holders.assign(kOfEach, largest);
  runtime.holders = report;
  std::vector<std::pair<std::string, HostRuntime>> hosts;
  for (int i = 0; i < kHosts; ++i) {
    hosts.emplace_back(absl::StrFormat("host-%03d", i), runtime);
    region.attachments.push_back(attachment);
    region.attachments.back().host = hosts.back().first;
  }
  v1::ListRegionHoldersResponse shown;
  FillHolders(region, Caller::Admin("alice"), ViewOf(hosts), &shown);
  EXPECT_LT(shown.ByteSizeLong(), size_t{4} << 20);
  int listed = 0;
  uint64_t more = 0;
  for (const v1::HostHolders& of : shown.hosts()) {
    listed += of.holders_size();
    more += of.more();
  }
  EXPECT_EQ(shown.hosts_size(), kHosts);
  EXPECT_EQ(listed, kMaxHoldersOfAnswer);
  EXPECT_EQ(listed + more, uint64_t{kHosts} * kOfEach);
}

TEST(EveryFieldTest, OfADeviceIsShown) {
  DeviceView view{.device = FullDevice(),
                  .use = {},
                  .largest_free_bytes = 405,
                  .failure_domain = "row-1",
                  .max_lds = 406};
  auto& [held_bytes, scrubbing_bytes, quarantined_bytes, lds] = view.use;
  held_bytes = 401;
  scrubbing_bytes = 402;
  quarantined_bytes = 403;
  lds = 404;
  const v1::Device shown = ToProto(view);
  EXPECT_THAT(FieldsNotSet(shown), IsEmpty()) << "set it in ToProto";
  ExpectShows(shown, R"(
name: "devices/cmm-0"
serial: "0x1234"
capacity_bytes: 1073741824
granule_bytes: 2097152
allocated_bytes: 401
scrubbing_bytes: 402
quarantined_bytes: 403
largest_free_bytes: 405
state: FAILED
failure_domain: "row-1"
lds: 404
max_lds: 406
state_reason: "it smokes"
)");
  view.device.service = DeviceService::kInService;
  view.device.unreachable_reason = "the switch is off";
  EXPECT_EQ(ToProto(view).state(), v1::Device::UNREACHABLE);
  EXPECT_EQ(ToProto(view).state_reason(), "the switch is off");
}

TEST(EveryFieldTest, OfAHostIsShown) {
  HostView view{FullHost(), std::make_shared<const HostRuntime>(FullRuntime()), {}};
  OccupiedSlot slot;
  slot.region_id = "kv";
  slot.slot = 10;
  slot.serial = 300;  // What blocks the bridge.
  slot.host_bridge = "ACPI0016:00";
  view.occupied = {slot};
  const v1::Host shown = ToProto(view);
  EXPECT_THAT(FieldsNotSet(shown), IsEmpty()) << "set it in ToProto";
  ExpectShows(shown, R"(
name: "hosts/host-a"
identity: "cxlpool://host/host-a"
state: RETIRED
incarnation: "boot-1"
ports {
  slot: 10
  host_bridge: "ACPI0016:00"
  region: "regions/kv"
}
ports {
  slot: 11
}
bridges {
  name: "ACPI0016:00"
  max_regions: 6
  live_regions: 2
  blocked: true
  blocked_by: "regions/kv"
  window_bytes: 301
  free_window_bytes: 302
}
agent_version: "0.1.0"
kernel_release: "6.12"
memory_block_bytes: 202
page_struct_spare_bytes: 203
last_heartbeat_time {
  seconds: 1600000001
  nanos: 1000
}
unfit_reason: "no DAX"
certificate_expire_time {
  seconds: 1600000002
  nanos: 1000
}
certificate_serial: "7a02"
fabric_reason: "its QEMU hangs"
tenants: "tenants/default"
tenants: "tenants/ml"
unreached_devices {
  key: "cmm-1"
  value: "it shows no device at all"
}
)");
}

TEST(EveryFieldTest, OfATenantARevocationABindingAndAPathIsShown) {
  const v1::Tenant tenant =
      ToProto({.tenant = FullTenant(), .use = {.held_bytes = 104, .regions = 105}});
  EXPECT_THAT(FieldsNotSet(tenant), IsEmpty()) << "set it in ToProto";
  ExpectShows(tenant, R"(
name: "tenants/ml"
quota_bytes: 101
reserved_bytes: 102
host_cap_bytes: 103
used_bytes: 104
regions: 105
isolation: FABRIC
)");
  const v1::Revocation revocation = ToProto(FullRevocation());
  EXPECT_THAT(FieldsNotSet(revocation), IsEmpty()) << "set it in ToProto";
  ExpectShows(revocation, R"(
subject: "7a01"
reason: "lost laptop"
revoked_by: "cxlpool://operator/bob"
revoke_time {
  seconds: 1600000000
  nanos: 1000
}
)");
  const v1::RoleBinding binding = ToProto(FullRoleBinding());
  EXPECT_THAT(FieldsNotSet(binding), ElementsAre("token_sha256")) << "set it in ToProto";
  ExpectShows(binding, R"(
identity: "cxlpool://token/ci"
role: SCHEDULER
end_time {
  seconds: 1700000000
  nanos: 1000
}
reason: "nightly tests"
bound_by: "cxlpool://operator/bob"
bind_time {
  seconds: 1600000000
  nanos: 2000
}
tenants: "tenants/db"
tenants: "tenants/ml"
)");
  Path path;
  path.via = {"leaf"};
  path.latency_ns = 501;
  path.bandwidth_mib_per_second = 502;
  path.slots = {503};
  const v1::Path shown = ToProto({"host-a", "cmm-0"}, path);
  EXPECT_THAT(FieldsNotSet(shown), IsEmpty()) << "set it in ToProto";
  ExpectShows(shown, R"(
host: "hosts/host-a"
device: "devices/cmm-0"
via: "leaf"
latency_ns: 501
bandwidth_mib_per_second: 502
slots: 503
)");
}

TEST(EveryFieldTest, OfTheCapacityIsShown) {
  PoolView view;
  auto& [total, free, held, scrubbing, quarantined, largest] = view.capacity;
  total = 601;
  free = 602;
  held = 603;
  scrubbing = 604;
  quarantined = 605;
  largest = 606;
  view.revision = 607;
  const v1::Capacity shown = ToProto(view);
  EXPECT_THAT(FieldsNotSet(shown), ElementsAre("regions"));  // None is there.
  ExpectShows(shown, R"(
total_bytes: 601
free_bytes: 602
allocated_bytes: 603
scrubbing_bytes: 604
quarantined_bytes: 605
largest_free_bytes: 606
revision: 607
)");
}

// Nobody takes for the fabric's what the agent does: programs are kept out by it, not the host's
// root.
TEST(ConvertTest, AnAttachmentSaysWhoEnforcesIt) {
  const auto enforcer = [](Access access, bool isolates, bool enforces_read_only) {
    Region region;
    region.attachments.emplace_back().access = access;
    FabricCapabilities fabric;
    fabric.isolates = isolates;
    fabric.enforces_read_only = enforces_read_only;
    return ToProto(region, fabric).attachments(0).enforced_by();
  };
  EXPECT_EQ(enforcer(Access::kReadWrite, true, true), v1::FABRIC);
  EXPECT_EQ(enforcer(Access::kReadOnly, true, true), v1::FABRIC);
  EXPECT_EQ(enforcer(Access::kReadWrite, true, false), v1::FABRIC);
  EXPECT_EQ(enforcer(Access::kReadOnly, true, false), v1::AGENT);
  EXPECT_EQ(enforcer(Access::kReadWrite, false, false), v1::AGENT);
  EXPECT_EQ(enforcer(Access::kReadOnly, false, true), v1::AGENT);
}

// What is not recorded, and changes by itself: for whom an Attachment waits.
TEST(ConvertTest, AnAttachmentOnItsWaySaysForWhomItWaits) {
  Region region;
  region.id = "kv";
  for (const char* host : {"away", "mute", "there", "up"}) {
    Attachment& attachment = region.attachments.emplace_back();
    attachment.host = host;
    attachment.settled().state = AttachmentState::kOnline;
    attachment.settled().detaching = std::string(host) != "up";
    attachment.settled().reason = "detached by request";
  }
  PoolView view;
  const auto add = [&](const char* id, bool online, bool reachable) {
    auto runtime = std::make_shared<HostRuntime>();
    runtime->online = online;
    runtime->fabric_reachable = reachable;
    if (!reachable) runtime->fabric_reason = "its QEMU hangs";
    if (!online) runtime->last_heartbeat = absl::FromUnixSeconds(1'700'000'000);
    view.hosts[id] = std::make_shared<const HostView>(
        HostView{Host{.key = 1, .id = id, .identity = ""}, runtime, {}});
  };
  add("away", false, true);
  add("mute", true, false);
  add("there", true, true);
  add("up", false, false);
  v1::Region out;
  FabricCapabilities fabric = kFabric;
  fabric.fence = FenceScope::kHost;
  FillRegion(region, fabric, view, &out);
  const auto reason = [&](int i) { return out.attachments(i).state_reason(); };
  EXPECT_THAT(reason(0),
              testing::HasSubstr("detached by request; waits for the agent of host away"));
  EXPECT_THAT(reason(0), testing::HasSubstr("2023-11-14T22:13:20Z"));
  EXPECT_THAT(reason(0), testing::HasSubstr("cxlpool host fence away"));
  EXPECT_EQ(reason(1),
            "detached by request; the fabric cannot be asked about host mute: its QEMU hangs");
  EXPECT_EQ(reason(2), "detached by request");
  EXPECT_EQ(reason(3), "detached by request") << "ONLINE, and waits for nobody";
  fabric.fence = FenceScope::kNone;
  out.Clear();
  FillRegion(region, fabric, view, &out);
  EXPECT_THAT(reason(0), testing::HasSubstr("start it, or reboot it"));
}

}  // namespace
}  // namespace cxlpool::fm
