#include "fabric-manager/rpc/authorize.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

enum class Allowed { kOperator, kOperatorAndHost, kHost };

// Applications' calls travel under their host's certificate, for that host alone: each call that a
// host may make looks at whose the Region is.
const absl::flat_hash_map<absl::string_view, Allowed>& Rules() {
  static const auto& rules = *new absl::flat_hash_map<absl::string_view, Allowed>{
      {"AllocateRegion", Allowed::kOperatorAndHost},
      {"RenewRegion", Allowed::kOperatorAndHost},
      {"ReleaseRegion", Allowed::kOperatorAndHost},
      {"GetRegion", Allowed::kOperatorAndHost},
      {"BatchAllocateRegions", Allowed::kOperator},
      {"BatchReleaseRegions", Allowed::kOperator},
      {"ListRegions", Allowed::kOperator},
      {"AttachRegion", Allowed::kOperator},
      {"DetachRegion", Allowed::kOperator},
      {"ResizeRegion", Allowed::kOperator},
      {"RenameRegion", Allowed::kOperator},
      {"WatchRegions", Allowed::kOperator},
      {"GetCapacity", Allowed::kOperator},
      {"ListDevices", Allowed::kOperator},
      {"AddDevice", Allowed::kOperator},
      {"DrainDevice", Allowed::kOperator},
      {"RemoveDevice", Allowed::kOperator},
      {"FailDevice", Allowed::kOperator},
      {"ListHosts", Allowed::kOperator},
      {"EnrolHost", Allowed::kOperator},
      {"RetireHost", Allowed::kOperator},
      {"FenceHost", Allowed::kOperator},
      {"SetTenant", Allowed::kOperator},
      {"GetTenant", Allowed::kOperator},
      {"ListTenants", Allowed::kOperator},
      {"RemoveTenant", Allowed::kOperator},
      {"GetTopology", Allowed::kOperator},
      {"Backup", Allowed::kOperator},
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

bool MayCall(Role role, absl::string_view method) {
  const auto rule = Rules().find(method);
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

absl::StatusOr<Caller> Authorize(const grpc::ServerContextBase& context, absl::string_view method) {
  const auto auth = context.auth_context();
  auto identity = IdentityOf(*auth);
  if (!identity.ok()) return identity.status();
  Caller caller{*std::move(identity), !auth->IsPeerAuthenticated()};
  const bool allowed =
      caller.insecure_local ? Rules().contains(method) : MayCall(caller.identity.role, method);
  if (allowed) return caller;
  return Refusal{absl::StatusCode::kPermissionDenied,
                 "ROLE_NOT_ALLOWED",
                 absl::StrCat(caller.identity.uri, " is ", NameOf(caller.identity.role),
                              " and may not call ", method),
                 "use a certificate of another role (cxlpool pki issue)",
                 {{"identity", caller.identity.uri}, {"method", std::string(method)}}}
      .ToStatus();
}

absl::StatusOr<std::string> ActingHost(const Caller& caller, const ViewHolder& views) {
  if (caller.speaks_for_pool()) return std::string();
  const PoolViewPtr view = views.Get();
  for (const auto& [id, host] : view->hosts) {
    if (!host->host.retired && host->host.identity == caller.identity.uri) return id;
  }
  return Refusal{absl::StatusCode::kPermissionDenied,
                 "NOT_ENROLLED",
                 absl::StrCat("no host is enrolled as ", caller.identity.uri),
                 "run `cxlpool host enrol`",
                 {{"identity", caller.identity.uri}}}
      .ToStatus();
}

absl::Status CheckOwner(const Caller& caller, const std::string& acting_host,
                        const std::string& first_host) {
  if (caller.insecure_local || (!acting_host.empty() && acting_host == first_host)) {
    return absl::OkStatus();
  }
  return Refusal{
      absl::StatusCode::kPermissionDenied,
      "OWNER_NOT_YOURS",
      acting_host.empty()
          ? absl::StrCat(caller.identity.uri, " is ", NameOf(caller.identity.role),
                         ", which has no processes that could own a Region")
          : absl::StrCat("host \"", acting_host,
                         "\" names an owner for a Region whose first host is \"", first_host, "\""),
      "leave owner out, or allocate from the host that the process is on",
      {{"identity", caller.identity.uri}}}
      .ToStatus();
}

}  // namespace cxlpool::fm
