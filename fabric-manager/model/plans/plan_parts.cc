#include "fabric-manager/model/plans/plan_parts.h"

#include <algorithm>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/placement/placement.h"
#include "fabric-manager/model/space/bytes.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {

namespace {

// "PREFIX-DEVICE-KEY", which no other Region has, under a new key. A long device id is cut.
std::string KeptId(const PoolState& state, absl::string_view prefix, absl::string_view device,
                   PlanContext& context, Key& key) {
  constexpr size_t kMaxResourceId = 63;
  for (;;) {
    key = context.next_id();
    const std::string number = absl::StrCat("-", key);
    std::string id = absl::StrCat(prefix, "-", device);
    id.resize(std::min(id.size(), kMaxResourceId - number.size()));
    id += number;
    if (state.FindRegionById(id) == nullptr) return id;
  }
}

// The first of the hosts that may attach something and have this granule.
std::string HostWithGranule(const PoolState& state, uint64_t granule_bytes) {
  for (const auto& [id, host] : state.hosts()) {
    const HostRuntime& runtime = state.Runtime(id);
    if (runtime.region_granule_bytes == granule_bytes && MayAttach(host, runtime)) return id;
  }
  return "";
}

}  // namespace

std::shared_ptr<Region> MakeKept(const PoolState& state, absl::string_view prefix,
                                 absl::string_view device, const Extent& extent,
                                 PlanContext& context) {
  auto kept = std::make_shared<Region>();
  kept->id = KeptId(state, prefix, device, context, kept->key);
  kept->generation = kept->key;
  kept->tag = context.make_tag();
  kept->tenant = kDefaultTenant;
  kept->create_time = context.now;
  kept->revision = context.revision;
  kept->state = RegionState::kQuarantined;
  kept->extents = {extent};
  kept->requested_bytes = extent.length_bytes;
  return kept;
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 80)), text.size() > 80 ? "..." : "",
                      "\"");
}

absl::StatusOr<std::optional<Plan>> BeginPlan(const PoolState& state, const Caller& caller,
                                              Right right, const Request& request) {
  // Before the retry: who may not call learns nothing of what others did.
  if (absl::Status status = CheckCaller(state, caller, right); !status.ok()) return status;
  if (request.id.id.empty()) return std::nullopt;
  const auto remembered = state.FindRequest(request.id);
  if (!remembered.has_value()) return std::nullopt;
  // A Region is shown as it is now, and who asked for it may be a tenant by now.
  if (caller.for_tenants() && !MaySee(caller, /*own=*/nullptr, *remembered->region) &&
      !CXLPOOL_MUTANT("retries-show-others")) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION",
                  "your tenants do not have the region of that earlier call",
                  "make a new request_id for each new call",
                  {{"request_id", FormatUuid(request.id.id.bytes())}});
  }
  const bool same =
      CXLPOOL_MUTANT("ignore-payload-hash") || remembered->payload_hash == request.payload_hash;
  if (same) return Plan{remembered->region, {}};
  const std::string& region = remembered->region->id;
  return Refuse(absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
                absl::StrCat("this request_id belongs to an earlier ", request.id.method.str(),
                             " of region \"", region, "\" with other arguments"),
                "make a new request_id for each new call, and keep it only for retries",
                {{"region", region}, {"request_id", FormatUuid(request.id.id.bytes())}});
}

// The id first: a Region may be named like another's UUID, and its name is what was asked for.
absl::StatusOr<RegionPtr> GetRegion(const PoolState& state, const Caller& caller,
                                    absl::string_view region_id) {
  const RegionPtr* found = state.FindRegionById(region_id);
  if (found == nullptr) {
    if (Uuid tag; ParseUuid(region_id, tag)) found = state.FindRegionByTag(tag);
  }
  if (found != nullptr && MaySee(caller, state.FindHost(caller.host()), **found)) return *found;
  return UnknownRegion(caller, region_id);
}

