#include "fabric-manager/rpc/convert_request.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/rpc/request_hash.h"
#include "fabric-manager/rpc/timestamps.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/certificate.h"
#include "proto/support/cxl_host.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/token.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxReason = 512;
constexpr size_t kMaxIdentity = 255;
constexpr size_t kMaxIncarnation = 64;
constexpr uint32_t kNoId = UINT32_MAX;  // (uid_t)-1: of no user and no group.

absl::Status Bad(std::string reason, std::string message, std::string remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, std::move(reason), std::move(message),
                std::move(remedy));
}

// Who calls, and which call it is: every spec gets them here, those of a batch too.
template <typename Message, typename Spec>
absl::Status ReadRequest(const Message& message, Interned method, const Caller& caller,
                         Spec& spec) {
  spec.caller = caller;
  Request& request = spec.request;
  if (!ParseUuid(message.request_id(), request.id.id)) {
    return Bad("BAD_REQUEST_ID", "field request_id is missing or not a UUID",
               "make one UUID per logical call and keep it across retries");
  }
  request.id.principal = caller.principal();
  request.id.method = method;
  request.payload_hash = PayloadHash(message);
  return absl::OkStatus();
}

enum class Need { kOptional, kRequired };

// The id of a resource name. Left out and optional: `id` stays.
absl::Status ReadName(absl::string_view collection, const std::string& name, Need need,
                      std::string& id) {
  if (name.empty() && need == Need::kOptional) return absl::OkStatus();
  absl::StatusOr<std::string> parsed = ParseResourceName(collection, name);
  if (parsed.ok()) id = *std::move(parsed);
  return parsed.status();
}

// What every call about one Region begins with: who calls, the etag, and which Region it is, by its
// id or its UUID.
template <typename Message, typename Spec>
absl::Status ReadTarget(const Message& message, Interned method, const Caller& caller, Spec& spec) {
  if (absl::Status status = ReadRequest(message, method, caller, spec); !status.ok()) {
    return status;
  }
  if (!CXLPOOL_MUTANT("etag-is-not-read")) spec.etag = message.etag();
  return ReadName("regions", message.name(), Need::kRequired, spec.region_id);
}

// Left out: `value` stays.
template <typename To>
absl::Status ReadEnum(absl::string_view field, int from, int highest, To& value) {
  if (from < 0 || from > highest) {
    return Bad("BAD_ENUM", absl::StrCat("field ", field, " has the unknown value ", from),
               "use a value of this API version");
  }
  if (from != 0) value = static_cast<To>(from);
  return absl::OkStatus();
}

// How a host is to use the Region. A zone says where system-ram goes online: with DEVDAX it would
// have no effect, so it is refused and not ignored.
template <typename Message, typename Spec>
absl::Status ReadUse(const Message& message, Spec& spec) {
  absl::Status status = ReadEnum("mode", message.mode(), v1::SYSTEM_RAM, spec.mode);
  if (CXLPOOL_MUTANT("access-is-not-read")) return status;
  status.Update(ReadEnum("access", message.access(), v1::READ_ONLY, spec.access));
  status.Update(ReadEnum("zone", message.zone(), v1::KERNEL, spec.zone));
  if (status.ok() && message.zone() != 0 && spec.mode != Mode::kSystemRam) {
    status = Bad("ZONE_NEEDS_SYSTEM_RAM", "field zone is given, and the mode is DEVDAX",
                 "use mode SYSTEM_RAM, or leave zone out");
  }
  return status;
}

// Who has to enforce what Attachments say.
absl::Status ReadIsolation(v1::Enforcer from, bool& by_fabric) {
  // A demand that this release does not know may be a stricter one: it is not taken for none.
  v1::Enforcer enforcer = v1::AGENT;
  absl::Status status = ReadEnum("isolation", from, v1::AGENT, enforcer);
  by_fabric = enforcer == v1::FABRIC;
  return status;
}

absl::Status ReadMaxExtents(uint32_t from, uint32_t& value) {
  value = std::max(from, uint32_t{1});
  if (value <= kMaxExtentsPerRegion) return absl::OkStatus();
  return Bad("BAD_MAX_EXTENTS", absl::StrCat("field max_extents is ", from),
             absl::StrCat("use 1 to ", kMaxExtentsPerRegion));
}

