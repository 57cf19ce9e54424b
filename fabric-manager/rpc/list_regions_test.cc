#include "fabric-manager/rpc/list_regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fabric-manager/rpc/convert.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

Region Make(int number) {
  Region region;
  region.key = static_cast<Key>(number) + 1;
  region.id = absl::StrFormat("r-%06d", number);
  region.tenant = number % 2 == 0 ? "even" : "odd";
  region.extents = {{"cmm-0", 0, static_cast<uint64_t>(number % 7 + 1) << 28}};
  region.create_time = absl::FromUnixSeconds(1000 - number);
  region.revision = static_cast<uint64_t>(number * 37 % 101);
  return region;
}

class ListRegionsTest : public testing::Test {
 protected:
  ListRegionsTest() {
    view_.hosts["host-a"] = std::make_shared<HostView>(HostView{
        Host{.key = 1, .id = "host-a", .identity = ""}, std::make_shared<const HostRuntime>(), {}});
  }

  void Put(const Region& region) {
    view_.regions.Change({{std::make_shared<const Region>(region)}});
  }
  void Remove(const std::string& id) { view_.regions.Change({{view_.regions.Find(id), true}}); }
  void PutMany(int count) {
    std::vector<RegionTable::Edit> edits;
    for (int i = 0; i < count; ++i) {
      const Region region = Make(i);
      edits.push_back({std::make_shared<const Region>(region)});
    }
    view_.regions.Change(edits);
  }

  absl::StatusOr<v1::ListRegionsResponse> List(const v1::ListRegionsRequest& request) const {
    v1::ListRegionsResponse response;
    if (absl::Status status = ListRegions(view_, caller_, request, {}, &response); !status.ok()) {
      return status;
    }
    return response;
  }

  Caller caller_ = Caller::Admin("cxlpool://operator/alice");

  // All pages; `between` may change the pool before the next one.
  std::vector<std::string> ListAll(
      v1::ListRegionsRequest request, const std::function<void()>& between = [] {}) {
    std::vector<std::string> names;
    while (true) {
      const auto page = List(request);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok()) return names;
      EXPECT_LE(static_cast<uint32_t>(page->regions_size()), request.page_size());
      for (const v1::Region& region : page->regions()) names.push_back(region.name());
      if (page->next_page_token().empty()) return names;
      request.set_page_token(page->next_page_token());
      between();
    }
  }

  static std::string ReasonFor(const absl::StatusOr<v1::ListRegionsResponse>& answer) {
    return ReasonOf(answer.status());
  }

  PoolView view_;
};

v1::ListRegionsRequest Ask(uint32_t page_size, const std::string& filter = "",
                           const std::string& order = "") {
  v1::ListRegionsRequest request;
  request.set_page_size(page_size);
  request.set_filter(filter);
  request.set_order_by(order);
  return request;
}

