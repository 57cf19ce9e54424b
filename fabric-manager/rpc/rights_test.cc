// Who may do what, as calls: every method there is, by callers with every kind of certificate and
// every role, over TLS. What is expected is written down here, and not read from the rules.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "proto/support/token.h"
#include "test/rigs/caller_fixture.h"
#include "tools/pki/pki.h"

namespace cxlpool::fm {
namespace {

// What a caller is to the manager.
enum class Kind {
  kAdmin,  // An operator's certificate while nobody is bound; later, who is bound as one.
  kOperator,
  kViewer,
  kTenant,  // Or a scheduler.
  kMetrics,
  kNoRole,      // An operator's certificate to which no role is bound, or not any more.
  kHost,        // Enrolled, in service.
  kStranger,    // A good certificate that is no host's.
  kManager,     // A manager's: it calls nobody.
  kNoIdentity,  // A certificate that does not say who it is for, or none where none is needed.
  kBadToken,    // A token that does not count.
  kRevoked,     // A certificate or an identity that is revoked, whatever is bound to it.
  kNobody,      // No connection: no certificate of the pool.
};

const std::set<std::string> kForAdmins = {"/cxlpool.v1.InventoryService/FenceHost",
                                          "/cxlpool.v1.InventoryService/FailDevice",
                                          "/cxlpool.v1.InventoryService/SetTenant",
                                          "/cxlpool.v1.InventoryService/RemoveTenant",
                                          "/cxlpool.v1.InventoryService/RevokeCertificate",
                                          "/cxlpool.v1.InventoryService/RestoreCertificate",
                                          "/cxlpool.v1.InventoryService/Backup",
                                          "/cxlpool.v1.AccessService/SetRoleBinding",
                                          "/cxlpool.v1.AccessService/RemoveRoleBinding"};
const std::set<std::string> kForViewers = {
    "/cxlpool.v1.PoolService/GetRegion",
    "/cxlpool.v1.PoolService/ListRegions",
    "/cxlpool.v1.PoolService/ListRegionHolders",
    "/cxlpool.v1.PoolService/WatchRegions",
    "/cxlpool.v1.PoolService/GetCapacity",
    "/cxlpool.v1.InventoryService/ListDevices",
    "/cxlpool.v1.InventoryService/ListHosts",
    "/cxlpool.v1.InventoryService/GetTopology",
    "/cxlpool.v1.InventoryService/GetTenant",
    "/cxlpool.v1.InventoryService/ListTenants",
    "/cxlpool.v1.InventoryService/ListRevocations",
    "/cxlpool.v1.InventoryService/Explain",
    "/cxlpool.v1.AccessService/ListRoleBindings",
    "/cxlpool.v1.AccessService/ListEvents",
    "/cxlpool.v1.AccessService/VerifyAudit",
    "/cxlpool.v1.AccessService/GetSelf",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
const std::set<std::string> kHostsToo = {
    "/cxlpool.v1.PoolService/AllocateRegion", "/cxlpool.v1.PoolService/RenewRegion",
    "/cxlpool.v1.PoolService/ReleaseRegion",  "/cxlpool.v1.PoolService/GetRegion",
    "/cxlpool.v1.PoolService/ListRegions",    "/cxlpool.v1.PoolService/ListRegionHolders",
    "/cxlpool.v1.PoolService/WatchRegions",   "/grpc.health.v1.Health/Check",
    "/cxlpool.v1.AccessService/GetSelf"};
const std::set<std::string> kTenantsToo = {
    "/cxlpool.v1.PoolService/AllocateRegion",
    "/cxlpool.v1.PoolService/BatchAllocateRegions",
    "/cxlpool.v1.PoolService/GetRegion",
    "/cxlpool.v1.PoolService/ListRegions",
    "/cxlpool.v1.PoolService/ListRegionHolders",
    "/cxlpool.v1.PoolService/AttachRegion",
    "/cxlpool.v1.PoolService/DetachRegion",
    "/cxlpool.v1.PoolService/ReleaseRegion",
    "/cxlpool.v1.PoolService/BatchReleaseRegions",
    "/cxlpool.v1.PoolService/ResizeRegion",
    "/cxlpool.v1.PoolService/RenameRegion",
    "/cxlpool.v1.PoolService/RenewRegion",
    "/cxlpool.v1.PoolService/WatchRegions",
    "/cxlpool.v1.PoolService/GetCapacity",
    "/cxlpool.v1.InventoryService/GetTenant",
    "/cxlpool.v1.InventoryService/ListTenants",
    "/cxlpool.v1.InventoryService/Explain",
    "/cxlpool.v1.AccessService/ListEvents",
    "/cxlpool.v1.AccessService/GetSelf",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
const std::set<std::string> kForMetrics = {
    "/cxlpool.v1.AccessService/GetSelf", "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
constexpr char kMadeUp[] = "/cxlpool.v1.PoolService/FoldRegion";

// The reason that a call of `path` is refused with whose request is no message at all: one of
// BAD_REQUEST was let in.
std::string Expected(Kind kind, const std::string& path) {
  const bool for_agents = path == kSession || path == kCheckSession;
  const bool for_hosts = kHostsToo.contains(path) || for_agents;
  const bool for_admins = !for_agents;
  const bool for_operators = for_admins && !kForAdmins.contains(path);
  const auto of_user = [&](bool may) {
    return path == kMadeUp ? "UNKNOWN_METHOD" : may ? "BAD_REQUEST" : "ROLE_NOT_ALLOWED";
  };
  switch (kind) {
    case Kind::kAdmin:
      return of_user(for_admins);
    case Kind::kOperator:
      return of_user(for_operators);
    case Kind::kViewer:
      return of_user(kForViewers.contains(path));
    case Kind::kTenant:
      return of_user(kTenantsToo.contains(path));
    case Kind::kMetrics:
      return of_user(kForMetrics.contains(path));
    case Kind::kNoRole:
      return "NO_ROLE";
    case Kind::kHost:
      return path == kMadeUp ? "UNKNOWN_METHOD" : for_hosts ? "BAD_REQUEST" : "ROLE_NOT_ALLOWED";
    case Kind::kStranger:
      return path == kMadeUp || for_hosts ? "NOT_ENROLLED" : "ROLE_NOT_ALLOWED";
    case Kind::kManager:
      return "ROLE_NOT_ALLOWED";
    case Kind::kNoIdentity:
      return "NO_IDENTITY";
    case Kind::kBadToken:
      return "BAD_TOKEN";
    case Kind::kRevoked:
      return "CERTIFICATE_REVOKED";
    case Kind::kNobody:
      return "MANAGER_UNREACHABLE";
  }
  return "";
}

std::vector<std::string> AllPaths() {
  std::vector<std::string> paths = {kMadeUp};
  for (const auto* file :
       {v1::GetRegionRequest::descriptor()->file(), v1::ListHostsRequest::descriptor()->file(),
        v1::RoleBinding::descriptor()->file(), v1::Hello::descriptor()->file(),
        grpc::health::v1::HealthCheckRequest::descriptor()->file(),
        grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        paths.push_back(absl::StrCat("/", file->service(s)->full_name(), "/",
                                     file->service(s)->method(m)->name()));
      }
    }
  }
  return paths;
}

class RightsTest : public CallerFixture {
 protected:
  const Pair other_authority_ = NewAuthority();

  struct Tried {
    std::string who;
    Kind kind;
    std::shared_ptr<grpc::Channel> channel;
  };
  // Every method by each of them.
  static void TryAll(const std::vector<Tried>& callers) {
    int calls = 0;
    for (const Tried& caller : callers) {
      for (const std::string& path : AllPaths()) {
        const std::string expected = Expected(caller.kind, path);
        ++calls;
        {
          RawCall call(caller.channel, path);
          call.Send("\xff\xff\xff", true);
          const absl::Status status = call.End();
          EXPECT_EQ(ReasonOf(status), expected) << caller.who << " " << path << ": " << status;
        }
        if (expected == "BAD_REQUEST" || caller.kind == Kind::kNobody) continue;
        // Nothing of the body is waited for.
        RawCall call(caller.channel, path, std::chrono::seconds(4));
        const absl::Status status = call.End();
        EXPECT_EQ(ReasonOf(status), expected) << caller.who << " " << path << ": " << status;
      }
    }
    EXPECT_GT(calls, 600);
    std::cout << "rights: " << calls
              << " trials, each method by each kind of caller, 0 let in wrongly\n";
  }
};

TEST_F(RightsTest, EveryMethodByEveryKindOfCaller) {
  const std::string alice = "cxlpool://operator/alice", host = "cxlpool://host/host-a";
  TryAll({
      {"an operator", Kind::kAdmin, operator_},
      {"a host", Kind::kHost, ChannelOf(host)},
      {"a host with an identity of its site", Kind::kHost, ChannelOf("spiffe://site/host-s")},
      {"a host that nobody enrolled", Kind::kStranger, ChannelOf("cxlpool://host/host-x")},
      {"a host that is retired", Kind::kStranger, ChannelOf("cxlpool://host/host-r")},
      {"a host by the name that it is not enrolled with", Kind::kStranger,
       ChannelOf("cxlpool://host/host-s")},
      {"an identity of the site that nobody enrolled", Kind::kStranger,
       ChannelOf("spiffe://site/host-x")},
      {"an operator in capitals", Kind::kStranger, ChannelOf("CXLPOOL://operator/alice")},
      {"an operator without a name", Kind::kStranger, ChannelOf("cxlpool://operator/")},
      {"an operator with a path", Kind::kStranger, ChannelOf("cxlpool://operator/a/b")},
      {"an operator in another writing", Kind::kStranger, ChannelOf("cxlpool://operator/%61lice")},
      {"a manager", Kind::kManager, ChannelOf("cxlpool://manager/fm")},
      {"names without an identity", Kind::kNoIdentity, ChannelOf("")},
      {"an operator who is a host", Kind::kNoIdentity, Channel(Leaf(alice, {.more_uris = {host}}))},
      {"a host that is an operator", Kind::kNoIdentity,
       Channel(Leaf(host, {.more_uris = {alice}}))},
      {"an operator twice", Kind::kNoIdentity, Channel(Leaf(alice, {.more_uris = {alice}}))},
      {"an operator of another authority", Kind::kNobody,
       Channel(Leaf(alice, {.issuer = &other_authority_}))},
      {"an operator whose time is over", Kind::kNobody, Channel(Leaf(alice, {.expired = true}))},
      {"a host whose time is over", Kind::kNobody, Channel(Leaf(host, {.expired = true}))},
      {"nobody", Kind::kNobody, Channel({})},
      {"somebody without TLS", Kind::kNobody,
       grpc::CreateChannel(address_, grpc::InsecureChannelCredentials())},
  });
}

// Who is bound, and who is not any more, once somebody is.
TEST_F(RightsTest, EveryMethodByEveryRole) {
  const std::string user = "cxlpool://operator/", site = "spiffe://site/";
  ASSERT_EQ(Bind(user + "alice", v1::ADMIN), "");
  for (const std::string& whose : {user, site}) {
    ASSERT_EQ(Bind(whose + "admin", v1::ADMIN), "");
    ASSERT_EQ(Bind(whose + "operator", v1::OPERATOR), "");
    ASSERT_EQ(Bind(whose + "viewer", v1::VIEWER), "");
    ASSERT_EQ(Bind(whose + "metrics", v1::METRICS), "");
    for (const v1::Role role : {v1::TENANT, v1::SCHEDULER}) {
      v1::SetRoleBindingRequest bind = ToBind(absl::StrCat(whose, v1::Role_Name(role)), role);
      bind.mutable_role_binding()->add_tenants("tenants/default");
      ASSERT_EQ(Ask(operator_, "AccessService/SetRoleBinding", bind), "");
    }
    ASSERT_EQ(Bind(whose + "lower", v1::ADMIN), "");
    ASSERT_EQ(Bind(whose + "lower", v1::VIEWER), "");
    ASSERT_EQ(Bind(whose + "gone", v1::ADMIN), "");
    ASSERT_EQ(Unbind(whose + "gone"), "");
    ASSERT_EQ(Bind(whose + "ended", v1::ADMIN, absl::Now() + absl::Seconds(2)), "");
    ASSERT_EQ(Bind(whose + "later", v1::OPERATOR, absl::Now() + absl::Hours(1)), "");
    ASSERT_EQ(Bind(whose + "revoked", v1::ADMIN), "");
    ASSERT_EQ(Revoke(whose + "revoked"), "");
  }
  const std::string host = "cxlpool://host/host-b";
  ASSERT_EQ(Revoke(host), "");
  const Pair lost = Leaf(user + "admin");
  const auto shown = pki::ShowCertificate(Write("lost.pem", lost.cert));
  ASSERT_TRUE(shown.ok()) << shown.status();
  ASSERT_EQ(Revoke(shown->serial), "");
  const v1::GetSelfRequest who;
  for (const auto& [whose, none] : {std::pair(user, "NO_ROLE"), std::pair(site, "NOT_ENROLLED")}) {
    const auto ended = ChannelOf(whose + "ended");
    ASSERT_TRUE(Within(absl::Seconds(20), [&] {
      return Ask(ended, "AccessService/GetSelf", who) == none;
    })) << "it ends by itself";
  }
  std::vector<Tried> callers = {
      {"who bound them", Kind::kAdmin, operator_},
      {"an operator that nobody bound", Kind::kNoRole, ChannelOf(user + "bob")},
      {"an identity of the site that nobody bound", Kind::kStranger, ChannelOf(site + "bob")},
      {"a host", Kind::kHost, ChannelOf("cxlpool://host/host-a")},
      {"a host that is revoked", Kind::kRevoked, ChannelOf(host)},
      {"an admin by a certificate that is revoked", Kind::kRevoked, Channel(lost)}};
  for (const std::string& whose : {user, site}) {
    const Kind none = whose == user ? Kind::kNoRole : Kind::kStranger;
    callers.push_back({whose + "admin", Kind::kAdmin, ChannelOf(whose + "admin")});
    callers.push_back({whose + "operator", Kind::kOperator, ChannelOf(whose + "operator")});
    callers.push_back({whose + "viewer", Kind::kViewer, ChannelOf(whose + "viewer")});
    callers.push_back({whose + "metrics", Kind::kMetrics, ChannelOf(whose + "metrics")});
    for (const char* role : {"TENANT", "SCHEDULER"}) {
      callers.push_back({whose + role, Kind::kTenant, ChannelOf(whose + role)});
    }
    callers.push_back({whose + "lower", Kind::kViewer, ChannelOf(whose + "lower")});
    callers.push_back({whose + "gone", none, ChannelOf(whose + "gone")});
    callers.push_back({whose + "ended", none, ChannelOf(whose + "ended")});
    callers.push_back({whose + "later", Kind::kOperator, ChannelOf(whose + "later")});
    callers.push_back({whose + "revoked", Kind::kRevoked, ChannelOf(whose + "revoked")});
  }
  TryAll(callers);
  EXPECT_EQ(Unbind(user + "admin"), "");
  EXPECT_EQ(Ask(ChannelOf(user + "admin"), "AccessService/GetSelf", who), "NO_ROLE");
}

TEST_F(RightsTest, EveryMethodByEveryToken) {
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  const absl::Time later = absl::Now() + absl::Hours(1);
  const auto create = [&](const std::string& name, v1::Role role, absl::Time end) {
    const std::string token = NewToken(name);
    v1::SetRoleBindingRequest bind = ToBind(absl::StrCat(kTokenIdentity, name), role, end);
    bind.mutable_role_binding()->set_token_sha256(TokenHash(token));
    if (role >= v1::TENANT) bind.mutable_role_binding()->add_tenants("tenants/default");
    EXPECT_EQ(Ask(operator_, "AccessService/SetRoleBinding", bind), "") << name;
    return token;
  };
  const std::string admin = create("admin", v1::ADMIN, later);
  const std::string viewer = create("viewer", v1::VIEWER, later);
  const std::string gone = create("gone", v1::ADMIN, later);
  ASSERT_EQ(Unbind("cxlpool://token/gone"), "");
  const std::string again = create("again", v1::ADMIN, later);
  ASSERT_EQ(Unbind("cxlpool://token/again"), "");
  create("again", v1::VIEWER, later);
  const std::string revoked = create("revoked", v1::ADMIN, later);
  ASSERT_EQ(Revoke("cxlpool://token/revoked"), "");
  const std::string lower = create("lower", v1::ADMIN, later);
  ASSERT_EQ(Bind("cxlpool://token/lower", v1::VIEWER, later), "") << "it keeps its text";
  const auto ended = ChannelWith(create("ended", v1::ADMIN, absl::Now() + absl::Seconds(2)));
  ASSERT_TRUE(Within(absl::Seconds(20), [&] {
    return Ask(ended, "AccessService/GetSelf", v1::GetSelfRequest()) == "BAD_TOKEN";
  })) << "it ends by itself";
  const Pair alice = Leaf("cxlpool://operator/alice");
  TryAll({
      {"a token of an admin", Kind::kAdmin, ChannelWith(admin)},
      {"of an operator", Kind::kOperator, ChannelWith(create("op", v1::OPERATOR, later))},
      {"of a viewer", Kind::kViewer, ChannelWith(viewer)},
      {"of a tenant", Kind::kTenant, ChannelWith(create("tenant", v1::TENANT, later))},
      {"of a scheduler", Kind::kTenant, ChannelWith(create("batch", v1::SCHEDULER, later))},
      {"one whose role was changed", Kind::kViewer, ChannelWith(lower)},
      {"one that was taken back", Kind::kBadToken, ChannelWith(gone)},
      {"one whose identity is revoked", Kind::kRevoked, ChannelWith(revoked)},
      {"the same beside an admin's certificate", Kind::kRevoked, ChannelWith(revoked, alice)},
      {"one of a name that another has now", Kind::kBadToken, ChannelWith(again)},
      {"one that has ended", Kind::kBadToken, ended},
      {"one that nobody made", Kind::kBadToken, ChannelWith(NewToken("viewer"))},
      {"one of a name that there is not", Kind::kBadToken, ChannelWith(NewToken("nobody"))},
      {"a name alone", Kind::kBadToken, ChannelWith("cxlpool.viewer.")},
      {"no token and no certificate", Kind::kNoIdentity, ChannelWith("")},
      {"an admin's certificate where tokens are taken", Kind::kAdmin, ChannelWith("", alice)},
      {"an admin's certificate and a token", Kind::kViewer, ChannelWith(viewer, alice)},
      {"a token with an admin's certificate elsewhere", Kind::kViewer,
       Channel(address_, alice, viewer)},
      {"an admin's certificate and a bad token", Kind::kBadToken, ChannelWith(gone, alice)},
      {"a host's certificate and a token", Kind::kViewer,
       ChannelWith(viewer, Leaf("cxlpool://host/host-a"))},
      {"a certificate of a token's name", Kind::kStranger, ChannelOf("cxlpool://token/admin")},
      {"another authority's certificate", Kind::kNobody,
       ChannelWith("", Leaf("cxlpool://operator/alice", {.issuer = &other_authority_}))},
  });
}

// Whatever the connection has besides, and also for what stands.
TEST_F(RightsTest, ATokenWhoseIdentityIsRevokedIsRefused) {
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  const std::string token = NewToken("leaked");
  v1::SetRoleBindingRequest make =
      ToBind("cxlpool://token/leaked", v1::VIEWER, absl::Now() + absl::Hours(1));
  make.mutable_role_binding()->set_token_sha256(TokenHash(token));
  ASSERT_EQ(Ask(operator_, "AccessService/SetRoleBinding", make), "");
  const auto bare = ChannelWith(token);
  const auto beside = Channel(address_, Leaf("cxlpool://operator/alice"), token);
  RawCall watch(bare, "/cxlpool.v1.PoolService/WatchRegions");
  watch.Send("", true);
  watch.Skip();
  const v1::GetSelfRequest who;
  ASSERT_EQ(Ask(bare, "AccessService/GetSelf", who), "");
  ASSERT_EQ(Revoke("cxlpool://token/leaked"), "");
  EXPECT_EQ(Ask(bare, "AccessService/GetSelf", who), "CERTIFICATE_REVOKED");
  EXPECT_EQ(Ask(beside, "AccessService/GetSelf", who), "CERTIFICATE_REVOKED");
  v1::WatchRegionsResponse response;
  while (watch.Read(&response)) {
  }
  EXPECT_EQ(watch.End().code(), absl::StatusCode::kCancelled);
}

TEST_F(RightsTest, TokensAreMadeWithATextAndAnEnd) {
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  const absl::Time later = absl::Now() + absl::Hours(1);
  const auto make = [&](const std::string& identity, const std::string& hash, absl::Time end) {
    v1::SetRoleBindingRequest bind = ToBind(identity, v1::VIEWER, end);
    bind.mutable_role_binding()->set_token_sha256(hash);
    return Ask(operator_, "AccessService/SetRoleBinding", bind);
  };
  const std::string hash = TokenHash("a"), other = TokenHash("b");
  EXPECT_EQ(make("cxlpool://token/ci", "", later), "UNKNOWN_TOKEN");
  EXPECT_EQ(make("cxlpool://token/ci", hash.substr(1), later), "BAD_TOKEN_HASH");
  EXPECT_EQ(make("cxlpool://operator/ci", hash, later), "BAD_TOKEN_HASH");
  EXPECT_EQ(make("cxlpool://token/C I", hash, later), "BAD_IDENTITY");
  EXPECT_EQ(make("cxlpool://token/ci", hash, absl::InfiniteFuture()), "BAD_TIME");
  EXPECT_EQ(make("cxlpool://token/ci", hash, later + absl::Hours(24 * 367)), "BAD_TIME");
  EXPECT_EQ(make("cxlpool://token/ci", hash, later), "");
  EXPECT_EQ(make("cxlpool://token/ci", hash, later), "");  // Sent again.
  EXPECT_EQ(make("cxlpool://token/ci", other, later), "TOKEN_EXISTS");
}

// A watch that stands when its caller's role goes, or ends, does not stand on.
TEST_F(RightsTest, WhatNobodyMayDoAnyMoreEndsAtOnce) {
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  const auto watch_by = [&](const std::shared_ptr<grpc::Channel>& channel) {
    auto call = std::make_unique<RawCall>(channel, "/cxlpool.v1.PoolService/WatchRegions",
                                          std::chrono::seconds(60));
    call->Send("", true);
    call->Skip();
    return call;
  };
  const auto watch = [&](const std::string& name) {
    return watch_by(ChannelOf("cxlpool://operator/" + name));
  };
  const std::string token = NewToken("ci");
  v1::SetRoleBindingRequest make =
      ToBind("cxlpool://token/ci", v1::VIEWER, absl::Now() + absl::Hours(1));
  make.mutable_role_binding()->set_token_sha256(TokenHash(token));
  ASSERT_EQ(Ask(operator_, "AccessService/SetRoleBinding", make), "");
  const auto by_token = watch_by(ChannelWith(token));
  ASSERT_EQ(Bind("cxlpool://operator/gone", v1::VIEWER), "");
  ASSERT_EQ(Bind("cxlpool://operator/ends", v1::VIEWER, absl::Now() + absl::Seconds(3)), "");
  const auto gone = watch("gone"), ends = watch("ends");
  const absl::Time began = absl::Now();
  ASSERT_EQ(Unbind("cxlpool://operator/gone"), "");
  ASSERT_EQ(Unbind("cxlpool://token/ci"), "");
  for (RawCall* call : {gone.get(), by_token.get(), ends.get()}) {
    v1::WatchRegionsResponse response;
    while (call->Read(&response)) {
    }
    EXPECT_EQ(call->End().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_LT(absl::Now() - began, absl::Seconds(30));
}

// fm.toml's admins get in when nobody else does; an operator does not make himself one.
TEST_F(RightsTest, RolesAreGivenByAdminsOnly) {
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  ASSERT_EQ(Bind("cxlpool://operator/bob", v1::OPERATOR), "");
  const auto bob = ChannelOf("cxlpool://operator/bob"),
             breakglass = ChannelOf("cxlpool://operator/breakglass");
  EXPECT_EQ(Ask(bob, "AccessService/SetRoleBinding", ToBind("cxlpool://operator/bob", v1::ADMIN)),
            "ROLE_NOT_ALLOWED");
  EXPECT_EQ(Ask(breakglass, "AccessService/SetRoleBinding",
                ToBind("cxlpool://operator/carol", v1::ADMIN)),
            "");
  MakeHostsUsable();
  ASSERT_EQ(AllocateOn("kv", "hosts/host-a"), "");
  v1::ReleaseRegionRequest release;
  release.set_request_id(NewId());
  release.set_name("regions/kv");
  release.set_force(true);
  release.set_reason("it hangs");
  EXPECT_EQ(Ask(bob, "PoolService/ReleaseRegion", release), "ROLE_NOT_ALLOWED");
  EXPECT_EQ(Unbind("cxlpool://operator/carol"), "");
  EXPECT_EQ(Unbind("cxlpool://operator/alice"), "LAST_ADMIN");
}

// By a reload: nobody waits for a restart to be let in, or goes on with what he lost.
TEST_F(RightsTest, TheFixedAdminsChangeWhileItServes) {
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  const auto dave = ChannelOf("cxlpool://operator/dave"),
             breakglass = ChannelOf("cxlpool://operator/breakglass");
  const v1::ListRoleBindingsRequest list;
  EXPECT_EQ(Ask(dave, "AccessService/ListRoleBindings", list), "NO_ROLE");
  EXPECT_EQ(Ask(breakglass, "AccessService/ListRoleBindings", list), "");
  RawCall watch(breakglass, "/cxlpool.v1.PoolService/WatchRegions");
  watch.Send(v1::WatchRegionsRequest().SerializeAsString(), true);
  v1::WatchRegionsResponse response;
  ASSERT_TRUE(watch.Read(&response));
  rig_.server->SetAdmins({"cxlpool://operator/dave"});
  EXPECT_EQ(Ask(dave, "AccessService/ListRoleBindings", list), "");
  EXPECT_EQ(Ask(breakglass, "AccessService/ListRoleBindings", list), "NO_ROLE");
  while (watch.Read(&response)) {
  }
  EXPECT_EQ(watch.End().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace cxlpool::fm
