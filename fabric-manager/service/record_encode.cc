// Encoding.

#include <algorithm>

#include "cxlpool/store/v1/record.pb.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/check.h"
#include "proto/support/in_place.h"
#include "proto/support/mutant.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

namespace pb = cxlpool::store::v1;

// Protobuf strings must be UTF-8; what came from elsewhere (reasons) may not be, and a row that
// cannot be read again would be worse than a '?' here and there.
std::string Text(absl::string_view in) { return Utf8Text(in); }

// A clock that is off must not make a row that cannot be read again.
int64_t Micros(absl::Time time) {
  return std::clamp<int64_t>(absl::ToUnixMicros(time), 0, kMaxRecordMicros);
}

// 0: not known, which in the model is the infinite past.
int64_t MicrosOrUnknown(absl::Time time) { return time == absl::InfinitePast() ? 0 : Micros(time); }

// 0: none, which in the model is an infinite one.
int64_t MicrosOrNone(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return 0;
  return std::clamp<int64_t>(absl::ToInt64Microseconds(duration), 1, kMaxRecordMicros);
}

void Encode(const Request& in, pb::RequestRecord& out) {
  out.set_principal(Text(in.id.principal));
  out.set_method(Text(in.id.method));
  out.set_request_id(in.id.id.str());
  out.set_payload_hash(in.payload_hash);
}

// Names that the host has not given it yet stay absent.
void Encode(const Segment& in, pb::SegmentRecord& out) {
  out.set_extent_index(in.extent_index);
  out.set_slot(in.slot);
  out.set_host_bridge(Text(in.host_bridge));
  out.set_serial(in.serial);
  if (!in.memdev.empty()) out.set_memdev(Text(in.memdev));
  if (!in.host_region.empty()) out.set_host_region(Text(in.host_region));
  if (!in.dax_device.empty()) out.set_dax_device(Text(in.dax_device));
  if (in.numa_node.has_value()) out.set_numa_node(*in.numa_node);
  out.set_hpa_bytes(in.hpa_bytes);
  out.set_online_blocks(in.online_blocks);
  out.set_total_blocks(in.total_blocks);
  if (in.ld_index.has_value()) out.set_ld_index(*in.ld_index);
}

// An Attachment's record or its tail's: they have the same four fields.
template <typename Record>
void EncodePart(const Part& in, Record& out) {
  out.set_state(static_cast<uint32_t>(in.state));
  out.set_detaching(in.detaching);
  out.set_reason(Text(in.reason));
  out.set_since_unix_us(MicrosOrUnknown(in.since));
}

// The first part is in the record of the Attachment itself: once there was no other.
void Encode(const Attachment& in, pb::AttachmentRecord& out) {
  static_assert(kMaxParts == 2);
  out.set_host(Text(in.host));
  out.set_mode(static_cast<uint32_t>(in.mode));
  if (in.zone != Zone::kMovable) out.set_zone(static_cast<uint32_t>(in.zone));
  out.set_access(static_cast<uint32_t>(in.access));
  EncodePart(in.parts.front(), out);
  out.set_generation(in.generation);
  for (const Segment& segment : in.segments) Encode(segment, *out.add_segments());
  if (in.parts.size() > 1) {
    out.mutable_tail()->set_first_segment(in.parts[1].first_segment);
    EncodePart(in.parts[1], *out.mutable_tail());
  }
  out.set_operator_vouched(in.operator_vouched);
  out.set_held(in.held);
  if (!in.request_id.empty()) out.set_request_id(in.request_id.str());
}

void Encode(const AuditHead& in, pb::AuditHeadRecord& out) {
  out.set_number(in.number);
  out.set_hash(in.hash);
}