// A host learns only of itself: the words for a Region that is not there say nothing of the pool.
absl::Status UnknownRegion(const Caller& caller, absl::string_view region_id) {
  if (caller.for_pool()) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION",
                  absl::StrCat("there is no region ", Quoted(region_id)),
                  "see `cxlpool region list`; it may have been released",
                  {{"region", CutText(region_id, 80)}});
  }
  if (caller.for_tenants()) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION",
                  absl::StrCat("your tenants have no region ", Quoted(region_id)),
                  "see `cxlpool region list`; it may have been released",
                  {{"region", CutText(region_id, 80)}});
  }
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION",
                absl::StrCat("host ", Quoted(caller.host()), " has no region ", Quoted(region_id)),
                "see which Regions the host has; an operator sees all (`cxlpool region list`)",
                {{"region", CutText(region_id, 80)}});
}

// Says nothing of whether anybody has the name: who meets this may not use it either way.
absl::Status CheckNameSpace(const Caller& caller, absl::string_view region_id,
                            absl::string_view tenant) {
  const absl::string_view space = TenantOfRegionId(region_id);
  const bool anywhere =
      region_id.empty() || !caller.for_tenants() || CXLPOOL_MUTANT("tenant-names-regions-anything");
  if (space == tenant || (space.empty() && anywhere)) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kPermissionDenied, "NAME_NOT_YOURS",
      space.empty()
          ? absl::StrCat("region names of tenant ", Quoted(tenant), " begin with it")
          : absl::StrCat("region names that begin with ", Quoted(space),
                         " are that tenant's, and this is a region of tenant ", Quoted(tenant)),
      absl::StrCat("name it ", tenant, ".", region_id.substr(region_id.find('.') + 1)),
      {{"region", CutText(region_id, 80)}, {"tenant", std::string(tenant)}});
}

// In the same words for a host that is not there, and for one that serves others.
absl::Status CheckHostOf(const PoolState& state, const Caller& caller, absl::string_view host,
                         absl::string_view tenant) {
  if (!caller.for_tenants() || CXLPOOL_MUTANT("tenant-attaches-anywhere")) return absl::OkStatus();
  const Host* known = state.FindHost(host);
  if (known != nullptr && !known->retired && known->Serves(tenant)) return absl::OkStatus();
  return Refuse(absl::StatusCode::kPermissionDenied, "HOST_NOT_YOURS",
                absl::StrCat("no host ", Quoted(host), " serves tenant ", Quoted(tenant)),
                absl::StrCat("let an operator enrol it for that tenant: `cxlpool host enrol ",
                             CutText(host, 80), " --tenant ", tenant, "`"),
                {{"host", CutText(host, 80)}, {"tenant", std::string(tenant)}});
}

void Remember(Region& region, const Request& request) {
  if (request.id.id.empty()) return;
  // The first is the one that made the Region: it stays.
  if (region.requests.size() > kMaxRequestsPerRegion) {
    region.requests.erase(region.requests.begin() + 1);
  }
  region.requests.push_back(request);
}

std::shared_ptr<Region> Edit(const Region& region, const Request& request,
                             const PlanContext& context) {
  auto edited = std::make_shared<Region>(region);
  edited->revision = context.revision;
  Remember(*edited, request);
  return edited;
}

Plan Unchanged(const RegionPtr& region, const Request& request, const PlanContext& context) {
  if (request.id.id.empty()) return Plan{region, {}};
  auto kept = std::make_shared<Region>(*region);
  Remember(*kept, request);
  if (CXLPOOL_MUTANT("no-op-is-a-change")) kept->revision = context.revision;
  return Plan{kept, {RegionPtr(kept)}};
}

