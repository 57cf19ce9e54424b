#include "host-agent/local/link_paths.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/posix_acl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "host-agent/local/access_list.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr PathUser kPathWriter = {.uid = 4242, .writable = true};
constexpr PathUser kPathReader = {.uid = 4343, .writable = false};

TEST(AccessListTest, TheKernelsBytes) {
  const AccessList list = WithUsers(AccessListOfMode(0640), {kPathReader});
  EXPECT_EQ(EncodeAccessList(list),
            std::string("\2\0\0\0"                    // The version.
                        "\1\0\6\0\xff\xff\xff\xff"    // The owner: rw.
                        "\2\0\4\0\xf7\x10\0\0"        // User 4343: r.
                        "\4\0\4\0\xff\xff\xff\xff"    // The group: r.
                        "\x10\0\4\0\xff\xff\xff\xff"  // The mask: r.
                        "\x20\0\0\0\xff\xff\xff\xff",
                        44));  // Others: nothing.
  EXPECT_EQ(DecodeAccessList(EncodeAccessList(list)), list);
}

TEST(AccessListTest, BytesThatAreNone) {
  const std::string good = EncodeAccessList(AccessListOfMode(0600));
  EXPECT_TRUE(DecodeAccessList(good).has_value());
  for (const std::string& bad :
       {std::string(), good.substr(0, 3), good.substr(0, good.size() - 1), "\1" + good.substr(1)}) {
    EXPECT_FALSE(DecodeAccessList(bad).has_value()) << bad.size();
  }
}

TEST(AccessListTest, WhatASiteHasSetStays) {
  const AccessEntry group = {.kind = ACL_GROUP, .rights = ACL_READ, .id = 7};
  AccessList list = WithUsers(AccessListOfMode(0620), {kPathWriter});
  list.insert(list.end() - 2, group);
  const AccessList taken_back = WithUsers(list, {});
  EXPECT_THAT(taken_back, ::testing::Contains(group));
  // Nobody who is not in it may more than before: the mask is the group's and the named groups'.
  const AccessEntry mask = {.kind = ACL_MASK, .rights = ACL_READ | ACL_WRITE};
  EXPECT_THAT(taken_back, ::testing::Contains(mask));
  EXPECT_EQ(WithUsers(WithUsers(AccessListOfMode(0620), {kPathWriter, kPathReader}), {}),
            AccessListOfMode(0620));
}

// acl(5): what the mask held back stays back, while the device is shown and after.
TEST(AccessListTest, WhatTheMaskHeldBackComesToNobody) {
  const AccessList list = {{.kind = ACL_USER_OBJ, .rights = 6},
                           {.kind = ACL_GROUP_OBJ, .rights = 6},
                           {.kind = ACL_GROUP, .rights = 6, .id = 7},
                           {.kind = ACL_MASK, .rights = 4},
                           {.kind = ACL_OTHER, .rights = 0}};
  for (const std::vector<PathUser>& users : {std::vector{kPathWriter}, std::vector<PathUser>()}) {
    const AccessList with = WithUsers(list, users);
    EXPECT_THAT(with, ::testing::Contains(AccessEntry{.kind = ACL_GROUP_OBJ, .rights = 4}));
    EXPECT_THAT(with, ::testing::Contains(AccessEntry{.kind = ACL_GROUP, .rights = 4, .id = 7}));
    const AccessEntry mask = {.kind = ACL_MASK,
                              .rights = static_cast<uint16_t>(users.empty() ? 4 : 6)};
    EXPECT_THAT(with, ::testing::Contains(mask));
  }
}

TEST(AccessListTest, WhoIsNamed) {
  AccessList list = WithUsers(AccessListOfMode(0600), {kPathWriter, kPathReader});
  const std::vector<PathUser> wanted = {
      {kPathWriter.uid, true}, {kPathReader.uid, true}, {1, true}};
  EXPECT_THAT(NamedOf(list, wanted), ElementsAre(kPathWriter, kPathReader));
  EXPECT_THAT(NamedOf(list, {{kPathWriter.uid, false}}),
              ElementsAre(PathUser{kPathWriter.uid, false}));
  for (AccessEntry& entry : list) {
    if (entry.kind == ACL_MASK) entry.rights = ACL_READ;
  }
  EXPECT_THAT(NamedOf(list, {kPathWriter}), ElementsAre(PathUser{kPathWriter.uid, false}));
  EXPECT_THAT(NamedOf(AccessListOfMode(0666), {kPathWriter}), IsEmpty());
}

