// For tests: records of which every field differs from its default and from its neighbours. A field
// that is added does not compile here until it is given a value, and with it the tests of what
// records are stored as, and of what the API shows of them.
#ifndef CXLPOOL_TEST_RIGS_FULL_RECORDS_FIXTURE_H_
#define CXLPOOL_TEST_RIGS_FULL_RECORDS_FIXTURE_H_

#include <memory>

#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

inline std::shared_ptr<Region> FullRegion() {
  auto region = std::make_shared<Region>();
  // A person who adds a field names it here, and sets it below.
  [[maybe_unused]] auto& [key, tag, id, tenant, generation, requested_bytes, sharing, state,
                          state_reason, state_since, compensating, forced, policy, interleave_ways,
                          interleave_granularity_bytes, tail_extents, tail_leaving,
                          expected_lifetime, ttl, expire_time, owner, maker, open_to,
                          fabric_isolation, extents, bad, attachments, create_time, requests,
                          revision] = *region;
  key = 77;
  tag = Uuid(std::string("0123456789abcde\0", 16));
  id = "kv";
  tenant = "acme";
  generation = 78;
  requested_bytes = 1000;
  sharing = Sharing::kMultiWriter;
  state = RegionState::kQuarantined;
  state_reason = "why";
  state_since = absl::FromUnixMicros(1'600'000'004'000'001);
  compensating = true;
  forced = true;
  policy = Policy::kIsolate;
  interleave_ways = 2;
  interleave_granularity_bytes = 512;
  tail_extents = 1;
  tail_leaving = true;
  expected_lifetime = absl::Microseconds(1'500'001);
  ttl = absl::Seconds(90);
  expire_time = absl::FromUnixMicros(1'600'000'090'000'001);
  owner = Owner{.uid = 1, .pid = 2, .start_ticks = 3, .incarnation = "boot-1"};
  maker = Maker{.host = "host-a", .uid = 1000};
  open_to = {.uids = {7, 0}, .gids = {8}, .everybody = true};
  fabric_isolation = true;
  extents = {{"cmm-0", 4096, 8192}, {"cmm-1", 16384, 4096}};
  bad = {{0, "poison"}};
  create_time = absl::FromUnixMicros(1'600'000'000'000'001);
  requests = {{{"p", "AllocateRegion", Uuid(std::string(16, 'i'))}, 5},
              {{"q", "AttachRegion", Uuid(std::string(16, '\xff'))}, UINT64_MAX}};
  revision = 99;
  attachments.resize(1);
  {
    [[maybe_unused]] auto& [host, mode, zone, access, generation, segments, parts, operator_vouched,
                            held, request_id] = attachments.front();
    host = "host-a";
    mode = Mode::kSystemRam;
    zone = Zone::kKernel;
    access = Access::kReadOnly;
    generation = 80;
    parts = {{.state = AttachmentState::kReleaseBlocked,
              .detaching = true,
              .reason = "HOLDERS: 12",
              .since = absl::FromUnixMicros(1'600'000'005'000'001)},
             {.first_segment = 3,
              .state = AttachmentState::kEjecting,
              .detaching = true,
              .reason = "shrunk",
              .since = absl::FromUnixMicros(1'600'000'006'000'001)}};
    operator_vouched = true;
    held = true;
    request_id = Uuid(std::string(16, 'r'));
    segments.resize(1);
  }
  {
    [[maybe_unused]] auto& [extent_index, slot, host_bridge, serial, ld_index, memdev, host_region,
                            dax_device, numa_node, hpa_bytes, online_blocks, total_blocks] =
        attachments.front().segments.front();
    extent_index = 1;
    slot = 9;
    host_bridge = "ACPI0016:00";
    serial = kSerialBase | 81;
    ld_index = 7;
    memdev = "mem3";
    host_region = "region2";
    dax_device = "dax2.0";
    numa_node = 5;
    hpa_bytes = uint64_t{1} << 40;
    online_blocks = 3;
    total_blocks = 4;
  }
  return region;
}

inline Host FullHost() {
  Host host;
  [[maybe_unused]] auto& [key, id, identity, retired, fabric_incarnation, tenants] = host;
  key = 5;
  id = "host-a";
  identity = "cxlpool://host/host-a";
  retired = true;
  fabric_incarnation = "boot/17:5";
  tenants = {"default", "ml"};
  return host;
}

// Durable fields only: not whether it can be reached, why not, and since when.
inline Device FullDevice() {
  Device device;
  [[maybe_unused]] auto& [key, id, serial, capacity_bytes, granule_bytes, identity, max_lds,
                          reachable, unreachable_reason, service, service_reason, service_since,
                          unreachable_since] = device;
  key = 6;
  id = "cmm-0";
  serial = "0x1234";
  capacity_bytes = 1 << 30;
  granule_bytes = 1 << 21;
  identity = "a file";
  max_lds = 16;
  service = DeviceService::kFailed;
  service_reason = "it smokes";
  service_since = absl::FromUnixSeconds(1'600'000'005);
  return device;
}

inline Tenant FullTenant() {
  Tenant tenant;
  [[maybe_unused]] auto& [key, id, quota_bytes, reserved_bytes, host_cap_bytes, fabric_isolation,
                          create_time] = tenant;
  key = 8;
  id = "ml";
  quota_bytes = 101;
  reserved_bytes = 102;
  host_cap_bytes = 103;
  fabric_isolation = true;
  create_time = absl::FromUnixSeconds(1'600'000'004);
  return tenant;
}

inline AuditEntry FullAuditEntry() {
  AuditEntry entry;
  [[maybe_unused]] auto& [time, who, method, role, peer, request_id, outcome, target, more, tenant,
                          reason, revision] = entry;
  time = absl::FromUnixMicros(1'600'000'000'000'001);
  who = "cxlpool://operator/bob";
  method = "ReleaseRegion";
  role = "OPERATOR";
  peer = "ipv4:10.0.0.7:5000";
  request_id = Uuid(std::string(16, 'j'));
  outcome = "ROLE_NOT_ALLOWED";
  target = "regions/kv";
  more = 3;
  tenant = "ml";
  reason = "job ended";
  revision = 104;
  return entry;
}

inline Revocation FullRevocation() {
  Revocation revocation;
  [[maybe_unused]] auto& [key, subject, reason, principal, time] = revocation;
  key = 7;
  subject = "7a01";
  reason = "lost laptop";
  principal = "cxlpool://operator/bob";
  time = absl::FromUnixMicros(1'600'000'000'000'001);
  return revocation;
}

inline RoleBinding FullRoleBinding() {
  RoleBinding binding;
  [[maybe_unused]] auto& [key, identity, token_hash, role, tenants, end, reason, principal, time] =
      binding;
  key = 9;
  identity = "cxlpool://token/ci";
  token_hash = std::string(32, 'h');
  role = PoolRole::kScheduler;
  tenants = {"db", "ml"};
  end = absl::FromUnixMicros(1'700'000'000'000'001);
  reason = "nightly tests";
  principal = "cxlpool://operator/bob";
  time = absl::FromUnixMicros(1'600'000'000'000'002);
  return binding;
}

inline TopologyTables FullTables() {
  TopologyTables tables;
  [[maybe_unused]] auto& [devices, hosts, switches, links] = tables;
  devices.resize(1);
  {
    [[maybe_unused]] auto& [id, serial, capacity_bytes, granule_bytes, path, latency_ns,
                            bandwidth_mib_per_second, heads, failure_domain] = devices.front();
    id = "cmm-7";
    serial = "0x77";
    capacity_bytes = 7ull << 30;
    granule_bytes = 1 << 22;
    path = "/pool/cmm-7";
    latency_ns = 71;
    bandwidth_mib_per_second = 72;
    heads = 3;
    failure_domain = "shelf-7";
  }
  hosts.resize(1);
  {
    [[maybe_unused]] auto& [id, slots, agent_uid, qmp_socket] = hosts.front();
    id = "host-7";
    slots = {17, 0, 8191};
    agent_uid = 0;
    qmp_socket = "/run/host-7.qmp";
  }
  switches.resize(1);
  {
    [[maybe_unused]] auto& [id, latency_ns, bandwidth_mib_per_second, failure_domain] =
        switches.front();
    id = "sw7";
    latency_ns = 73;
    bandwidth_mib_per_second = 74;
    failure_domain = "shelf-8";
  }
  links.resize(1);
  {
    [[maybe_unused]] auto& [a, b, latency_ns, bandwidth_mib_per_second, slots] = links.front();
    a = "host-7";
    b = "sw7";
    latency_ns = 75;
    bandwidth_mib_per_second = 76;
    slots = {17, 8191};
  }
  return tables;
}

inline HostRuntime FullRuntime() {
  HostRuntime runtime;
  [[maybe_unused]] auto& [online, fabric_reachable, fabric_reason, incarnation, agent_version,
                          kernel_release, fabric_slots, unreached, bridges, region_granule_bytes,
                          memory_block_bytes, page_struct_spare_bytes, unfit_reason, last_heartbeat,
                          certificate_serial, certificate_end, holders, wrong_since] = runtime;
  online = true;
  fabric_reachable = true;
  fabric_reason = "its QEMU hangs";
  incarnation = "boot-1";
  agent_version = "0.1.0";
  kernel_release = "6.12";
  fabric_slots = {10, 11};
  unreached = {{"cmm-1", "it shows no device at all"}};
  region_granule_bytes = 201;
  memory_block_bytes = 202;
  page_struct_spare_bytes = 203;
  unfit_reason = "no DAX";
  last_heartbeat = absl::FromUnixMicros(1'600'000'001'000'001);
  certificate_serial = "7a02";
  certificate_end = absl::FromUnixMicros(1'600'000'002'000'001);
  wrong_since = {{"UNFIT", absl::FromUnixSeconds(1'600'000'006)}};
  auto report = std::make_shared<HolderReport>();
  auto& [time, by_generation] = *report;
  time = absl::FromUnixMicros(1'600'000'003'000'001);
  auto& [of_attachment, more, unopened_since] = by_generation[80];  // As of FullRegion.
  of_attachment.resize(1);
  more = 41;
  unopened_since = absl::FromUnixMicros(1'600'000'004'000'001);
  {
    auto& [pid, start_ticks, uid, program, open_bytes, mapped_bytes, live_bytes, slack_bytes,
           pins] = of_attachment.front();
    pid = 31;
    start_ticks = 32;
    uid = 33;
    program = "python3";
    open_bytes = 34;
    mapped_bytes = 35;
    live_bytes = 36;
    slack_bytes = 37;
    pins = 38;
  }
  holders = std::move(report);
  bridges.resize(1);
  {
    [[maybe_unused]] auto& [name, slots, max_regions, depth_unknown, live_regions, blocked,
                            blocking_serial, window_bytes, free_window_bytes, any_order] =
        bridges.front();
    name = "ACPI0016:00";
    slots = {10, 12};
    max_regions = 6;
    depth_unknown = true;
    live_regions = 2;
    blocked = true;
    blocking_serial = 300;
    window_bytes = 301;
    free_window_bytes = 302;
  }
  return runtime;
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_FULL_RECORDS_FIXTURE_H_
