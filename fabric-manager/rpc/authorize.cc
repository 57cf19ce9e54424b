#include "fabric-manager/rpc/authorize.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "cxlpool/v1/rule.pb.h"
#include "proto/support/mutant.h"
#include "proto/support/peer_identity.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"
#include "proto/support/token.h"

namespace cxlpool::fm {
namespace {

struct Allowed {
  std::optional<PoolRole> least;  // And every higher one. Nothing: no role in the whole pool.
  bool hosts = false;
  bool tenants = false;  // Roles for tenants.
  bool metrics = false;
};

// The model's roles are those of the API without what goes before them.
PoolRole FromProto(v1::Role role) { return static_cast<PoolRole>(role - 1); }
static_assert(v1::VIEWER - 1 == static_cast<int>(PoolRole::kViewer));
static_assert(v1::ADMIN - 1 == static_cast<int>(PoolRole::kAdmin));
static_assert(v1::TENANT - 1 == static_cast<int>(PoolRole::kTenant));
static_assert(v1::SCHEDULER - 1 == static_cast<int>(PoolRole::kScheduler));
static_assert(v1::METRICS - 1 == static_cast<int>(PoolRole::kMetrics));

Allowed FromProto(const v1::Rule& rule) {
  Allowed allowed;
  for (const int role : rule.roles()) {
    if (role == v1::HOST) {
      allowed.hosts = true;
    } else if (role == v1::TENANT) {
      allowed.tenants = true;
    } else if (role == v1::METRICS) {
      allowed.metrics = true;
    } else if (role >= v1::VIEWER && role <= v1::ADMIN) {
      const PoolRole named = FromProto(static_cast<v1::Role>(role));
      allowed.least = std::min(allowed.least.value_or(named), named);
    }
  }
  return allowed;
}

// By path.
const absl::flat_hash_map<std::string, Allowed>& Rules() {
  static const auto& rules = *[] {
    // Those that others have defined: health checks, for agents and for an operator's monitoring,
    // and what generic clients find the API's methods by.
    auto* by_path = new absl::flat_hash_map<std::string, Allowed>{
        {"/grpc.health.v1.Health/Check", {PoolRole::kViewer, true, true, true}},
        {"/grpc.health.v1.Health/Watch", {PoolRole::kViewer, false, true, true}},
        {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
         {PoolRole::kViewer, false, true, true}}};
    for (const auto* file :
         {v1::GetRegionRequest::descriptor()->file(), v1::ListHostsRequest::descriptor()->file(),
          v1::Hello::descriptor()->file(), v1::RoleBinding::descriptor()->file()}) {
      for (int s = 0; s < file->service_count(); ++s) {
        for (int m = 0; m < file->service(s)->method_count(); ++m) {
          const auto* method = file->service(s)->method(m);
          by_path->emplace(absl::StrCat("/", file->service(s)->full_name(), "/", method->name()),
                           FromProto(method->options().GetExtension(v1::rule)));
        }
      }
    }
    return by_path;
  }();
  return rules;
}

absl::Status NotAllowed(const PeerIdentity& identity, absl::string_view what,
                        absl::string_view path, std::string remedy) {
  const std::string method(path.substr(path.rfind('/') + 1));
  return Refuse(absl::StatusCode::kPermissionDenied, "ROLE_NOT_ALLOWED",
                absl::StrCat(identity.uri, " ", what, " and may not call ", method),
                std::move(remedy), {{"identity", identity.uri}, {"method", method}});
}

// Of a certificate that is no user's.
absl::Status KindNotAllowed(const PeerIdentity& identity, absl::string_view path) {
  return NotAllowed(identity,
                    identity.role == Role::kManager ? "is a manager"
                    : identity.role == Role::kHost  ? "is a host"
                                                    : "has no role",
                    path, "use a certificate of another role (`cxlpool pki issue operator NAME`)");
}

absl::Status RoleNotAllowed(const PeerIdentity& identity, PoolRole role, absl::string_view path) {
  return NotAllowed(identity, absl::StrCat("has the role ", ToString(role)), path,
                    absl::StrCat("have an admin run `cxlpool access grant ", identity.uri,
                                 " --role ROLE --reason WHY`"));
}

// Only of certificates of operators: what else has no role may be a host's.
absl::Status NoRole(const PeerIdentity& identity, const RoleBindings& bindings) {
  const auto bound = bindings.find(identity.uri);
  const std::string ended =
      bound == bindings.end() ? ""
                              : absl::StrCat(" any more: it ended at ", UtcText(bound->second.end));
  return Refuse(absl::StatusCode::kPermissionDenied, "NO_ROLE",
                absl::StrCat(identity.uri, " has no role in this pool", ended),
                absl::StrCat("have an admin run `cxlpool access grant ", identity.uri,
                             " --role ROLE --reason WHY`"),
                {{"identity", identity.uri}});
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

bool MayCall(PoolRole role, absl::string_view path) {
  const auto rule = Rules().find(path);
  if (rule == Rules().end()) return false;
  if (IsForTenants(role)) return rule->second.tenants;
  // Its number is above an admin's.
  if (!IsForPool(role) && !CXLPOOL_MUTANT("metrics-is-above-admin")) return rule->second.metrics;
  return rule->second.least.has_value() && role >= *rule->second.least;
}

absl::string_view AuthorizationOf(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end()) return {};
  // Given but empty is not the same as not given.
  if (found->second.empty()) return " ";
  return {found->second.data(), found->second.size()};
}

bool MayHostCall(absl::string_view path) {
  const auto rule = Rules().find(path);
  return rule != Rules().end() && rule->second.hosts;
}

namespace {

// Whether the identity is believed, and the certificate where the peer has one: who shows a token
// may have none. A peer on this machine that shows neither is nobody whom one could revoke.
absl::Status CheckBelieved(const grpc::AuthContext& peer, bool by_token,
                           const PeerIdentity& identity, const Revocations& revocations) {
  const bool is_local = !peer.IsPeerAuthenticated() &&
                        (!by_token || CXLPOOL_MUTANT("revoked-tokens-need-a-certificate"));
  // A certificate is parsed only where something is revoked: that takes longer than all the rest.
  if (revocations.empty() || is_local) return absl::OkStatus();
  const std::optional<CertificateFacts> facts =
      peer.IsPeerAuthenticated() ? CertificateOf(peer) : std::nullopt;
  return CheckRevoked(revocations, identity.uri, facts.has_value() ? facts->serial : "");
}

// The identity of the token that a call shows. That it is of another name, of another secret or has
// ended is told apart by nobody.
absl::StatusOr<PeerIdentity> IdentityOfToken(absl::string_view authorization,
                                             const RoleBindings& bindings) {
  absl::string_view token = authorization;
  if (!absl::ConsumePrefix(&token, "Bearer ")) {
    return BadToken("the call's \"authorization\" does not begin with \"Bearer \"");
  }
  const absl::StatusOr<std::string> name = TokenName(token);
  if (!name.ok()) return name.status();
  PeerIdentity identity = ParseIdentity(absl::StrCat(kTokenIdentity, *name));
  const auto bound = bindings.find(identity.uri);
  const bool good = bound != bindings.end() &&
                    (SameTokenHash(TokenHash(token), bound->second.token_hash) ||
                     CXLPOOL_MUTANT("a-token-is-its-name")) &&
                    RoleOf(bindings, identity.uri, Proof::kToken, absl::Now()).has_value();
  if (!good) return BadToken("the token is none of this pool's, has ended, or was revoked");
  return identity;
}

// What is not a user's certificate: a host's, if it is enrolled. A kind that may not make the call
// hears so first: that its certificate is of the wrong kind is the more useful answer to somebody
// who is not enrolled either.
absl::StatusOr<Caller> AuthorizeHost(const PeerIdentity& identity, absl::string_view path,
                                     bool has_rule, const ViewHolder& views) {
  if (identity.role == Role::kManager || (has_rule && !MayHostCall(path))) {
    return KindNotAllowed(identity, path);
  }
  const std::string host = views.HostOfIdentity(identity.uri);
  if (host.empty() && !CXLPOOL_MUTANT("anybody-is-a-host")) return NotEnrolled(identity);
  return CXLPOOL_MUTANT("a-host-is-an-operator") ? Caller::Admin(identity.uri)
                                                 : Caller::OfHost(host, identity.uri);
}

}  // namespace

// Judges by certificate and method, before anything of the request is read. Which Regions a host
// may touch is the planner's to say: CheckCaller and MaySee judge on the state that is planned on.
absl::StatusOr<Caller> Authorize(const grpc::AuthContext& peer, absl::string_view authorization,
                                 absl::string_view path, const AccessRules& access,
                                 const FixedAdmins::Identities& admins, const ViewHolder& views) {
  const bool by_token = !authorization.empty();
  const auto identity =
      by_token ? IdentityOfToken(authorization, access.bindings) : IdentityOf(peer);
  if (!identity.ok()) return identity.status();
  if (!CXLPOOL_MUTANT("revoked-in-sessions-only") || absl::EndsWith(path, "/Session")) {
    absl::Status status = CheckBelieved(peer, by_token, *identity, access.revocations);
    if (!status.ok()) return status;
  }
  const bool has_rule = Rules().contains(path);
  Caller caller;
  if (!peer.IsPeerAuthenticated() && !by_token) {
    caller = Caller::Local(identity->uri);
  } else {
    const bool is_operator = identity->role == Role::kOperator;
    const Proof proof = by_token      ? Proof::kToken
                        : is_operator ? Proof::kOperatorCertificate
                                      : Proof::kCertificate;
    const bool is_fixed = admins.contains(identity->uri);
    std::optional<Granted> granted =
        is_fixed ? std::optional(Granted{PoolRole::kAdmin})
                 : RoleOf(access.bindings, identity->uri, proof, absl::Now());
    if (granted.has_value()) {
      if (has_rule && !MayCall(granted->role, path) && !CXLPOOL_MUTANT("rules-are-not-read")) {
        return RoleNotAllowed(*identity, granted->role, path);
      }
      caller = is_fixed ? Caller::Admin(identity->uri)
                        : Caller::Bound(identity->uri, proof, *std::move(granted));
    } else if (is_operator) {
      return NoRole(*identity, access.bindings);
    } else {
      absl::StatusOr<Caller> host = AuthorizeHost(*identity, path, has_rule, views);
      if (!host.ok()) return host.status();
      caller = *std::move(host);
    }
  }
  if (has_rule) return caller;
  return Refuse(absl::StatusCode::kUnimplemented, "UNKNOWN_METHOD",
                absl::StrCat("this manager (", CXLPOOL_VERSION, ") has no method ", path),
                "use a client of the manager's version", {{"method", std::string(path)}});
}

}  // namespace cxlpool::fm
