// PlanEnrol, PlanRetire and PlanRemoveHost.

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxIdentity = 255;
constexpr char kOurScheme[] = "cxlpool://";

absl::Status BadIdentity(absl::string_view identity, absl::string_view why,
                         const std::string& remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_IDENTITY",
                absl::StrCat("identity ", Quoted(identity), " ", why), remedy,
                {{"field", "identity"}});
}

// A URI (RFC 3986, 3): scheme ":" something, printable and without blanks. In our own scheme, the
// host's own name only: operators and other hosts stay who they are.
absl::Status CheckIdentity(const std::string& host, const std::string& identity) {
  const std::string own = absl::StrCat(kOurScheme, "host/", host);
  const std::string remedy =
      absl::StrCat("leave it out for ", own, ", or give the URI SAN of the host's certificate");
  const size_t colon = identity.find(':');
  bool good = identity.size() <= kMaxIdentity && colon != std::string::npos && colon > 0 &&
              colon + 1 < identity.size() && absl::ascii_isalpha(identity.front());
  for (size_t i = 0; good && i < identity.size(); ++i) {
    const char c = identity[i];
    good = i < colon ? absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.'
                     : absl::ascii_isgraph(c) && c != '"' && c != '<' && c != '>' && c != '\\';
  }
  if (!good) {
    return BadIdentity(
        identity, absl::StrCat("is not a URI of at most ", kMaxIdentity, " characters"), remedy);
  }
  if (absl::StartsWithIgnoreCase(identity, kOurScheme) && identity != own) {
    return BadIdentity(identity, "names somebody else", remedy);
  }
  return absl::OkStatus();
}

// The host, if it may leave: nothing is attached there. `forgotten`: nor is anything that is proven
// unbound, which takes no slot any more, and yet names the host until its record is dropped.
absl::StatusOr<Host> MayLeave(const PoolState& state, const std::string& host, bool forgotten) {
  const Host* known = state.FindHost(host);
  if (known == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                  absl::StrCat("host ", Quoted(host), " is not enrolled"),
                  "see `cxlpool host list`", {{"host", CutText(host, 80)}});
  }
  std::set<std::string> regions;
  for (const OccupiedSlot& slot : state.Occupied(host)) regions.insert(slot.region_id);
  const bool occupied = !regions.empty();
  if (forgotten && !occupied && !CXLPOOL_MUTANT("what-is-unbound-names-nobody")) {
    for (const auto& [key, region] : state.regions()) {
      if (region->FindAttachment(absl::string_view(host)) != nullptr) regions.insert(region->id);
    }
  }
  if (regions.empty() || CXLPOOL_MUTANT("remove-attached-host")) return *known;
  const size_t shown = std::min<size_t>(regions.size(), 16);
  const std::string names = absl::StrJoin(regions.begin(), std::next(regions.begin(), shown), ",");
  return Refuse(absl::StatusCode::kFailedPrecondition, "HOST_HAS_ATTACHMENTS",
                absl::StrCat("host \"", host, "\" has ", regions.size(),
                             " Regions attached: ", names, shown < regions.size() ? ",..." : ""),
                occupied ? "detach or release them first, or fence the host"
                         : "try again in a moment: it has let go of them already",
                {{"host", host}, {"regions", names}});
}

// The tenants that the host is to serve: in order, each once, and each there.
absl::StatusOr<std::vector<std::string>> TenantsOf(const PoolState& state, const EnrolSpec& spec,
                                                   const Host* known) {
  if (spec.tenants.empty()) {
    // Only what was said is changed. A host that comes back begins anew.
    if (known != nullptr && !known->retired) return known->tenants;
    return std::vector<std::string>{kDefaultTenant};
  }
  std::vector<std::string> tenants = spec.tenants;
  std::sort(tenants.begin(), tenants.end());
  tenants.erase(std::unique(tenants.begin(), tenants.end()), tenants.end());
  if (tenants.size() > kMaxTenantsOfHost) {
    return Refuse(
        absl::StatusCode::kInvalidArgument, "BAD_HOST_TENANTS",
        absl::StrCat("host ", Quoted(spec.host), " is to serve ", tenants.size(), " tenants"),
        absl::StrCat("name at most ", kMaxTenantsOfHost), {{"field", "tenants"}});
  }
  if (absl::Status status = CheckTenantsAreThere(state, tenants); !status.ok()) return status;
  return tenants;
}

}  // namespace

