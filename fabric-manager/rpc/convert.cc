#include "fabric-manager/rpc/convert.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  return google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(absl::ToUnixMicros(time));
}

absl::Status Bad(const std::string& reason, const std::string& message, const std::string& remedy) {
  return Refusal{absl::StatusCode::kInvalidArgument, reason, message, remedy, {}}.ToStatus();
}

v1::Attachment ToProto(const Attachment& attachment, bool hardware_coherent) {
  v1::Attachment out;
  out.set_host(ResourceName("hosts", attachment.host));
  out.set_mode(static_cast<v1::AttachmentMode>(attachment.mode));
  out.set_access(static_cast<v1::Access>(attachment.access));
  out.set_coherence(hardware_coherent ? v1::HARDWARE : v1::SOFTWARE);
  out.set_state(static_cast<v1::Attachment::State>(attachment.state));
  out.set_state_reason(attachment.reason);
  out.set_detaching(attachment.detaching);
  out.set_generation(attachment.generation);
  for (const Segment& segment : attachment.segments) {
    v1::Segment& to = *out.add_segments();
    to.set_extent_index(segment.extent_index);
    to.set_slot(segment.slot);
    to.set_host_bridge(segment.host_bridge);
    to.set_serial(segment.serial);
    to.set_memdev(segment.memdev);
    to.set_host_region(segment.host_region);
    to.set_dax_device(segment.dax_device);
    if (segment.numa_node.has_value()) to.set_numa_node(*segment.numa_node);
    to.set_hpa_bytes(segment.hpa_bytes);
    to.set_online_blocks(segment.online_blocks);
    to.set_total_blocks(segment.total_blocks);
  }
  return out;
}

// Which of the enum's values stands, `otherwise` where it is left out.
template <typename To, typename From>
absl::StatusOr<To> ToEnum(const std::string& field, From value, To otherwise, int highest) {
  if (value == 0) return otherwise;
  if (value > 0 && value <= highest) return static_cast<To>(value);
  return Bad("BAD_ENUM", absl::StrCat("field ", field, " has the unknown value ", int{value}),
             "use a value of this API version");
}

// Stable over processes and releases: it is stored.
uint64_t Fingerprint(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// The same call, whether its defaults are written out or not.
v1::AllocateRegionRequest Canonical(v1::AllocateRegionRequest request) {
  if (request.mode() == 0) request.set_mode(v1::DEVDAX);
  if (request.access() == 0) request.set_access(v1::READ_WRITE);
  if (request.sharing() == 0) request.set_sharing(v1::EXCLUSIVE);
  if (request.max_extents() == 0) request.set_max_extents(1);
  if (request.tenant().empty()) request.set_tenant("tenants/default");
  return request;
}
v1::AttachRegionRequest Canonical(v1::AttachRegionRequest request) {
  if (request.mode() == 0) request.set_mode(v1::DEVDAX);
  if (request.access() == 0) request.set_access(v1::READ_WRITE);
  return request;
}
const v1::DetachRegionRequest& Canonical(const v1::DetachRegionRequest& request) { return request; }
const v1::ReleaseRegionRequest& Canonical(const v1::ReleaseRegionRequest& request) {
  return request;
}

template <typename Message>
absl::StatusOr<Request> RequestOf(const Message& message, const std::string& method,
                                  const std::string& principal) {
  auto id = ParseUuid(message.request_id());
  if (!id.ok()) {
    return Bad("BAD_REQUEST_ID", "field request_id is missing or not a UUID",
               "make one UUID per logical call and keep it across retries");
  }
  return Request{{principal, method, *std::move(id)},
                 Fingerprint(Canonical(message).SerializeAsString())};
}

absl::Status ReadName(const char* collection, const std::string& name, bool required,
                      std::string& id) {
  if (name.empty() && !required) return absl::OkStatus();
  auto parsed = ParseResourceName(collection, name);
  if (!parsed.ok()) return parsed.status();
  id = *std::move(parsed);
  return absl::OkStatus();
}

template <typename Message, typename Spec>
absl::Status ReadUse(const Message& message, Spec& spec) {
  auto mode = ToEnum("mode", message.mode(), Mode::kDevdax, 2);
  if (!mode.ok()) return mode.status();
  auto access = ToEnum("access", message.access(), Access::kReadWrite, 2);
  if (!access.ok()) return access.status();
  spec.mode = *mode;
  spec.access = *access;
  return absl::OkStatus();
}

}  // namespace

v1::Region ToProto(const Region& region, bool hardware_coherent) {
  v1::Region out;
  out.set_name(ResourceName("regions", region.id));
  out.set_tag(FormatUuid(region.tag));
  out.set_generation(region.generation);
  out.set_tenant(ResourceName("tenants", region.tenant));
  out.set_size_bytes(region.size_bytes());
  out.set_requested_bytes(region.requested_bytes);
  out.set_sharing(static_cast<v1::Sharing>(region.sharing));
  out.set_state(static_cast<v1::Region::State>(region.state));
  out.set_state_reason(region.state_reason);
  for (const Extent& extent : region.extents) {
    v1::Extent& to = *out.add_extents();
    to.set_device(ResourceName("devices", extent.device));
    to.set_dpa_bytes(extent.dpa_bytes);
    to.set_length_bytes(extent.length_bytes);
  }
  for (const Attachment& attachment : region.attachments) {
    *out.add_attachments() = ToProto(attachment, hardware_coherent);
  }
  *out.mutable_create_time() = ToTimestamp(region.create_time);
  out.set_etag(region.etag());
  out.set_revision(region.revision);
  return out;
}

