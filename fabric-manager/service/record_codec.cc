// Decoding.

#include "fabric-manager/service/record_codec.h"

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cxlpool/store/v1/record.pb.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/sha256.h"
#include "proto/support/token.h"

namespace cxlpool::fm {
namespace {

namespace pb = cxlpool::store::v1;

constexpr uint32_t kSchemaVersion = 1;
constexpr size_t kUuidBytes = 16;

const google::protobuf::UnknownFieldSet& UnknownOf(const google::protobuf::Message& in) {
  return in.GetReflection()->GetUnknownFields(in);
}

// Whether a later release has added to a record what this one does not know, at whatever depth. A
// message that has others in it has an overload of its own.
template <typename Message>
bool HasUnknown(const Message& in) {
  return !UnknownOf(in).empty();
}
bool HasUnknown(const pb::AttachmentRecord& in);

template <typename Messages>
bool AnyHasUnknown(const Messages& all) {
  return std::any_of(all.begin(), all.end(), [](const auto& in) { return HasUnknown(in); });
}

bool HasUnknown(const pb::AttachmentRecord& in) {
  return !UnknownOf(in).empty() || AnyHasUnknown(in.segments()) || HasUnknown(in.tail());
}

bool HasUnknown(const pb::RegionRecord& in) {
  return !UnknownOf(in).empty() || AnyHasUnknown(in.extents()) || AnyHasUnknown(in.attachments()) ||
         AnyHasUnknown(in.requests()) || HasUnknown(in.owner()) || HasUnknown(in.maker()) ||
         HasUnknown(in.open_to());
}

bool HasUnknown(const pb::TombstoneRecord& in) {
  return !UnknownOf(in).empty() || HasUnknown(in.region());
}

bool HasUnknown(const pb::TopologyEntryRecord& in) {
  return !UnknownOf(in).empty() || HasUnknown(in.device()) || HasUnknown(in.host()) ||
         HasUnknown(in.switch_()) || HasUnknown(in.link());
}

bool HasUnknown(const pb::PoolRecord& in) {
  return !UnknownOf(in).empty() || HasUnknown(in.audit_head()) || HasUnknown(in.audit_dropped());
}

// Its entries are bytes, and stay as they are.
bool HasUnknown(const pb::AuditRowRecord& in) {
  return !UnknownOf(in).empty() || HasUnknown(in.head());
}

// Whether it is a message of a kind that a later release may have added: under one of the next
// numbers, and alone. Other bytes say nothing, even where they parse.
bool IsOfUnknownKind(const pb::Record& in) {
  constexpr int kNumbers = 64;
  const google::protobuf::UnknownFieldSet& fields = UnknownOf(in);
  if (fields.field_count() != 1) return false;
  const google::protobuf::UnknownField& field = fields.field(0);
  google::protobuf::UnknownFieldSet inside;
  return field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
         field.number() < kNumbers && inside.ParseFromString(field.length_delimited()) &&
         !inside.empty();
}

// Each says what is wrong, or nothing.

using Problem = std::optional<std::string>;

// `last`: the greatest value that this release knows. 0 is none: no state is stored as what
// protobuf leaves out, so that a field that got lost is noticed.
template <typename Enum>
Problem DecodeEnum(absl::string_view field, uint32_t value, Enum last, Enum& out) {
  if (value < 1 || value > static_cast<uint32_t>(last)) {
    return absl::StrCat(field, " is ", value, ", which this release does not know");
  }
  out = static_cast<Enum>(value);
  return std::nullopt;
}

// Within the bounds in which the encoder keeps every time.
Problem DecodeTime(absl::string_view field, int64_t micros, absl::Time& out) {
  if (micros < 0 || micros > kMaxRecordMicros) {
    return absl::StrCat(field, " is ", micros, ", which is no time");
  }
  out = absl::FromUnixMicros(micros);
  return std::nullopt;
}

// 0 is not known: a release before this one wrote it.
Problem DecodeSince(int64_t micros, absl::Time& out) {
  if (micros == 0) return std::nullopt;
  return DecodeTime("since", micros, out);
}

// Whether there is an Extent of that index is for DecodeAttachment to check.
Segment DecodeSegment(const pb::SegmentRecord& in) {
  Segment out;
  out.extent_index = in.extent_index();
  out.slot = in.slot();
  out.host_bridge = in.host_bridge();
  out.serial = in.serial();
  out.memdev = in.memdev();
  out.host_region = in.host_region();
  out.dax_device = in.dax_device();
  if (in.has_numa_node()) out.numa_node = in.numa_node();
  out.hpa_bytes = in.hpa_bytes();
  out.online_blocks = in.online_blocks();
  out.total_blocks = in.total_blocks();
  if (in.has_ld_index()) out.ld_index = in.ld_index();
  return out;
}

// The first part is in the record of the Attachment itself: once there was no other.
template <typename Record>
Problem DecodePart(absl::string_view field, const Record& in, Part& out) {
  if (Problem p = DecodeEnum(field, in.state(), AttachmentState::kReleaseBlocked, out.state)) {
    return p;
  }
  out.detaching = in.detaching();
  out.reason = in.reason();
  return DecodeSince(in.since_unix_us(), out.since);
}

// `extents`: how many the Region has. A zone is stored only where it is not the usual one, MOVABLE.
Problem DecodeAttachment(const pb::AttachmentRecord& in, size_t extents, Attachment& out) {
  out.host = in.host();
  if (Problem p = DecodeEnum("mode", in.mode(), Mode::kSystemRam, out.mode)) return p;
  if (in.zone() != 0) {
    if (Problem p = DecodeEnum("zone", in.zone(), Zone::kKernel, out.zone)) return p;
  }
  if (Problem p = DecodeEnum("access", in.access(), Access::kReadOnly, out.access)) return p;
  if (Problem p = DecodePart("attachment state", in, out.parts.front())) return p;
  out.generation = in.generation();
  for (const pb::SegmentRecord& segment : in.segments()) {
    out.segments.push_back(DecodeSegment(segment));
    if (segment.extent_index() >= extents) return "a segment is of no extent";
  }
  out.operator_vouched = in.operator_vouched();
  out.held = in.held();
  if (!in.request_id().empty() && in.request_id().size() != kUuidBytes) {
    return "an attachment's request_id is not of 16 bytes";
  }
  out.request_id = Uuid(in.request_id());
  if (!in.has_tail()) return std::nullopt;
  Part& tail = out.parts.emplace_back();
  tail.first_segment = in.tail().first_segment();
  return DecodePart("tail state", in.tail(), tail);
}

// 0 is none, which in the model is an infinite one.
absl::Duration DurationOrNone(int64_t micros) {
  return micros == 0 ? absl::InfiniteDuration() : absl::Microseconds(micros);
}

// What the first release did not know: absent, each has the value that its Regions had.
Problem DecodePlacement(const pb::RegionRecord& in, Region& out) {
  if (in.policy() != 0) {
    if (Problem p = DecodeEnum("policy", in.policy(), Policy::kIsolate, out.policy)) return p;
  }
  if (in.interleave_ways() > kMaxExtentsPerRegion) return "interleave_ways is too large";
  out.interleave_ways = std::max<uint32_t>(in.interleave_ways(), 1);
  out.interleave_granularity_bytes = in.interleave_granularity_bytes();
  if (in.expected_lifetime_us() < 0 || in.ttl_us() < 0) return "a duration is negative";
  out.expected_lifetime = DurationOrNone(in.expected_lifetime_us());
  out.ttl = DurationOrNone(in.ttl_us());
  if (in.expire_time_unix_us() != 0) {
    if (Problem p = DecodeTime("expire_time", in.expire_time_unix_us(), out.expire_time)) return p;
  }
  out.tail_extents = in.tail_extents();
  out.tail_leaving = in.tail_leaving();
  out.forced = in.forced();
  if (in.has_owner()) {
    out.owner = Owner{in.owner().uid(), in.owner().pid(), in.owner().start_ticks(),
                      in.owner().incarnation()};
  }
  if (in.has_maker()) out.maker = Maker{Interned(in.maker().host()), in.maker().uid()};
  out.open_to = {.uids = {in.open_to().uids().begin(), in.open_to().uids().end()},
                 .gids = {in.open_to().gids().begin(), in.open_to().gids().end()},
                 .everybody = in.open_to().everybody()};
  out.fabric_isolation = in.fabric_isolation();
  return std::nullopt;
}

// Takes nothing on trust: a value that this version does not know is a problem to be named, never a
// default. Whether the whole makes sense is CheckShape's to say.
Problem DecodeRegion(Key key, const pb::RegionRecord& in, Region& out) {
  out.key = key;
  if (in.tag().size() != kUuidBytes) return absl::StrCat("tag has ", in.tag().size(), " bytes");
  out.tag = Uuid(in.tag());
  out.id = in.id();
  if (out.id.empty()) return "id is empty";
  out.tenant = in.tenant();
  out.generation = in.generation();
  out.requested_bytes = in.requested_bytes();
  if (Problem p = DecodeEnum("sharing", in.sharing(), Sharing::kMultiWriter, out.sharing)) return p;
  if (Problem p = DecodeEnum("state", in.state(), RegionState::kQuarantined, out.state)) return p;
  out.state_reason = in.state_reason();
  if (Problem p = DecodeSince(in.state_since_unix_us(), out.state_since)) return p;
  for (const pb::ExtentRecord& extent : in.extents()) {
    if (!extent.bad_reason().empty()) {
      out.bad.push_back({static_cast<uint32_t>(out.extents.size()), extent.bad_reason()});
    }
    out.extents.push_back({extent.device(), extent.dpa_bytes(), extent.length_bytes()});
  }
  for (const pb::AttachmentRecord& attachment : in.attachments()) {
    out.attachments.emplace_back();
    if (Problem p = DecodeAttachment(attachment, out.extents.size(), out.attachments.back())) {
      return p;
    }
  }
  if (Problem p = DecodeTime("create_time", in.create_time_unix_us(), out.create_time)) return p;
  for (const pb::RequestRecord& request : in.requests()) {
    if (request.request_id().size() != kUuidBytes) return "a request_id is not of 16 bytes";
    if (CXLPOOL_MUTANT("restart-forgets-requests")) continue;
    out.requests.push_back({{request.principal(), request.method(), Uuid(request.request_id())},
                            request.payload_hash()});
  }
  out.revision = in.revision();
  out.compensating = in.compensating();
  return DecodePlacement(in, out);
}

// What of an entry makes no sense is refused by PoolState, all entries together.
Problem DecodeEntry(const pb::TopologyEntryRecord& in, TopologyEntry& out) {
  switch (in.what_case()) {
    case pb::TopologyEntryRecord::kDevice: {
      const pb::DeviceEntryRecord& device = in.device();
      if (device.id().empty()) return "a device of the topology without an id";
      out.what = DeviceEntry{.id = device.id(),
                             .serial = device.serial(),
                             .capacity_bytes = device.capacity_bytes(),
                             .granule_bytes = device.granule_bytes(),
                             .path = device.path(),
                             .latency_ns = device.latency_ns(),
                             .bandwidth_mib_per_second = device.bandwidth_mib_per_second(),
                             .heads = device.heads(),
                             .failure_domain = device.failure_domain()};
      return std::nullopt;
    }
    case pb::TopologyEntryRecord::kHost: {
      const pb::HostEntryRecord& host = in.host();
      if (host.id().empty()) return "a host of the topology without an id";
      HostEntry entry{.id = host.id(),
                      .slots = {host.slots().begin(), host.slots().end()},
                      .qmp_socket = host.qmp_socket()};
      if (host.has_agent_uid()) entry.agent_uid = host.agent_uid();
      out.what = std::move(entry);
      return std::nullopt;
    }
    case pb::TopologyEntryRecord::kSwitch: {
      const pb::SwitchEntryRecord& node = in.switch_();
      if (node.id().empty()) return "a switch without an id";
      out.what = SwitchEntry{node.id(), node.latency_ns(), node.bandwidth_mib_per_second(),
                             node.failure_domain()};
      return std::nullopt;
    }
    case pb::TopologyEntryRecord::kLink: {
      const pb::LinkEntryRecord& link = in.link();
      out.what = LinkEntry{link.a(),
                           link.b(),
                           link.latency_ns(),
                           link.bandwidth_mib_per_second(),
                           {link.slots().begin(), link.slots().end()}};
      return std::nullopt;
    }
    case pb::TopologyEntryRecord::kImportedFrom:
      out.what = TopologyImport{in.imported_from()};
      return std::nullopt;
    case pb::TopologyEntryRecord::WHAT_NOT_SET:
      break;
  }
  return "a part of the topology of a kind that this release does not know";
}

// Absent: there is no row yet.
Problem DecodeHead(absl::string_view field, const pb::AuditHeadRecord& in, AuditHead& out) {
  out = {in.number(), in.hash()};
  if ((out.number == 0) != out.hash.empty() ||
      (out.number != 0 && out.hash.size() != kSha256Bytes)) {
    return absl::StrCat(field, " has a hash of ", out.hash.size(), " bytes");
  }
  return std::nullopt;
}

using Decoded = std::variant<Item, PoolMeta>;

// What a record says, or what is wrong with it. Nothing is taken that this release does not know: a
// record that was understood in part would be written back without the rest.
Problem DecodeBody(Key key, const pb::Record& record, Decoded& out) {
  if ((record.body_case() == pb::Record::kPool) != (key == kPoolKey)) {
    return key == kPoolKey ? "it is no record of the pool" : "it is the pool's, under another key";
  }
  const bool is_known = record.body_case() != pb::Record::BODY_NOT_SET;
  if (is_known && IsOfLaterRelease(record) && !CXLPOOL_MUTANT("later-fields-are-dropped")) {
    return "it has a field that this release does not know";
  }
  switch (record.body_case()) {
    case pb::Record::kPool: {
      PoolMeta meta{record.pool().schema_version(), record.pool().next_id(),
                    record.pool().hold_reason()};
      const pb::PoolRecord& pool = record.pool();
      if (Problem p = DecodeHead("audit_head", pool.audit_head(), meta.audit.head)) return p;
      if (Problem p = DecodeHead("audit_dropped", pool.audit_dropped(), meta.audit.dropped)) {
        return p;
      }
      if (meta.schema_version != kSchemaVersion) {
        return absl::StrCat("schema version ", meta.schema_version, " is not ", kSchemaVersion);
      }
      out = std::move(meta);
      return std::nullopt;
    }
    case pb::Record::kDevice: {
      const pb::DeviceRecord& in = record.device();
      Device device{.key = key,
                    .id = in.id(),
                    .serial = in.serial(),
                    .capacity_bytes = in.capacity_bytes(),
                    .granule_bytes = in.granule_bytes(),
                    .service_reason = {}};
      if (device.id.empty()) return "a device without an id";
      // Not by DecodeEnum: 0, in service, is what devices of the first release are.
      if (in.service() > static_cast<uint32_t>(DeviceService::kRemoved)) {
        return absl::StrCat("service is ", in.service(), ", which this release does not know");
      }
      device.service = static_cast<DeviceService>(in.service());
      device.service_reason = in.service_reason();
      if (Problem p = DecodeSince(in.service_since_unix_us(), device.service_since)) return p;
      device.identity = in.identity();
      device.max_lds = in.max_lds();
      out = Item(std::move(device));
      return std::nullopt;
    }
    case pb::Record::kHost: {
      const pb::HostRecord& in = record.host();
      if (in.id().empty()) return "a host without an id";
      Host host{.key = key,
                .id = in.id(),
                .identity = in.identity(),
                .retired = in.retired(),
                .fabric_incarnation = in.fabric_incarnation(),
                .tenants = {in.tenants().begin(), in.tenants().end()}};
      // It was written by a release whose hosts could allocate for every tenant.
      if (host.tenants.empty()) host.tenants.emplace_back(kDefaultTenant);
      out = Item(std::move(host));
      return std::nullopt;
    }
    case pb::Record::kRegion: {
      auto region = std::make_shared<Region>();
      if (Problem p = DecodeRegion(key, record.region(), *region)) return p;
      out = Item(RegionPtr(std::move(region)));
      return std::nullopt;
    }
    // The Region as it was when it went, and when that was.
    case pb::Record::kTombstone: {
      auto region = std::make_shared<Region>();
      Tombstone tombstone;
      if (Problem p = DecodeRegion(key, record.tombstone().region(), *region)) return p;
      if (Problem p = DecodeTime("gone_time", record.tombstone().gone_time_unix_us(),
                                 tombstone.gone_time)) {
        return p;
      }
      tombstone.region = std::move(region);
      out = Item(std::move(tombstone));
      return std::nullopt;
    }
    case pb::Record::kTenant: {
      const pb::TenantRecord& in = record.tenant();
      if (in.id().empty()) return "a tenant without an id";
      Tenant tenant{key,
                    in.id(),
                    in.quota_bytes(),
                    in.reserved_bytes(),
                    in.host_cap_bytes(),
                    in.fabric_isolation()};
      if (in.create_unix_us() != 0) {
        if (Problem p = DecodeTime("create", in.create_unix_us(), tenant.create_time)) return p;
      }
      out = Item(std::move(tenant));
      return std::nullopt;
    }
    case pb::Record::kRevocation: {
      const pb::RevocationRecord& in = record.revocation();
      if (in.subject().empty()) return "a revocation of nothing";
      Revocation revocation{key, in.subject(), in.reason(), in.principal(), {}};
      if (Problem p = DecodeTime("time", in.time_unix_us(), revocation.time)) return p;
      out = Item(std::move(revocation));
      return std::nullopt;
    }
    case pb::Record::kRoleBinding: {
      const pb::RoleBindingRecord& in = record.role_binding();
      if (in.identity().empty()) return "a binding of nobody";
      RoleBinding binding{.key = key,
                          .identity = in.identity(),
                          .reason = in.reason(),
                          .principal = in.principal()};
      if (Problem p = DecodeEnum("role", in.role(), PoolRole::kMetrics, binding.role)) return p;
      binding.token_hash = in.token_sha256();
      // A token is known by its hash, a certificate by TLS: a token's binding without a hash would
      // be anybody's who knows the name.
      const bool is_token = absl::StartsWith(in.identity(), kTokenIdentity);
      if (binding.token_hash.size() != (is_token ? kTokenHashBytes : 0)) return "a bad token hash";
      binding.tenants.assign(in.tenants().begin(), in.tenants().end());
      if (IsForTenants(binding.role) == binding.tenants.empty()) return "a role for no tenant";
      if (Problem p = DecodeTime("time", in.time_unix_us(), binding.time)) return p;
      if (in.end_unix_us() != 0) {
        if (Problem p = DecodeTime("end", in.end_unix_us(), binding.end)) return p;
      }
      out = Item(std::move(binding));
      return std::nullopt;
    }
    case pb::Record::kTopologyEntry: {
      TopologyEntry entry{key, {}};
      if (Problem p = DecodeEntry(record.topology_entry(), entry)) return p;
      out = Item(std::move(entry));
      return std::nullopt;
    }
    case pb::Record::kAuditRow: {
      auto row = std::make_shared<AuditRow>();
      row->key = key;
      const pb::AuditRowRecord& in = record.audit_row();
      // The entries stay as they are stored: their hash is of these bytes.
      if (Problem p = DecodeHead("an audit row", in.head(), row->head)) return p;
      if (row->head.number == 0) return "an audit row without a number";
      row->bytes = in.entries();
      out = Item(AuditRowPtr(std::move(row)));
      return std::nullopt;
    }
    case pb::Record::BODY_NOT_SET:
      break;
  }
  return "it is of a kind that this release does not know";
}

// A manager does not start with such a record: to leave it out would give its bytes to others.
absl::Status BadRecord(Key key, const std::string& why) {
  return Refuse(absl::StatusCode::kDataLoss, "BAD_RECORD",
                absl::StrCat("record ", key, " of the store is not sound: ", why),
                "restore a backup, or run the release that wrote it", {{"key", absl::StrCat(key)}});
}

}  // namespace

// What says who changed it last (Record.audit) is written by no release any more.
bool IsOfLaterRelease(const store::v1::Record& record) {
  if (record.body_case() == pb::Record::BODY_NOT_SET) return IsOfUnknownKind(record);
  if (!UnknownOf(record).empty()) return true;
  switch (record.body_case()) {
    case pb::Record::kPool:
      return HasUnknown(record.pool());
    case pb::Record::kDevice:
      return HasUnknown(record.device());
    case pb::Record::kHost:
      return HasUnknown(record.host());
    case pb::Record::kRegion:
      return HasUnknown(record.region());
    case pb::Record::kTombstone:
      return HasUnknown(record.tombstone());
    case pb::Record::kTenant:
      return HasUnknown(record.tenant());
    case pb::Record::kRevocation:
      return HasUnknown(record.revocation());
    case pb::Record::kTopologyEntry:
      return HasUnknown(record.topology_entry());
    case pb::Record::kRoleBinding:
      return HasUnknown(record.role_binding());
    case pb::Record::kAuditRow:
      return HasUnknown(record.audit_row());
    case pb::Record::BODY_NOT_SET:
      break;
  }
  return false;
}

absl::StatusOr<std::vector<AuditEntry>> DecodeEntries(const AuditRow& row) {
  pb::AuditEntriesRecord record;
  if (!record.ParseFromString(row.bytes)) return BadRecord(row.key, "its entries do not parse");
  std::vector<AuditEntry> entries;
  // Each entry is read over the one before it, and what is absent stays (EncodeEntries).
  AuditEntry out = {.time = absl::UnixEpoch(), .who = "", .method = ""};
  for (const pb::AuditEntryRecord& in : record.entries()) {
    if (in.has_time_unix_us()) {
      if (Problem p = DecodeTime("time", in.time_unix_us(), out.time)) {
        return BadRecord(row.key, *p);
      }
    }
    if (in.has_who()) out.who = in.who();
    if (in.has_method()) out.method = in.method();
    out.request_id = Uuid(in.request_id());
    out.target = in.target();
    out.more = in.more();
    if (in.has_tenant()) out.tenant = in.tenant();
    out.reason = in.reason();
    out.revision = in.revision();
    if (in.has_role()) out.role = in.role();
    if (in.has_peer()) out.peer = in.peer();
    out.outcome = in.outcome();
    entries.push_back(out);
  }
  return entries;
}

absl::Status UnfinishedCopy() {
  return Refuse(absl::StatusCode::kFailedPrecondition, "COPY_UNFINISHED",
                "the store has a part of a pool: a copy into it was broken off",
                "make it empty with `etcdctl del --prefix` and store.prefix, then copy again");
}

absl::StatusOr<std::variant<Item, PoolMeta>> DecodeRecord(Key key, absl::string_view value) {
  if (value == kUnfinishedCopy) return UnfinishedCopy();
  pb::Record record;
  if (!record.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return BadRecord(key, "it does not parse");
  }
  Decoded decoded;
  if (Problem problem = DecodeBody(key, record, decoded)) return BadRecord(key, *problem);
  return decoded;
}

}  // namespace cxlpool::fm
