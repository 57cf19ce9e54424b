#include "libpool/src/reply.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace cxlpool::libpool {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMiB2 = 2 << 20;

// Two segments of 4 MiB, aligned to 2 MiB.
LocalOpenResponse Good() {
  LocalOpenResponse open;
  open.name = "regions/kv";
  open.tag = "0f8fad5b-d9cb-469f-a165-70867728950e";
  open.generation = 3;
  open.size_bytes = 4 * kMiB2;
  open.access = CXLPOOL_READ_WRITE;
  open.mode = CXLPOOL_DEVDAX;
  for (uint32_t i = 0; i < 2; ++i) {
    LocalSegment& segment = open.segments.emplace_back();
    segment.fd_index = i;
    segment.length_bytes = 2 * kMiB2;
    segment.region_offset_bytes = i * 2 * kMiB2;
    segment.alignment_bytes = kMiB2;
  }
  return open;
}

TEST(ReplyTest, TakesAGoodOpen) {
  const auto reply = ParseOpen(Good(), 2, kPage);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->generation, 3u);
  EXPECT_EQ(reply->coherence, CXLPOOL_COHERENCE_SOFTWARE) << "what is not said is not promised";
  ASSERT_EQ(reply->segments.size(), 2u);
  EXPECT_EQ(reply->segments[1].region_offset_bytes, 2 * kMiB2);
}

TEST(ReplyTest, RefusesWhatCannotBeMapped) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const std::vector<std::function<void(LocalOpenResponse&)>> edits = {
      [](auto& o) { o.name = "kv"; },
      [](auto& o) { o.tag.clear(); },
      [](auto& o) { o.size_bytes = 0; },
      [](auto& o) { o.size_bytes = kMax; },
      [](auto& o) { o.size_bytes = 2 * kMiB2; },
      [](auto& o) { o.size_bytes = 6 * kMiB2; },
      [](auto& o) { o.access = 0; },
      [](auto& o) { o.access = 77; },
      [](auto& o) { o.mode = 0; },
      [](auto& o) { o.segments.clear(); },
      [](auto& o) { o.segments[1].fd_index = 2; },
      [](auto& o) { o.segments[1].fd_index = 0xffffffff; },
      [](auto& o) { o.segments[1].alignment_bytes = 0; },
      [](auto& o) { o.segments[1].alignment_bytes = 2048; },
      [](auto& o) { o.segments[1].alignment_bytes = 3 * kPage; },
      [](auto& o) { o.segments[1].alignment_bytes = uint64_t{1} << 63; },
      [](auto& o) { o.segments[1].offset_bytes = kPage; },
      [](auto& o) { o.segments[1].offset_bytes = kMax & ~(kMiB2 - 1); },
      [](auto& o) { o.segments[1].length_bytes = 0; },
      [](auto& o) { o.segments[1].length_bytes = kMax & ~(kMiB2 - 1); },
      [](auto& o) { o.segments[1].region_offset_bytes = 0; },
      [](auto& o) { o.segments[1].region_offset_bytes = 3 * kMiB2; },
      [](auto& o) { std::swap(o.segments[0], o.segments[1]); },
      [](auto& o) { o.mode = CXLPOOL_SYSTEM_RAM; },
      [](auto& o) {
        o.mode = CXLPOOL_SYSTEM_RAM;
        o.numa_node = 1;
      },
      [](auto& o) {
        o.mode = CXLPOOL_SYSTEM_RAM;
        o.segments.clear();
        o.numa_node = -1;
      },
      [](auto& o) {
        o.mode = CXLPOOL_SYSTEM_RAM;
        o.segments.clear();
        o.numa_node = 1;
        o.numa_nodes = {1, -1};
      },
  };
  for (size_t i = 0; i < edits.size(); ++i) {
    LocalOpenResponse open = Good();
    edits[i](open);
    EXPECT_EQ(ParseOpen(open, 2, kPage).status().reason(), "BAD_REPLY") << "edit " << i;
  }
}

TEST(ReplyTest, TakesANodeForSystemRam) {
  LocalOpenResponse open = Good();
  open.mode = CXLPOOL_SYSTEM_RAM;
  open.segments.clear();
  open.numa_node = 4;
  const auto reply = ParseOpen(open, 0, kPage);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->numa_node, 4);
  EXPECT_EQ(reply->numa_nodes, std::vector<int>{4}) << "an older agent told no others";
  open.numa_nodes = {4, 2};
  EXPECT_EQ(ParseOpen(open, 0, kPage)->numa_nodes, (std::vector<int>{4, 2}));
}

TEST(ReplyTest, KeepsReasonRemedyAndCode) {
  LocalResponse response;
  EXPECT_TRUE(StatusOf(response).ok());
  response.code = 9;
  response.error = {.reason = "BRIDGE_BLOCKED", .remedy = "release regions/x"};
  // With the remedy at its end, as agents send it, and without.
  for (const char* message : {"bridge is blocked (release regions/x)", "bridge is blocked"}) {
    response.message = message;
    const Failure failure = StatusOf(response).failure();
    EXPECT_EQ(failure.code, Code::kFailedPrecondition);
    EXPECT_EQ(failure.reason, "BRIDGE_BLOCKED");
    EXPECT_EQ(failure.message, "bridge is blocked");
    EXPECT_EQ(failure.remedy, "release regions/x");
  }
}

TEST(ReplyTest, UnknownCodesAreErrorsToo) {
  for (const int code : {-1, 17, 4711}) {
    LocalResponse response;
    response.code = code;
    EXPECT_EQ(StatusOf(response).code(), Code::kUnknown);
  }
}

}  // namespace
}  // namespace cxlpool::libpool