// The kernel's rules come first: no holder could let go of anything that would change them. One
// that is leaving still counts, for it can still store; only the remedy is another then.
absl::Status CheckSharing(absl::string_view label, Sharing sharing,
                          const std::vector<Attachment>& present, absl::string_view host, Mode mode,
                          Access access) {
  const auto conflict = [&](const std::string& why, const std::string& remedy,
                            const std::vector<std::string>& holders) {
    const std::string names = absl::StrJoin(holders, ",");
    return Refuse(absl::StatusCode::kFailedPrecondition, "SHARING_CONFLICT",
                  absl::StrCat(label, " ", why), remedy,
                  {{"host", std::string(host)},
                   {"holders", names},
                   {"sharing", std::string(ToString(sharing))}});
  };
  if (mode == Mode::kSystemRam && sharing != Sharing::kExclusive) {
    return conflict(absl::StrCat("is ", ToString(sharing), " and cannot be system-ram: a kernel ",
                                 "shares its memory with no other host"),
                    "allocate it EXCLUSIVE, or attach it as devdax", {});
  }
  if (mode == Mode::kSystemRam && access != Access::kReadWrite) {
    return conflict("cannot be read-only system-ram: a kernel writes to its memory",
                    "attach it READ_WRITE, or as devdax", {});
  }
  std::vector<std::string> holders;
  bool all_leaving = true;
  for (const Attachment& other : present) {
    const bool both_write = access == Access::kReadWrite && other.access == Access::kReadWrite;
    if (sharing == Sharing::kExclusive || (sharing == Sharing::kSingleWriter && both_write)) {
      holders.push_back(other.host);
      all_leaving &= other.settled().detaching;
    }
  }
  if (CXLPOOL_MUTANT("share-exclusive")) return absl::OkStatus();
  if (holders.empty() || sharing == Sharing::kMultiWriter) return absl::OkStatus();
  const std::string names = absl::StrJoin(holders, ", ");
  std::string remedy =
      all_leaving ? absl::StrCat("retry when ", names, " has let go of it")
                  : absl::StrCat("detach it from ", names,
                                 sharing == Sharing::kExclusive
                                     ? " first, or allocate it as SINGLE_WRITER or MULTI_WRITER"
                                     : " first, or attach READ_ONLY");
  return conflict(
      absl::StrCat("is ", ToString(sharing), " and ",
                   sharing == Sharing::kExclusive ? "attached to " : "written by ", names),
      remedy, holders);
}

absl::Status CheckShareable(absl::string_view label, Sharing sharing, const PlanContext& context) {
  if (sharing == Sharing::kExclusive || context.shares_slices ||
      CXLPOOL_MUTANT("every-fabric-shares")) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_SHAREABLE",
                absl::StrCat(label, " is ", ToString(sharing),
                             ", and this pool's fabric shows bytes to one host at a time"),
                "allocate it EXCLUSIVE", {{"sharing", std::string(ToString(sharing))}});
}

// What an agent does for programs is not what was demanded: the host's root gets around it. So a
// demand that the fabric cannot meet is refused, and never met by half.
absl::Status CheckIsolation(const PoolState& state, absl::string_view label,
                            absl::string_view tenant, bool demanded, Access access,
                            const PlanContext& context) {
  const Tenant* owner = state.FindTenant(tenant);
  const bool by_tenant =
      owner != nullptr && owner->fabric_isolation && !CXLPOOL_MUTANT("tenant-isolation-not-asked");
  if (!demanded && !by_tenant) return absl::OkStatus();
  const bool may_write = access == Access::kReadWrite;
  if (context.isolates && (may_write || context.enforces_read_only)) return absl::OkStatus();
  const std::string who =
      demanded ? std::string(label) : absl::StrCat("tenant \"", tenant, "\" of ", label);
  const std::string lacks = context.isolates
                                ? "lets a host write what is attached to it READ_ONLY"
                                : "does not keep a host's root from the bytes of others";
  std::string remedy = "use a pool whose fabric enforces it, or ";
  if (context.isolates) {
    remedy += "attach it READ_WRITE";
  } else if (demanded) {
    remedy += "allocate without --isolation fabric where the agents' word is enough";
  } else {
    absl::StrAppend(&remedy,
                    "take the demand back where the agents' word is enough: `cxlpool tenant set ",
                    tenant, " --isolation any`");
  }
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "ISOLATION_NOT_ENFORCED",
      absl::StrCat(who, " demands isolation by the fabric, and this pool's fabric ", lacks),
      std::move(remedy),
      {{"tenant", std::string(tenant)}, {"access", std::string(ToString(access))}});
}

std::string LabelOf(const Region& region) { return absl::StrCat("region \"", region.id, "\""); }

absl::Status CheckEtag(const Region& region, absl::string_view etag) {
  if (CXLPOOL_MUTANT("ignore-etag") || etag.empty() || etag == region.etag())
    return absl::OkStatus();
  if (CXLPOOL_MUTANT("stale-etag-passes") &&
      absl::StartsWith(region.etag(), etag.substr(0, etag.find('-'))))
    return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "ETAG_MISMATCH",
                absl::StrCat(LabelOf(region), " has changed since it was read: its etag is ",
                             region.etag(), ", not ", Quoted(etag)),
                "read it again, and decide again",
                {{"region", region.id}, {"etag", region.etag()}});
}