v1::Device ToProto(const DeviceView& device) {
  v1::Device out;
  out.set_name(ResourceName("devices", device.device.id));
  out.set_serial(device.device.serial);
  out.set_capacity_bytes(device.device.capacity_bytes);
  out.set_granule_bytes(device.device.granule_bytes);
  out.set_allocated_bytes(device.held_bytes);
  out.set_scrubbing_bytes(device.scrubbing_bytes);
  out.set_quarantined_bytes(device.quarantined_bytes);
  out.set_largest_free_bytes(device.largest_free_bytes);
  out.set_state(device.device.reachable ? v1::Device::READY : v1::Device::UNREACHABLE);
  return out;
}

v1::Host ToProto(const HostView& host) {
  v1::Host out;
  const HostRuntime& runtime = host.runtime;
  out.set_name(ResourceName("hosts", host.host.id));
  out.set_identity(host.host.identity);
  out.set_state(host.host.retired ? v1::Host::RETIRED
                : runtime.online  ? v1::Host::ONLINE
                                  : v1::Host::ENROLLED);
  out.set_incarnation(runtime.incarnation);
  out.set_agent_version(runtime.agent_version);
  out.set_kernel_release(runtime.kernel_release);
  out.set_memory_block_bytes(runtime.memory_block_bytes);
  out.set_page_struct_spare_bytes(runtime.page_struct_spare_bytes);
  if (runtime.last_heartbeat != absl::InfinitePast()) {
    *out.mutable_last_heartbeat_time() = ToTimestamp(runtime.last_heartbeat);
  }
  std::map<uint32_t, v1::Port> ports;
  for (uint32_t slot : runtime.fabric_slots) ports[slot].set_slot(slot);
  for (const Bridge& bridge : runtime.bridges) {
    v1::HostBridge& to = *out.add_bridges();
    to.set_name(bridge.name);
    to.set_max_regions(bridge.max_regions);
    to.set_live_regions(bridge.live_regions);
    to.set_window_bytes(bridge.window_bytes);
    to.set_free_window_bytes(bridge.free_window_bytes);
    const BridgeOutlook outlook = LookAt(bridge, runtime, host.occupied);
    to.set_blocked(outlook.blocked);
    if (!outlook.blocked_by.empty()) to.set_blocked_by(ResourceName("regions", outlook.blocked_by));
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
  for (const auto& [slot, port] : ports) *out.add_ports() = port;
  return out;
}

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

absl::StatusOr<AllocateSpec> FromProto(const v1::AllocateRegionRequest& request,
                                       const std::string& principal) {
  AllocateSpec spec;
  auto id = RequestOf(request, "AllocateRegion", principal);
  if (!id.ok()) return id.status();
  spec.request = *std::move(id);
  spec.region_id = request.region_id();
  if (!spec.region_id.empty()) {
    if (absl::Status status = CheckResourceId(spec.region_id); !status.ok()) return status;
  }
  spec.size_bytes = request.size_bytes();
  auto sharing = ToEnum("sharing", request.sharing(), Sharing::kExclusive, 3);
  if (!sharing.ok()) return sharing.status();
  spec.sharing = *sharing;
  spec.max_extents = std::max(request.max_extents(), uint32_t{1});
  if (spec.max_extents > kMaxExtentsPerRegion) {
    return Bad("BAD_MAX_EXTENTS", absl::StrCat("field max_extents is ", request.max_extents()),
               absl::StrCat("use 1 to ", kMaxExtentsPerRegion));
  }
  absl::Status status = ReadName("tenants", request.tenant(), false, spec.tenant);
  status.Update(ReadName("hosts", request.host(), false, spec.host));
  status.Update(ReadName("devices", request.device(), false, spec.device));
  status.Update(ReadUse(request, spec));
  if (!status.ok()) return status;
  return spec;
}

absl::StatusOr<AttachSpec> FromProto(const v1::AttachRegionRequest& request,
                                     const std::string& principal) {
  AttachSpec spec;
  auto id = RequestOf(request, "AttachRegion", principal);
  if (!id.ok()) return id.status();
  spec.request = *std::move(id);
  absl::Status status = ReadName("regions", request.name(), true, spec.region_id);
  status.Update(ReadName("hosts", request.host(), true, spec.host));
  status.Update(ReadUse(request, spec));
  if (!status.ok()) return status;
  return spec;
}

absl::StatusOr<DetachSpec> FromProto(const v1::DetachRegionRequest& request,
                                     const std::string& principal) {
  DetachSpec spec;
  auto id = RequestOf(request, "DetachRegion", principal);
  if (!id.ok()) return id.status();
  spec.request = *std::move(id);
  absl::Status status = ReadName("regions", request.name(), true, spec.region_id);
  status.Update(ReadName("hosts", request.host(), true, spec.host));
  if (!status.ok()) return status;
  return spec;
}

absl::StatusOr<ReleaseSpec> FromProto(const v1::ReleaseRegionRequest& request,
                                      const std::string& principal) {
  ReleaseSpec spec;
  auto id = RequestOf(request, "ReleaseRegion", principal);
  if (!id.ok()) return id.status();
  spec.request = *std::move(id);
  absl::Status status = ReadName("regions", request.name(), true, spec.region_id);
  if (!status.ok()) return status;
  spec.detach_all = request.detach_all();
  spec.etag = request.etag();
  return spec;
}

}  // namespace cxlpool::fm
