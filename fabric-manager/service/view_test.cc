#include "fabric-manager/service/view.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace cxlpool::fm {
namespace {

// What a commit makes of a pool with one more Region.
Publication With(const std::string& id, uint64_t revision) {
  auto region = std::make_shared<Region>();
  region->id = id;
  region->key = revision;
  Publication publication;
  publication.revision = revision;
  publication.regions.push_back({region});
  HostView host;
  host.host.id = "host-" + id;
  publication.hosts.push_back(std::make_shared<const HostView>(std::move(host)));
  return publication;
}

TEST(ViewHolderTest, AReadersViewStaysAsItWas) {
  ViewHolder views;
  Publication first = With("a", 1), second = With("b", 2);
  views.Publish(first);
  const PoolViewPtr before = views.Get();
  views.Publish(second);
  const PoolViewPtr after = views.Get();
  EXPECT_EQ(before->revision, 1u);
  EXPECT_EQ(before->regions.size(), 1u);
  EXPECT_EQ(before->regions.Find("b"), nullptr);
  EXPECT_EQ(before->hosts.size(), 1u);
  EXPECT_EQ(after->revision, 2u);
  EXPECT_NE(after->regions.Find("a"), nullptr);
  EXPECT_NE(after->regions.Find("b"), nullptr);
  EXPECT_EQ(after->hosts.size(), 2u);
}

TEST(ViewHolderTest, AViewThatNobodyKeepsBecomesTheNextOne) {
  ViewHolder views;
  Publication first = With("a", 1), second = With("b", 2);
  views.Publish(first);
  const PoolView* const before = views.Get().get();
  views.Publish(second);
  EXPECT_EQ(views.Get().get(), before) << "nothing had to be copied";
  EXPECT_EQ(views.Get()->regions.size(), 2u);
}

// Shown by what a reader's view does to the next one: that which was put together while it was kept
// is another.
TEST(ViewHolderTest, TheWriterCatchesUpWhereMuchWaits) {
  const auto is_put_together = [](int regions) {
    ViewHolder views;
    PoolViewPtr kept = views.Get();
    const PoolView* const before = kept.get();
    for (int i = 0; i < regions; ++i) {
      Publication publication = With("r" + std::to_string(i), static_cast<uint64_t>(i) + 1);
      views.Publish(publication);
    }
    views.CatchUp();
    kept.reset();
    const PoolViewPtr after = views.Get();
    EXPECT_EQ(after->regions.size(), static_cast<size_t>(regions));
    return after.get() != before;
  };
  EXPECT_FALSE(is_put_together(1)) << "that is left to the first reader";
  EXPECT_TRUE(is_put_together(1024));
}

TEST(ViewHolderTest, TheFabricIsInEveryViewOnceItIsKnown) {
  ViewHolder views;
  Publication first = With("a", 1), second = With("b", 2);
  views.Publish(first);
  const PoolViewPtr before = views.Get();
  views.Publish(second);
  views.SetFabric({.driver = "shared"});
  EXPECT_EQ(views.Get()->fabric.driver, "shared");
  EXPECT_EQ(views.Get()->regions.size(), 2u) << "nothing that was published is lost";
  EXPECT_EQ(before->fabric.driver, "");
  Publication third = With("c", 3);
  views.Publish(third);
  EXPECT_EQ(views.Get()->fabric.driver, "shared");
}

TEST(ViewHolderTest, AccessRulesStayUntilOthersArePublished) {
  ViewHolder views;
  const auto none = views.GetAccessRules();
  ASSERT_NE(none, nullptr);
  Publication first = With("a", 1), second = With("b", 2), third = With("c", 3);
  first.access_rules = std::make_shared<const AccessRules>();
  views.Publish(first);
  EXPECT_EQ(first.access_rules, nullptr) << "the next commit that is made of it has none";
  const auto rules = views.GetAccessRules();
  EXPECT_NE(rules, none);
  views.Publish(second);
  EXPECT_EQ(views.GetAccessRules(), rules);
  third.access_rules = std::make_shared<const AccessRules>();
  views.Publish(third);
  EXPECT_NE(views.GetAccessRules(), rules) << "a call sees that they changed while it was judged";
}

TEST(ViewHolderTest, WhatIsOverIsKeptOfEachAndInAllWithinLimits) {
  ViewHolder views;
  const absl::Time begin = absl::FromUnixSeconds(1'700'000'000);
  const auto note = [&](const std::string& name, int minute) {
    const absl::Time since = begin + absl::Minutes(minute);
    views.NotePast(name, {"AGENT_AWAY", since, since + absl::Seconds(1)});
  };
  EXPECT_TRUE(views.PastOf("hosts/a").empty());
  note("hosts/b", 0);
  for (int i = 0; i < 40; ++i) note("hosts/a", i);
  const std::vector<PastTrouble> of_a = views.PastOf("hosts/a");
  ASSERT_EQ(of_a.size(), 16u);
  EXPECT_EQ(of_a.front().since, begin + absl::Minutes(24));
  EXPECT_EQ(of_a.back().until, begin + absl::Minutes(39) + absl::Seconds(1));
  EXPECT_EQ(views.PastOf("hosts/b").size(), 1u) << "no other one's is forgotten for it";
  for (int i = 0; i < 4096 - 16; ++i) note("hosts/c" + std::to_string(i), i);
  EXPECT_EQ(views.PastOf("hosts/b").size(), 0u) << "the oldest goes";
  EXPECT_EQ(views.PastOf("hosts/a").size(), 16u);
}

}  // namespace
}  // namespace cxlpool::fm