// What can be said without the pool's default policy: the rest the planner says.
absl::Status ReadPlacement(const v1::AllocateRegionRequest& request, AllocateSpec& spec) {
  const v1::PlacementPolicy policy = request.policy();
  if (policy != v1::PLACEMENT_POLICY_UNSPECIFIED) {
    Policy chosen = Policy::kPack;
    if (absl::Status status = ReadEnum("policy", policy, v1::ISOLATE, chosen); !status.ok()) {
      return status;
    }
    spec.policy = chosen;
  }
  const bool given = policy != v1::PLACEMENT_POLICY_UNSPECIFIED;
  const uint32_t ways = request.interleave_ways();
  // One way interleaves nothing, and BANDWIDTH is there to interleave.
  if (ways > kMaxInterleaveWays || (ways != 0 && !std::has_single_bit(ways)) ||
      (ways == 1 && policy == v1::BANDWIDTH)) {
    return Bad("BAD_INTERLEAVE", absl::StrCat("field interleave_ways is ", ways),
               "use 2, 4, 8 or 16, or 0 for as many as there are devices for");
  }
  if (ways > 1 && given && policy != v1::BANDWIDTH) {
    return Bad("BAD_INTERLEAVE",
               absl::StrCat("field interleave_ways is ", ways, ", and the policy is ",
                            v1::PlacementPolicy_Name(policy)),
               "use policy BANDWIDTH, or leave interleave_ways out");
  }
  const uint32_t granularity = request.interleave_granularity_bytes();
  if (granularity != 0 && !IsInterleaveGranularity(granularity)) {
    return Bad("BAD_INTERLEAVE",
               absl::StrCat("field interleave_granularity_bytes is ", granularity),
               absl::StrCat("use a power of two from ", kMinInterleaveGranularityBytes, " to ",
                            kMaxInterleaveGranularityBytes));
  }
  if (static_cast<size_t>(request.isolate_from_size()) > kMaxIsolateFrom) {
    return Bad("BAD_ISOLATE_FROM",
               absl::StrCat("field isolate_from names ", request.isolate_from_size(), " Regions"),
               absl::StrCat("name at most ", kMaxIsolateFrom));
  }
  if (request.isolate_from_size() > 0 && given && policy != v1::ISOLATE) {
    return Bad("BAD_ISOLATE_FROM",
               absl::StrCat("field isolate_from is given, and the policy is ",
                            v1::PlacementPolicy_Name(policy)),
               "use policy ISOLATE, or leave isolate_from out");
  }
  spec.interleave_ways = ways;
  spec.interleave_granularity_bytes = granularity;
  spec.isolate_from.resize(static_cast<size_t>(request.isolate_from_size()));
  for (int i = 0; i < request.isolate_from_size(); ++i) {
    if (absl::Status status = ReadName("regions", request.isolate_from(i), Need::kRequired,
                                       spec.isolate_from[static_cast<size_t>(i)]);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

// Takes a term from kMinTtl to kMaxTtl, both included. Otherwise `ttl` stays as it was.
absl::Status ReadTtl(const google::protobuf::Duration& from, absl::Duration& ttl) {
  const auto duration = ReadDuration(from);
  if (duration.has_value() && *duration >= kMinTtl && *duration <= kMaxTtl) {
    ttl = *duration;
    return absl::OkStatus();
  }
  return Bad("BAD_TTL",
             duration.has_value() ? absl::StrCat("field ttl is ", absl::FormatDuration(*duration))
                                  : std::string("field ttl is not a duration"),
             "use 10 seconds to 10 years, or leave it out for ever");
}

// Whole seconds, rounded up: what is more than 0 stays more than 0.
absl::Status ReadLifetime(const google::protobuf::Duration& from, absl::Duration& lifetime) {
  const auto duration = ReadDuration(from);
  if (duration.has_value() && *duration > absl::ZeroDuration()) {
    lifetime = absl::Ceil(*duration, absl::Seconds(1));
    return absl::OkStatus();
  }
  return Bad("BAD_LIFETIME", "field expected_lifetime is not more than 0",
             "say how long it is expected to stay, or leave it out");
}

// An owner is named by host, boot, pid and start together. Without one of them a later process
// could be taken for it, and the Region would outlive its owner.
absl::Status ReadOwner(const v1::AllocateRegionRequest& request, AllocateSpec& spec) {
  const v1::Owner& from = request.owner();
  const absl::string_view wrong = from.pid() == 0              ? "its pid is 0"
                                  : from.start_ticks() == 0    ? "its start_ticks is 0"
                                  : from.incarnation().empty() ? "its incarnation is empty"
                                  : from.incarnation().size() > kMaxIncarnation
                                      ? "its incarnation is too long"
                                  : request.host().empty() ? "no host is"
                                                           : "";
  if (!wrong.empty()) {
    return Bad("BAD_OWNER", absl::StrCat("field owner is given, and ", wrong),
               "name a process of the Region's first host, or leave owner out");
  }
  spec.owner = Owner{.uid = from.uid(),
                     .pid = from.pid(),
                     .start_ticks = from.start_ticks(),
                     .incarnation = from.incarnation()};
  return absl::OkStatus();
}

// A user id means somebody only on one host, so the Region's first host has to be named. An owner
// that is given, too, has to be a process of the same user.
absl::Status ReadMaker(const v1::AllocateRegionRequest& request, AllocateSpec& spec) {
  const uint32_t uid = request.maker_uid();
  const absl::string_view wrong = request.host().empty() ? "no host is"
                                  : uid == kNoId         ? "it is no user id"
                                  : request.has_owner() && request.owner().uid() != uid
                                      ? "the owner is another user's process"
                                      : "";
  if (!wrong.empty()) {
    return Bad("BAD_MAKER", absl::StrCat("field maker_uid is given, and ", wrong),
               "name the user of the Region's first host who asks, or leave maker_uid out");
  }
  spec.maker_uid = uid;
  return absl::OkStatus();
}

// Each of the two lists has at most kMaxOpenTo ids, and none of them is (uid_t)-1. Otherwise
// `open_to` stays as it was.
absl::Status ReadOpenTo(const v1::OpenTo& from, OpenTo& open_to) {
  for (const auto* ids : {&from.uids(), &from.gids()}) {
    if (static_cast<size_t>(ids->size()) > kMaxOpenTo) {
      return Bad("BAD_OPEN_TO", absl::StrCat("field open_to has ", ids->size(), " ids"),
                 absl::StrCat("name at most ", kMaxOpenTo, " users and as many groups"));
    }
    if (std::find(ids->begin(), ids->end(), kNoId) != ids->end()) {
      return Bad("BAD_OPEN_TO", absl::StrCat("field open_to holds ", kNoId, ", which is no id"),
                 "name users and groups by their numbers");
    }
  }
  open_to = {.uids = {from.uids().begin(), from.uids().end()},
             .gids = {from.gids().begin(), from.gids().end()},
             .everybody = from.everybody()};
  return absl::OkStatus();
}

}  // namespace

// Of several mistakes the first is named, in the order below: Update keeps the first error. What
// only the pool's state can tell, such as whether the tenant is there or the size fits, is left to
// the planner.
absl::StatusOr<AllocateSpec> FromProto(const v1::AllocateRegionRequest& request,
                                       const Caller& caller) {
  static const Interned kMethod("AllocateRegion");
  absl::StatusOr<AllocateSpec> answer(absl::in_place);
  AllocateSpec& spec = *answer;
  absl::Status status = ReadRequest(request, kMethod, caller, spec);
  if (!status.ok()) return status;
  spec.region_id = request.region_id();
  if (!spec.region_id.empty()) status.Update(CheckRegionId(spec.region_id));
  spec.size_bytes = request.size_bytes();
  status.Update(ReadEnum("sharing", request.sharing(), v1::MULTI_WRITER, spec.sharing));
  status.Update(ReadMaxExtents(request.max_extents(), spec.max_extents));
  status.Update(ReadName("tenants", request.tenant(), Need::kOptional, spec.tenant));
  status.Update(ReadName("hosts", request.host(), Need::kOptional, spec.host));
  if (!CXLPOOL_MUTANT("device-is-not-read")) {
    status.Update(ReadName("devices", request.device(), Need::kOptional, spec.device));
  }
  status.Update(ReadUse(request, spec));
  status.Update(ReadPlacement(request, spec));
  if (request.has_expected_lifetime()) {
    status.Update(ReadLifetime(request.expected_lifetime(), spec.expected_lifetime));
  }
  if (request.has_ttl() && !CXLPOOL_MUTANT("ttl-is-not-read")) {
    status.Update(ReadTtl(request.ttl(), spec.ttl));
  }
  if (request.has_owner()) status.Update(ReadOwner(request, spec));
  if (request.has_maker_uid()) status.Update(ReadMaker(request, spec));
  if (request.has_open_to()) status.Update(ReadOpenTo(request.open_to(), spec.open_to));
  status.Update(ReadIsolation(request.isolation(), spec.fabric_isolation));
  if (!status.ok()) return status;
  return answer;
}

absl::StatusOr<AttachSpec> FromProto(const v1::AttachRegionRequest& request, const Caller& caller) {
  static const Interned kMethod("AttachRegion");
  AttachSpec spec;
  absl::Status status = ReadTarget(request, kMethod, caller, spec);
  status.Update(ReadName("hosts", request.host(), Need::kRequired, spec.host));
  status.Update(ReadUse(request, spec));
  if (!status.ok()) return status;
  return spec;
}

absl::StatusOr<DetachSpec> FromProto(const v1::DetachRegionRequest& request, const Caller& caller) {
  static const Interned kMethod("DetachRegion");
  DetachSpec spec;
  absl::Status status = ReadTarget(request, kMethod, caller, spec);
  status.Update(ReadName("hosts", request.host(), Need::kRequired, spec.host));
  if (!status.ok()) return status;
  return spec;
}

// A reason is asked for, and kept, only where the release is forced.
absl::StatusOr<ReleaseSpec> FromProto(const v1::ReleaseRegionRequest& request,
                                      const Caller& caller) {
  static const Interned kMethod("ReleaseRegion");
  ReleaseSpec spec;
  absl::Status status = ReadTarget(request, kMethod, caller, spec);
  if (request.force()) status.Update(CheckReason(request.reason()));
  status.Update(ReadName("tenants", request.tenant(), Need::kOptional, spec.tenant));
  if (!status.ok()) return status;
  spec.detach_all = request.detach_all() || CXLPOOL_MUTANT("release-always-detaches");
  spec.force = request.force();
  spec.fence = request.fence();
  spec.validate_only = request.validate_only();
  if (spec.force && !CXLPOOL_MUTANT("release-reason-is-lost")) spec.reason = request.reason();
  // User id 0 is root's: what counts is whether the field is there.
  if (request.has_maker_uid() && !CXLPOOL_MUTANT("release-maker-is-lost")) {
    spec.maker_uid = request.maker_uid();
  }
  return spec;
}

// A size of 0 is refused here, whatever the Region is like. Any other is the planner's to judge.
absl::StatusOr<ResizeSpec> FromProto(const v1::ResizeRegionRequest& request, const Caller& caller) {
  static const Interned kMethod("ResizeRegion");
  ResizeSpec spec;
  absl::Status status = ReadTarget(request, kMethod, caller, spec);
  if (request.size_bytes() == 0) {
    status.Update(Bad("BAD_SIZE", "field size_bytes is 0",
                      "say how many bytes it is to have; ReleaseRegion gives all back"));
  }
  if (!CXLPOOL_MUTANT("resize-extents-are-lost")) {
    status.Update(ReadMaxExtents(request.max_extents(), spec.max_extents));
  }
  if (!status.ok()) return status;
  spec.size_bytes = request.size_bytes();
  return spec;
}

// The new id may not be a UUID: where a Region is named by one, that is its tag.
absl::StatusOr<RenameSpec> FromProto(const v1::RenameRegionRequest& request, const Caller& caller) {
  static const Interned kMethod("RenameRegion");
  RenameSpec spec;
  absl::Status status = ReadTarget(request, kMethod, caller, spec);
  status.Update(CheckRegionId(request.new_region_id()));
  if (!status.ok()) return status;
  spec.new_region_id = request.new_region_id();
  return spec;
}

// Without a ttl in the request there is none in the spec: the lease keeps the term that it has.
absl::StatusOr<RenewSpec> FromProto(const v1::RenewRegionRequest& request, const Caller& caller) {
  static const Interned kMethod("RenewRegion");
  RenewSpec spec;
  absl::Status status = ReadTarget(request, kMethod, caller, spec);
  if (request.has_ttl() && !CXLPOOL_MUTANT("renewal-ttl-is-lost")) {
    spec.ttl.emplace();
    status.Update(ReadTtl(request.ttl(), *spec.ttl));
  }
  if (!status.ok()) return status;
  return spec;
}

absl::Status CheckReason(const std::string& reason) {
  if (reason.empty()) {
    return Bad("REASON_REQUIRED", "field reason is empty",
               "say why: it is kept in the audit record");
  }
  if (reason.size() > kMaxReason) {
    return Bad("BAD_REASON", absl::StrCat("field reason has ", reason.size(), " characters"),
               absl::StrCat("use at most ", kMaxReason));
  }
  return absl::OkStatus();
}

// A serial number is tried first: one that is written with colons would pass for a URI as well.
absl::StatusOr<std::string> ReadRevocationSubject(const std::string& text) {
  if (absl::StatusOr<std::string> serial = CanonicalSerial(text); serial.ok()) return serial;
  const size_t colon = text.find(':');
  const bool uri = text.size() <= kMaxIdentity && colon != std::string::npos && colon > 0 &&
                   std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
  if (uri) return text;
  return Bad("BAD_IDENTITY",
             "field subject is neither the serial number of a certificate nor an identity",
             "give up to 40 hexadecimal digits, or a URI such as cxlpool://operator/alice");
}

// The identity that is left out is filled in here, since the audit record is to name it.
absl::StatusOr<EnrolSpec> FromProto(const v1::EnrolHostRequest& request) {
  EnrolSpec spec{.host = {}, .identity = request.identity()};
  absl::Status status = ReadName("hosts", request.host(), Need::kRequired, spec.host);
  if (spec.identity.empty()) spec.identity = absl::StrCat("cxlpool://host/", spec.host);
  for (const std::string& name : request.tenants()) {
    if (CXLPOOL_MUTANT("enrolment-forgets-tenants")) break;
    status.Update(ReadName("tenants", name, Need::kRequired, spec.tenants.emplace_back()));
  }
  if (!status.ok()) return status;
  return spec;
}

// Without a key, which PlanSetTenant gives it; whether the numbers fit together is judged there,
// too.
absl::StatusOr<Tenant> FromProto(const v1::Tenant& tenant) {
  Tenant out;
  out.quota_bytes = tenant.quota_bytes();
  out.reserved_bytes = tenant.reserved_bytes();
  if (!CXLPOOL_MUTANT("host-cap-is-lost")) out.host_cap_bytes = tenant.host_cap_bytes();
  absl::Status status = ReadName("tenants", tenant.name(), Need::kRequired, out.id);
  status.Update(ReadIsolation(tenant.isolation(), out.fabric_isolation));
  if (!status.ok()) return status;
  return out;
}

// What is left out is what it is in a file: the serial number is the id, and the granule the usual
// one.
DeviceEntry FromProto(const std::string& id, const v1::DeviceSettings& settings) {
  DeviceEntry out{.id = id,
                  .serial = settings.serial().empty() ? id : settings.serial(),
                  .capacity_bytes = settings.capacity_bytes(),
                  .path = settings.path(),
                  .latency_ns = settings.latency_ns(),
                  .bandwidth_mib_per_second = settings.bandwidth_mib_per_second(),
                  .heads = settings.heads(),
                  .failure_domain = settings.failure_domain()};
  if (settings.granule_bytes() != 0) out.granule_bytes = settings.granule_bytes();
  return out;
}

HostEntry FromProto(const std::string& id, const v1::HostSettings& settings) {
  HostEntry out{.id = id,
                .slots = {settings.slots().begin(), settings.slots().end()},
                .qmp_socket = settings.qmp_socket()};
  if (settings.has_agent_uid()) out.agent_uid = settings.agent_uid();
  return out;
}

// Devices and hosts have resource names, switches and links plain ids. The first name that is wrong
// is the answer; everything else is left to CheckTables.
absl::StatusOr<TopologyTables> FromProto(const v1::TopologyTables& tables) {
  TopologyTables out;
  for (const auto& device : tables.devices()) {
    const auto id = ParseResourceName("devices", device.name());
    if (!id.ok()) return id.status();
    out.devices.push_back(FromProto(*id, device.settings()));
  }
  for (const auto& host : tables.hosts()) {
    const auto id = ParseResourceName("hosts", host.name());
    if (!id.ok()) return id.status();
    out.hosts.push_back(FromProto(*id, host.settings()));
  }
  for (const auto& node : tables.switches()) {
    out.switches.push_back(
        {node.id(), node.latency_ns(), node.bandwidth_mib_per_second(), node.failure_domain()});
  }
  for (const auto& link : tables.links()) {
    out.links.push_back({link.from(),
                         link.to(),
                         link.latency_ns(),
                         link.bandwidth_mib_per_second(),
                         {link.slots().begin(), link.slots().end()}});
  }
  return out;
}

// The caller goes down in the record as the one who revoked it. PlanRevoke gives key and time.
absl::StatusOr<Revocation> FromProto(const v1::RevokeCertificateRequest& request,
                                     const Caller& caller) {
  absl::StatusOr<std::string> subject = ReadRevocationSubject(request.subject());
  if (!subject.ok()) return subject.status();
  if (absl::Status status = CheckReason(request.reason()); !status.ok()) return status;
  Revocation revocation;
  revocation.subject = *std::move(subject);
  revocation.reason = request.reason();
  revocation.principal = CXLPOOL_MUTANT("revoked-by-nobody") ? "" : caller.identity();
  return revocation;
}

// A URI that is neither a host's nor a manager's by its form: those are known by their enrolment.
absl::StatusOr<std::string> ReadUserIdentity(const std::string& text) {
  const size_t colon = text.find(':');
  const bool uri = text.size() <= kMaxIdentity && colon != std::string::npos && colon > 0 &&
                   std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
  if (uri && !absl::StartsWith(text, "cxlpool://host/") &&
      !absl::StartsWith(text, "cxlpool://manager/")) {
    return text;
  }
  return Bad("BAD_IDENTITY", "field identity is not the identity of a person or a program",
             "give the URI in its certificate, such as cxlpool://operator/alice");
}

// Sorted, each once.
absl::StatusOr<std::vector<std::string>> ReadTenants(const v1::RoleBinding& in) {
  const bool for_tenants = in.role() == v1::TENANT || in.role() == v1::SCHEDULER;
  std::vector<std::string> tenants;
  if (for_tenants == in.tenants().empty() ||
      static_cast<size_t>(in.tenants_size()) > kMaxTenantsOfRole) {
    return Bad("BAD_TENANTS",
               for_tenants ? "field tenants names none, or too many" : "field tenants names some",
               absl::StrCat("name 1 to ", kMaxTenantsOfRole,
                            " for the roles TENANT and SCHEDULER, and none for others"));
  }
  absl::Status status;
  for (const std::string& name : in.tenants()) {
    status.Update(ReadName("tenants", name, Need::kRequired, tenants.emplace_back()));
  }
  if (!status.ok()) return status;
  std::sort(tenants.begin(), tenants.end());
  tenants.erase(std::unique(tenants.begin(), tenants.end()), tenants.end());
  return tenants;
}

// The caller goes down in the record as the one who bound it. PlanBindRole gives key and time.
absl::StatusOr<RoleBinding> FromProto(const v1::SetRoleBindingRequest& request,
                                      const Caller& caller) {
  const v1::RoleBinding& in = request.role_binding();
  absl::StatusOr<std::string> identity = ReadUserIdentity(in.identity());
  if (!identity.ok()) return identity.status();
  if (in.role() < v1::VIEWER || in.role() > v1::METRICS) {
    return Bad("BAD_ROLE", "field role is none that can be bound",
               "use VIEWER, TENANT, SCHEDULER, OPERATOR, ADMIN or METRICS");
  }
  const bool is_token = absl::StartsWith(*identity, kTokenIdentity);
  if (is_token && !CheckResourceId(identity->substr(kTokenIdentity.size())).ok()) {
    return Bad("BAD_IDENTITY", "field identity is not the identity of a token",
               "write it as cxlpool://token/NAME, with a NAME of a-z, 0-9 and '-'");
  }
  if (!in.token_sha256().empty() && (!is_token || in.token_sha256().size() != kTokenHashBytes)) {
    return Bad("BAD_TOKEN_HASH", "field token_sha256 is no hash, or the identity is no token's",
               "make tokens with `cxlpool token create NAME --role ROLE --ttl TERM --reason WHY`");
  }
  auto tenants = ReadTenants(in);
  if (!tenants.ok()) return tenants.status();
  if (absl::Status status = CheckReason(in.reason()); !status.ok()) return status;
  RoleBinding binding{.identity = *std::move(identity),
                      .token_hash = in.token_sha256(),
                      .role = static_cast<PoolRole>(in.role() - 1),
                      .tenants = *std::move(tenants),
                      .reason = in.reason(),
                      .principal = caller.identity()};
  if (!in.has_end_time() && is_token) {
    return Bad("BAD_TIME", "field end_time is not set, and a token is never for good",
               "name a time at most a year ahead");
  }
  if (!in.has_end_time()) return binding;
  binding.end =
      absl::FromUnixSeconds(in.end_time().seconds()) + absl::Nanoseconds(in.end_time().nanos());
  if (binding.end <= absl::Now() || binding.end > absl::FromUnixMicros(kMaxRecordMicros)) {
    return Bad("BAD_TIME", "field end_time is no time to come",
               "name a later one, or none: the role is for good then");
  }
  if (is_token && binding.end > absl::Now() + kMaxTokenTerm) {
    return Bad("BAD_TIME", "field end_time is more than a year ahead, and the identity a token's",
               "make it for less, and another before it ends");
  }
  return binding;
}

}  // namespace cxlpool::fm
