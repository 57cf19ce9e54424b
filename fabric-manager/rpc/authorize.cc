#include "fabric-manager/rpc/authorize.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

enum class Allowed { kOperator, kOperatorAndHost, kHost };

// The rules of one service. Rules are per service, so that a method of another service that happens
// to have the same name gets none of them.
struct ServiceRules {
  absl::string_view service;
  std::vector<std::pair<absl::string_view, Allowed>> methods;
};

// Applications' calls travel under their host's certificate, for that host only: each call that a
// host may make looks at whose the Region is.
std::vector<ServiceRules> AllRules() {
  return {
      {"cxlpool.v1.PoolService",
       {
           {"AllocateRegion", Allowed::kOperatorAndHost},
           {"RenewRegion", Allowed::kOperatorAndHost},
           {"ReleaseRegion", Allowed::kOperatorAndHost},
           {"GetRegion", Allowed::kOperatorAndHost},
           {"BatchAllocateRegions", Allowed::kOperator},
           {"BatchReleaseRegions", Allowed::kOperator},
           {"ListRegions", Allowed::kOperatorAndHost},
           {"ListRegionHolders", Allowed::kOperatorAndHost},
           {"AttachRegion", Allowed::kOperator},
           {"DetachRegion", Allowed::kOperator},
           {"ResizeRegion", Allowed::kOperator},
           {"RenameRegion", Allowed::kOperator},
           {"WatchRegions", Allowed::kOperatorAndHost},
           {"GetCapacity", Allowed::kOperator},
       }},
      {"cxlpool.v1.InventoryService",
       {
           {"ListDevices", Allowed::kOperator},
           {"DiscoverDevices", Allowed::kOperator},
           {"AddDevice", Allowed::kOperator},
           {"DrainDevice", Allowed::kOperator},
           {"RemoveDevice", Allowed::kOperator},
           {"FailDevice", Allowed::kOperator},
           {"ListHosts", Allowed::kOperator},
           {"AddHost", Allowed::kOperator},
           {"EnrolHost", Allowed::kOperator},
           {"RetireHost", Allowed::kOperator},
           {"RemoveHost", Allowed::kOperator},
           {"FenceHost", Allowed::kOperator},
           {"SetTenant", Allowed::kOperator},
           {"GetTenant", Allowed::kOperator},
           {"ListTenants", Allowed::kOperator},
           {"RemoveTenant", Allowed::kOperator},
           {"GetTopology", Allowed::kOperator},
           {"ApplyTopology", Allowed::kOperator},
           {"RevokeCertificate", Allowed::kOperator},
           {"RestoreCertificate", Allowed::kOperator},
           {"ListRevocations", Allowed::kOperator},
           {"Explain", Allowed::kOperator},
           {"Backup", Allowed::kOperator},
       }},
      {"cxlpool.v1.HostService",
       {
           {"Session", Allowed::kHost},
           {"CheckSession", Allowed::kHost},
       }},
      // Whether the manager serves: for agents, and for an operator's monitoring.
      {"grpc.health.v1.Health",
       {
           {"Check", Allowed::kOperatorAndHost},
           {"Watch", Allowed::kOperator},
       }},
      {"grpc.reflection.v1alpha.ServerReflection",
       {
           {"ServerReflectionInfo", Allowed::kOperator},
       }},
  };
}

// By path.
const absl::flat_hash_map<std::string, Allowed>& Rules() {
  static const auto& rules = *[] {
    auto* by_path = new absl::flat_hash_map<std::string, Allowed>();
    for (const ServiceRules& of : AllRules()) {
      for (const auto& [method, allowed] : of.methods) {
        by_path->emplace(absl::StrCat("/", of.service, "/", method), allowed);
      }
    }
    return by_path;
  }();
  return rules;
}

absl::string_view NameOf(Role role) {
  switch (role) {
    case Role::kOperator:
      return "an operator";
    case Role::kHost:
      return "a host";
    case Role::kManager:
      return "a manager";
    case Role::kOther:
      return "of no known role";
  }
  return "";
}

