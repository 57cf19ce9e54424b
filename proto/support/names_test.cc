#include "proto/support/names.h"

#include <gtest/gtest.h>

#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

TEST(NamesTest, AcceptsWellFormedIds) {
  for (const char* id : {"a", "kv-cache", "r-0a1", "host-a"}) EXPECT_TRUE(CheckResourceId(id).ok());
  EXPECT_TRUE(CheckResourceId(std::string(63, 'a')).ok());
}

TEST(NamesTest, RefusesOthersAndSaysTheRule) {
  for (const char* id : {"", "A", "1a", "-a", "a-", "a_b", "a/b", "a.b", "caf\xc3\xa9"}) {
    EXPECT_EQ(ReasonOf(CheckResourceId(id)), "BAD_NAME") << id;
  }
  EXPECT_EQ(ReasonOf(CheckResourceId(std::string(64, 'a'))), "BAD_NAME");
  const absl::Status status = CheckResourceId(std::string(1000, '\x01'));
  EXPECT_LT(status.message().size(), 600u);
}

TEST(NamesTest, ARegionsNameMayBeginWithItsTenant) {
  for (const char* good : {"kv", "ml.kv-cache", "a.b"})
    EXPECT_TRUE(CheckRegionId(good).ok()) << good;
  for (const char* bad : {".kv", "ml.", "ml..kv", "ml.kv.x", "Ml.kv", "ml-.kv", "ml.-kv", "ml.7"}) {
    EXPECT_EQ(ReasonOf(CheckRegionId(bad)), "BAD_NAME") << bad;
  }
  EXPECT_TRUE(CheckRegionId("ml." + std::string(60, 'a')).ok());
  EXPECT_FALSE(CheckRegionId("ml." + std::string(61, 'a')).ok());
  EXPECT_FALSE(CheckResourceId("ml.kv").ok());
  EXPECT_EQ(ParseResourceName("regions", "regions/ml.kv").value(), "ml.kv");
  EXPECT_FALSE(ParseResourceName("hosts", "hosts/ml.kv").ok());
  EXPECT_EQ(TenantOfRegionId("ml.kv"), "ml");
  EXPECT_EQ(TenantOfRegionId("kv"), "");
}

TEST(NamesTest, ParsesWithinACollection) {
  EXPECT_EQ(ParseResourceName("hosts", "hosts/host-a").value(), "host-a");
  EXPECT_FALSE(ParseResourceName("hosts", "regions/host-a").ok());
  EXPECT_FALSE(ParseResourceName("hosts", "host-a").ok());
  EXPECT_TRUE(ParseResourceName("regions", "regions/0f8fad5b-d9cb-469f-a165-70867728950e").ok());
  EXPECT_EQ(ResourceName("regions", "kv"), "regions/kv");
}

TEST(NamesTest, UuidsRoundTrip) {
  const std::string bytes = RandomUuid();
  EXPECT_EQ(ParseUuid(FormatUuid(bytes)).value(), bytes);
  EXPECT_NE(RandomUuid(), bytes);
  EXPECT_EQ(ReasonOf(ParseUuid("0f8fad5b").status()), "BAD_UUID");
  EXPECT_EQ(ReasonOf(ParseUuid("0f8fad5b-d9cb-469f-a165-70867728950g").status()), "BAD_UUID");
}

}  // namespace
}  // namespace cxlpool