// A host whose /dev and /proc are folders, and its nodes files.
class LinkPathsTest : public ::testing::Test {
 protected:
  LinkPathsTest() {
    fs::create_directories(root_ + "/dev");
    for (const char* name : {"dax0.0", "dax1.0"}) {
      std::ofstream(Node(name)).flush();
      ::chmod(Node(name).c_str(), 0600);
    }
  }
  ~LinkPathsTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  static std::string MakeRoot() {
    std::string name = (fs::temp_directory_path() / "cxlpool-paths-XXXXXX").string();
    return ::mkdtemp(name.data());
  }
  std::string Node(const std::string& name) const { return root_ + "/dev/" + name; }
  std::string Link(const std::string& name) const { return root_ + "/dev/cxlpool/" + name; }

  // Whom the node's list names.
  std::vector<PathUser> Users(const std::string& name) const {
    std::string bytes(1024, '\0');
    const ssize_t got =
        ::getxattr(Node(name).c_str(), kAccessListAttribute, bytes.data(), bytes.size());
    if (got < 0) return {};
    bytes.resize(static_cast<size_t>(got));
    std::vector<PathUser> users;
    const AccessList list = DecodeAccessList(bytes).value();
    for (const AccessEntry& entry : list) {
      if (entry.kind != ACL_USER) continue;
      EXPECT_EQ(entry.rights & ACL_READ, ACL_READ);
      users.push_back({.uid = entry.id, .writable = (entry.rights & ACL_WRITE) != 0});
    }
    return users;
  }
  uint32_t Mode(const std::string& path) const {
    struct stat there = {};
    EXPECT_EQ(::stat(path.c_str(), &there), 0) << path;
    return there.st_mode & 07777;
  }
  // Of this machine's folder for tests.
  bool HasAccessLists() const {
    const std::string list = EncodeAccessList(WithUsers(AccessListOfMode(0600), {kPathWriter}));
    const std::string file = root_ + "/tried";
    std::ofstream(file).flush();
    return ::setxattr(file.c_str(), kAccessListAttribute, list.data(), list.size(), 0) == 0;
  }

  const std::string root_ = MakeRoot();
  LinkPaths paths_{root_ + "/dev/cxlpool", root_ + "/proc"};
};

#define NEEDS_ACCESS_LISTS() \
  if (!HasAccessLists()) GTEST_SKIP() << root_ << " is on a file system without access lists"

TEST_F(LinkPathsTest, ShowsANodeToItsUsersAndToNobodyElse) {
  NEEDS_ACCESS_LISTS();
  const mode_t umask = ::umask(0077);  // As in the agent's unit.
  const absl::StatusOr<std::string> path =
      paths_.Show("kv", Node("dax0.0"), {kPathWriter, kPathReader});
  ::umask(umask);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, Link("kv/dax0.0"));
  EXPECT_EQ(fs::read_symlink(*path), "../../dax0.0");
  EXPECT_TRUE(fs::equivalent(*path, Node("dax0.0")));
  EXPECT_EQ(Mode(Link("")), 0755u);
  EXPECT_EQ(Mode(Link("kv")), 0755u);
  EXPECT_THAT(Users("dax0.0"), ElementsAre(kPathWriter, kPathReader));
  EXPECT_THAT(Users("dax1.0"), IsEmpty());
  EXPECT_TRUE(paths_.Show("kv", Node("dax0.0"), {kPathReader}).ok());
  EXPECT_THAT(Users("dax0.0"), ElementsAre(kPathReader));
}

TEST_F(LinkPathsTest, TakesBackTheLinkTheFolderAndTheRight) {
  NEEDS_ACCESS_LISTS();
  ASSERT_TRUE(paths_.Show("kv", Node("dax0.0"), {kPathWriter}).ok());
  ASSERT_TRUE(paths_.Show("kv", Node("dax1.0"), {kPathWriter}).ok());
  ASSERT_TRUE(paths_.Hide("kv", Node("dax0.0")).ok());
  EXPECT_THAT(Users("dax0.0"), IsEmpty());
  EXPECT_EQ(Mode(Node("dax0.0")), 0600u) << "the mask must not stay as the group's right";
  EXPECT_FALSE(fs::exists(fs::symlink_status(Link("kv/dax0.0"))));
  EXPECT_THAT(Users("dax1.0"), ElementsAre(kPathWriter));
  ASSERT_TRUE(paths_.Hide("kv", Node("dax1.0")).ok());
  EXPECT_FALSE(fs::exists(Link("kv")));
  EXPECT_TRUE(paths_.Hide("kv", Node("dax1.0")).ok());
}

