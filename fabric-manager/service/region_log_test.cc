// Which request the log's lines about a Region are for, and what the agents hear of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// As the log has the request of TestRequest.
std::string InLog(char request) {
  return absl::StrCat("request=", FormatUuid(std::string(16, request)));
}

class RegionLogTest : public ServiceTest {
 protected:
  RegionLogTest() { Restart(); }

  // The rungs that are logged while `what` is done.
  template <typename What>
  std::vector<std::string> RungsOf(What what) {
    testing::internal::CaptureStderr();
    what();
    std::vector<std::string> rungs;
    for (absl::string_view line :
         absl::StrSplit(testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty())) {
      if (absl::StrContains(line, "reconciler: regions/")) rungs.emplace_back(line);
    }
    return rungs;
  }
  // What the host's agent was last told of the Region.
  std::string OfferedRequest(const std::string& host) {
    return rig->agents[host]->offers.rbegin()->second.request_id();
  }
  void UntilGone(const std::string& id) {
    EXPECT_TRUE(rig->RunUntil([&] { return rig->Find(id) == nullptr; }));
  }
};

TEST_F(RegionLogTest, EachRungIsForTheRequestThatAskedForIt) {
  const auto up = RungsOf([&] { Make(AllocateOn("kv", "host-a", 1)); });
  EXPECT_THAT(up, Each(AllOf(HasSubstr(InLog(1)), HasSubstr("tenant=default"))));
  EXPECT_THAT(up, Contains(HasSubstr("regions/kv on host-a: BOUND")));
  EXPECT_THAT(up, Contains(HasSubstr("regions/kv on host-a: ONLINE")));
  EXPECT_THAT(up, Contains(HasSubstr("regions/kv: ALLOCATED")));
  EXPECT_EQ(OfferedRequest("host-a"), FormatUuid(std::string(16, 1)));

  const auto grown = RungsOf([&] {
    ASSERT_TRUE(rig->Resize("kv", 3 * kGranule, 2).ok());
    ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  });
  EXPECT_THAT(grown, Not(IsEmpty()));
  EXPECT_THAT(grown, Each(HasSubstr(InLog(2))));

  const auto down = RungsOf([&] {
    EXPECT_TRUE(Release("kv", 3).ok());
    UntilGone("kv");
  });
  EXPECT_THAT(down, Each(HasSubstr(InLog(3))));
  EXPECT_THAT(down, Contains(HasSubstr("regions/kv on host-a: EJECTING: the Region is released")));
  EXPECT_THAT(down, Contains(HasSubstr("regions/kv: SCRUBBING")));
  EXPECT_THAT(down, Contains(HasSubstr("regions/kv: gone")));
  EXPECT_EQ(OfferedRequest("host-a"), FormatUuid(std::string(16, 3)));
}

TEST_F(RegionLogTest, EachHostIsForItsOwnRequestAlsoAfterARestart) {
  AllocateSpec spec = AllocateOn("kv", "host-a", 1);
  spec.sharing = Sharing::kMultiWriter;
  Make(spec);
  const AttachSpec attach{.request = TestRequest("AttachRegion", 2),
                          .caller = Caller::Admin("cxlpool://operator/alice"),
                          .region_id = "kv",
                          .host = "host-b"};
  rig->pool.Attach(attach, false, [](const absl::StatusOr<Committed>&) {});
  ASSERT_TRUE(rig->RunUntil(
      [&] { return rig->Find("kv")->attachments.size() == 2 && Settled(rig->Find("kv")); }));
  for (int life = 0; life < 2; ++life) {
    EXPECT_EQ(OfferedRequest("host-a"), FormatUuid(std::string(16, 1)));
    EXPECT_EQ(OfferedRequest("host-b"), FormatUuid(std::string(16, 2)));
    Restart();
    rig->RunUntil([] { return false; }, absl::Seconds(1));
  }
}

TEST_F(RegionLogTest, WhatNobodyAskedForIsForNoRequest) {
  AllocateSpec spec = AllocateOn("kv", "host-a", 1);
  spec.ttl = absl::Seconds(20);
  Make(spec);
  const auto down = RungsOf([&] { UntilGone("kv"); });
  EXPECT_THAT(down, Contains(HasSubstr("LEASE_EXPIRED")));
  EXPECT_THAT(down, Each(Not(HasSubstr("request="))));
  EXPECT_EQ(OfferedRequest("host-a"), "");
}

TEST_F(RegionLogTest, AFloodOfRungsIsCounted) {
  char request = 0;
  const auto make_and_release = [&](int count) {
    for (int i = 0; i < count; ++i) {
      AllocateSpec spec = AllocateOn(absl::StrCat("r", i), "", ++request);
      spec.size_bytes = kGranule;
      rig->pool.Allocate(spec, false, [](const absl::StatusOr<Committed>&) {});
      rig->pool.Release(ReleaseOf(spec.region_id, request),
                        [](const absl::StatusOr<Committed>&) {});
    }
    rig->Run(absl::Milliseconds(100));
  };
  const auto lines = RungsOf([&] {
    for (int times = 0; times < 5; ++times) make_and_release(16);
    rig->Run(absl::Seconds(1));
    make_and_release(1);
  });
  ASSERT_EQ(lines.size(), RegionRecorder::kMaxLines + 2u);
  EXPECT_THAT(lines[lines.size() - 2], HasSubstr("(60 rungs before it are not in the log)"));
}

}  // namespace
}  // namespace cxlpool::fm