// A Region that is being resized is ALLOCATED, and has one change under way already.
absl::Status CheckReady(const Region& region) {
  const Metadata metadata = {{"region", region.id}, {"state", std::string(ToString(region.state))}};
  switch (region.state) {
    case RegionState::kAllocated:
      if (!region.resizing()) return absl::OkStatus();
      return Refuse(absl::StatusCode::kFailedPrecondition, "RESIZE_IN_PROGRESS",
                    absl::StrCat(LabelOf(region), " is being ",
                                 region.tail_leaving ? "shrunk" : "grown", " still"),
                    "retry when it is through", metadata);
    case RegionState::kReserved:
      if (region.compensating) break;
      return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_NOT_READY",
                    absl::StrCat(LabelOf(region), " is still being attached for the first time"),
                    "retry when it is ALLOCATED", metadata);
    case RegionState::kQuarantined:
      return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_QUARANTINED",
                    absl::StrCat(LabelOf(region), " is quarantined: ", region.state_reason),
                    "use another Region", metadata);
    default:
      break;
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_RELEASING",
                absl::StrCat(LabelOf(region), " is being released (", ToString(region.state), ")"),
                "allocate another Region", metadata);
}

// The tenant's cap on this host is asked after the placement, which finds what no raised cap would
// help. Serials are new with each call: one that a host has seen is never another LD's.
absl::StatusOr<std::vector<Segment>> MakeSegments(const PoolState& state, absl::string_view label,
                                                  const Region& region,
                                                  const std::vector<Extent>& extents,
                                                  size_t first_extent, const std::string& host,
                                                  PlanContext& context,
                                                  std::vector<HostPlacement::OnBridge>& bridges) {
  auto placed = PlaceOnHost(state, {.host = host,
                                    .label = std::string(label),
                                    .extents = extents,
                                    .interleave_ways = region.interleave_ways,
                                    .expected_lifetime = region.expected_lifetime,
                                    .region = region.key});
  if (!placed.ok()) return placed.status();
  uint64_t more = 0;
  for (const Extent& extent : extents) more += extent.length_bytes;
  const Tenant* tenant = state.FindTenant(region.tenant);
  const uint64_t attached = state.AttachedBytes(host, region.tenant);
  if (tenant != nullptr && tenant->host_cap_bytes != 0 &&
      more > tenant->host_cap_bytes - std::min(tenant->host_cap_bytes, attached)) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "HOST_CAP_EXCEEDED",
        absl::StrCat(label, " would bring ", FormatBytes(more), " to host \"", host,
                     "\"; tenant \"", tenant->id, "\" has ", FormatBytes(attached),
                     " there and may have ", FormatBytes(tenant->host_cap_bytes)),
        absl::StrCat("detach a Region of the tenant there, or raise its cap: `cxlpool tenant "
                     "set ",
                     tenant->id, " --host-cap SIZE`"),
        {{"tenant", tenant->id},
         {"host", host},
         {"attached_bytes", absl::StrCat(attached)},
         {"host_cap_bytes", absl::StrCat(tenant->host_cap_bytes)}});
  }
  for (Segment& segment : placed->segments) {
    segment.extent_index += static_cast<uint32_t>(first_extent);
    segment.serial = kSerialBase | context.next_id();
  }
  for (auto& bridge : placed->bridges) bridges.push_back(std::move(bridge));
  return std::move(placed->segments);
}

absl::StatusOr<Attachment> MakeAttachment(const PoolState& state, absl::string_view label,
                                          const Region& region, const std::string& host, Mode mode,
                                          Access access, PlanContext& context,
                                          std::vector<HostPlacement::OnBridge>& bridges) {
  if (absl::Status status = CheckIsolation(state, label, region.tenant.str(),
                                           region.fabric_isolation, access, context);
      !status.ok()) {
    return status;
  }
  Attachment attachment;
  attachment.host = host;
  attachment.mode = mode;
  attachment.access = access;
  attachment.settled().since = context.now;
  attachment.generation = CXLPOOL_MUTANT("reuse-generation") ? region.key : context.next_id();
  auto segments = MakeSegments(state, label, region, region.extents, 0, host, context, bridges);
  if (!segments.ok()) return segments.status();
  attachment.segments = *std::move(segments);
  return attachment;
}

