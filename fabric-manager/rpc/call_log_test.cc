#include "fabric-manager/rpc/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "proto/support/log.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CallLogTest : public testing::Test {
 protected:
  void Note(const std::string& method, const absl::Status& status = absl::OkStatus()) {
    v1::ReleaseRegionRequest request;
    request.set_name("regions/kv");
    request.set_request_id("0b0e6a1c-0000-4000-8000-000000000001");
    NoteRequest(method, request, status);
  }
  void NoteRequest(const std::string& method, const google::protobuf::Message& request,
                   const absl::Status& status = absl::OkStatus()) {
    const Caller alice = Caller::Admin("cxlpool://operator/alice");
    log_.Note({.method = "/cxlpool.v1.PoolService/" + method,
               .peer = "ipv4:10.0.0.7:5000",
               .caller = alice,
               .tenant = "ml",
               .request = request,
               .status = status});
  }

  ManualExecutor time_;
  std::vector<std::string> lines_;
  LogFields about_;  // The last one's.
  CallLog log_{&time_, [this](const std::string& line) {
                 lines_.push_back(line);
                 about_ = LogScope::Now();
               }};
};

TEST_F(CallLogTest, SaysWhatByWhomFromWhereUnderWhichRequestIdAndHowItEnded) {
  Note("ReleaseRegion");
  Note("ReleaseRegion", Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION",
                               "there is no regions/kv", "see `cxlpool region list`"));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_THAT(lines_[0], AllOf(HasSubstr("ReleaseRegion {"), HasSubstr("regions/kv"),
                               HasSubstr("0b0e6a1c-0000-4000-8000-000000000001"),
                               HasSubstr("by cxlpool://operator/alice from ipv4:10.0.0.7:5000"),
                               HasSubstr(": done")));
  EXPECT_THAT(lines_[1], HasSubstr("refused: UNKNOWN_REGION: there is no regions/kv"));
}

TEST_F(CallLogTest, ALineHasTheFieldsThatTheRequestNames) {
  Note("ReleaseRegion");
  EXPECT_EQ(FormatUuid(about_.request_id.bytes()), "0b0e6a1c-0000-4000-8000-000000000001");
  EXPECT_EQ(about_.region, "kv");
  EXPECT_EQ(about_.tenant, "ml") << "the caller's";
  v1::AllocateRegionRequest allocate;
  allocate.set_request_id("no UUID");
  allocate.set_region_id("kw");
  allocate.set_host("hosts/host-a");
  allocate.set_tenant("tenants/acme");
  NoteRequest("AllocateRegion", allocate);
  EXPECT_TRUE(about_.request_id.empty());
  EXPECT_EQ(about_.region, "kw");
  EXPECT_EQ(about_.host, "host-a");
  EXPECT_EQ(about_.tenant, "acme");
  v1::SetTenantRequest of_no_region;  // Its tenant is no text.
  of_no_region.mutable_tenant()->set_name("tenants/acme");
  NoteRequest("SetTenant", of_no_region);
  EXPECT_EQ(about_.region, "");
}

TEST_F(CallLogTest, WhatOnlyReadsMakesNoLine) {
  for (const char* method : {"GetRegion", "ListRegions", "ListRegionHolders", "Check", "Explain"})
    Note(method);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(CallLogTest, AFloodIsCounted) {
  for (int i = 0; i < CallLog::kMaxLines + 7; ++i) Note("AllocateRegion");
  EXPECT_EQ(lines_.size(), static_cast<size_t>(CallLog::kMaxLines));
  time_.Advance(absl::Seconds(1));
  Note("AllocateRegion");
  ASSERT_EQ(lines_.size(), static_cast<size_t>(CallLog::kMaxLines) + 1);
  EXPECT_THAT(lines_.back(), HasSubstr("(7 calls before it are not in the log)"));
}

}  // namespace
}  // namespace cxlpool::fm