TEST_F(LinkPathsTest, NarrowOnlyTakes) {
  NEEDS_ACCESS_LISTS();
  ASSERT_TRUE(paths_.Show("kv", Node("dax0.0"), {kPathWriter, kPathReader}).ok());
  ASSERT_TRUE(paths_.Narrow(Node("dax0.0"), {kPathReader}).ok());
  EXPECT_THAT(Users("dax0.0"), ElementsAre(kPathReader));
  ASSERT_TRUE(paths_.Narrow(Node("dax0.0"), {kPathWriter, {kPathReader.uid, true}}).ok());
  EXPECT_THAT(Users("dax0.0"), ElementsAre(kPathReader));
  // Another device has the name.
  fs::remove(Node("dax0.0"));
  std::ofstream(Node("dax0.0")).flush();
  ::chmod(Node("dax0.0").c_str(), 0600);
  ASSERT_TRUE(paths_.Narrow(Node("dax0.0"), {kPathReader}).ok());
  EXPECT_THAT(Users("dax0.0"), IsEmpty());
  EXPECT_EQ(Mode(Node("dax0.0")), 0600u);
  fs::remove(Node("dax0.0"));
  EXPECT_TRUE(paths_.Narrow(Node("dax0.0"), {kPathReader}).ok());
}

TEST_F(LinkPathsTest, AModeOfTheSitesOwnIsTheSameAfterwards) {
  NEEDS_ACCESS_LISTS();
  ::chmod(Node("dax0.0").c_str(), 0640);
  ASSERT_TRUE(paths_.Show("kv", Node("dax0.0"), {kPathWriter}).ok());
  ASSERT_TRUE(paths_.Hide("kv", Node("dax0.0")).ok());
  EXPECT_EQ(Mode(Node("dax0.0")), 0640u);
}

TEST_F(LinkPathsTest, TheNextAgentTakesBackAllThatIsLeft) {
  NEEDS_ACCESS_LISTS();
  ASSERT_TRUE(paths_.Show("kv", Node("dax0.0"), {kPathWriter}).ok());
  ASSERT_TRUE(paths_.Show("other", Node("dax1.0"), {kPathReader}).ok());
  fs::remove(Node("dax1.0"));  // Its link points nowhere now.
  std::ofstream(Link("README")) << "of the site\n";
  LinkPaths next(root_ + "/dev/cxlpool", root_ + "/proc");
  ASSERT_TRUE(next.TakeBackAll().ok());
  EXPECT_THAT(Users("dax0.0"), IsEmpty());
  EXPECT_EQ(Mode(Node("dax0.0")), 0600u);
  EXPECT_FALSE(fs::exists(Link("kv")));
  EXPECT_FALSE(fs::exists(Link("other")));
  EXPECT_TRUE(fs::exists(Link("README")));
  EXPECT_TRUE(next.TakeBackAll().ok());
}

TEST_F(LinkPathsTest, NothingLeftIsNoError) { EXPECT_TRUE(paths_.TakeBackAll().ok()); }

TEST_F(LinkPathsTest, ALinkThatPointsElsewhereIsReplaced) {
  NEEDS_ACCESS_LISTS();
  fs::create_directories(Link("kv"));
  fs::create_symlink("/etc/passwd", Link("kv/dax0.0"));
  ASSERT_TRUE(paths_.Show("kv", Node("dax0.0"), {kPathWriter}).ok());
  EXPECT_TRUE(fs::equivalent(Link("kv/dax0.0"), Node("dax0.0")));
}

TEST_F(LinkPathsTest, WhatCannotBeShownSaysWhyAndLeavesNoLink) {
  const absl::Status gone = paths_.Show("kv", Node("dax7.0"), {kPathWriter}).status();
  EXPECT_EQ(ReasonOf(gone), "PATH_FAILED");
  EXPECT_THAT(std::string(gone.message()), ::testing::HasSubstr("dax7.0"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(Link("kv/dax7.0"))));
  EXPECT_EQ(ReasonOf(paths_.Show("kv", root_ + "/dev", {kPathWriter}).status()), "PATH_FAILED");
  std::ofstream(Link("file")) << "x";
  EXPECT_EQ(ReasonOf(paths_.Show("file", Node("dax0.0"), {kPathWriter}).status()), "PATH_FAILED");
  EXPECT_EQ(
      ReasonOf(LinkPaths("/nowhere/at/all").Show("kv", Node("dax0.0"), {kPathWriter}).status()),
      "PATH_FAILED");
  EXPECT_EQ(ReasonOf(paths_.Show("kv", "/proc/self/stat", {kPathWriter}).status()),
            "PATH_UNSUPPORTED");
}

