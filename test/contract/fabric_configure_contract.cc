// The FabricDriver's contract, of Configure: hosts and devices that come and go while something is
// bound.

#include <algorithm>
#include <utility>

#include "proto/support/refusal.h"
#include "test/contract/fabric_driver_contract.h"

namespace cxlpool::fm {

absl::Status FabricDriverContract::Configure(const TopologyTables& tables) {
  FabricParts parts{tables, {}};
  const auto view = Discover();
  if (!view.ok()) return view.status();
  for (const FabricHost& host : view->hosts) parts.known.hosts[host.id] = host.fabric_incarnation;
  return WaitForAnswer<absl::Status>(
      [&](auto done) { driver().Configure(parts, std::move(done)); });
}

const FabricHost* FabricDriverContract::Shown(const FabricView& view, const std::string& host) {
  const auto it = std::find_if(view.hosts.begin(), view.hosts.end(),
                               [&](const FabricHost& each) { return each.id == host; });
  return it == view.hosts.end() ? nullptr : &*it;
}

TEST_P(FabricDriverContract, WhatStaysIsNotTouchedByAConfigure) {
  const auto parts = rig_->Parts();
  if (!parts.has_value()) GTEST_SKIP() << "this fabric is what it is";
  const auto ld = Bind(Request(0, 0, 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  rig_->PowerOn(*ld);
  ASSERT_TRUE(rig_->Store(*ld, 0, "mine").ok());
  ASSERT_TRUE(Configure(*parts).ok());
  ASSERT_TRUE(Find(ld->binding()).has_value());
  EXPECT_EQ(*rig_->Load(*ld, 0, 4), "mine");
  EXPECT_TRUE(Bind(Request(1, 0, 1)).ok());
}

TEST_P(FabricDriverContract, AHostThatLeavesShowsWhatIsBoundThere) {
  const auto parts = rig_->Parts();
  if (!parts.has_value()) GTEST_SKIP() << "this fabric is what it is";
  const auto ld = Bind(Request(0, 0, 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  TopologyTables without = *parts;
  std::erase_if(without.hosts, [&](const HostEntry& host) { return host.id == ld->host; });
  const BindRequest late = Request(0, 1, 1);
  ASSERT_TRUE(Configure(without).ok());
  ASSERT_TRUE(Find(ld->binding()).has_value());
  auto view = Discover();
  ASSERT_NE(Shown(*view, ld->host), nullptr);
  EXPECT_TRUE(Shown(*view, ld->host)->slots.empty());
  EXPECT_FALSE(Shown(*view, ld->host)->closed_slots.empty());
  EXPECT_EQ(ReasonOf(Bind(late).status()), "UNKNOWN_SLOT");
  EXPECT_TRUE(Bind(Request(1, 0, 1)).ok()) << "the others are as they were";
  // It goes once nothing is bound there, and comes back.
  EXPECT_TRUE(Unbind(*ld).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (Shown(*Discover(), ld->host) != nullptr) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "it does not go";
  }
  EXPECT_EQ(ReasonOf(Bind(late).status()), "UNKNOWN_HOST");
  ASSERT_TRUE(Configure(*parts).ok());
  while (Shown(*(view = Discover()), ld->host) == nullptr || !Shown(*view, ld->host)->reachable) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "it does not come back";
  }
  EXPECT_TRUE(Bind(Request(0, 1, 2)).ok());
}

// Not to be listed is no proof, and not to answer neither.
TEST_P(FabricDriverContract, AHostThatLeavesAndHangsIsNotForgotten) {
  const auto parts = rig_->Parts();
  if (!parts.has_value()) GTEST_SKIP() << "this fabric is what it is";
  const auto ld = Bind(Request(0, 0, 0));
  ASSERT_TRUE(ld.ok()) << ld.status();
  if (!rig_->Hang(ld->host, true)) GTEST_SKIP() << "no host of this rig hangs";
  TopologyTables without = *parts;
  std::erase_if(without.hosts, [&](const HostEntry& host) { return host.id == ld->host; });
  ASSERT_TRUE(Configure(without).ok());
  for (int look = 0; look < 3; ++look) {
    const auto view = Discover();
    ASSERT_TRUE(view.ok()) << view.status();
    ASSERT_NE(Shown(*view, ld->host), nullptr);
    EXPECT_FALSE(Shown(*view, ld->host)->reachable);
  }
  EXPECT_EQ(ReasonOf(AwaitUnbound(ld->binding(), absl::Milliseconds(20))), "UNBIND_NOT_PROVEN");
  ASSERT_TRUE(rig_->Hang(ld->host, false));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!Find(ld->binding()).has_value()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "it is not seen again";
  }
  EXPECT_TRUE(Unbind(*ld).ok());
}

TEST_P(FabricDriverContract, ADeviceComesAndGoesAndIsTheSame) {
  const auto parts = rig_->Parts();
  if (!parts.has_value()) GTEST_SKIP() << "this fabric is what it is";
  const BindRequest request = Request(0, 0, 0);
  TopologyTables without = *parts;
  without.devices.clear();
  ASSERT_TRUE(Configure(without).ok());
  EXPECT_TRUE(Discover()->devices.empty());
  EXPECT_EQ(ReasonOf(Bind(request).status()), "UNKNOWN_DEVICE");
  ASSERT_TRUE(Configure(*parts).ok());
  const auto view = Discover();
  ASSERT_EQ(view->devices.size(), 1u);
  EXPECT_EQ(view->devices[0].identity, start_.devices[0].identity);
  EXPECT_TRUE(Bind(request).ok());
}

}  // namespace cxlpool::fm
