#include "tools/benches/placement_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <fstream>

namespace cxlpool::bench {
namespace {

class TraceTest : public testing::Test {
 protected:
  ~TraceTest() override { std::remove(file_.c_str()); }

  absl::StatusOr<std::vector<Machine>> Read(const std::string& text) {
    std::ofstream(file_) << text;
    return ReadTrace(file_);
  }

  const std::string file_ = testing::TempDir() + "/trace." + std::to_string(getpid());
};

constexpr char kHead[] = "arrival_s,lifetime_s,vcpus,memory_gib\n";

TEST_F(TraceTest, ReadsPlainText) {
  const auto machines = Read(std::string(kHead) + "0,450,8,14\n300,,1,0.75\r\n300,5,2,3.5");
  ASSERT_TRUE(machines.ok()) << machines.status();
  ASSERT_EQ(machines->size(), 3u);
  EXPECT_EQ((*machines)[0].lifetime_s, 450);
  EXPECT_LT((*machines)[1].lifetime_s, 0);
  EXPECT_EQ((*machines)[1].memory_gib, 0.75);
  EXPECT_EQ((*machines)[2].vcpus, 2u);
}

TEST_F(TraceTest, ReadsGzip) {
  const gzFile out = gzopen(file_.c_str(), "wb");
  gzputs(out, kHead);
  gzputs(out, "7,1,2,3\n");
  gzclose(out);
  const auto machines = ReadTrace(file_);
  ASSERT_TRUE(machines.ok()) << machines.status();
  EXPECT_EQ((*machines)[0].arrival_s, 7);
}

TEST_F(TraceTest, ABadLineIsNamed) {
  for (const char* line : {"x,1,1,1", "1,1,1", "1,1,1,1,1", "1,-1,1,1", "1,1,0,1", "1,1,1,0",
                           "1,1,1.5,1", "nan,1,1,1", "1,1,1,1e300", "", "-1,1,1,1"}) {
    const auto machines = Read(std::string(kHead) + "0,1,1,1\n" + line + "\n2,1,1,1\n");
    EXPECT_EQ(machines.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(machines.status().message()), testing::HasSubstr("line 3")) << line;
  }
}

TEST_F(TraceTest, WhatIsNoTraceIsRefused) {
  EXPECT_EQ(ReadTrace(file_ + ".none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(Read("").ok());
  EXPECT_FALSE(Read(kHead).ok());
  EXPECT_FALSE(Read("a,b\n1,1,1,1\n").ok());
  EXPECT_FALSE(Read(std::string(kHead) + std::string(1000, '1')).ok());
  EXPECT_FALSE(Read(std::string(kHead) + "5,1,1,1\n4,1,1,1\n").ok());
}

TEST_F(TraceTest, WhoGoesAtAMomentGoesFirst) {
  const std::vector<Machine> machines = {
      {0, 10, 1, 1}, {5, -1, 1, 1}, {10, 0, 1, 1}, {10, 20, 1, 1}};
  std::vector<std::pair<uint32_t, bool>> order;
  for (const TraceEvent& event : EventsOf(machines))
    order.emplace_back(event.machine, event.arrives);
  EXPECT_THAT(order,
              testing::ElementsAre(std::pair(0, true), std::pair(1, true), std::pair(0, false),
                                   std::pair(2, true), std::pair(3, true), std::pair(2, false),
                                   std::pair(3, false)));
}

}  // namespace
}  // namespace cxlpool::bench