TEST_F(ListRegionsTest, PagesGiveEachOnceInOrderOfName) {
  PutMany(25);
  const auto names = ListAll(Ask(10));
  ASSERT_EQ(names.size(), 25u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(ListAll(Ask(25)), names);
  EXPECT_EQ(ListAll(Ask(1000)), names);
  EXPECT_TRUE(List(Ask(25))->next_page_token().empty());
}

TEST_F(ListRegionsTest, AnEmptyPoolIsOneEmptyPage) {
  for (const char* order : {"", "name desc", "size_bytes"}) {
    const auto page = List(Ask(10, "", order));
    ASSERT_TRUE(page.ok());
    EXPECT_EQ(page->regions_size(), 0);
    EXPECT_EQ(page->next_page_token(), "");
  }
}

TEST_F(ListRegionsTest, EachOrderIsThatOfItsKeyAndThenTheName) {
  PutMany(50);
  std::vector<Region> regions;
  for (int i = 0; i < 50; ++i) regions.push_back(Make(i));
  const std::map<std::string, std::function<int64_t(const Region&)>> keys = {
      {"name", [](const Region&) { return 0; }},
      {"size_bytes", [](const Region& r) { return static_cast<int64_t>(r.size_bytes()); }},
      {"create_time", [](const Region& r) { return absl::ToUnixMicros(r.create_time); }},
      {"revision", [](const Region& r) { return static_cast<int64_t>(r.revision); }},
  };
  for (const auto& [field, key] : keys) {
    std::vector<std::pair<int64_t, std::string>> expected;
    for (const Region& region : regions) expected.emplace_back(key(region), "regions/" + region.id);
    std::sort(expected.begin(), expected.end());
    std::vector<std::string> names;
    for (const auto& [value, name] : expected) names.push_back(name);
    EXPECT_EQ(ListAll(Ask(7, "", field)), names) << field;
    std::reverse(names.begin(), names.end());
    EXPECT_EQ(ListAll(Ask(7, "", field + " desc")), names) << field;
  }
}

TEST_F(ListRegionsTest, WhatStaysIsListedOnceWhateverComesAndGoes) {
  for (const char* order : {"name", "name desc", "size_bytes", "size_bytes desc", "revision"}) {
    PutMany(200);
    int next = 0;
    const auto names = ListAll(Ask(9, "", order), [&] {
      Remove(Make(next * 2).id);  // Even ones go, one a page.
      Put(Make(1000 + next));     // Others come.
      ++next;
    });
    for (int i = 1; i < 200; i += 2) {
      EXPECT_EQ(std::count(names.begin(), names.end(), "regions/" + Make(i).id), 1)
          << order << " " << i;
    }
    for (const std::string& name : names) {
      EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << order << " " << name;
    }
    for (int i = 0; i < next; ++i) Remove(Make(1000 + i).id);
  }
}

TEST_F(ListRegionsTest, AFilterAndAHostLeaveOthersOut) {
  PutMany(100);
  Region attached = Make(3);
  attached.attachments.resize(1);
  attached.attachments[0].host = "host-a";
  Put(attached);
  for (const char* order : {"", "revision desc"}) {
    EXPECT_EQ(ListAll(Ask(8, "tenant = even", order)).size(), 50u);
    EXPECT_EQ(ListAll(Ask(8, "tenant = odd AND size_bytes = 268435456", order)).size(), 7u);
    v1::ListRegionsRequest request = Ask(8, "", order);
    request.set_host("hosts/host-a");
    EXPECT_EQ(ListAll(request), std::vector<std::string>{"regions/r-000003"});
  }
}

TEST_F(ListRegionsTest, APageLooksAtABoundedNumber) {
  PutMany(static_cast<int>(kMaxExamined) + 500);
  const auto page = List(Ask(10, "name = nobody"));
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->regions_size(), 0);
  EXPECT_NE(page->next_page_token(), "");
  EXPECT_EQ(ListAll(Ask(10, "name = r-100400")), std::vector<std::string>{"regions/r-100400"});
}

TEST_F(ListRegionsTest, ATokenFitsItsOwnListAlone) {
  PutMany(30);
  v1::ListRegionsRequest request = Ask(5, "tenant = even", "size_bytes");
  const std::string token = List(request)->next_page_token();
  ASSERT_NE(token, "");
  request.set_page_token(token);
  EXPECT_TRUE(List(request).ok());
  request.set_order_by("size_bytes desc");
  EXPECT_EQ(ReasonFor(List(request)), "BAD_PAGE_TOKEN");
  request.set_order_by(" size_bytes ");  // The same.
  EXPECT_TRUE(List(request).ok());
  request.set_filter("tenant = odd");
  EXPECT_EQ(ReasonFor(List(request)), "BAD_PAGE_TOKEN");
  request.set_filter("tenant = even");
  request.set_host("hosts/host-a");
  EXPECT_EQ(ReasonFor(List(request)), "BAD_PAGE_TOKEN");
  request.clear_host();
  for (const std::string& bad : {std::string("x"), token.substr(1), token + "-", token + "!",
                                 std::string("r-000004"), "g" + token.substr(1)}) {
    request.set_page_token(bad);
    EXPECT_EQ(ReasonFor(List(request)), "BAD_PAGE_TOKEN") << bad;
  }
}

TEST_F(ListRegionsTest, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(ReasonFor(List(Ask(1, "colour = red"))), "BAD_FILTER");
  for (const char* order : {"colour", "name asc", "name desc desc", "name,size_bytes", "desc"}) {
    EXPECT_EQ(ReasonFor(List(Ask(1, "", order))), "BAD_ORDER_BY") << order;
  }
  v1::ListRegionsRequest request;
  request.set_host("Host A");
  EXPECT_EQ(ReasonFor(List(request)), "BAD_NAME");
}

