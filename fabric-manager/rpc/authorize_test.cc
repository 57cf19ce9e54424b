#include "fabric-manager/rpc/authorize.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

std::vector<std::string> PathsOf(const google::protobuf::FileDescriptor* file) {
  std::vector<std::string> paths;
  for (int s = 0; s < file->service_count(); ++s) {
    const auto* service = file->service(s);
    for (int m = 0; m < service->method_count(); ++m) {
      paths.push_back(absl::StrCat("/", service->full_name(), "/", service->method(m)->name()));
    }
  }
  return paths;
}

const std::set<std::string> kForHosts = {
    "/cxlpool.v1.PoolService/AllocateRegion", "/cxlpool.v1.PoolService/RenewRegion",
    "/cxlpool.v1.PoolService/ReleaseRegion",  "/cxlpool.v1.PoolService/GetRegion",
    "/cxlpool.v1.PoolService/ListRegions",    "/cxlpool.v1.PoolService/ListRegionHolders",
    "/cxlpool.v1.PoolService/WatchRegions"};

// Every RPC there is has a rule, and it is the one that the .proto promises.
TEST(AuthorizeTest, EachRoleMayCallWhatItsRuleSays) {
  int methods = 0;
  for (const auto* file :
       {v1::GetRegionRequest::descriptor()->file(), v1::ListHostsRequest::descriptor()->file()}) {
    for (const std::string& path : PathsOf(file)) {
      ++methods;
      EXPECT_TRUE(MayCall(Role::kOperator, path)) << path << " has no rule";
      EXPECT_EQ(MayCall(Role::kHost, path), kForHosts.contains(path)) << path;
      EXPECT_EQ(MayCall(Role::kOther, path), kForHosts.contains(path)) << path;
      EXPECT_FALSE(MayCall(Role::kManager, path)) << path;
    }
  }
  EXPECT_GT(methods, 25);
  for (const std::string& path : PathsOf(v1::Hello::descriptor()->file())) {
    EXPECT_TRUE(MayCall(Role::kHost, path)) << path << " has no rule";
    EXPECT_TRUE(MayCall(Role::kOther, path)) << path;
    EXPECT_FALSE(MayCall(Role::kOperator, path)) << path;
    EXPECT_FALSE(MayCall(Role::kManager, path)) << path;
  }
  for (const Role role : {Role::kOperator, Role::kHost, Role::kManager, Role::kOther}) {
    EXPECT_FALSE(MayCall(role, "MadeUp"));
    EXPECT_FALSE(MayCall(role, "AllocateRegion"));
    EXPECT_FALSE(MayCall(role, "/cxlpool.v1.OtherService/AllocateRegion"));
    EXPECT_FALSE(MayCall(role, ""));
  }
}

TEST(AuthorizeTest, ACallerActsForItselfAlone) {
  const Caller host = CallerOf(ParseIdentity("cxlpool://host/host-a"), "host-a", false);
  EXPECT_TRUE(host.is_host());
  EXPECT_FALSE(host.for_pool());
  EXPECT_EQ(host.host(), "host-a");
  EXPECT_TRUE(host.knows_users_of("host-a"));
  EXPECT_FALSE(host.knows_users_of("host-b"));
  EXPECT_FALSE(host.knows_users_of(""));
  const Caller person = CallerOf(ParseIdentity("cxlpool://operator/alice"), "", false);
  EXPECT_TRUE(person.for_pool());
  EXPECT_FALSE(person.knows_users_of("host-a"));
  const Caller local = CallerOf({}, "", true);
  EXPECT_TRUE(local.for_pool());
  EXPECT_TRUE(local.knows_users_of("host-a")) << "any host that it claims to be";
  for (const char* uri : {"cxlpool://host/host-a", "cxlpool://manager/fm", "spiffe://rack/a", ""}) {
    EXPECT_TRUE(CallerOf(ParseIdentity(uri), "", false).is_nobody()) << uri;
  }
}

}  // namespace
}  // namespace cxlpool::fm
