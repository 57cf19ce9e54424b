#include "fabric-manager/rpc/authorize.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

enum class Allowed { kOperator, kOperatorAndHost, kHost };

const std::map<std::string, Allowed>& Rules() {
  static const auto& rules = *new std::map<std::string, Allowed>{
      // Applications' calls travel under their host's certificate, for that host alone.
      {"AllocateRegion", Allowed::kOperatorAndHost},
      {"ReleaseRegion", Allowed::kOperatorAndHost},
      {"GetRegion", Allowed::kOperatorAndHost},
      {"ListRegions", Allowed::kOperator},
      {"AttachRegion", Allowed::kOperator},
      {"DetachRegion", Allowed::kOperator},
      {"WatchRegions", Allowed::kOperator},
      {"GetCapacity", Allowed::kOperator},
      {"ListDevices", Allowed::kOperator},
      {"ListHosts", Allowed::kOperator},
      {"EnrolHost", Allowed::kOperator},
      {"RetireHost", Allowed::kOperator},
      {"FenceHost", Allowed::kOperator},
      {"GetTopology", Allowed::kOperator},
      // Which host an identity is, the session itself finds out: any may be enrolled.
      {"Session", Allowed::kHost},
  };
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

}  // namespace

absl::StatusOr<Caller> Authorize(const grpc::ServerContextBase& context,
                                 const std::string& method) {
  const auto auth = context.auth_context();
  auto identity = IdentityOf(*auth);
  if (!identity.ok()) return identity.status();
  Caller caller{*std::move(identity), !auth->IsPeerAuthenticated()};
  const auto rule = Rules().find(method);
  bool allowed = rule != Rules().end();
  if (allowed && !caller.insecure_local) {
    const Role role = caller.identity.role;
    const bool host = role == Role::kHost || role == Role::kOther;
    allowed = rule->second == Allowed::kHost
                  ? host
                  : role == Role::kOperator || (host && rule->second == Allowed::kOperatorAndHost);
  }
  if (allowed) return caller;
  return Refusal{absl::StatusCode::kPermissionDenied,
                 "ROLE_NOT_ALLOWED",
                 absl::StrCat(caller.identity.uri, " is ", NameOf(caller.identity.role),
                              " and may not call ", method),
                 "use a certificate of another role (cxlpool pki issue)",
                 {{"identity", caller.identity.uri}, {"method", method}}}
      .ToStatus();
}

absl::StatusOr<std::string> ActingHost(const Caller& caller, const PoolView& view) {
  if (caller.insecure_local || caller.identity.role == Role::kOperator) return std::string();
  for (const auto& [id, host] : view.hosts) {
    if (!host->host.retired && host->host.identity == caller.identity.uri) return id;
  }
  return Refusal{absl::StatusCode::kPermissionDenied,
                 "NOT_ENROLLED",
                 absl::StrCat("no host is enrolled as ", caller.identity.uri),
                 "run `cxlpool host enrol`",
                 {{"identity", caller.identity.uri}}}
      .ToStatus();
}

}  // namespace cxlpool::fm
