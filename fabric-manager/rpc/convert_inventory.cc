#include <map>

#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/timestamps.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

// What an operator decided goes before what the fabric shows.
v1::Device::State StateOf(const Device& device) {
  switch (device.service) {
    case DeviceService::kDraining:
      return v1::Device::DRAINING;
    case DeviceService::kFailed:
      return v1::Device::FAILED;
    case DeviceService::kRemoved:
      return v1::Device::REMOVED;
    case DeviceService::kInService:
      break;
  }
  return device.reachable ? v1::Device::READY : v1::Device::UNREACHABLE;
}

// Numbers are the agent's. Whether the bridge is blocked is judged with what is under way there, as
// placement does.
void FillBridge(const Bridge& bridge, const HostView& host, v1::HostBridge* out) {
  out->set_name(bridge.name);
  out->set_max_regions(bridge.max_regions);
  out->set_live_regions(bridge.live_regions);
  out->set_window_bytes(bridge.window_bytes);
  out->set_free_window_bytes(bridge.free_window_bytes);
  const BridgeOutlook outlook = LookAt(bridge, *host.runtime, host.occupied);
  out->set_blocked(outlook.blocked);
  if (!outlook.blocked_by.empty()) out->set_blocked_by(ResourceName("regions", outlook.blocked_by));
}

}  // namespace

// The reason is that of the state that is shown: the fabric's where the device is out of reach,
// else the operator's.
v1::Device ToProto(const DeviceView& device) {
  v1::Device out;
  out.set_name(ResourceName("devices", device.device.id));
  out.set_serial(device.device.serial);
  out.set_capacity_bytes(device.device.capacity_bytes);
  out.set_granule_bytes(device.device.granule_bytes);
  out.set_allocated_bytes(device.use.held_bytes);
  out.set_scrubbing_bytes(device.use.scrubbing_bytes);
  out.set_quarantined_bytes(CXLPOOL_MUTANT("quarantined-is-scrubbing")
                                ? device.use.scrubbing_bytes
                                : device.use.quarantined_bytes);
  out.set_largest_free_bytes(device.largest_free_bytes);
  out.set_state(StateOf(device.device));
  out.set_state_reason(out.state() == v1::Device::UNREACHABLE ? device.device.unreachable_reason
                                                              : device.device.service_reason);
  // A domain of its own goes without a name.
  if (device.failure_domain != device.device.id) out.set_failure_domain(device.failure_domain);
  out.set_lds(device.use.lds);
  out.set_max_lds(device.max_lds);
  return out;
}

// Ports are the slots where the fabric can bind, and those that are occupied, in order of number.
// Which bridge a slot is on the agent's report says; where it does not, the Attachment's record.
v1::Host ToProto(const HostView& host) {
  v1::Host out;
  const HostRuntime& runtime = *host.runtime;
  // What the manager heard itself is lost when it ends; what is attached there is not.
  const bool seen = runtime.last_heartbeat != absl::InfinitePast() || !host.occupied.empty();
  out.set_name(ResourceName("hosts", host.host.id));
  out.set_identity(host.host.identity);
  out.set_state(host.host.retired ? v1::Host::RETIRED
                : runtime.online  ? v1::Host::ONLINE
                : seen            ? v1::Host::OFFLINE
                                  : v1::Host::ENROLLED);
  out.set_incarnation(runtime.incarnation);
  out.set_agent_version(runtime.agent_version);
  out.set_kernel_release(runtime.kernel_release);
  out.set_memory_block_bytes(runtime.memory_block_bytes);
  out.set_page_struct_spare_bytes(runtime.page_struct_spare_bytes);
  if (!CXLPOOL_MUTANT("unfit-is-not-shown")) out.set_unfit_reason(runtime.unfit_reason);
  out.set_fabric_reason(runtime.fabric_reason);
  out.mutable_unreached_devices()->insert(runtime.unreached.begin(), runtime.unreached.end());
  for (const std::string& tenant : host.host.tenants) {
    if (CXLPOOL_MUTANT("host-tenants-are-not-shown")) break;
    out.add_tenants(ResourceName("tenants", tenant));
  }
  FillKnown(runtime.last_heartbeat, &out, &v1::Host::mutable_last_heartbeat_time);
  if (!runtime.certificate_serial.empty()) {
    FillTimestamp(runtime.certificate_end, out.mutable_certificate_expire_time());
    out.set_certificate_serial(runtime.certificate_serial);
  }
  std::map<uint32_t, v1::Port> ports;
  for (uint32_t slot : runtime.fabric_slots) ports[slot].set_slot(slot);
  for (const Bridge& bridge : runtime.bridges) {
    FillBridge(bridge, host, out.add_bridges());
    for (uint32_t slot : bridge.slots) {
      if (const auto port = ports.find(slot); port != ports.end()) {
        port->second.set_host_bridge(bridge.name);
      }
    }
  }
  for (const OccupiedSlot& slot : host.occupied) {
    v1::Port& port = ports[slot.slot];
    port.set_slot(slot.slot);
    port.set_region(ResourceName("regions", slot.region_id));
    if (port.host_bridge().empty()) port.set_host_bridge(slot.host_bridge);
  }
  for (auto& [slot, port] : ports) *out.add_ports() = std::move(port);
  return out;
}

