#include "tools/dra/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/sysmacros.h>

namespace cxlpool::dra {
namespace {

using ::testing::HasSubstr;

constexpr char kClaimUid[] = "0f8fad5b-d9cb-469f-a165-70867728950e";
constexpr char kClaimRegion[] = "k8s-0f8fad5b-d9cb-469f-a165-70867728950e";

TEST(ClaimTest, ARegionIsNamedAfterTheUid) {
  EXPECT_EQ(*RegionOfClaim(kClaimUid), kClaimRegion);
  EXPECT_EQ(*RegionOfClaim(std::string(59, 'a')), "k8s-" + std::string(59, 'a'));
}

TEST(ClaimTest, UidsThatLeadElsewhereAreRefused) {
  for (const std::string& uid :
       {std::string(), std::string("../../etc/passwd"), std::string("a/b"), std::string("A"),
        std::string("a."), std::string("a\n"), std::string("a-"), std::string(60, 'a')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(RegionOfClaim(uid).status())) << uid;
  }
}

TEST(ClaimTest, FilesOfTheFolderAreToldApart) {
  EXPECT_EQ(CdiFileName(kClaimRegion), "cxlpool.dev-region_" + std::string(kClaimRegion) + ".json");
  EXPECT_EQ(RegionOfCdiFile(CdiFileName(kClaimRegion)), kClaimRegion);
  for (const char* name :
       {"nvidia.json", "cxlpool.dev-region_k8s-a.json.new", "cxlpool.dev-region_a.json",
        "cxlpool.dev-region_k8s-.json", "cxlpool.dev-region_k8s-A.json", "k8s-a.json"}) {
    EXPECT_EQ(RegionOfCdiFile(name), std::nullopt) << name;
  }
}

TEST(ClaimTest, ADeviceIsKnownByItsNumber) {
  struct stat stat = {};
  stat.st_mode = S_IFCHR | 0600;
  stat.st_rdev = makedev(252, 300);
  const Extent extent = {.offset_bytes = 0, .length_bytes = 2 << 20};
  const auto device = DeviceOf(extent, stat, "/dev/dax1.0", false);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(CdiText("k8s-a", *device), R"({
  "cdiVersion": "0.3.0",
  "kind": "cxlpool.dev/region",
  "devices": [{
    "name": "k8s-a",
    "containerEdits": {
      "env": ["CXLPOOL_PATH=/dev/cxlpool/k8s-a", "CXLPOOL_SIZE_BYTES=2097152"],
      "deviceNodes": [{"path": "/dev/cxlpool/k8s-a", "type": "c", "major": 252, "minor": 300, "fileMode": 438, "permissions": "rw"}]
    }
  }]
}
)");
}

TEST(ClaimTest, WhatIsReadOnlyIsReadOnlyInTheContainer) {
  EXPECT_THAT(CdiText("k8s-a", {.major = 252, .minor = 3, .read_only = true}),
              HasSubstr(R"("fileMode": 292, "permissions": "r"})"));
  EXPECT_THAT(CdiText("k8s-a", {.file = "/pool/e1", .read_only = true}),
              HasSubstr(R"("mounts": [{"hostPath": "/pool/e1", "containerPath": )"
                        R"("/dev/cxlpool/k8s-a", "options": ["bind", "ro"]}])"));
}

TEST(ClaimTest, AFileIsMountedOnlyIfAllOfItIsTheRegion) {
  struct stat stat = {};
  stat.st_mode = S_IFREG | 0600;
  stat.st_size = 4096;
  EXPECT_EQ(DeviceOf({.length_bytes = 4096}, stat, "/pool/e1", false)->file, "/pool/e1");
  const auto refused = [&](const Extent& extent, const char* path) {
    return absl::IsFailedPrecondition(DeviceOf(extent, stat, path, false).status());
  };
  EXPECT_TRUE(refused({.offset_bytes = 4096, .length_bytes = 4096}, "/pool/all"));
  EXPECT_TRUE(refused({.length_bytes = 2048}, "/pool/all"));
  EXPECT_TRUE(refused({.length_bytes = 4096}, "/po\"ol"));
  stat.st_mode = S_IFDIR;
  EXPECT_TRUE(refused({.length_bytes = 4096}, "/pool"));
}

TEST(ClaimTest, WhatMayPassIsToldApartAndSaysWhatToDo) {
  const auto not_attached = WhyNot("k8s-a", {.code = CXLPOOL_NOT_FOUND,
                                             .reason = "NOT_ATTACHED",
                                             .message = "regions/k8s-a is not attached",
                                             .remedy = "attach it"});
  EXPECT_TRUE(MayPass(not_attached) && absl::IsNotFound(not_attached));
  EXPECT_THAT(std::string(not_attached.message()),
              HasSubstr("`cxlpool region allocate k8s-a --size SIZE --max-extents 1 --host HOST`"));
  const auto away = WhyNot("k8s-a", {.code = CXLPOOL_UNAVAILABLE,
                                     .reason = "AGENT_NOT_RUNNING",
                                     .message = "nothing listens",
                                     .remedy = "start it"});
  EXPECT_TRUE(absl::IsUnavailable(away));
  EXPECT_EQ(away.message(), "nothing listens (start it) [AGENT_NOT_RUNNING]");
  EXPECT_THAT(
      std::string(
          WhyNot("k8s-a", {.code = CXLPOOL_UNAVAILABLE, .reason = "NOT_ONLINE_YET"}).message()),
      HasSubstr("cxlpool explain region/k8s-a"));
  EXPECT_FALSE(MayPass(
      WhyNot("k8s-a", {.code = CXLPOOL_FAILED_PRECONDITION, .reason = "REGION_RELEASING"})));
}

}  // namespace
}  // namespace cxlpool::dra
