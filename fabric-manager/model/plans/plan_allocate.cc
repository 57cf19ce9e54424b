// PlanAllocate.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/placement/placement.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

// What is wrong with the request whatever the pool is like.
absl::Status CheckSpec(const AllocateSpec& spec) {
  if (!spec.region_id.empty()) {
    if (absl::Status status = CheckRegionId(spec.region_id); !status.ok()) return status;
  }
  if (absl::Status status = CheckResourceId(spec.tenant); !status.ok()) return status;
  if (spec.size_bytes == 0) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SIZE",
                  "size_bytes is 0: a Region has at least one byte", "say how much memory you need",
                  {{"field", "size_bytes"}});
  }
  if (absl::Status status = CheckMaxExtents(spec.max_extents); !status.ok()) return status;
  if (spec.isolate_from.size() > kMaxIsolateFrom) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_ISOLATE_FROM",
                  absl::StrCat("isolate_from names ", spec.isolate_from.size(), " Regions"),
                  absl::StrCat("name at most ", kMaxIsolateFrom), {{"field", "isolate_from"}});
  }
  if (spec.ttl != absl::InfiniteDuration() && (spec.ttl < kMinTtl || spec.ttl > kMaxTtl)) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_TTL",
                  absl::StrCat("ttl is ", absl::FormatDuration(spec.ttl)),
                  "give 10 s to 10 years, or none for no lease", {{"field", "ttl"}});
  }
  if (std::max(spec.open_to.uids.size(), spec.open_to.gids.size()) > kMaxOpenTo) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_OPEN_TO",
                  "open_to names too many users or groups",
                  absl::StrCat("name at most ", kMaxOpenTo, " of each, or a group of them"),
                  {{"field", "open_to"}});
  }
  return absl::OkStatus();
}

// What a tenant's caller may ask for: its own tenants' memory, wherever the pool puts it, on hosts
// that serve them.
absl::Status CheckTenantsRights(const PoolState& state, const AllocateSpec& spec) {
  const Caller& caller = spec.caller;
  if (!caller.HasTenant(spec.tenant) && !CXLPOOL_MUTANT("tenant-allocates-for-others")) {
    return Refuse(
        absl::StatusCode::kPermissionDenied, "TENANT_NOT_YOURS",
        absl::StrCat(caller.identity(), " has no role for tenant ", Quoted(spec.tenant)),
        absl::StrCat("allocate for one of yours: ", absl::StrJoin(caller.tenants(), ", ")),
        {{"tenant", CutText(spec.tenant, 80)}});
  }
  if (!spec.device.empty()) {
    return Refuse(absl::StatusCode::kPermissionDenied, "DEVICE_NOT_YOURS",
                  "who has a role for tenants does not choose devices",
                  "leave device out, or let an operator allocate it", {{"field", "device"}});
  }
  if (spec.host.empty()) return absl::OkStatus();
  return CheckHostOf(state, caller, spec.host, spec.tenant);
}

// What `caller` may ask for: a host allocates on itself, and for the tenants of its enrolment; only
// who knows the host's users says which of them asks.
absl::Status CheckRights(const PoolState& state, const AllocateSpec& spec) {
  const Caller& caller = spec.caller;
  const std::string& who = spec.request.id.principal.str();
  const bool names_user = spec.owner.has_value() || spec.maker_uid.has_value();
  if (names_user && !caller.knows_users_of(spec.host) && !CXLPOOL_MUTANT("anybody-names-owners")) {
    return Refuse(absl::StatusCode::kPermissionDenied, "OWNER_NOT_YOURS",
                  absl::StrCat(who, " names a process or a user of host \"", spec.host,
                               "\", which only that host's own agent knows"),
                  "leave owner and maker_uid out, or allocate from the host that they are on",
                  {{"identity", who}});
  }
  if (caller.for_tenants()) return CheckTenantsRights(state, spec);
  if (!caller.is_host()) return absl::OkStatus();
  if (spec.host != caller.host() && !CXLPOOL_MUTANT("host-allocates-for-others")) {
    return Refuse(absl::StatusCode::kPermissionDenied, "NOT_YOUR_HOST",
                  absl::StrCat("host \"", caller.host(), "\" may allocate Regions for itself only"),
                  "let an operator do it", {{"host", caller.host()}});
  }
  const Host* host = state.FindHost(caller.host());
  if (host != nullptr && host->Serves(spec.tenant)) return absl::OkStatus();
  std::vector<std::string> tenants = host == nullptr ? std::vector<std::string>() : host->tenants;
  tenants.push_back(spec.tenant);
  const std::string options = absl::StrJoin(tenants, " --tenant ");
  return Refuse(absl::StatusCode::kPermissionDenied, "TENANT_NOT_YOURS",
                absl::StrCat("host \"", caller.host(), "\" is not enrolled for tenant \"",
                             spec.tenant, "\", and may not allocate for it"),
                absl::StrCat("let an operator run `cxlpool host enrol ", caller.host(),
                             " --tenant ", options, "`"),
                {{"host", caller.host()}, {"tenant", spec.tenant}});
}