// What has its usual value is left out: a Region is written at every step of its ladder, and each
// byte of it is synced.
void Encode(const Region& in, pb::RegionRecord& out) {
  out.set_tag(in.tag.str());
  out.set_id(Text(in.id));
  out.set_tenant(Text(in.tenant));
  out.set_generation(in.generation);
  out.set_requested_bytes(in.requested_bytes);
  out.set_sharing(static_cast<uint32_t>(in.sharing));
  out.set_state(static_cast<uint32_t>(in.state));
  out.set_state_reason(Text(in.state_reason));
  out.set_state_since_unix_us(MicrosOrUnknown(in.state_since));
  for (const Extent& extent : in.extents) {
    pb::ExtentRecord& record = *out.add_extents();
    record.set_device(Text(extent.device));
    record.set_dpa_bytes(extent.dpa_bytes);
    record.set_length_bytes(extent.length_bytes);
  }
  for (const BadExtent& bad : in.bad) {
    out.mutable_extents(static_cast<int>(bad.extent_index))->set_bad_reason(Text(bad.reason));
  }
  for (const Attachment& attachment : in.attachments) Encode(attachment, *out.add_attachments());
  out.set_create_time_unix_us(Micros(in.create_time));
  for (const Request& request : in.requests) Encode(request, *out.add_requests());
  out.set_revision(in.revision);
  out.set_compensating(in.compensating);
  if (in.policy != Policy::kPack) out.set_policy(static_cast<uint32_t>(in.policy));
  if (in.interleave_ways != 1) out.set_interleave_ways(in.interleave_ways);
  out.set_interleave_granularity_bytes(in.interleave_granularity_bytes);
  out.set_expected_lifetime_us(MicrosOrNone(in.expected_lifetime));
  out.set_ttl_us(MicrosOrNone(in.ttl));
  // Absent: it has none.
  if (in.expire_time != absl::InfiniteFuture()) {
    out.set_expire_time_unix_us(Micros(in.expire_time));
  }
  out.set_tail_extents(in.tail_extents);
  out.set_tail_leaving(in.tail_leaving);
  out.set_forced(in.forced);
  if (in.owner.has_value()) {
    pb::OwnerRecord& owner = *out.mutable_owner();
    owner.set_uid(in.owner->uid);
    owner.set_pid(in.owner->pid);
    owner.set_start_ticks(in.owner->start_ticks);
    owner.set_incarnation(Text(in.owner->incarnation));
  }
  if (in.maker.has_value()) {
    out.mutable_maker()->set_host(Text(in.maker->host));
    out.mutable_maker()->set_uid(in.maker->uid);
  }
  if (!in.open_to.nobody()) {
    pb::OpenToRecord& open_to = *out.mutable_open_to();
    open_to.mutable_uids()->Add(in.open_to.uids.begin(), in.open_to.uids.end());
    open_to.mutable_gids()->Add(in.open_to.gids.begin(), in.open_to.gids.end());
    open_to.set_everybody(in.open_to.everybody);
  }
  out.set_fabric_isolation(in.fabric_isolation);
}

// One overload for each alternative of TopologyEntry::what, so that a new one does not compile
// until it is stored.
struct EncodeEntry {
  pb::TopologyEntryRecord& out;

  void operator()(const DeviceEntry& in) const {
    pb::DeviceEntryRecord& device = *out.mutable_device();
    device.set_id(Text(in.id));
    device.set_serial(Text(in.serial));
    device.set_capacity_bytes(in.capacity_bytes);
    device.set_granule_bytes(in.granule_bytes);
    device.set_path(Text(in.path));
    device.set_latency_ns(in.latency_ns);
    device.set_bandwidth_mib_per_second(in.bandwidth_mib_per_second);
    device.set_heads(in.heads);
    device.set_failure_domain(Text(in.failure_domain));
  }
  void operator()(const HostEntry& in) const {
    pb::HostEntryRecord& host = *out.mutable_host();
    host.set_id(Text(in.id));
    host.mutable_slots()->Add(in.slots.begin(), in.slots.end());
    if (in.agent_uid.has_value()) host.set_agent_uid(*in.agent_uid);
    host.set_qmp_socket(Text(in.qmp_socket));
  }
  void operator()(const SwitchEntry& in) const {
    pb::SwitchEntryRecord& node = *out.mutable_switch_();
    node.set_id(Text(in.id));
    node.set_latency_ns(in.latency_ns);
    node.set_bandwidth_mib_per_second(in.bandwidth_mib_per_second);
    node.set_failure_domain(Text(in.failure_domain));
  }
  void operator()(const LinkEntry& in) const {
    pb::LinkEntryRecord& link = *out.mutable_link();
    link.set_a(Text(in.a));
    link.set_b(Text(in.b));
    link.set_latency_ns(in.latency_ns);
    link.set_bandwidth_mib_per_second(in.bandwidth_mib_per_second);
    link.mutable_slots()->Add(in.slots.begin(), in.slots.end());
  }
  void operator()(const TopologyImport& in) const { out.set_imported_from(Text(in.source)); }
};

}  // namespace

