#include "tools/cli/consent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "proto/support/refusal.h"
#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using A = v1::Attachment;
using R = v1::Region;

class ConsentTest : public testing::Test {
 protected:
  absl::Status Run(PoolCommand command, OutputFormat format = OutputFormat::kTable) {
    Printer printer{
        .out = out_, .err = err_, .format = format, .answers = terminal_ ? &answers_ : nullptr};
    return Execute(std::move(command), fake_.connection, printer);
  }
  // A person at a terminal.
  void WillAnswer(const std::string& text) {
    terminal_ = true;
    answers_.clear();
    answers_.str(text);
    err_.str("");
  }

  static v1::ListRegionsResponse There() {
    v1::ListRegionsResponse regions;
    R& held = *regions.add_regions();
    held = WithAttachment(MakeRegion(R::ALLOCATED, 3, "regions/held"), A::ONLINE);
    held.set_tenant("tenants/ml");
    held.mutable_owner()->set_uid(1000);
    held.mutable_owner()->set_pid(4711);
    return regions;
  }
  static FenceHost Fence() {
    FenceHost command;
    command.request.set_host("hosts/host-a");
    command.request.set_reason("it hangs");
    return command;
  }
  static ReleaseRegion Release(bool detach_all) {
    ReleaseRegion command;
    command.request.set_name("regions/kv");
    command.request.set_detach_all(detach_all);
    return command;
  }
  void AnswerRelease() {
    v1::ReleaseRegionResponse response;
    *response.mutable_region() = MakeRegion(R::RELEASING, 6);
    fake_.manager.ReleaseRegion_calls.answers.push_back(response);
  }

  FakeConnection fake_;
  std::ostringstream out_;
  std::ostringstream err_;
  std::istringstream answers_;
  bool terminal_ = false;
  const R online_ = WithAttachment(MakeRegion(R::ALLOCATED, 5), A::ONLINE);
};

TEST_F(ConsentTest, AScriptHasToSayYesToWhatGoesBeyond) {
  EXPECT_EQ(ReasonOf(Run(Fence())), "CONFIRM_REQUIRED");
  EXPECT_EQ(ReasonOf(Run(FailDevice())), "CONFIRM_REQUIRED");
  EXPECT_EQ(ReasonOf(Run(RemoveDevice())), "CONFIRM_REQUIRED");
  ReleaseRegion forced = Release(false);
  forced.request.set_force(true);
  EXPECT_EQ(ReasonOf(Run(forced)), "CONFIRM_REQUIRED");
  ReleaseBatch batch;
  *batch.request.add_requests() = forced.request;
  EXPECT_EQ(ReasonOf(Run(batch)), "CONFIRM_REQUIRED");
  EXPECT_TRUE(fake_.manager.FenceHost_calls.requests.empty());
  EXPECT_TRUE(fake_.manager.ReleaseRegion_calls.requests.empty());
  // A release goes through as before, and asks the manager nothing first.
  AnswerRelease();
  EXPECT_TRUE(Run(Release(true)).ok());
  EXPECT_TRUE(fake_.manager.GetRegion_calls.requests.empty());
  forced.consent.yes = true;
  AnswerRelease();
  EXPECT_TRUE(Run(forced).ok());
}

TEST_F(ConsentTest, APersonIsToldWhatGoesAlongAndAsked) {
  for (const char* answer : {"no\n", "\n", ""}) {
    WillAnswer(answer);
    fake_.manager.ListRegions_calls.answers = {There()};
    EXPECT_EQ(ReasonOf(Run(Fence())), "NOT_CONFIRMED");
  }
  EXPECT_EQ(fake_.manager.ListRegions_calls.requests[0].host(), "hosts/host-a");
  for (const char* word : {"Fencing host-a", "held", "ml", "uid 1000 pid 4711", "Go on? [y/N]"}) {
    EXPECT_THAT(err_.str(), HasSubstr(word));
  }
  EXPECT_TRUE(fake_.manager.FenceHost_calls.requests.empty());
  WillAnswer("y\n");
  fake_.manager.ListRegions_calls.answers = {There()};
  fake_.manager.FenceHost_calls.answers = {v1::Host()};
  EXPECT_TRUE(Run(Fence()).ok());
  EXPECT_EQ(fake_.manager.FenceHost_calls.requests.size(), 1u);
}

