#include "host-agent/service/reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_join.h"
#include "proto/support/refusal.h"
#include "test/rigs/each_field_fixture.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

absl::Status BlocksBusy(std::string blocks) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "BLOCKS_BUSY", "blocks stay online",
                "end the programs",
                {{"cause", "timeout"}, {"blocks", std::move(blocks)}, {"zone", "Normal"}});
}

TEST(ReportsTest, AnErrorNamesTheBlocksThatStayOnline) {
  const v1::SegmentError error = ErrorOf(BlocksBusy("34,35"));
  EXPECT_EQ(error.reason(), "BLOCKS_BUSY");
  EXPECT_EQ(error.message(), "blocks stay online (end the programs)");
  EXPECT_THAT(error.blocks(), ElementsAre(34, 35));
  EXPECT_EQ(error.zone(), "Normal");
  EXPECT_EQ(error.cause(), "timeout");
  EXPECT_FALSE(error.permanent());
}

TEST(ReportsTest, AnErrorNamesWhoUsesTheMemory) {
  const v1::SegmentError error = ErrorOf(Refuse(absl::StatusCode::kFailedPrecondition,
                                                "BLOCKS_BUSY", "", "", {{"pids", "17,4711,x"}}));
  EXPECT_THAT(error.holder_pids(), ElementsAre(17, 4711));
}

TEST(ReportsTest, AnErrorNamesNoMoreBlocksThanItMay) {
  std::vector<uint64_t> blocks(100);
  std::iota(blocks.begin(), blocks.end(), 1000);
  const v1::SegmentError error = ErrorOf(BlocksBusy(absl::StrJoin(blocks, ",")));
  ASSERT_EQ(error.blocks_size(), kMaxReportedBlocks);
  EXPECT_EQ(error.blocks(kMaxReportedBlocks - 1), 1031u);
}

TEST(ReportsTest, AnErrorWithoutDetailsHasNone) {
  EXPECT_THAT(ErrorOf(BlocksBusy("")).blocks(), IsEmpty());
  const v1::SegmentError error = ErrorOf(absl::InvalidArgumentError("no"));
  EXPECT_EQ(error.reason(), "INVALID_ARGUMENT");
  EXPECT_EQ(error.cause(), "");
  EXPECT_TRUE(error.permanent());
}

// --- Every field is carried.

TEST(ReportsTest, EveryWordOfWhatIsSeenIsInTheInventory) {
  HostObservation host;
  const auto& [bridges, memdevs, regions, memory_block, region_granule, spare, own_nodes] = host;
  host.memory_block_bytes = 101;
  host.region_granule_bytes = 102;
  host.page_struct_spare_bytes = 103;
  host.bridges.resize(1);
  {
    auto& [name, slots, max_regions, depth_unknown, live_regions, blocked, blocking_serial,
           window_bytes, free_window_bytes, any_order] = host.bridges.front();
    name = "ACPI0016:00";
    slots = {3, 4};
    max_regions = 104;
    depth_unknown = true;
    live_regions = 105;
    blocked = true;
    blocking_serial = 106;
    window_bytes = 107;
    free_window_bytes = 108;
    any_order = true;
  }
  const v1::HostInventory sent = InventoryOf(host, absl::FailedPreconditionError("no DAX"));
  EXPECT_THAT(FieldsNotSet(sent), IsEmpty()) << "set it in InventoryOf";
  EXPECT_EQ(sent.memory_block_bytes(), memory_block);
  EXPECT_EQ(sent.region_granule_bytes(), region_granule);
  EXPECT_EQ(sent.page_struct_spare_bytes(), spare);
  EXPECT_EQ(sent.unfit_reason(), "no DAX");
  const v1::BridgeInventory& bridge = sent.bridges(0);
  EXPECT_EQ(bridge.name(), "ACPI0016:00");
  EXPECT_THAT(bridge.slots(), ElementsAre(3, 4));
  EXPECT_EQ(bridge.max_regions(), 104u);
  EXPECT_EQ(bridge.live_regions(), 105u);
  EXPECT_EQ(bridge.blocking_serial(), 106u);
  EXPECT_EQ(bridge.window_bytes(), 107u);
  EXPECT_EQ(bridge.free_window_bytes(), 108u);
}

