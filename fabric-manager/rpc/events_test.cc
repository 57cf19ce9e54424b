// Events and the audit trail, as callers of every role get them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/rpc/list_events.h"
#include "proto/support/refusal.h"
#include "test/rigs/caller_fixture.h"

namespace cxlpool::fm {
namespace {

class EventsTest : public CallerFixture {
 protected:
  // All pages of the size, the newest first.
  static std::vector<v1::Event> Events(const std::shared_ptr<grpc::Channel>& channel,
                                       v1::ListEventsRequest request = {}) {
    std::vector<v1::Event> events;
    do {
      const auto page = Get<v1::ListEventsResponse>(channel, "AccessService/ListEvents", request);
      events.insert(events.end(), page.events().begin(), page.events().end());
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return events;
  }
  void SetTenant(const std::string& tenant) {
    v1::SetTenantRequest set;
    set.set_request_id(NewId());
    set.mutable_tenant()->set_name("tenants/" + tenant);
    ASSERT_EQ(Ask(operator_, "InventoryService/SetTenant", set), "");
  }
  std::string Allocate(const std::shared_ptr<grpc::Channel>& channel, const std::string& id,
                       const std::string& tenant) {
    v1::AllocateRegionRequest allocate;
    allocate.set_request_id(NewId());
    allocate.set_region_id(id);
    allocate.set_tenant("tenants/" + tenant);
    allocate.set_size_bytes(1);
    return Ask(channel, "PoolService/AllocateRegion", allocate);
  }
  std::string BindTenant(const std::string& identity, v1::Role role) {
    v1::SetRoleBindingRequest request = ToBind(identity, role);
    request.mutable_role_binding()->add_tenants("tenants/ml");
    return Ask(operator_, "AccessService/SetRoleBinding", request);
  }
};

TEST_F(EventsTest, SayWhoDidWhatFromWhereUnderWhichRequest) {
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  v1::SetTenantRequest set;
  set.set_request_id(NewId());
  set.mutable_tenant()->set_name("tenants/ml");
  ASSERT_EQ(Ask(operator_, "InventoryService/SetTenant", set), "");
  ASSERT_EQ(Allocate(operator_, "kv", "ml"), "");
  v1::ListEventsRequest request;
  request.set_resource("tenants/ml");
  std::vector<v1::Event> events = Events(operator_, request);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].who(), "cxlpool://operator/alice");
  EXPECT_EQ(events[0].role(), "ADMIN");
  EXPECT_TRUE(absl::StartsWith(events[0].peer(), "ipv4:127.0.0.1:")) << events[0].peer();
  EXPECT_EQ(events[0].request_id(), set.request_id());
  EXPECT_EQ(events[0].method(), "SetTenant");
  EXPECT_EQ(events[0].refused(), "");
  EXPECT_GT(events[0].revision(), 0u);
  request.set_resource("regions/kv");
  events = Events(operator_, request);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().method(), "AllocateRegion");
  EXPECT_EQ(events.back().tenant(), "tenants/ml");
  // The manager's own.
  request.clear_resource();
  request.set_who("cxlpool://operator/alice");
  for (const v1::Event& event : Events(operator_, request)) {
    EXPECT_EQ(event.who(), "cxlpool://operator/alice");
  }
}

TEST_F(EventsTest, PagesOfEverySizeAreTheSameList) {
  for (int i = 0; i < 9; ++i) SetTenant(absl::StrCat("t-", i));
  const auto text = [&](uint32_t size) {
    v1::ListEventsRequest request;
    request.set_page_size(size);
    std::string all;
    for (const v1::Event& event : Events(operator_, request)) {
      absl::StrAppend(&all, event.ShortDebugString(), "\n");
    }
    return all;
  };
  const std::string whole = text(0);
  EXPECT_THAT(whole, testing::HasSubstr("tenants/t-8"));
  EXPECT_LT(whole.find("tenants/t-8"), whole.find("tenants/t-7")) << "the newest first";
  for (uint32_t size = 1; size <= 4; ++size) EXPECT_EQ(text(size), whole) << size;
  v1::ListEventsRequest bad;
  for (const char* token : {"x", "0/0", "5", "5/6/7"}) {
    bad.set_page_token(token);
    EXPECT_EQ(Ask(operator_, "AccessService/ListEvents", bad), "BAD_PAGE_TOKEN") << token;
  }
}