absl::Status CheckMaxExtents(uint32_t max_extents) {
  if (max_extents <= kMaxExtentsPerRegion) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_MAX_EXTENTS",
                absl::StrCat("max_extents is ", max_extents, "; at most ", kMaxExtentsPerRegion),
                absl::StrCat("ask for 1 to ", kMaxExtentsPerRegion, " extents"),
                {{"field", "max_extents"}});
}

absl::Status UnknownTenant(const std::string& id) {
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_TENANT",
                absl::StrCat("there is no tenant ", Quoted(id)),
                absl::StrCat("see `cxlpool tenant list`, or make it: `cxlpool tenant set ",
                             CutText(id, 80), "`"),
                {{"tenant", CutText(id, 80)}});
}

absl::Status CheckTenantsAreThere(const PoolState& state, const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    if (id != kDefaultTenant && state.FindTenant(id) == nullptr) return UnknownTenant(id);
  }
  return absl::OkStatus();
}

// Quota, then what is promised to others: of two refusals the one that the tenant can end by itself
// is said.
absl::Status CheckTenant(const PoolState& state, absl::string_view label, const std::string& id,
                         uint64_t more_bytes) {
  const Tenant* known = state.FindTenant(id);
  if (known == nullptr && id != kDefaultTenant) return UnknownTenant(id);
  const Interned tenant(id);  // Only now: names that somebody made up are not kept.
  const uint64_t held = state.UseOf(tenant).held_bytes;
  if (known != nullptr && known->quota_bytes != 0 &&
      more_bytes > known->quota_bytes - std::min(known->quota_bytes, held)) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED",
        absl::StrCat(label, " needs ", FormatBytes(more_bytes), "; tenant \"", tenant.str(),
                     "\" holds ", FormatBytes(held), " of its quota of ",
                     FormatBytes(known->quota_bytes)),
        absl::StrCat("release a Region of the tenant, or raise its quota: `cxlpool tenant set ",
                     tenant.str(), " --quota SIZE`"),
        {{"tenant", tenant.str()},
         {"held_bytes", absl::StrCat(held)},
         {"quota_bytes", absl::StrCat(known->quota_bytes)}});
  }
  const uint64_t promised = state.ReservedForOthers(tenant);
  if (promised == 0) return absl::OkStatus();
  uint64_t free = 0;
  state.usable().ForEach([&](DeviceIndex index) { free += state.space().free_bytes(index); });
  if (more_bytes > free) return absl::OkStatus();  // Full for every tenant: placement says so.
  if (more_bytes <= free - std::min(free, promised)) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kResourceExhausted, "RESERVED_FOR_OTHERS",
      absl::StrCat(label, " needs ", FormatBytes(more_bytes), "; of ", FormatBytes(free),
                   " that are free, ", FormatBytes(promised), " are reserved for other tenants"),
      "release a Region, or lower a reservation (`cxlpool tenant list`)",
      {{"tenant", tenant.str()},
       {"free_bytes", absl::StrCat(free)},
       {"reserved_bytes", absl::StrCat(promised)}});
}

// The least common multiple of the pool's granule and of what the hosts report: a Region that fits
// the first host must fit those that it is attached to later. Does not look at each of them: there
// may be thousands.
absl::StatusOr<uint64_t> UnitFor(const PoolState& state, absl::string_view host, Mode mode,
                                 bool others) {
  const auto mismatch = [&](const std::string& id) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "GRANULE_MISMATCH",
        absl::StrCat("no size is a multiple of what the hosts report; host \"", id,
                     "\" has regions of ", FormatBytes(state.Runtime(id).region_granule_bytes)),
        "see `cxlpool host list`, and fix that host's agent", {{"host", id}});
  };
  std::optional<uint64_t> unit = state.limits().extent_granule_bytes;
  const Host* const own = state.FindHost(host);
  if (own != nullptr) {
    const HostRuntime& runtime = state.Runtime(host);
    unit = CommonUnit(*unit, runtime.region_granule_bytes);
    if (unit && mode == Mode::kSystemRam) unit = CommonUnit(*unit, runtime.memory_block_bytes);
    if (!unit) return mismatch(own->id);
  }
  if (!others) return *unit;
  for (const auto& [granule_bytes, hosts] : state.host_granules()) {
    unit = CommonUnit(*unit, granule_bytes);
    if (!unit) return mismatch(HostWithGranule(state, granule_bytes));
  }
  return *unit;
}

}  // namespace cxlpool::fm