// A free name made of a new tag. The name is for people: only the tag is identity.
// A tenant's is in its own name space.
absl::Status NameRegion(const PoolState& state, const Caller& caller, PlanContext& context,
                        Region& region) {
  const std::string space = caller.for_tenants() ? absl::StrCat(region.tenant.str(), ".") : "";
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i) {
    region.tag = context.make_tag();
    if (state.FindRegionByTag(region.tag) != nullptr) continue;
    if (!region.id.empty()) return absl::OkStatus();
    const std::string id =
        absl::StrCat(space, "r-", absl::BytesToHexString(region.tag.bytes().substr(0, 6)));
    if (state.FindRegionById(id) != nullptr || !CheckRegionId(id).ok()) continue;
    region.id = id;
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kResourceExhausted, "NAMES_EXHAUSTED",
                "no free name could be made for the region", "give it a name", {});
}

}  // namespace

// Checks go from what the caller can correct to what the pool lacks. A refusal leaves nothing
// behind but ids that nobody gets. With a host the Region is RESERVED until it is ONLINE there;
// without one it is ALLOCATED at once.
absl::StatusOr<Plan> PlanAllocate(const PoolState& state, const AllocateSpec& spec,
                                  PlanContext& context) {
  auto retry = BeginPlan(state, spec.caller, Right::kUseMemory, spec.request);
  if (!retry.ok()) return retry.status();
  if (retry->has_value()) return **std::move(retry);

  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
  if (absl::Status status = CheckRights(state, spec); !status.ok()) return status;
  if (absl::Status status = CheckNameSpace(spec.caller, spec.region_id, spec.tenant);
      !status.ok()) {
    return status;
  }
  if (!spec.region_id.empty() && state.FindRegionById(spec.region_id) != nullptr) {
    return Refuse(absl::StatusCode::kAlreadyExists, "REGION_EXISTS",
                  absl::StrCat("there is a region ", Quoted(spec.region_id), " already"),
                  "choose another name, or release that one", {{"region", spec.region_id}});
  }
  const std::string label =
      spec.region_id.empty() ? "the region" : absl::StrCat("region \"", spec.region_id, "\"");
  if (absl::Status s = CheckShareable(label, spec.sharing, context); !s.ok()) return s;
  if (!spec.host.empty()) {
    if (absl::Status status = CheckHost(state, spec.host); !status.ok()) return status;
    if (absl::Status status =
            CheckSharing(label, spec.sharing, {}, spec.host, spec.mode, spec.access);
        !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = CheckTenant(state, label, spec.tenant, spec.size_bytes); !status.ok()) {
    return status;
  }
  if (absl::Status status =
          CheckIsolation(state, label, spec.tenant, spec.fabric_isolation, spec.access, context);
      !status.ok()) {
    return status;
  }
  // Other hosts' units count where others may ever attach it.
  const bool others = spec.host.empty() || spec.sharing != Sharing::kExclusive;
  const auto unit = UnitFor(state, spec.host, spec.mode, others);
  if (!unit.ok()) return unit.status();
  ExtentRequest request{.label = label,
                        .size_bytes = spec.size_bytes,
                        .unit_bytes = *unit,
                        .device = spec.device,
                        .max_extents = std::max(spec.max_extents, 1u),
                        .policy = spec.policy.value_or(context.default_policy),
                        .host = spec.host,
                        .interleave_ways = spec.interleave_ways,
                        .interleave_granularity_bytes = spec.interleave_granularity_bytes};
  // By GetRegion: who may not see a Region cannot learn of it by asking to be apart from it.
  for (const std::string& id : spec.isolate_from) {
    auto other = GetRegion(state, spec.caller, id);
    if (!other.ok()) return other.status();
    request.isolate_from.push_back(*std::move(other));
  }
  auto placed = PlaceExtents(state, request);
  if (!placed.ok()) return placed.status();

  auto region = std::make_shared<Region>();
  region->id = spec.region_id;
  region->tenant = spec.tenant;
  if (absl::Status status = NameRegion(state, spec.caller, context, *region); !status.ok()) {
    return status;
  }
  region->key = context.next_id();
  region->generation = context.next_id();
  region->requested_bytes = spec.size_bytes;
  region->sharing = spec.sharing;
  region->state = RegionState::kAllocated;
  region->state_since = context.now;
  region->policy = request.policy;
  region->extents = std::move(placed->extents);
  region->interleave_ways = placed->interleave_ways;
  region->interleave_granularity_bytes = placed->interleave_granularity_bytes;
  region->expected_lifetime = spec.expected_lifetime;
  region->create_time = context.now;
  region->ttl = spec.ttl;
  region->expire_time = context.now + spec.ttl;
  region->owner = spec.owner;
  if (spec.maker_uid.has_value()) region->maker = Maker{Interned(spec.host), *spec.maker_uid};
  region->open_to = spec.open_to;
  region->fabric_isolation = spec.fabric_isolation;
  region->revision = context.revision;
  Remember(*region, spec.request);
  // Once more: what is held is rounded up.
  if (absl::Status status = CheckTenant(state, label, spec.tenant, region->held_bytes());
      !CXLPOOL_MUTANT("quota-before-rounding") && !status.ok()) {
    return status;
  }
  Plan plan;
  if (!spec.host.empty()) {
    auto attachment = MakeAttachment(state, label, *region, spec.host, spec.mode, spec.access,
                                     context, plan.bridges);
    if (!attachment.ok()) return attachment.status();
    attachment->zone = spec.zone;
    attachment->request_id = spec.request.id.id;
    region->state = RegionState::kReserved;
    region->attachments.push_back(*std::move(attachment));
  }
  plan.region = std::move(region);
  plan.change.emplace_back(plan.region);
  return plan;
}

}  // namespace cxlpool::fm