absl::Status RoleNotAllowed(const PeerIdentity& identity, absl::string_view path) {
  const std::string method(path.substr(path.rfind('/') + 1));
  return Refuse(
      absl::StatusCode::kPermissionDenied, "ROLE_NOT_ALLOWED",
      absl::StrCat(identity.uri, " is ", NameOf(identity.role), " and may not call ", method),
      "use a certificate of another role (`cxlpool pki issue operator NAME`)",
      {{"identity", identity.uri}, {"method", method}});
}

// Says the same of an identity that nobody ever enrolled and of one whose host is retired.
absl::Status NotEnrolled(const PeerIdentity& identity) {
  const std::string enrol =
      identity.role == Role::kHost
          ? absl::StrCat("`cxlpool host enrol ", identity.name, "`")
          : absl::StrCat("`cxlpool host enrol HOST --identity ", identity.uri, "`");
  return Refuse(absl::StatusCode::kPermissionDenied, "NOT_ENROLLED",
                absl::StrCat("no host in service is enrolled as ", identity.uri),
                absl::StrCat("run ", enrol), {{"identity", identity.uri}});
}

}  // namespace

bool MayCall(Role role, absl::string_view path) {
  const auto rule = Rules().find(path);
  if (rule == Rules().end()) return false;
  const bool host = role == Role::kHost || role == Role::kOther;
  switch (rule->second) {
    case Allowed::kOperator:
      return role == Role::kOperator;
    case Allowed::kOperatorAndHost:
      return role == Role::kOperator || host;
    case Allowed::kHost:
      return host;
  }
  return false;
}

// Judges by certificate and method, before anything of the request is read. Which Regions a host
// may touch is the planner's to say: CheckCaller and MaySee judge on the state that is planned on.
absl::StatusOr<Caller> Authorize(const grpc::AuthContext& peer, absl::string_view path,
                                 const ViewHolder& views) {
  auto identity = IdentityOf(peer);
  if (!identity.ok()) return identity.status();
  if (!CXLPOOL_MUTANT("revoked-in-sessions-only") || absl::EndsWith(path, "/Session")) {
    absl::Status status = CheckBelieved(peer, *views.GetRevocations());
    if (!status.ok()) return status;
  }
  const bool local = !peer.IsPeerAuthenticated();
  const bool has_rule = Rules().contains(path);
  std::string host;
  if (!local) {
    const Role role = identity->role;
    // A role that may not make the call hears so first: that its certificate is of the wrong kind
    // is the more useful answer to somebody who is not enrolled either.
    if (has_rule && !MayCall(role, path)) return RoleNotAllowed(*identity, path);
    if (role == Role::kManager) return RoleNotAllowed(*identity, path);
    if (role != Role::kOperator) {
      host = views.HostOfIdentity(identity->uri);
      if (host.empty() && !CXLPOOL_MUTANT("anybody-is-a-host")) return NotEnrolled(*identity);
    }
  }
  if (has_rule) return CallerOf(*identity, host, local);
  return Refuse(absl::StatusCode::kUnimplemented, "UNKNOWN_METHOD",
                absl::StrCat("this manager (", CXLPOOL_VERSION, ") has no method ", path),
                "use a client of the manager's version", {{"method", std::string(path)}});
}

absl::Status CheckBelieved(const grpc::AuthContext& peer, const Revocations& revocations) {
  // A certificate is parsed only where something is revoked: that takes longer than all the rest.
  if (revocations.empty() || !peer.IsPeerAuthenticated()) return absl::OkStatus();
  const auto identity = IdentityOf(peer);
  if (!identity.ok()) return identity.status();
  const std::optional<CertificateFacts> facts = CertificateOf(peer);
  return CheckRevoked(revocations, identity->uri, facts.has_value() ? facts->serial : "");
}

Caller CallerOf(const PeerIdentity& identity, const std::string& host, bool local) {
  if (local) return Caller::Local(identity.uri);
  if (!host.empty()) {
    return CXLPOOL_MUTANT("a-host-is-an-operator") ? Caller::Operator(identity.uri)
                                                   : Caller::OfHost(host, identity.uri);
  }
  return identity.role == Role::kOperator ? Caller::Operator(identity.uri) : Caller();
}

}  // namespace cxlpool::fm
