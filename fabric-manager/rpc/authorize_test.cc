#include "fabric-manager/rpc/authorize.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::fm {
namespace {

// What each method is for, written down a second time: a slip in a .proto gives rights away.
const std::set<std::string> kForHosts = {
    "AllocateRegion",    "RenewRegion",  "ReleaseRegion", "GetRegion",    "ListRegions",
    "ListRegionHolders", "WatchRegions", "Session",       "CheckSession", "GetSelf"};
const std::set<std::string> kForAdmins = {"FenceHost",    "FailDevice",        "SetTenant",
                                          "RemoveTenant", "RevokeCertificate", "RestoreCertificate",
                                          "Backup",       "SetRoleBinding",    "RemoveRoleBinding"};
const std::set<std::string> kForOperators = {
    "AllocateRegion",      "BatchAllocateRegions", "RenewRegion",  "ReleaseRegion", "AttachRegion",
    "BatchReleaseRegions", "DetachRegion",         "ResizeRegion", "RenameRegion",  "AddHost",
    "EnrolHost",           "RetireHost",           "RemoveHost",   "ApplyTopology", "AddDevice",
    "DiscoverDevices",     "DrainDevice",          "RemoveDevice"};

TEST(AuthorizeTest, EachMethodMayBeCalledByThoseThatItIsFor) {
  int methods = 0;
  for (const auto* file :
       {v1::GetRegionRequest::descriptor()->file(), v1::ListHostsRequest::descriptor()->file(),
        v1::RoleBinding::descriptor()->file(), v1::Hello::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        ++methods;
        const std::string name = file->service(s)->method(m)->name();
        const std::string path = absl::StrCat("/", file->service(s)->full_name(), "/", name);
        const bool users = name != "Session" && name != "CheckSession";
        EXPECT_EQ(MayHostCall(path), kForHosts.contains(name)) << path;
        EXPECT_EQ(MayCall(PoolRole::kAdmin, path), users) << path;
        EXPECT_EQ(MayCall(PoolRole::kOperator, path), users && !kForAdmins.contains(name)) << path;
        EXPECT_EQ(MayCall(PoolRole::kViewer, path),
                  users && !kForAdmins.contains(name) && !kForOperators.contains(name))
            << path;
      }
    }
  }
  EXPECT_GT(methods, 40);
}

TEST(AuthorizeTest, AMethodWithoutARuleIsNobodys) {
  for (const char* path : {"MadeUp", "AllocateRegion", "/cxlpool.v1.OtherService/AllocateRegion",
                           "/cxlpool.v1.PoolService/FoldRegion", ""}) {
    EXPECT_FALSE(MayHostCall(path)) << path;
    for (const PoolRole role : {PoolRole::kViewer, PoolRole::kOperator, PoolRole::kAdmin,
                                PoolRole::kTenant, PoolRole::kScheduler}) {
      EXPECT_FALSE(MayCall(role, path)) << path;
    }
  }
}

TEST(CallerTest, ActsForItselfAlone) {
  const Caller host = Caller::OfHost("host-a", "cxlpool://host/host-a");
  EXPECT_TRUE(host.is_host());
  EXPECT_FALSE(host.for_pool());
  EXPECT_EQ(host.host(), "host-a");
  EXPECT_TRUE(host.knows_users_of("host-a"));
  EXPECT_FALSE(host.knows_users_of("host-b"));
  EXPECT_FALSE(host.knows_users_of(""));
  const Caller person = Caller::User("cxlpool://operator/alice", PoolRole::kViewer);
  EXPECT_TRUE(person.for_pool());
  EXPECT_FALSE(person.knows_users_of("host-a"));
  const Caller tenant = Caller::User("cxlpool://operator/bob", PoolRole::kTenant, {"db", "ml"});
  EXPECT_FALSE(tenant.for_pool());
  EXPECT_TRUE(tenant.for_tenants());
  EXPECT_TRUE(tenant.HasTenant("ml"));
  EXPECT_FALSE(tenant.HasTenant("m"));
  EXPECT_FALSE(tenant.HasTenant(""));
  EXPECT_FALSE(tenant.knows_users_of("host-a"));
  const Caller local = Caller::Local("cxlpool://operator/local");
  EXPECT_TRUE(local.for_pool());
  EXPECT_TRUE(local.Has(Right::kAdminister));
  EXPECT_TRUE(local.knows_users_of("host-a")) << "any host that it claims to be";
  for (const Right right :
       {Right::kUseMemory, Right::kMoveMemory, Right::kRunPool, Right::kAdminister}) {
    EXPECT_FALSE(Caller().Has(right));
    EXPECT_EQ(host.Has(right), right == Right::kUseMemory);
  }
}

}  // namespace
}  // namespace cxlpool::fm