// An erased record has no bytes.
std::string EncodeItem(const Item& item) {
  InPlace<pb::Record> in_place;
  pb::Record& record = *in_place;
  // Regions first: they are what nearly every change writes.
  if (const auto* region = std::get_if<RegionPtr>(&item)) {
    Encode(**region, *record.mutable_region());
  } else if (const auto* host = std::get_if<Host>(&item)) {
    record.mutable_host()->set_id(Text(host->id));
    record.mutable_host()->set_identity(Text(host->identity));
    record.mutable_host()->set_retired(host->retired);
    record.mutable_host()->set_fabric_incarnation(Text(host->fabric_incarnation));
    for (const std::string& tenant : host->tenants)
      record.mutable_host()->add_tenants(Text(tenant));
  } else if (const auto* device = std::get_if<Device>(&item)) {
    pb::DeviceRecord& out = *record.mutable_device();
    out.set_id(Text(device->id));
    out.set_serial(Text(device->serial));
    out.set_capacity_bytes(device->capacity_bytes);
    out.set_granule_bytes(device->granule_bytes);
    out.set_max_lds(device->max_lds);
    out.set_service(static_cast<uint32_t>(device->service));
    out.set_service_reason(Text(device->service_reason));
    out.set_service_since_unix_us(MicrosOrUnknown(device->service_since));
    out.set_identity(Text(device->identity));
  } else if (const auto* tenant = std::get_if<Tenant>(&item)) {
    pb::TenantRecord& out = *record.mutable_tenant();
    out.set_id(Text(tenant->id));
    out.set_quota_bytes(tenant->quota_bytes);
    out.set_reserved_bytes(tenant->reserved_bytes);
    out.set_host_cap_bytes(tenant->host_cap_bytes);
    if (!CXLPOOL_MUTANT("tenant-isolation-not-stored")) {
      out.set_fabric_isolation(tenant->fabric_isolation);
    }
    out.set_create_unix_us(MicrosOrUnknown(tenant->create_time));
  } else if (const auto* binding = std::get_if<RoleBinding>(&item)) {
    pb::RoleBindingRecord& out = *record.mutable_role_binding();
    out.set_identity(Text(binding->identity));
    out.set_token_sha256(binding->token_hash);
    out.set_role(static_cast<uint32_t>(binding->role));
    for (const std::string& tenant : binding->tenants) out.add_tenants(Text(tenant));
    out.set_reason(Text(binding->reason));
    out.set_principal(Text(binding->principal));
    out.set_time_unix_us(Micros(binding->time));
    if (binding->end != absl::InfiniteFuture() && !CXLPOOL_MUTANT("bindings-lose-their-end")) {
      out.set_end_unix_us(Micros(binding->end));
    }
  } else if (const auto* revocation = std::get_if<Revocation>(&item)) {
    pb::RevocationRecord& out = *record.mutable_revocation();
    out.set_subject(Text(revocation->subject));
    out.set_reason(Text(revocation->reason));
    out.set_principal(Text(revocation->principal));
    out.set_time_unix_us(Micros(revocation->time));
  } else if (const auto* entry = std::get_if<TopologyEntry>(&item)) {
    std::visit(EncodeEntry{*record.mutable_topology_entry()}, entry->what);
  } else if (const auto* row = std::get_if<AuditRowPtr>(&item)) {
    Encode((*row)->head, *record.mutable_audit_row()->mutable_head());
    record.mutable_audit_row()->set_entries((*row)->bytes);
  } else if (const auto* tombstone = std::get_if<Tombstone>(&item)) {
    Encode(*tombstone->region, *record.mutable_tombstone()->mutable_region());
    record.mutable_tombstone()->set_gone_time_unix_us(Micros(tombstone->gone_time));
  } else {
    CXLPOOL_CHECK(false, "an erased record has no value: ", KeyOf(item));
  }
  return record.SerializeAsString();
}

std::string EncodePool(const PoolMeta& meta) {
  pb::Record record;
  record.mutable_pool()->set_schema_version(meta.schema_version);
  record.mutable_pool()->set_next_id(meta.next_id);
  record.mutable_pool()->set_hold_reason(Text(meta.hold_reason));
  if (meta.audit.head.number != 0)
    Encode(meta.audit.head, *record.mutable_pool()->mutable_audit_head());
  if (meta.audit.dropped.number != 0) {
    Encode(meta.audit.dropped, *record.mutable_pool()->mutable_audit_dropped());
  }
  return record.SerializeAsString();
}

// One message stands for each entry in turn, so that its texts keep their room: to make them anew
// takes longer than to encode them. Records that stand one behind the other are read as one that
// has the entries of all.
std::string EncodeEntries(const std::vector<AuditEntry>& entries) {
  pb::AuditEntriesRecord record;
  pb::AuditEntryRecord& out = *record.add_entries();
  const auto put = [](const std::string& in, std::string* text) {
    *text = in;
    MakeUtf8(*text);
    if (text->size() > kMaxAuditText) *text = CutText(*text, kMaxAuditText);
  };
  std::string bytes;
  // Many calls of one group are of one caller: what is as in the entry before is left out.
  const AuditEntry none = {.time = absl::UnixEpoch(), .who = "", .method = ""};
  const AuditEntry* before = &none;
  for (const AuditEntry& in : entries) {
    out.Clear();
    if (in.time != before->time) out.set_time_unix_us(Micros(in.time));
    if (in.who != before->who) put(in.who, out.mutable_who());
    if (in.method != before->method) put(in.method, out.mutable_method());
    if (!in.request_id.empty()) {
      const absl::string_view id = in.request_id.bytes();
      out.mutable_request_id()->assign(id.data(), id.size());
    }
    put(in.target, out.mutable_target());
    out.set_more(in.more);
    if (in.tenant != before->tenant) put(in.tenant, out.mutable_tenant());
    put(in.reason, out.mutable_reason());
    out.set_revision(in.revision);
    if (in.role != before->role) put(in.role, out.mutable_role());
    if (in.peer != before->peer) put(in.peer, out.mutable_peer());
    put(in.outcome, out.mutable_outcome());
    record.AppendToString(&bytes);
    before = &in;
  }
  return bytes;
}

}  // namespace cxlpool::fm