// The manager takes 4 MiB, and 131,072 elements: a number in a list is one for each of its bytes.
TEST(ReportsTest, AThousandSegmentsThatCannotGoFitIntoOneMessage) {
  SegmentStatus status;
  v1::SegmentError why;
  why.set_reason("HOLDERS");
  why.set_message(std::string(100'000, 'x'));
  for (uint32_t i = 0; i < kMaxReportedHolders; ++i) {
    why.add_holder_pids(4'000'000 + i);
    why.add_holder_starts(uint64_t{1} << 40);
    why.add_blocks(uint64_t{1} << 40);
  }
  status.error = SegmentStatus::Error{why};
  v1::Hello hello;
  size_t numbers = 0;
  for (uint64_t i = 1; i <= 1024; ++i) {
    status.serial = i;
    AddReport(status, 1, hello.mutable_segments());
    const v1::SegmentError& sent = hello.segments().rbegin()->error();
    EXPECT_EQ(sent.message().size(), kMaxErrorText);
    numbers += static_cast<size_t>(sent.holder_pids_size() + sent.holder_starts_size() +
                                   sent.blocks_size());
  }
  EXPECT_LT(hello.ByteSizeLong(), size_t{2} << 20);
  EXPECT_LT(numbers * 6, 80'000u);
  EXPECT_EQ(hello.segments(0).error().holder_pids_size(), static_cast<int>(kMaxReportedHolders));
  EXPECT_EQ(hello.segments(1023).error().holder_pids_size(), 0);
  EXPECT_EQ(hello.segments(1023).error().reason(), "HOLDERS");
}

TEST(ReportsTest, EveryWordOfASegmentsStatusIsInItsReport) {
  SegmentStatus status;
  auto& [key, serial, others, state, extent_index, slot, host_bridge, memdev, host_region,
         dax_device, numa_node, hpa_bytes, online_blocks, total_blocks, error, is_open] = status;
  key = {.generation = 201, .tag = "tag-1"};
  serial = 202;
  others = {203};
  state = v1::SEGMENT_ONLINE;
  slot = 204;
  host_bridge = "ACPI0016:00";
  extent_index = 205;
  memdev = "mem3";
  host_region = "region2";
  dax_device = "dax2.0";
  numa_node = 5;
  hpa_bytes = 206;
  online_blocks = 207;
  total_blocks = 208;
  v1::SegmentError why;
  FillAll(why);
  error = SegmentStatus::Error{why};
  is_open = true;
  v1::SegmentReport sent;
  FillReport(status, 209, sent);
  EXPECT_THAT(FieldsNotSet(sent), IsEmpty()) << "set it in FillReport";
  EXPECT_EQ(sent.region_tag(), "tag-1");
  EXPECT_EQ(sent.attachment_generation(), 201u);
  EXPECT_EQ(sent.serial(), 202u);
  EXPECT_EQ(sent.opens(), 209u);
  EXPECT_EQ(sent.error().SerializeAsString(), why.SerializeAsString());
  const v1::Segment& segment = sent.segment();
  EXPECT_EQ(segment.serial(), 202u);
  EXPECT_EQ(segment.slot(), 204u);
  EXPECT_EQ(segment.extent_index(), 205u);
  EXPECT_EQ(segment.hpa_bytes(), 206u);
  EXPECT_EQ(segment.online_blocks(), 207u);
  EXPECT_EQ(segment.total_blocks(), 208u);
  EXPECT_EQ(segment.host_bridge(), "ACPI0016:00");
  EXPECT_EQ(segment.memdev(), "mem3");
  EXPECT_EQ(segment.host_region(), "region2");
  EXPECT_EQ(segment.dax_device(), "dax2.0");
  EXPECT_EQ(segment.numa_node(), 5);
}

}  // namespace
}  // namespace cxlpool::agent
