#include "host-agent/service/path_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/support/refusal.h"
#include "test/rigs/fake_device_paths.h"

namespace cxlpool::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kPathNode[] = "/dev/dax0.0";
const PathTable::Device kPathDevice = {.node = kPathNode, .which = "a", .folder = "kv"};
constexpr PathUser kPathWriter = {.uid = 1000, .writable = true};
constexpr PathUser kPathReader = {.uid = 1000, .writable = false};
constexpr PathUser kPathOther = {.uid = 1001, .writable = false};

struct PathRig {
  FakeDevicePaths paths;
  PathTable table{&paths};

  void Open(uint64_t connection, const std::string& name, PathUser user,
            const PathTable::Device& device = kPathDevice) {
    const absl::StatusOr<std::string> path = table.Open(device, connection, name, user);
    ASSERT_TRUE(path.ok()) << path.status();
  }
};

TEST(PathTableTest, ThePathGoesWithTheLastThatAskedForIt) {
  PathRig rig;
  EXPECT_EQ(*rig.table.Open(kPathDevice, 1, "regions/kv", kPathWriter), "/dev/cxlpool/kv/dax0.0");
  rig.Open(2, "regions/kv", kPathWriter);
  rig.table.Close(1, "regions/other");
  rig.table.Close(1, "regions/kv");
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathWriter));
  rig.table.CloseConnection(2);
  EXPECT_THAT(rig.paths.users, IsEmpty());
  EXPECT_THAT(rig.paths.links, IsEmpty());
}

TEST(PathTableTest, UsersComeAndGoByThemselves) {
  PathRig rig;
  rig.Open(1, "regions/kv", kPathWriter);
  rig.Open(2, "regions/kv", kPathOther);
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathWriter, kPathOther));
  rig.table.CloseConnection(1);
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathOther));
  EXPECT_THAT(rig.paths.links, ElementsAre("kv /dev/dax0.0"));
}

TEST(PathTableTest, AUserWritesAsLongAsSomethingIsOpenForThat) {
  PathRig rig;
  rig.Open(1, "regions/kv", kPathReader);
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathReader));
  rig.Open(2, "regions/kv", kPathWriter);
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathWriter));
  rig.table.CloseConnection(2);
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathReader));
  rig.Open(1, "regions/kv", kPathWriter);  // The same name: it adds to what is open.
  rig.Open(1, "regions/kv", kPathReader);
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathWriter));
}

TEST(PathTableTest, ARenamedRegionKeepsItsPath) {
  PathRig rig;
  rig.Open(1, "regions/kv", kPathWriter);
  const PathTable::Device renamed = {.node = kPathNode, .which = "a", .folder = "new"};
  EXPECT_EQ(*rig.table.Open(renamed, 2, "regions/new", kPathOther), "/dev/cxlpool/kv/dax0.0");
  EXPECT_THAT(rig.paths.links, ElementsAre("kv /dev/dax0.0"));
  rig.table.CloseConnection(1);
  rig.table.CloseConnection(2);
  EXPECT_THAT(rig.paths.links, IsEmpty());
}

// Taken away by force: another Region's device gets the node's name while the old connection lives.
TEST(PathTableTest, WhatWasHeldOfADeviceGivesNoRightToTheNextOfItsName) {
  PathRig rig;
  rig.Open(1, "regions/kv", kPathWriter);
  const PathTable::Device next = {.node = kPathNode, .which = "b", .folder = "next"};
  rig.Open(2, "regions/next", kPathOther, next);
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathOther));
  EXPECT_THAT(rig.paths.links, ElementsAre("next /dev/dax0.0"));
  rig.table.CloseConnection(1);
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathOther));
}

// The same, and the next Region is opened by its descriptor only: nothing is shown of it.
TEST(PathTableTest, ACloseGivesNobodyARightToTheNextDeviceOfTheName) {
  PathRig rig;
  rig.Open(1, "regions/kv", kPathWriter);
  rig.Open(2, "regions/kv", kPathWriter);
  rig.paths.users.erase(kPathNode);  // A new node: it names nobody.
  rig.table.CloseConnection(1);
  EXPECT_THAT(rig.paths.users, IsEmpty());
  rig.table.CloseConnection(2);
  EXPECT_THAT(rig.paths.users, IsEmpty());
  EXPECT_THAT(rig.paths.links, IsEmpty());
}