TEST_F(ListRegionsTest, ANameThatNothingHasIsAnErrorAndNoEmptyList) {
  Put(Make(1));
  Region attached = Make(2);
  attached.attachments.emplace_back();
  attached.attachments[0].host = "host-b";  // Known to the fabric, enrolled by nobody.
  Put(attached);
  auto devices = std::make_shared<std::vector<DeviceView>>(1);
  devices->front().device.id = "cmm-0";
  view_.devices = devices;
  auto tenants = std::make_shared<std::vector<TenantView>>(1);
  tenants->front().tenant.id = "odd";
  view_.tenants = tenants;
  const auto reason = [&](const std::string& filter) {
    return ReasonOf(List(Ask(8, filter, "")).status());
  };
  EXPECT_EQ(reason("host = host-z"), "UNKNOWN_HOST");
  EXPECT_EQ(reason("host != host-z"), "UNKNOWN_HOST");
  EXPECT_EQ(reason("host = host-b"), "");
  EXPECT_EQ(reason("device = cmm-9"), "UNKNOWN_DEVICE");
  EXPECT_EQ(reason("device = cmm-0"), "");
  EXPECT_EQ(reason("tenant = nobody"), "UNKNOWN_TENANT");
  EXPECT_EQ(reason("tenant = odd"), "");
  v1::ListRegionsRequest request;
  request.set_host("hosts/host-z");
  EXPECT_EQ(ReasonOf(List(request).status()), "UNKNOWN_HOST");
}

// Of others' Regions a host learns nothing: no name, no length of a page, no token, no error.
TEST_F(ListRegionsTest, AHostIsShownItsOwnAlone) {
  view_.hosts["host-a"] = std::make_shared<HostView>(HostView{
      Host{.key = 1, .id = "host-a", .identity = "cxlpool://host/host-a", .tenants = {"even"}},
      std::make_shared<const HostRuntime>(),
      {}});
  PutMany(5000);
  for (const int own : {0, 2400, 2402, 4998}) {
    Region region = Make(own);
    region.attachments.emplace_back().host = "host-a";
    Put(region);
  }
  Region of_another_tenant = Make(3001);
  of_another_tenant.attachments.emplace_back().host = "host-a";
  Put(of_another_tenant);
  caller_ = Caller::OfHost("host-a", "cxlpool://host/host-a");
  const std::vector<std::string> own = {"regions/r-000000", "regions/r-002400", "regions/r-002402",
                                        "regions/r-004998"};
  for (const char* order : {"", "name desc", "size_bytes", "create_time", "revision"}) {
    SCOPED_TRACE(order);
    for (const uint32_t page_size : {1, 2, 4, 1000}) {
      std::vector<std::string> names = ListAll(Ask(page_size, "", order));
      std::sort(names.begin(), names.end());
      EXPECT_EQ(names, own);
    }
    const auto full = List(Ask(4, "", order));
    ASSERT_TRUE(full.ok()) << full.status();
    EXPECT_EQ(full->next_page_token(), "") << "others' Regions make no next page";
    const auto first = List(Ask(1, "", order));
    ASSERT_EQ(first->regions_size(), 1);
    EXPECT_TRUE(absl::EndsWith(first->next_page_token(),
                               first->regions(0).name().substr(sizeof("regions/") - 1)))
        << first->next_page_token();
  }
  for (const char* nobodys : {"host = host-z", "tenant = odd", "device = cmm-9"}) {
    EXPECT_EQ(List(Ask(10, nobodys))->regions_size(), 0) << nobodys;
  }
  caller_ = Caller::OfHost("host-x", "cxlpool://host/host-x");
  EXPECT_EQ(List(Ask(10))->regions_size(), 0);
  caller_ = Caller();
  EXPECT_EQ(List(Ask(10))->regions_size(), 0);
}

TEST_F(ListRegionsTest, APageEndsBeforeItIsTooLargeForAClient) {
  for (int i = 0; i < 40; ++i) {
    Region large = Make(i);
    large.state_reason = std::string(300'000, 'x');
    Put(large);
  }
  for (const char* order : {"", "size_bytes desc"}) {
    const auto page = List(Ask(1000, "", order));
    ASSERT_TRUE(page.ok());
    EXPECT_LT(page->ByteSizeLong(), 4u << 20);
    EXPECT_NE(page->next_page_token(), "");
    EXPECT_EQ(ListAll(Ask(1000, "", order)).size(), 40u);
  }
}

}  // namespace
}  // namespace cxlpool::fm
