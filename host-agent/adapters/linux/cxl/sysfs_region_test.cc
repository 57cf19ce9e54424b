#include "host-agent/adapters/linux/cxl/sysfs_region.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

using testing::HasSubstr;

const std::string kDevices = "sys/bus/cxl/devices/";
const std::string kBind = "sys/bus/cxl/drivers/cxl_region/bind";
const std::string kUnbind = "sys/bus/cxl/drivers/cxl_region/unbind";

// Two memdevs with two decoders each, and the files that the kernel gives a new region. Files keep
// what is written to them; they do nothing.
struct FakeRegions : FakeHost {
  FakeRegions() {
    Put(kDevices + "decoder0.0/create_ram_region", "region7\n");
    Put(kDevices + "decoder0.0/delete_region", "");
    Put(kBind, "");
    Put(kUnbind, "");
    for (const char* file :
         {"interleave_granularity", "interleave_ways", "size", "commit", "target0", "target1"}) {
      Put(kDevices + "region7/" + file, "");
    }
    Link(kDevices + "region7/driver", "sys/bus/cxl/drivers/cxl_region");
    for (const int endpoint : {4, 5}) {
      Put(absl::StrCat(kDevices, "endpoint", endpoint, "/uport/serial"),
          absl::StrCat("0x100", endpoint, "\n"));
      for (const int id : {0, 1}) {
        const std::string decoder = absl::StrCat(kDevices, "decoder", endpoint, ".", id);
        Put(decoder + "/region", "\n");
        Put(decoder + "/dpa_size", "0\n");
        Put(decoder + "/mode", "none\n");
      }
    }
  }
  std::string Get(const std::string& path) const { return files().Read(kDevices + path).value(); }
};

// In place of libcxl, which knows this machine's own regions alone.
absl::Status SayThatItStays(const HostFiles&, const std::string& name) {
  return absl::InternalError(name + " is still there");
}

RegionPlan Plan(const std::vector<uint64_t>& serials) {
  return {.window = "decoder0.0",
          .interleave_granularity_bytes = 256,
          .size_bytes = serials.size() << 28,
          .serials = serials};
}

// region7 as a look shows it.
CxlHostRegion Seen(std::vector<CxlRegionTarget> targets) {
  CxlHostRegion region;
  region.name = "region7";
  region.window = "decoder0.0";
  region.committed = true;
  region.targets = std::move(targets);
  return region;
}

TEST(SysfsRegionTest, ProgramsARegionOverItsMemdevsInOrder) {
  const FakeRegions host;
  ASSERT_EQ(ProgramRegion(host.files(), Plan({0x1005, 0x1004})), absl::OkStatus());
  EXPECT_EQ(host.Get("region7/interleave_granularity"), "256");
  EXPECT_EQ(host.Get("region7/interleave_ways"), "2");
  EXPECT_EQ(host.Get("region7/size"), "536870912");
  EXPECT_EQ(host.Get("region7/target0"), "decoder5.0");
  EXPECT_EQ(host.Get("region7/target1"), "decoder4.0");
  EXPECT_EQ(host.Get("region7/commit"), "1");
  EXPECT_EQ(host.Get("decoder5.0/mode"), "ram");
  EXPECT_EQ(host.Get("decoder5.0/dpa_size"), "268435456");
  EXPECT_EQ(host.Get("decoder5.1/mode"), "none");
  EXPECT_EQ(host.files().Read(kBind), "region7");
}

TEST(SysfsRegionTest, TakesTheLowestFreeDecoderAndFreesWhatAnInterruptedAttemptLeft) {
  const FakeRegions host;
  host.Put(kDevices + "decoder4.0/region", "region3\n");
  host.Put(kDevices + "decoder4.0/dpa_size", "0x10000000\n");
  host.Put(kDevices + "decoder4.1/dpa_size", "0x10000000\n");
  ASSERT_EQ(ProgramRegion(host.files(), Plan({0x1004})), absl::OkStatus());
  EXPECT_EQ(host.Get("region7/target0"), "decoder4.1");
  EXPECT_EQ(host.Get("decoder4.0/dpa_size"), "0x10000000");
}

TEST(SysfsRegionTest, AFailureNamesTheFileAndGivesTheDpaBack) {
  const FakeRegions host;
  const std::string target1 = host.Path(kDevices + "region7/target1");
  std::filesystem::remove(target1);
  const absl::Status status = ProgramRegion(host.files(), Plan({0x1004, 0x1005}), SayThatItStays);
  EXPECT_EQ(ReasonOf(status), "REGION_COMMIT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("region7/target1: No such file"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("; and region7 is still there"));
  EXPECT_EQ(host.Get("decoder4.0/dpa_size"), "0");
  EXPECT_EQ(host.Get("decoder5.0/dpa_size"), "0");
  EXPECT_THAT(std::string(ProgramRegion(host.files(), Plan({0x1009}), SayThatItStays).message()),
              HasSubstr("memdev 0x1009 has no endpoint"));
}

TEST(SysfsRegionTest, DeletingUndoesEachStep) {
  const FakeRegions host;
  ASSERT_EQ(ProgramRegion(host.files(), Plan({0x1004, 0x1005})), absl::OkStatus());
  CxlHostRegion region = Seen({{"decoder4.0", 0x1004}, {"", 0}, {"decoder5.0", 0x1005}});
  region.enabled = true;
  host.Put(kDevices + "region7/target2", "decoder5.0\n");
  host.Put(kDevices + "region7/target1", "gone\n");
  // The folder stays, which is what is complained about.
  EXPECT_EQ(DeleteRegion(host.files(), region, SayThatItStays).message(), "region7 is still there");
  EXPECT_EQ(host.files().Read(kUnbind), "region7");
  EXPECT_EQ(host.Get("region7/commit"), "0");
  EXPECT_EQ(host.Get("region7/target0"), "");
  EXPECT_EQ(host.Get("region7/target1"), "gone");
  EXPECT_EQ(host.Get("region7/target2"), "");
  EXPECT_EQ(host.Get("decoder4.0/dpa_size"), "0");
  EXPECT_EQ(host.Get("decoder5.0/dpa_size"), "0");
  EXPECT_EQ(host.Get("decoder0.0/delete_region"), "region7");
}

TEST(SysfsRegionTest, DpaIsFreedAlsoWhereTheStraightWayEnds) {
  const FakeRegions host;
  const CxlHostRegion region = Seen({{"decoder4.0", 0x1004}});
  std::filesystem::remove(host.Path(kDevices + "region7/commit"));
  host.Put(kDevices + "decoder4.0/dpa_size", "0x10000000\n");
  std::string cleared;
  const auto clean_up = [&](const HostFiles&, const std::string& name) {
    cleared = name;
    return absl::OkStatus();
  };
  EXPECT_EQ(DeleteRegion(host.files(), region, clean_up), absl::OkStatus());
  EXPECT_EQ(cleared, "region7");
  EXPECT_EQ(host.Get("decoder4.0/dpa_size"), "0");
}

}  // namespace
}  // namespace cxlpool::agent