TEST(PathTableTest, WhatIsShownOfADeviceGoesWithIt) {
  PathRig rig;
  rig.Open(1, "regions/kv", kPathWriter);
  rig.table.KeepOnly({"a", "b"});
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathWriter));
  rig.table.KeepOnly({"b"});
  EXPECT_THAT(rig.paths.users, IsEmpty());
  EXPECT_THAT(rig.paths.links, IsEmpty());
  EXPECT_TRUE(rig.table.empty());
  rig.table.CloseConnection(1);
}

TEST(PathTableTest, WhatCouldNotBeTakenBackIsTriedAgain) {
  const auto again = {
      +[](PathRig& rig) { rig.table.KeepOnly({"a"}); },
      +[](PathRig& rig) { rig.table.Close(9, "regions/other"); },
      +[](PathRig& rig) {
        rig.Open(9, "regions/b", kPathOther, {.node = "/dev/dax9.0", .which = "b", .folder = "b"});
        rig.table.CloseConnection(9);
      },
  };
  for (const auto& next : again) {
    PathRig rig;
    rig.Open(1, "regions/kv", kPathWriter);
    rig.Open(2, "regions/kv", kPathOther);
    rig.paths.failure = absl::InternalError("no");
    rig.table.CloseConnection(1);
    EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathWriter, kPathOther));
    rig.paths.failure = absl::OkStatus();
    next(rig);
    EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathOther));

    rig.paths.failure = absl::InternalError("no");
    rig.table.CloseConnection(2);
    EXPECT_FALSE(rig.table.empty());
    rig.paths.failure = absl::OkStatus();
    next(rig);
    EXPECT_THAT(rig.paths.users, IsEmpty());
    EXPECT_TRUE(rig.table.empty());
  }
}

TEST(PathTableTest, AFailureLeavesThingsAsTheyWere) {
  PathRig rig;
  rig.Open(1, "regions/kv", kPathWriter);
  rig.paths.failure = absl::InternalError("no");
  EXPECT_EQ(rig.table.Open(kPathDevice, 2, "regions/kv", kPathOther).status(), rig.paths.failure);
  rig.paths.failure = absl::OkStatus();
  rig.table.CloseConnection(2);
  EXPECT_THAT(rig.paths.users[kPathNode], ElementsAre(kPathWriter));
  rig.table.CloseConnection(1);
  EXPECT_THAT(rig.paths.users, IsEmpty());
}

TEST(PathTableTest, UsersOfADeviceHaveALimit) {
  PathRig rig;
  for (uint32_t i = 0; i < PathTable::kMaxUsers; ++i) {
    rig.Open(i, "regions/kv", {.uid = i, .writable = true});
  }
  const PathUser more = {.uid = 5000, .writable = true};
  EXPECT_EQ(ReasonOf(rig.table.Open(kPathDevice, 100, "regions/kv", more).status()),
            "TOO_MANY_OPENS");
  rig.Open(101, "regions/kv", {.uid = 0, .writable = true});
  EXPECT_EQ(rig.paths.users[kPathNode].size(), PathTable::kMaxUsers);
}

TEST(PathTableTest, AHostWithoutPathsSaysSo) {
  PathTable none;
  none.Start();
  none.CloseConnection(1);
  EXPECT_EQ(ReasonOf(none.CheckCaller(1)), "PATH_UNSUPPORTED");
  PathRig rig;
  const PathTable::Device part = {.node = "", .which = "a", .folder = "kv"};
  EXPECT_EQ(ReasonOf(rig.table.Open(part, 1, "regions/kv", kPathWriter).status()),
            "PATH_UNSUPPORTED");
}

}  // namespace
}  // namespace cxlpool::agent
