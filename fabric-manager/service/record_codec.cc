#include "fabric-manager/service/record_codec.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cxlpool/store/v1/record.pb.h"
#include "google/protobuf/arena.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

namespace pb = cxlpool::store::v1;

constexpr uint32_t kSchemaVersion = 1;
constexpr size_t kUuidBytes = 16;
constexpr int64_t kMaxUnixMicros = 253402300799'000'000;  // The year 9999.

// Protobuf strings must be UTF-8; what came from elsewhere (reasons) may not be, and a row that
// cannot be read again would be worse than a '?'.
std::string Text(absl::string_view in) {
  std::string out(in);
  char any = 0;
  for (const char c : in) any = static_cast<char>(any | c);
  if (static_cast<unsigned char>(any) < 0x80) return out;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return out;
}

// Encoding.

// A clock that is off must not make a row that cannot be read again.
int64_t Micros(absl::Time time) {
  return std::clamp<int64_t>(absl::ToUnixMicros(time), 0, kMaxUnixMicros);
}

// 0: none, which in the model is an infinite one.
int64_t MicrosOrNone(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return 0;
  return std::clamp<int64_t>(absl::ToInt64Microseconds(duration), 1, kMaxUnixMicros);
}

void Encode(const Request& in, pb::RequestRecord& out) {
  out.set_principal(Text(in.id.principal));
  out.set_method(Text(in.id.method));
  out.set_request_id(in.id.id.str());
  out.set_payload_hash(in.payload_hash);
}

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

void Encode(const Attachment& in, pb::AttachmentRecord& out) {
  out.set_host(Text(in.host));
  out.set_mode(static_cast<uint32_t>(in.mode));
  if (in.zone != Zone::kMovable) out.set_zone(static_cast<uint32_t>(in.zone));
  out.set_access(static_cast<uint32_t>(in.access));
  out.set_state(static_cast<uint32_t>(in.state));
  out.set_detaching(in.detaching);
  out.set_generation(in.generation);
  for (const Segment& segment : in.segments) Encode(segment, *out.add_segments());
  out.set_reason(Text(in.reason));
  if (in.tail.has_value()) {
    pb::TailRecord& tail = *out.mutable_tail();
    tail.set_first_segment(in.tail->first_segment);
    tail.set_state(static_cast<uint32_t>(in.tail->state));
    tail.set_detaching(in.tail->detaching);
    tail.set_reason(Text(in.tail->reason));
  }
  out.set_sworn(in.sworn);
}

void Encode(const Region& in, pb::RegionRecord& out) {
  out.set_tag(in.tag.str());
  out.set_id(Text(in.id));
  out.set_tenant(Text(in.tenant));
  out.set_generation(in.generation);
  out.set_requested_bytes(in.requested_bytes);
  out.set_sharing(static_cast<uint32_t>(in.sharing));
  out.set_state(static_cast<uint32_t>(in.state));
  out.set_state_reason(Text(in.state_reason));
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
}

// A record whose parts all are in one place, most of them on the stack: every change makes one, and
// to allocate and free each part by itself takes longer than to encode it.
class RecordInPlace {
 public:
  pb::Record& record() { return *record_; }

 private:
  google::protobuf::ArenaOptions InBytes() {
    google::protobuf::ArenaOptions options;
    options.initial_block = bytes_.data();
    options.initial_block_size = bytes_.size();
    return options;
  }

  alignas(8) std::array<char, 4096> bytes_;
  google::protobuf::Arena arena_{InBytes()};
  pb::Record* const record_ = google::protobuf::Arena::CreateMessage<pb::Record>(&arena_);
};

std::string Serialize(pb::Record& record, const Audit& audit) {
  pb::Audit& out = *record.mutable_audit();
  out.set_time_unix_us(Micros(audit.time));
  out.set_principal(Text(audit.principal));
  out.set_action(Text(audit.action));
  out.set_reason(Text(audit.reason));
  return record.SerializeAsString();
}

// Decoding. Each says what is wrong, or nothing.

using Problem = std::optional<std::string>;

template <typename Enum>
Problem DecodeEnum(absl::string_view field, uint32_t value, Enum last, Enum& out) {
  if (value < 1 || value > static_cast<uint32_t>(last)) {
    return absl::StrCat(field, " is ", value, ", which this release does not know");
  }
  out = static_cast<Enum>(value);
  return std::nullopt;
}

Problem DecodeTime(absl::string_view field, int64_t micros, absl::Time& out) {
  if (micros < 0 || micros > kMaxUnixMicros) {
    return absl::StrCat(field, " is ", micros, ", which is no time");
  }
  out = absl::FromUnixMicros(micros);
  return std::nullopt;
}

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