// A process's list of mounts, as the kernel gives it.
class CallerTest : public LinkPathsTest {
 protected:
  CallerTest() { Mounts("self", kRootMount + kDevMount); }

  void Mounts(const std::string& pid, const std::string& lines) const {
    fs::create_directories(root_ + "/proc/" + pid);
    std::ofstream(root_ + "/proc/" + pid + "/mountinfo") << lines;
  }
  std::string ReasonFor(const std::string& lines) const {
    Mounts("10", lines);
    return std::string(ReasonOf(LinkPaths("/dev/cxlpool", root_ + "/proc").CheckCaller(10)));
  }

  const std::string kRootMount = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n";
  const std::string kDevMount = "23 22 0:6 / /dev rw,nosuid shared:2 - devtmpfs udev rw,mode=755\n";
};

TEST_F(CallerTest, WhoHasTheAgentsDevIsServed) {
  EXPECT_EQ(ReasonFor(kRootMount + kDevMount), "");
  // In mounts of its own, on another root file system, with more mounts below.
  EXPECT_EQ(ReasonFor("90 80 0:99 / / rw - overlay overlay rw\n"
                      "91 90 0:6 / /dev rw,nosuid master:2 - devtmpfs udev rw\n"
                      "92 91 0:25 / /dev/shm rw - tmpfs tmpfs rw\n"
                      "93 90 0:77 / /device rw - tmpfs tmpfs rw\n"),
            "");
  EXPECT_TRUE(LinkPaths("/dev/cxlpool").CheckCaller(::getpid()).ok());
  EXPECT_TRUE(LinkPaths(root_ + "/dev/cxlpool").CheckCaller(::getpid()).ok());
}

TEST_F(CallerTest, ADevOfItsOwnIsRefused) {
  for (const std::string& lines : {
           std::string(),
           kRootMount,                                                     // A folder of its own.
           kRootMount + "91 90 0:88 / /dev rw - tmpfs tmpfs rw\n",         // A container's.
           kRootMount + kDevMount + "91 23 0:88 / /dev rw - tmpfs t r\n",  // Mounted over it.
           kRootMount + "91 90 0:6 /sub /dev rw - devtmpfs udev rw\n",     // A part of it.
           std::string("no list of mounts at all\n"),
           std::string(2 << 20, '\n'),
       }) {
    EXPECT_EQ(ReasonFor(lines), "OTHER_NAMESPACE") << lines.substr(0, 200);
  }
  for (const int pid : {12, 0, -1}) {
    EXPECT_EQ(ReasonOf(paths_.CheckCaller(pid)), "OTHER_NAMESPACE") << pid;
  }
}

TEST_F(CallerTest, AListThatIsTooLongIsNoContainer) {
  const LinkPaths paths("/dev/cxlpool", root_ + "/proc");
  Mounts("10", std::string(2 << 20, '\n'));
  EXPECT_THAT(paths.CheckCaller(10).message(), ::testing::HasSubstr("/10/mountinfo has 1048576"));
  Mounts("10", kRootMount + kDevMount);
  Mounts("self", std::string(2 << 20, '\n'));
  EXPECT_THAT(paths.CheckCaller(10).message(), ::testing::HasSubstr("/self/mountinfo has 1048576"));
  Mounts("self", kRootMount + kDevMount);
  EXPECT_THAT(paths.CheckCaller(11).message(), ::testing::HasSubstr("container"));
}

TEST_F(CallerTest, AFolderThatIsNoMountIsAPartOfOne) {
  const LinkPaths paths("/srv/pool/paths", root_ + "/proc");
  const std::string other_root = "70 1 0:99 / / ro - overlay o rw\n";
  Mounts("10", "70 1 254:1 / / ro - ext4 /dev/vda1 rw\n");
  EXPECT_TRUE(paths.CheckCaller(10).ok());
  Mounts("10", other_root + "71 70 254:1 /srv /srv rw - ext4 /dev/vda1 rw\n");
  EXPECT_TRUE(paths.CheckCaller(10).ok());
  Mounts("10", other_root + "71 70 254:1 /home /srv rw - ext4 /dev/vda1 rw\n");
  EXPECT_EQ(ReasonOf(paths.CheckCaller(10)), "OTHER_NAMESPACE");
}

}  // namespace
}  // namespace cxlpool::agent
