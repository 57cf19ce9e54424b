// What a caller may take: places by identity and in all, and how large a request may be.
#include "fabric-manager/rpc/calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using Kind = Admission::Kind;

Caller Showing(const std::string& uri) { return Caller::Admin(uri); }

TEST(AdmissionTest, AnIdentityHasItsShareAndGetsItBack) {
  Admission admission;
  const Caller greedy = Showing("cxlpool://host/host-a");
  std::vector<Place> places;
  for (int i = 0; i < Admission::kSessions.of_one; ++i) {
    auto place = admission.Enter(Kind::kSession, greedy);
    ASSERT_TRUE(place.ok()) << place.status();
    places.push_back(*std::move(place));
  }
  EXPECT_EQ(ReasonOf(admission.Enter(Kind::kSession, greedy).status()), "TOO_MANY_AGENTS");
  // Neither others nor other kinds of calls are touched by that.
  EXPECT_TRUE(admission.Enter(Kind::kSession, Showing("cxlpool://host/host-b")).ok());
  EXPECT_TRUE(admission.Enter(Kind::kCall, greedy).ok());
  places.pop_back();
  EXPECT_TRUE(admission.Enter(Kind::kSession, greedy).ok());
}

TEST(AdmissionTest, AllTogetherHaveALimitToo) {
  Admission admission;
  const Caller local = Caller::Local("cxlpool://operator/local");
  std::vector<Place> places;
  for (int i = 0; i < Admission::kWatches.in_all; ++i) {
    auto place = admission.Enter(Kind::kWatch, local);
    ASSERT_TRUE(place.ok()) << place.status();
    places.push_back(*std::move(place));
  }
  EXPECT_EQ(ReasonOf(admission.Enter(Kind::kWatch, local).status()), "TOO_MANY_WATCHERS");
  EXPECT_EQ(ReasonOf(admission.Enter(Kind::kWatch, Showing("cxlpool://operator/alice")).status()),
            "TOO_MANY_WATCHERS");
  places.clear();
  EXPECT_TRUE(admission.Enter(Kind::kWatch, local).ok());
}

// Whoever calls for it; a large call counts as many.
TEST(AdmissionTest, ATenantHasItsShareWhoeverCallsForIt) {
  Admission admission;
  const auto of = [](const std::string& name, std::vector<std::string> tenants) {
    return Caller::User("cxlpool://operator/" + name, PoolRole::kTenant, std::move(tenants));
  };
  std::vector<Place> places;
  for (int i = 0; i < Admission::kTenantWatches; ++i) {
    auto place = admission.Enter(Kind::kWatch, of(absl::StrCat("bob-", i), {"ml"}));
    ASSERT_TRUE(place.ok()) << place.status();
    places.push_back(*std::move(place));
  }
  EXPECT_EQ(ReasonOf(admission.Enter(Kind::kWatch, of("carol", {"ml"})).status()),
            "TOO_MANY_WATCHERS");
  EXPECT_EQ(ReasonOf(admission.Enter(Kind::kWatch, of("carol", {"db", "ml"})).status()),
            "TOO_MANY_WATCHERS");
  EXPECT_TRUE(admission.Enter(Kind::kWatch, of("carol", {"db"})).ok());
  auto large = admission.Enter(Kind::kCall, of("bob", {"ml"}), nullptr, Admission::kTenantCalls);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(ReasonOf(admission.Enter(Kind::kCall, of("carol", {"ml"})).status()), "TOO_MANY_CALLS");
  large->GiveBack();
  places.clear();
  EXPECT_TRUE(admission.Enter(Kind::kCall, of("carol", {"ml"})).ok());
  EXPECT_EQ(admission.CountOf(Kind::kCall) + admission.CountOf(Kind::kWatch), 0);
}

// One call after the other, as fast as may be; another tenant's get in meanwhile.
// A scheduler is counted by itself, and has as much as a tenant.
TEST(AdmissionTest, ASchedulerHasTheShareOfATenant) {
  Admission admission;
  const Caller cron = Caller::User("cxlpool://operator/cron", PoolRole::kScheduler, {"ml", "db"});
  auto large = admission.Enter(Kind::kCall, cron, nullptr, Admission::kTenantCalls);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(ReasonOf(admission.Enter(Kind::kCall, cron).status()), "TOO_MANY_CALLS");
  const Caller bob = Caller::User("cxlpool://operator/bob", PoolRole::kTenant, {"ml"});
  EXPECT_TRUE(admission.Enter(Kind::kCall, bob).ok());
  large->GiveBack();
  std::string refused;
  for (int i = 0; i < 2 * Admission::kTenantCallsASecond && refused.empty(); ++i) {
    refused = ReasonOf(admission.Enter(Kind::kCall, cron).status());
  }
  EXPECT_EQ(refused, "TENANT_TOO_BUSY");
}

