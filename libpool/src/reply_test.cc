#include "libpool/src/reply.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cxlpool/error.h"

namespace cxlpool::libpool {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMiB2 = 2 << 20;

// Two segments of 4 MiB, aligned to 2 MiB.
v1::LocalOpenResponse Good() {
  v1::LocalOpenResponse open;
  open.set_name("regions/kv");
  open.set_tag("0f8fad5b-d9cb-469f-a165-70867728950e");
  open.set_generation(3);
  open.set_size_bytes(4 * kMiB2);
  open.set_access(v1::READ_WRITE);
  open.set_mode(v1::DEVDAX);
  for (uint32_t i = 0; i < 2; ++i) {
    v1::LocalSegment& segment = *open.add_segments();
    segment.set_fd_index(i);
    segment.set_length_bytes(2 * kMiB2);
    segment.set_region_offset_bytes(i * 2 * kMiB2);
    segment.set_alignment_bytes(kMiB2);
  }
  return open;
}

TEST(ReplyTest, TakesAGoodOpen) {
  const auto reply = ParseOpen(Good(), 2, kPage);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->generation, 3u);
  EXPECT_EQ(reply->coherence, Coherence::kSoftware) << "what is not said is not promised";
  ASSERT_EQ(reply->segments.size(), 2u);
  EXPECT_EQ(reply->segments[1].region_offset_bytes, 2 * kMiB2);
}

TEST(ReplyTest, RefusesWhatCannotBeMapped) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const std::vector<std::function<void(v1::LocalOpenResponse&)>> edits = {
      [](auto& o) { o.set_name("kv"); },
      [](auto& o) { o.clear_tag(); },
      [](auto& o) { o.set_size_bytes(0); },
      [](auto& o) { o.set_size_bytes(kMax); },
      [](auto& o) { o.set_size_bytes(2 * kMiB2); },
      [](auto& o) { o.set_size_bytes(6 * kMiB2); },
      [](auto& o) { o.clear_access(); },
      [](auto& o) { o.set_access(static_cast<v1::Access>(77)); },
      [](auto& o) { o.clear_mode(); },
      [](auto& o) { o.clear_segments(); },
      [](auto& o) { o.mutable_segments(1)->set_fd_index(2); },
      [](auto& o) { o.mutable_segments(1)->set_fd_index(0xffffffff); },
      [](auto& o) { o.mutable_segments(1)->set_alignment_bytes(0); },
      [](auto& o) { o.mutable_segments(1)->set_alignment_bytes(2048); },
      [](auto& o) { o.mutable_segments(1)->set_alignment_bytes(3 * kPage); },
      [](auto& o) { o.mutable_segments(1)->set_alignment_bytes(uint64_t{1} << 63); },
      [](auto& o) { o.mutable_segments(1)->set_offset_bytes(kPage); },
      [](auto& o) { o.mutable_segments(1)->set_offset_bytes(kMax & ~(kMiB2 - 1)); },
      [](auto& o) { o.mutable_segments(1)->set_length_bytes(0); },
      [](auto& o) { o.mutable_segments(1)->set_length_bytes(kMax & ~(kMiB2 - 1)); },
      [](auto& o) { o.mutable_segments(1)->set_region_offset_bytes(0); },
      [](auto& o) { o.mutable_segments(1)->set_region_offset_bytes(3 * kMiB2); },
      [](auto& o) { o.mutable_segments()->SwapElements(0, 1); },
      [](auto& o) { o.set_mode(v1::SYSTEM_RAM); },
      [](auto& o) {
        o.set_mode(v1::SYSTEM_RAM);
        o.set_numa_node(1);
      },
      [](auto& o) {
        o.set_mode(v1::SYSTEM_RAM);
        o.clear_segments();
        o.set_numa_node(-1);
      },
  };
  for (size_t i = 0; i < edits.size(); ++i) {
    v1::LocalOpenResponse open = Good();
    edits[i](open);
    EXPECT_EQ(ErrorReason(ParseOpen(open, 2, kPage).status()), "BAD_REPLY") << "edit " << i;
  }
}

TEST(ReplyTest, TakesANodeForSystemRam) {
  v1::LocalOpenResponse open = Good();
  open.set_mode(v1::SYSTEM_RAM);
  open.clear_segments();
  open.set_numa_node(4);
  const auto reply = ParseOpen(open, 0, kPage);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->numa_node, 4);
}

TEST(ReplyTest, KeepsReasonRemedyAndCode) {
  v1::LocalResponse response;
  EXPECT_TRUE(StatusOf(response).ok());
  response.set_code(9);
  response.set_message("bridge is blocked (release regions/x)");
  response.mutable_error()->set_reason("BRIDGE_BLOCKED");
  response.mutable_error()->set_remedy("release regions/x");
  EXPECT_EQ(StatusOf(response).message(), "bridge is blocked (release regions/x)");
  EXPECT_EQ(StatusOf(response).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(StatusOf(response)), "BRIDGE_BLOCKED");
  response.set_message("bridge is blocked");
  EXPECT_EQ(StatusOf(response).message(), "bridge is blocked (release regions/x)");
}

TEST(ReplyTest, UnknownCodesAreErrorsToo) {
  for (int code : {-1, 17, 4711}) {
    v1::LocalResponse response;
    response.set_code(code);
    EXPECT_EQ(StatusOf(response).code(), absl::StatusCode::kUnknown);
  }
}

TEST(ReplyTest, AListingWithUnknownValuesIsNotRefused) {
  v1::LocalRegion region;
  region.set_name("regions/kv");
  region.mutable_attachment()->set_state(static_cast<v1::Attachment::State>(99));
  const RegionInfo info = ParseListed(region);
  EXPECT_EQ(info.state, AttachmentState::kUnknown);
  EXPECT_EQ(info.access, Access::kReadOnly);
  EXPECT_STREQ(ToString(info.state), "UNKNOWN");
}

}  // namespace
}  // namespace cxlpool::libpool
