#include "fabric-manager/rpc/authorize.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

std::vector<std::string> MethodsOf(const google::protobuf::FileDescriptor* file) {
  std::vector<std::string> methods;
  for (int s = 0; s < file->service_count(); ++s) {
    for (int m = 0; m < file->service(s)->method_count(); ++m) {
      methods.push_back(file->service(s)->method(m)->name());
    }
  }
  return methods;
}

const std::set<std::string> kForHosts = {"AllocateRegion", "RenewRegion", "ReleaseRegion",
                                         "GetRegion"};

// Every RPC there is has a rule, and it is the one that the .proto promises.
TEST(AuthorizeTest, EachRoleMayCallWhatItsRuleSays) {
  int methods = 0;
  for (const auto* file :
       {v1::GetRegionRequest::descriptor()->file(), v1::ListHostsRequest::descriptor()->file()}) {
    for (const std::string& method : MethodsOf(file)) {
      ++methods;
      EXPECT_TRUE(MayCall(Role::kOperator, method)) << method << " has no rule";
      EXPECT_EQ(MayCall(Role::kHost, method), kForHosts.contains(method)) << method;
      EXPECT_EQ(MayCall(Role::kOther, method), kForHosts.contains(method)) << method;
      EXPECT_FALSE(MayCall(Role::kManager, method)) << method;
    }
  }
  EXPECT_GT(methods, 25);
  for (const std::string& method : MethodsOf(v1::Hello::descriptor()->file())) {
    EXPECT_TRUE(MayCall(Role::kHost, method)) << method << " has no rule";
    EXPECT_TRUE(MayCall(Role::kOther, method)) << method;
    EXPECT_FALSE(MayCall(Role::kOperator, method)) << method;
    EXPECT_FALSE(MayCall(Role::kManager, method)) << method;
  }
  for (const Role role : {Role::kOperator, Role::kHost, Role::kManager, Role::kOther}) {
    EXPECT_FALSE(MayCall(role, "MadeUp"));
    EXPECT_FALSE(MayCall(role, ""));
  }
}

TEST(AuthorizeTest, AHostNamesOwnersOfItsOwnRegionsAlone) {
  const Caller host{ParseIdentity("cxlpool://host/host-a"), false};
  const Caller person{ParseIdentity("cxlpool://operator/alice"), false};
  const Caller local{{}, true};
  EXPECT_TRUE(CheckOwner(host, "host-a", "host-a").ok());
  EXPECT_TRUE(CheckOwner(local, "", "host-a").ok());  // Any host it claims to be.
  for (const absl::Status& refused :
       {CheckOwner(host, "host-a", "host-b"), CheckOwner(host, "host-a", ""),
        CheckOwner(person, "", "host-a"), CheckOwner(person, "", "")}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(ReasonOf(refused), "OWNER_NOT_YOURS");
  }
}

}  // namespace
}  // namespace cxlpool::fm