TEST_F(EventsTest, WhoIsRefusedIsInTheTrail) {
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  ASSERT_EQ(Bind("cxlpool://operator/vic", v1::VIEWER), "");
  const auto vic = ChannelOf("cxlpool://operator/vic");
  EXPECT_EQ(Allocate(vic, "kv", "default"), "ROLE_NOT_ALLOWED");
  EXPECT_EQ(Allocate(ChannelOf("cxlpool://operator/nobody"), "kv", "default"), "NO_ROLE");
  std::set<std::string> refused;
  EXPECT_TRUE(Within(absl::Seconds(20), [&] {
    refused.clear();
    for (const v1::Event& event : Events(vic)) {
      if (!event.refused().empty()) {
        refused.insert(absl::StrCat(event.who(), " ", event.method(), " ", event.refused()));
      }
    }
    return refused.size() >= 2;
  }));
  EXPECT_EQ(refused,
            (std::set<std::string>{"cxlpool://operator/vic AllocateRegion ROLE_NOT_ALLOWED",
                                   "cxlpool://operator/nobody AllocateRegion NO_ROLE"}));
}

// The call as a whole is answered, and nothing of that says that one of it was refused.
TEST_F(EventsTest, SayWhatWasRefusedWithinABatch) {
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  ASSERT_EQ(Bind("cxlpool://operator/olga", v1::OPERATOR), "");
  const auto olga = ChannelOf("cxlpool://operator/olga");
  ASSERT_EQ(Allocate(olga, "kv", "default"), "");
  v1::BatchReleaseRegionsRequest batch;
  v1::ReleaseRegionRequest& release = *batch.add_requests();
  release.set_request_id(NewId());
  release.set_name("regions/kv");
  release.set_force(true);
  release.set_reason("in the way");
  ASSERT_EQ(Ask(olga, "PoolService/BatchReleaseRegions", batch), "");
  const auto refused = [&] {
    for (const v1::Event& event : Events(operator_)) {
      if (event.refused() == "ROLE_NOT_ALLOWED" && event.who() == "cxlpool://operator/olga" &&
          event.request_id() == release.request_id()) {
        return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(Within(absl::Seconds(20), refused));
}

// With a host that has nothing goes no record, and still somebody was cut off.
TEST_F(EventsTest, SayWhichHostWasFenced) {
  v1::FenceHostRequest fence;
  fence.set_request_id(NewId());
  fence.set_host("hosts/host-a");
  fence.set_reason("it smokes");
  ASSERT_EQ(Ask(operator_, "InventoryService/FenceHost", fence), "");
  v1::ListEventsRequest request;
  request.set_resource("hosts/host-a");
  bool found = false;
  for (const v1::Event& event : Events(operator_, request)) {
    found = found || (event.method() == "FenceHost" && event.reason() == "it smokes");
  }
  EXPECT_TRUE(found);
}

TEST_F(EventsTest, ATenantSeesWhatWasDoneToItsRegionsAndNotByWhom) {
  SetTenant("ml");
  SetTenant("giraffe");
  ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
  ASSERT_EQ(BindTenant("cxlpool://operator/bob", v1::TENANT), "");
  ASSERT_EQ(BindTenant("cxlpool://operator/cron", v1::SCHEDULER), "");
  const auto bob = ChannelOf("cxlpool://operator/bob");
  const auto cron = ChannelOf("cxlpool://operator/cron");
  ASSERT_EQ(Allocate(operator_, "ml.of-alice", "ml"), "");
  ASSERT_EQ(Allocate(operator_, "giraffe.okapi", "giraffe"), "");
  ASSERT_EQ(Allocate(bob, "ml.of-bob", "ml"), "");
  ASSERT_EQ(Allocate(cron, "ml.of-cron", "ml"), "");
  std::set<std::string> seen;
  for (const v1::Event& event : Events(bob)) {
    EXPECT_EQ(event.tenant(), "tenants/ml");
    seen.insert(event.resource());
    if (event.resource() == "regions/ml.of-bob" && event.method() == "AllocateRegion") {
      EXPECT_EQ(event.who(), "cxlpool://operator/bob");
      EXPECT_NE(event.peer(), "");
    }
    if (event.resource() == "regions/ml.of-alice") {
      EXPECT_FALSE(absl::StrContains(event.who(), "alice"));
      EXPECT_EQ(event.peer(), "");
      EXPECT_EQ(event.request_id(), "");
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"regions/ml.of-alice", "regions/ml.of-bob",
                                         "regions/ml.of-cron"}));
  // No question finds out what an answer does not say.
  v1::ListEventsRequest request;
  request.set_who("cxlpool://operator/alice");
  EXPECT_TRUE(Events(bob, request).empty());
  seen.clear();
  for (const v1::Event& event : Events(cron)) seen.insert(event.resource());
  EXPECT_EQ(seen, std::set<std::string>{"regions/ml.of-cron"});
  EXPECT_EQ(Ask(bob, "AccessService/VerifyAudit", v1::VerifyAuditRequest()), "ROLE_NOT_ALLOWED");
}

// Who gets a name that another tenant had before does not get its history.
TEST(ListEventsTest, ATenantIsToldNothingOfAFormerOneOfItsName) {
  const absl::Time made = absl::FromUnixSeconds(1'700'000'000);
  AuditTrail trail{AuditLimits()};
  for (const absl::Time time : {made - absl::Hours(1), made}) {
    trail.Note({.time = time,
                .who = "manager",
                .method = "gone",
                .target = "regions/ml.kv",
                .tenant = "ml"});
  }
  ASSERT_NE(trail.Close([] { return Key{100}; }, 0).row, nullptr);
  trail.Finish(/*durable=*/true);
  PoolView view;
  view.tenants = std::make_shared<const std::vector<TenantView>>(
      std::vector<TenantView>{{.tenant = {.id = "ml", .create_time = made}, .use = {}}});
  const Caller bob = Caller::User("cxlpool://operator/bob", PoolRole::kTenant, {"ml"});
  v1::ListEventsResponse response;
  ASSERT_TRUE(ListEvents(trail, view, bob, v1::ListEventsRequest(), &response).ok());
  ASSERT_EQ(response.events_size(), 1);
  EXPECT_EQ(response.events(0).time().seconds(), absl::ToUnixSeconds(made));
}

TEST_F(EventsTest, VerifyGivesAnAnchorAndHoldsTheTrailAgainstOne) {
  v1::VerifyAuditRequest request;
  const auto verify = [&] {
    return Get<v1::VerifyAuditResponse>(operator_, "AccessService/VerifyAudit", request);
  };
  const auto before = verify();
  EXPECT_EQ(before.flaws_size(), 0);
  EXPECT_EQ(before.first_row(), 1u);
  SetTenant("ml");
  request.set_anchor(before.head());
  EXPECT_EQ(verify().flaws_size(), 0);
  EXPECT_NE(verify().head(), before.head());
  std::string other = before.head();
  other.back() = other.back() == '0' ? '1' : '0';
  request.set_anchor(other);
  ASSERT_EQ(verify().flaws_size(), 1);
  EXPECT_THAT(verify().flaws(0).what(), testing::HasSubstr("another than the anchor's"));
  request.set_anchor("1000000" + before.head().substr(before.head().find(':')));
  ASSERT_EQ(verify().flaws_size(), 1);
  EXPECT_THAT(verify().flaws(0).what(), testing::HasSubstr("was cut"));
  request.set_anchor("17");
  EXPECT_EQ(Ask(operator_, "AccessService/VerifyAudit", request), "BAD_ANCHOR");
}

}  // namespace
}  // namespace cxlpool::fm
