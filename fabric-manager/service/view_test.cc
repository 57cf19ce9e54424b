#include "fabric-manager/service/view.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace cxlpool::fm