v1::Device ToProto(const DeviceEntry& device, const std::string& why_unseen) {
  v1::Device out;
  out.set_name(ResourceName("devices", device.id));
  out.set_serial(device.serial);
  out.set_capacity_bytes(device.capacity_bytes);
  out.set_granule_bytes(device.granule_bytes);
  out.set_state(v1::Device::UNREACHABLE);
  out.set_state_reason(why_unseen);
  out.set_failure_domain(device.failure_domain);
  return out;
}

v1::TopologyStep ToProto(const TopologyStep& step) {
  v1::TopologyStep out;
  out.set_verb(step.verb == TopologyStep::Verb::kAdd      ? v1::TopologyStep::ADD
               : step.verb == TopologyStep::Verb::kChange ? v1::TopologyStep::CHANGE
                                                          : v1::TopologyStep::REMOVE);
  out.set_what(step.name);
  return out;
}

v1::Revocation ToProto(const Revocation& revocation) {
  v1::Revocation out;
  out.set_subject(revocation.subject);
  out.set_reason(revocation.reason);
  out.set_revoked_by(revocation.principal);
  FillTimestamp(revocation.time, out.mutable_revoke_time());
  return out;
}

v1::Role ToProto(PoolRole role) { return static_cast<v1::Role>(static_cast<int>(role) + 1); }

v1::RoleBinding ToProto(const RoleBinding& binding) {
  v1::RoleBinding out;
  out.set_identity(binding.identity);
  out.set_role(ToProto(binding.role));
  for (const std::string& tenant : binding.tenants) {
    out.add_tenants(ResourceName("tenants", tenant));
  }
  if (binding.end != absl::InfiniteFuture()) FillTimestamp(binding.end, out.mutable_end_time());
  out.set_reason(binding.reason);
  out.set_bound_by(binding.principal);
  FillTimestamp(binding.time, out.mutable_bind_time());
  return out;
}

v1::Tenant ToProto(const TenantView& tenant) {
  v1::Tenant out;
  out.set_name(ResourceName("tenants", tenant.tenant.id));
  out.set_quota_bytes(tenant.tenant.quota_bytes);
  out.set_reserved_bytes(CXLPOOL_MUTANT("quota-for-reservation") ? tenant.tenant.quota_bytes
                                                                 : tenant.tenant.reserved_bytes);
  out.set_host_cap_bytes(tenant.tenant.host_cap_bytes);
  if (tenant.tenant.fabric_isolation) out.set_isolation(v1::FABRIC);
  out.set_used_bytes(tenant.use.held_bytes);
  out.set_regions(tenant.use.regions);
  return out;
}

v1::Path ToProto(const std::pair<std::string, std::string>& host_and_device, const Path& path) {
  v1::Path out;
  out.set_host(ResourceName("hosts", host_and_device.first));
  out.set_device(ResourceName("devices", host_and_device.second));
  for (const std::string& id : path.via) out.add_via(id);
  out.set_latency_ns(path.latency_ns);
  out.set_bandwidth_mib_per_second(path.bandwidth_mib_per_second);
  out.mutable_slots()->Add(path.slots.begin(), path.slots.end());
  return out;
}

// All of one view, so that the numbers and the revision belong together.
v1::Capacity ToProto(const PoolView& view) {
  v1::Capacity out;
  out.set_total_bytes(view.capacity.total_bytes);
  out.set_free_bytes(view.capacity.free_bytes);
  out.set_allocated_bytes(view.capacity.held_bytes);
  out.set_scrubbing_bytes(view.capacity.scrubbing_bytes);
  out.set_quarantined_bytes(view.capacity.quarantined_bytes);
  out.set_largest_free_bytes(view.capacity.largest_free_bytes);
  out.set_regions(view.regions.size());
  out.set_revision(view.revision);
  return out;
}

}  // namespace cxlpool::fm
