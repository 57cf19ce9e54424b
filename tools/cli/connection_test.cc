#include "tools/cli/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/cli/pacer.h"
#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;

constexpr char kCallId[] = "00000000-0000-4000-8000-000000000001";

v1::ReleaseRegionRequest Release() {
  v1::ReleaseRegionRequest request;
  request.set_request_id(kCallId);
  request.set_name("regions/kv");
  return request;
}

absl::Status Unreachable() {
  return Refused(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE");
}

TEST(ConnectionTest, RepeatsTheSameRequestUntilTheManagerIsBack) {
  FakeConnection fake;
  auto& calls = fake.manager.ReleaseRegion_calls;
  calls.answers = {Unreachable(), Unreachable(), v1::ReleaseRegionResponse()};
  EXPECT_TRUE(fake.connection.Call(&ManagerStub::ReleaseRegion, Release()).ok());
  ASSERT_EQ(calls.requests.size(), 3u);
  for (const auto& request : calls.requests) EXPECT_EQ(request.request_id(), kCallId);
  EXPECT_EQ(fake.listener.retries, 2);
  EXPECT_EQ(fake.pacer.sleeps.size(), 2u);
}

TEST(ConnectionTest, SaysOnceUnderWhichIdsChangesAreAskedFor) {
  FakeConnection fake;
  fake.manager.ReleaseRegion_calls.answers = {Unreachable(), v1::ReleaseRegionResponse()};
  EXPECT_TRUE(fake.connection.Send(Release()).ok());
  fake.manager.GetRegion_calls.answers = {v1::Region()};
  EXPECT_TRUE(fake.connection.Send(v1::GetRegionRequest()).ok());
  EXPECT_EQ(fake.listener.changes, std::vector<std::string>{kCallId});
  v1::BatchReleaseRegionsRequest batch;
  for (const char* id : {"one", "two"}) batch.add_requests()->set_request_id(id);
  fake.manager.BatchReleaseRegions_calls.answers = {v1::BatchReleaseRegionsResponse()};
  EXPECT_TRUE(fake.connection.Send(batch).ok());
  EXPECT_EQ(fake.listener.changes, (std::vector<std::string>{kCallId, "one", "two"}));
}

TEST(ConnectionTest, RepeatsWhereTheManagersQueueIsFull) {
  FakeConnection fake;
  auto& calls = fake.manager.ReleaseRegion_calls;
  calls.answers = {Refused(absl::StatusCode::kResourceExhausted, "QUEUE_FULL"),
                   v1::ReleaseRegionResponse()};
  EXPECT_TRUE(fake.connection.Call(&ManagerStub::ReleaseRegion, Release()).ok());
}

TEST(ConnectionTest, RepeatsNothingThatWasRefused) {
  for (const absl::Status& refusal : {Refused(absl::StatusCode::kResourceExhausted, "POOL_FULL"),
                                      Refused(absl::StatusCode::kNotFound, "UNKNOWN_REGION"),
                                      Refused(absl::StatusCode::kInternal, ""),
                                      absl::AbortedError("x"), absl::UnknownError("x")}) {
    FakeConnection fake;
    auto& calls = fake.manager.ReleaseRegion_calls;
    calls.answers = {refusal};
    EXPECT_EQ(fake.connection.Call(&ManagerStub::ReleaseRegion, Release()).status(), refusal);
    EXPECT_EQ(calls.requests.size(), 1u);
  }
}

TEST(ConnectionTest, GivesUpWithinTheTimeoutAndSaysHowToRepeat) {
  FakeConnection fake;
  auto& calls = fake.manager.ReleaseRegion_calls;
  calls.answers.assign(1000, Unreachable());
  const absl::Duration begin = fake.pacer.Elapsed();
  const auto response = fake.connection.Call(&ManagerStub::ReleaseRegion, Release());
  EXPECT_LE(fake.pacer.Elapsed() - begin, absl::Seconds(10));
  EXPECT_GT(fake.pacer.Elapsed() - begin, absl::Seconds(7));
  EXPECT_TRUE(absl::IsUnavailable(response.status()));
  const auto refusal = RefusalOf(response.status());
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, "MANAGER_UNREACHABLE");
  EXPECT_THAT(refusal->message, HasSubstr("gave up after 10s"));
  EXPECT_THAT(refusal->remedy, HasSubstr(std::string("--request-id ") + kCallId));
}

// A release that a person was asked about has an etag, which nobody typed: without it the repeated
// call would be another one under the same id (REQUEST_ID_REUSED).
TEST(ConnectionTest, HowToRepeatNamesTheEtagToo) {
  FakeConnection fake;
  fake.manager.ReleaseRegion_calls.answers.assign(1000, Unreachable());
  v1::ReleaseRegionRequest request = Release();
  request.set_etag("e-5");
  const auto refusal = RefusalOf(fake.connection.Send(request).status());
  ASSERT_TRUE(refusal.has_value());
  EXPECT_THAT(refusal->remedy,
              testing::EndsWith(std::string("--request-id ") + kCallId + " --etag e-5"));
}