// Every identity belongs to one host at most: agents are known by nothing else.
absl::StatusOr<Change> PlanEnrol(const PoolState& state, const Caller& caller,
                                 const EnrolSpec& spec, PlanContext& context) {
  if (absl::Status status = CheckCaller(state, caller, Right::kRunPool); !status.ok()) {
    return status;
  }
  const std::string& host = spec.host;
  if (absl::Status status = CheckResourceId(host); !status.ok()) return status;
  const std::string uri =
      spec.identity.empty() ? absl::StrCat(kOurScheme, "host/", host) : spec.identity;
  if (absl::Status status = CheckIdentity(host, uri); !status.ok()) return status;
  if (const Host* owner = state.FindHostByIdentity(uri); owner != nullptr && owner->id != host) {
    return Refuse(absl::StatusCode::kAlreadyExists, "IDENTITY_TAKEN",
                  absl::StrCat("identity ", Quoted(uri), " belongs to host \"", owner->id, "\""),
                  absl::StrCat("retire ", owner->id, " first, or give this host its own"),
                  {{"host", owner->id}});
  }
  if (state.access_rules().bindings.contains(uri)) {
    return Refuse(
        absl::StatusCode::kAlreadyExists, "IDENTITY_TAKEN",
        absl::StrCat("identity ", Quoted(uri), " has a role in the pool"),
        absl::StrCat("run `cxlpool access revoke ", uri, "` first, or give this host its own"),
        {{"host", host}});
  }
  const Host* known = state.FindHost(host);
  if (known == nullptr && state.hosts().size() >= kMaxEnrolledHosts &&
      !CXLPOOL_MUTANT("hosts-without-end")) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_HOSTS",
                  absl::StrCat("the pool has ", kMaxEnrolledHosts, " hosts, as many as it may"),
                  "remove one first: `cxlpool host remove HOST`", {});
  }
  auto tenants = TenantsOf(state, spec, known);
  if (!tenants.ok()) return tenants.status();
  Host wanted{.key = known == nullptr ? context.next_id() : known->key,
              .id = host,
              .identity = uri,
              .retired = false,
              .tenants = *std::move(tenants)};
  // A retired host had nothing attached: it may come back in whatever life it is found.
  if (known != nullptr && !known->retired) wanted.fabric_incarnation = known->fabric_incarnation;
  if (known != nullptr && *known == wanted) return Change{};
  return Change{wanted};
}

absl::StatusOr<Change> PlanRetire(const PoolState& state, const Caller& caller,
                                  const std::string& host, PlanContext& /*context*/) {
  if (absl::Status status = CheckCaller(state, caller, Right::kRunPool); !status.ok()) {
    return status;
  }
  if (const Host* known = state.FindHost(host); known != nullptr && known->retired) return Change{};
  absl::StatusOr<Host> leaving = MayLeave(state, host, /*forgotten=*/false);
  if (!leaving.ok()) return leaving.status();
  leaving->retired = true;
  return Change{*leaving};
}

absl::StatusOr<Change> PlanRemoveHost(const PoolState& state, const Caller& caller,
                                      const std::string& host, PlanContext& /*context*/) {
  if (absl::Status status = CheckCaller(state, caller, Right::kRunPool); !status.ok()) {
    return status;
  }
  Change change = EraseHostEntry(state, host);
  // A host that was never enrolled has nothing attached.
  if (state.FindHost(host) == nullptr && !change.empty()) return change;
  const absl::StatusOr<Host> leaving = MayLeave(state, host, /*forgotten=*/true);
  if (!leaving.ok()) return leaving.status();
  change.push_back(Erased{leaving->key});
  return change;
}

}  // namespace cxlpool::fm