TEST(AdmissionTest, OfLargeAnswersSoMuchIsUnread) {
  Admission admission;
  const Caller bob = Caller::User("cxlpool://operator/bob", PoolRole::kTenant, {"ml"});
  std::vector<Place> places;
  for (int i = 0; i < 4; ++i) {
    places.push_back(*admission.Enter(Kind::kCall, bob));
    ASSERT_TRUE(places.back().AddUnread(Admission::kUnreadBytes / 4).ok());
  }
  auto more = admission.Enter(Kind::kCall, bob);
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(ReasonOf(more->AddUnread(1)), "TOO_MUCH_UNREAD");
  auto others = admission.Enter(Kind::kCall, Showing("cxlpool://host/host-a"));
  EXPECT_TRUE(others->AddUnread(Admission::kUnreadBytes).ok());
  places.pop_back();
  EXPECT_TRUE(more->AddUnread(1).ok());
}

TEST(AdmissionTest, ATenantHasSoManyCallsASecond) {
  Admission admission;
  const Caller bob = Caller::User("cxlpool://operator/bob", PoolRole::kTenant, {"ml"});
  const Caller carol = Caller::User("cxlpool://operator/carol", PoolRole::kTenant, {"db"});
  const absl::Time began = absl::Now();
  int let_in = 0;
  std::string refused;
  while (absl::Now() - began < absl::Milliseconds(500)) {
    for (int i = 0; i < 100; ++i) {
      const auto place = admission.Enter(Kind::kCall, bob);
      let_in += place.ok() ? 1 : 0;
      if (!place.ok()) refused = ReasonOf(place.status());
    }
    EXPECT_TRUE(admission.Enter(Kind::kCall, carol).ok());
    absl::SleepFor(absl::Milliseconds(2));
  }
  EXPECT_EQ(refused, "TENANT_TOO_BUSY");
  const double most =
      Admission::kTenantCallsASecond * (1 + absl::ToDoubleSeconds(absl::Now() - began));
  EXPECT_LE(let_in, most + 1);
  EXPECT_GE(let_in, Admission::kTenantCallsASecond);
}

grpc::ByteBuffer BytesOf(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

template <typename Message>
std::string ReasonToRefuse(const std::string& text, const RequestLimits& limits = {}) {
  grpc::ByteBuffer bytes = BytesOf(text);
  Message message;
  return ReasonOf(ParseRequest(bytes, limits, &message));
}

TEST(ParseRequestTest, TakesWhatKeepsToTheLimits) {
  v1::BatchAllocateRegionsRequest batch;
  for (int i = 0; i < 1000; ++i) {
    auto& request = *batch.add_requests();
    request.set_region_id(absl::StrCat("r-", i));
    for (int j = 0; j < 16; ++j) request.add_isolate_from("regions/x");
  }
  const RequestLimits limits{.max_bytes = size_t{4} << 20, .max_elements = 64000};
  EXPECT_EQ(ReasonToRefuse<v1::BatchAllocateRegionsRequest>(batch.SerializeAsString(), limits), "");
  EXPECT_EQ(ReasonToRefuse<v1::BatchAllocateRegionsRequest>(batch.SerializeAsString()),
            "REQUEST_TOO_LARGE");
  EXPECT_EQ(ReasonToRefuse<v1::GetRegionRequest>(""), "");
}

// Two bytes on the wire become a message, a string or a number of many more in memory.
TEST(ParseRequestTest, CountsElementsBeforeItMakesThem) {
  const RequestLimits limits{.max_bytes = size_t{4} << 20, .max_elements = 64000};
  const auto many = [](const std::string& one, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += one;
    return all;
  };
  const std::string empty_items = many(std::string("\x0a\x00", 2), 2'000'000);
  EXPECT_EQ(ReasonToRefuse<v1::BatchAllocateRegionsRequest>(empty_items, limits),
            "REQUEST_TOO_LARGE");

  // The same, a level deeper.
  v1::BatchAllocateRegionsRequest strings;
  auto& one = *strings.add_requests();
  for (int i = 0; i < 100'000; ++i) one.add_isolate_from("");
  EXPECT_EQ(ReasonToRefuse<v1::BatchAllocateRegionsRequest>(strings.SerializeAsString(), limits),
            "REQUEST_TOO_LARGE");

  // Packed numbers: four bytes of memory for each byte.
  v1::AgentMessage message;
  auto& bridge = *message.mutable_hello()->mutable_inventory()->add_bridges();
  for (int i = 0; i < 100'000; ++i) bridge.add_slots(1);
  EXPECT_EQ(ReasonToRefuse<v1::AgentMessage>(message.SerializeAsString(), limits),
            "REQUEST_TOO_LARGE");

  // Fields that nobody knows.
  EXPECT_EQ(ReasonToRefuse<v1::GetRegionRequest>(many("\xf8\x3f\x01", 20'000)),
            "REQUEST_TOO_LARGE");
}

TEST(ParseRequestTest, SaysOfWhatDoesNotParseThatItDoesNot) {
  for (const std::string& text :
       {std::string("\x0a\x05kv"), std::string("\x0a\x02\xff\xff"), std::string("\xff"),
        std::string(20'000, '\x0a'), std::string(20'000, '\xff')}) {
    EXPECT_EQ(ReasonToRefuse<v1::GetRegionRequest>(text), "BAD_REQUEST") << text.size();
  }
}

}  // namespace
}  // namespace cxlpool::fm