Problem DecodeAttachment(const pb::AttachmentRecord& in, size_t extents, Attachment& out) {
  out.host = in.host();
  if (Problem p = DecodeEnum("mode", in.mode(), Mode::kSystemRam, out.mode)) return p;
  if (in.zone() != 0) {
    if (Problem p = DecodeEnum("zone", in.zone(), Zone::kKernel, out.zone)) return p;
  }
  if (Problem p = DecodeEnum("access", in.access(), Access::kReadOnly, out.access)) return p;
  if (Problem p =
          DecodeEnum("attachment state", in.state(), AttachmentState::kReleaseBlocked, out.state)) {
    return p;
  }
  out.detaching = in.detaching();
  out.generation = in.generation();
  for (const pb::SegmentRecord& segment : in.segments()) {
    out.segments.push_back(DecodeSegment(segment));
    if (segment.extent_index() >= extents) return "a segment is of no extent";
  }
  out.reason = in.reason();
  out.sworn = in.sworn();
  if (!in.has_tail()) return std::nullopt;
  Tail& tail = out.tail.emplace();
  tail.first_segment = in.tail().first_segment();
  if (Problem p = DecodeEnum("tail state", in.tail().state(), AttachmentState::kReleaseBlocked,
                             tail.state)) {
    return p;
  }
  tail.detaching = in.tail().detaching();
  tail.reason = in.tail().reason();
  return std::nullopt;
}

absl::Duration DurationOrNone(int64_t micros) {
  return micros == 0 ? absl::InfiniteDuration() : absl::Microseconds(micros);
}

// What the first release did not know.
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
  return std::nullopt;
}

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

using Decoded = std::variant<Item, PoolMeta>;

Problem DecodeBody(Key key, const pb::Record& record, Decoded& out) {
  switch (record.body_case()) {
    case pb::Record::kPool: {
      const PoolMeta meta{record.pool().schema_version(), record.pool().next_id()};
      if (key != kPoolKey) return "it is the pool's record under another key";
      if (meta.schema_version != kSchemaVersion) {
        return absl::StrCat("schema version ", meta.schema_version, " is not ", kSchemaVersion);
      }
      out = meta;
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
      if (in.service() > static_cast<uint32_t>(DeviceService::kRemoved)) {
        return absl::StrCat("service is ", in.service(), ", which this release does not know");
      }
      device.service = static_cast<DeviceService>(in.service());
      device.service_reason = in.service_reason();
      out = Item(std::move(device));
      return std::nullopt;
    }
    case pb::Record::kHost: {
      const pb::HostRecord& in = record.host();
      if (in.id().empty()) return "a host without an id";
      out = Item(Host{key, in.id(), in.identity(), in.retired()});
      return std::nullopt;
    }
    case pb::Record::kRegion: {
      auto region = std::make_shared<Region>();
      if (Problem p = DecodeRegion(key, record.region(), *region)) return p;
      out = Item(RegionPtr(std::move(region)));
      return std::nullopt;
    }
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
      out = Item(Tenant{key, in.id(), in.quota_bytes(), in.reserved_bytes(), in.host_cap_bytes()});
      return std::nullopt;
    }
    case pb::Record::BODY_NOT_SET:
      break;
  }
  return "it is of a kind that this release does not know";
}

absl::Status BadRecord(Key key, const std::string& why) {
  return Refusal{.code = absl::StatusCode::kDataLoss,
                 .reason = "BAD_RECORD",
                 .message = absl::StrCat("record ", key, " of the store is not sound: ", why),
                 .remedy = "restore a backup, or run the release that wrote it",
                 .metadata = {{"key", absl::StrCat(key)}}}
      .ToStatus();
}

}  // namespace

std::string EncodeItem(const Item& item, const Audit& audit) {
  RecordInPlace in_place;
  pb::Record& record = in_place.record();
  if (const auto* region = std::get_if<RegionPtr>(&item)) {
    Encode(**region, *record.mutable_region());
  } else if (const auto* host = std::get_if<Host>(&item)) {
    record.mutable_host()->set_id(Text(host->id));
    record.mutable_host()->set_identity(Text(host->identity));
    record.mutable_host()->set_retired(host->retired);
  } else if (const auto* device = std::get_if<Device>(&item)) {
    pb::DeviceRecord& out = *record.mutable_device();
    out.set_id(Text(device->id));
    out.set_serial(Text(device->serial));
    out.set_capacity_bytes(device->capacity_bytes);
    out.set_granule_bytes(device->granule_bytes);
    out.set_service(static_cast<uint32_t>(device->service));
    out.set_service_reason(Text(device->service_reason));
  } else if (const auto* tenant = std::get_if<Tenant>(&item)) {
    pb::TenantRecord& out = *record.mutable_tenant();
    out.set_id(Text(tenant->id));
    out.set_quota_bytes(tenant->quota_bytes);
    out.set_reserved_bytes(tenant->reserved_bytes);
    out.set_host_cap_bytes(tenant->host_cap_bytes);
  } else if (const auto* tombstone = std::get_if<Tombstone>(&item)) {
    Encode(*tombstone->region, *record.mutable_tombstone()->mutable_region());
    record.mutable_tombstone()->set_gone_time_unix_us(Micros(tombstone->gone_time));
  } else {
    std::abort();  // An erased record has no value.
  }
  return Serialize(record, audit);
}

std::string EncodePool(const PoolMeta& meta, const Audit& audit) {
  pb::Record record;
  record.mutable_pool()->set_schema_version(meta.schema_version);
  record.mutable_pool()->set_next_id(meta.next_id);
  return Serialize(record, audit);
}

absl::StatusOr<std::variant<Item, PoolMeta>> DecodeRecord(Key key, absl::string_view value) {
  pb::Record record;
  if (!record.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return BadRecord(key, "it does not parse");
  }
  Decoded decoded;
  if (Problem problem = DecodeBody(key, record, decoded)) return BadRecord(key, *problem);
  return decoded;
}

}  // namespace cxlpool::fm