TEST(ConnectionTest, AnAttemptHasWhatIsLeftOfTheTimeout) {
  FakeConnection fake;
  auto& calls = fake.manager.ReleaseRegion_calls;
  calls.takes = absl::Seconds(4);
  calls.answers = {Unreachable(), Unreachable(), absl::DeadlineExceededError("no answer")};
  const auto response = fake.connection.Call(&ManagerStub::ReleaseRegion, Release());
  EXPECT_TRUE(absl::IsDeadlineExceeded(response.status()));
  ASSERT_EQ(calls.limits.size(), 3u);
  EXPECT_EQ(calls.limits[0], absl::Seconds(10));
  EXPECT_LT(calls.limits[1], absl::Seconds(6));
  EXPECT_LT(calls.limits[2], absl::Seconds(2));
  EXPECT_THAT(RefusalOf(response.status())->remedy, HasSubstr(kCallId));
}

TEST(ConnectionTest, AReadHasNoRequestIdToRepeat) {
  FakeConnection fake;
  fake.manager.GetCapacity_calls.answers.assign(1000, Unreachable());
  const auto response = fake.connection.Call(&ManagerStub::GetCapacity, v1::GetCapacityRequest());
  EXPECT_THAT(RefusalOf(response.status())->remedy, testing::Not(HasSubstr("--request-id")));
}

TEST(ConnectionTest, EachManagerIsTriedBeforeThereIsAPause) {
  FakeConnection fake;
  fake.manager.others = 2;
  auto& calls = fake.manager.ReleaseRegion_calls;
  calls.answers = {Refused(absl::StatusCode::kUnavailable, "NOT_LEADER"), Unreachable(),
                   v1::ReleaseRegionResponse()};
  EXPECT_TRUE(fake.connection.Send(Release()).ok());
  EXPECT_TRUE(fake.pacer.sleeps.empty());
  EXPECT_EQ(fake.listener.retries, 0) << "nothing is wrong that anybody has to know";
  for (const auto& request : calls.requests) EXPECT_EQ(request.request_id(), kCallId);
  EXPECT_EQ(fake.manager.turned_from.size(), 2u);
}

// The one that leads may have done it before it went away, and another may be misconfigured.
TEST(ConnectionTest, OneManagersCertificateIsNotTheEndOfACallThatAnotherMayHaveDone) {
  FakeConnection fake;
  auto& calls = fake.manager.ReleaseRegion_calls;
  const absl::Status bad = Refused(absl::StatusCode::kUnauthenticated, "MANAGER_NOT_TRUSTED");
  fake.manager.others = 1;
  fake.manager.said = Unreachable();
  calls.answers = {Unreachable(), bad, v1::ReleaseRegionResponse()};
  EXPECT_TRUE(fake.connection.Send(Release()).ok());
  fake.manager.others = 1;
  calls.answers = {Unreachable()};
  for (int i = 0; i < 1000; ++i) calls.answers.push_back(bad);
  const absl::Status status = fake.connection.Send(Release()).status();
  EXPECT_EQ(ReasonOf(status), "MANAGER_UNREACHABLE");
  EXPECT_THAT(RefusalOf(status)->remedy, HasSubstr(kCallId));
}

TEST(ConnectionTest, NoManagerIsTriedBeyondTheTimeout) {
  FakeConnection fake;
  fake.manager.others = 1000;
  auto& calls = fake.manager.ReleaseRegion_calls;
  calls.takes = absl::Seconds(4);
  calls.answers.assign(1000, Unreachable());
  EXPECT_TRUE(absl::IsUnavailable(fake.connection.Send(Release()).status()));
  EXPECT_EQ(calls.requests.size(), 3u);
}

TEST(ConnectionTest, FailFastTriesEachManagerOnce) {
  FakeConnection fake;
  Connection once(fake.manager, fake.pacer, fake.listener, absl::Seconds(10), true);
  fake.manager.others = 1;
  fake.manager.ReleaseRegion_calls.answers = {Refused(absl::StatusCode::kUnavailable, "NOT_LEADER"),
                                              Unreachable(), v1::ReleaseRegionResponse()};
  EXPECT_EQ(ReasonOf(once.Send(Release()).status()), "MANAGER_UNREACHABLE");
  EXPECT_EQ(fake.manager.ReleaseRegion_calls.requests.size(), 2u);
}

TEST(BackoffTest, DoublesToItsMostAndStartsAgain) {
  Backoff backoff(1);
  absl::Duration step = Backoff::kFirst;
  for (int i = 0; i < 20; ++i) {
    const absl::Duration pause = backoff.Next();
    EXPECT_GE(pause, step / 2);
    EXPECT_LE(pause, step);
    step = std::min(2 * step, Backoff::kMost);
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), Backoff::kFirst);
  Backoff of_several(1, Backoff::kMostOfSeveral);
  for (int i = 0; i < 8; ++i) EXPECT_LE(of_several.Next(), Backoff::kMostOfSeveral);
}

TEST(ConnectionTest, FailFastTriesOnce) {
  FakeConnection fake;
  Connection once(fake.manager, fake.pacer, fake.listener, absl::Seconds(10), true);
  fake.manager.AllocateRegion_calls.answers = {absl::UnavailableError("down")};
  v1::AllocateRegionRequest request;
  request.set_request_id("00000000-0000-4000-8000-000000000001");
  const absl::Status status = once.Send(request).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(fake.manager.AllocateRegion_calls.requests.size(), 1u);
  EXPECT_TRUE(fake.pacer.sleeps.empty());
  EXPECT_EQ(fake.listener.retries, 0);
  EXPECT_NE(RefusalOf(status)->message.find("gave up after one try"), std::string::npos);
  EXPECT_NE(RefusalOf(status)->remedy.find("--request-id"), std::string::npos);
}

}  // namespace
}  // namespace cxlpool::cli