TEST_F(ConsentTest, WhatIsReleasedIsWhatThePersonSaw) {
  WillAnswer("yes\n");
  R seen = online_;
  seen.set_etag("e-5");
  fake_.manager.GetRegion_calls.answers = {seen};
  AnswerRelease();
  ASSERT_TRUE(Run(Release(true)).ok());
  EXPECT_EQ(fake_.manager.ReleaseRegion_calls.requests[0].etag(), "e-5");
  EXPECT_THAT(err_.str(), HasSubstr("detached first from host-a"));
  // Nobody has it: it is what was named, and nothing is asked.
  WillAnswer("");
  fake_.manager.GetRegion_calls.answers = {MakeRegion(R::ALLOCATED, 5)};
  AnswerRelease();
  ASSERT_TRUE(Run(Release(true)).ok());
  EXPECT_EQ(err_.str(), "");
}

TEST_F(ConsentTest, WhatIsReleasedOfSeveralIsWhatThePersonSaw) {
  R first = online_, second = MakeRegion(R::ALLOCATED, 6, "regions/kw");
  first.set_etag("e-5");
  second.set_etag("e-6");
  ReleaseBatch batch;
  for (const char* name : {"regions/kv", "regions/gone", "regions/kw"}) {
    batch.request.add_requests()->set_name(name);
    batch.request.mutable_requests()->rbegin()->set_detach_all(true);
  }
  const auto release = [&](const R& one) {
    fake_.manager.GetRegion_calls.answers = {
        one, Refused(absl::StatusCode::kNotFound, "UNKNOWN_REGION"), second};
    fake_.manager.BatchReleaseRegions_calls.answers = {v1::BatchReleaseRegionsResponse()};
    return Run(batch);
  };
  WillAnswer("yes\n");
  ASSERT_TRUE(release(first).ok());
  const auto& sent = fake_.manager.BatchReleaseRegions_calls.requests;
  EXPECT_EQ(sent[0].requests(0).etag(), "e-5");
  EXPECT_EQ(sent[0].requests(1).etag(), "");
  EXPECT_EQ(sent[0].requests(2).etag(), "e-6");
  // No host has either: nothing is asked, and nothing is held against what was seen.
  WillAnswer("");
  ASSERT_TRUE(release(MakeRegion(R::ALLOCATED, 5)).ok());
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(sent[1].requests(2).etag(), "");
}

TEST_F(ConsentTest, AFenceOfOneRegionListsAllThatItsHostsHave) {
  ReleaseRegion command = Release(false);
  command.request.set_force(true);
  command.request.set_fence(true);
  command.consent.dry_run = true;
  fake_.manager.GetRegion_calls.answers = {online_};
  fake_.manager.ListRegions_calls.answers = {There()};
  fake_.manager.ReleaseRegion_calls.answers = {
      Refused(absl::StatusCode::kFailedPrecondition, "FENCE_REQUIRED")};
  ASSERT_TRUE(Run(command).ok());
  EXPECT_TRUE(fake_.manager.ReleaseRegion_calls.requests[0].validate_only());
  EXPECT_THAT(out_.str(), StartsWith("Dry run: nothing is changed.\n"));
  EXPECT_THAT(out_.str(), HasSubstr("Fenced first, with all that they have: host-a"));
  EXPECT_THAT(out_.str(), HasSubstr("held"));
}

TEST_F(ConsentTest, ADryRunChangesNothingAndSaysWhatTheCallWould) {
  FailDevice fail;
  fail.request.set_device("devices/cmm-0");
  fail.consent.dry_run = true;
  v1::ListDevicesResponse devices;
  devices.add_devices()->set_name("devices/cmm-0");
  fake_.manager.ListDevices_calls.answers = {devices, devices};
  fake_.manager.ListRegions_calls.answers = {There()};
  ASSERT_TRUE(Run(fail, OutputFormat::kName).ok());
  EXPECT_EQ(out_.str(), "held\n");
  EXPECT_TRUE(fake_.manager.FailDevice_calls.requests.empty());
  fail.request.set_device("devices/cmm-9");
  EXPECT_EQ(ReasonOf(Run(fail)), "UNKNOWN_DEVICE");
  ReleaseRegion release = Release(false);
  release.consent.dry_run = true;
  fake_.manager.GetRegion_calls.answers = {online_};
  fake_.manager.ReleaseRegion_calls.answers = {
      Refused(absl::StatusCode::kFailedPrecondition, "REGION_ATTACHED")};
  EXPECT_EQ(ReasonOf(Run(release)), "REGION_ATTACHED");
}

}  // namespace
}  // namespace cxlpool::cli
