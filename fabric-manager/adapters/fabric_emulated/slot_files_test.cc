#include "fabric-manager/adapters/fabric_emulated/slot_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

class SlotFilesTest : public ::testing::Test {
 protected:
  SlotFilesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    files_.emplace(root_ + "/slot-3", ::geteuid());
    EXPECT_TRUE(files_->Prepare().ok());
  }
  ~SlotFilesTest() override { std::filesystem::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/slot-3/" + name; }

  static emulated::v1::FabricSide Side() {
    emulated::v1::FabricSide side;
    side.set_tag("0f0e0d0c-0b0a-4908-8706-050403020100");
    side.set_serial(UINT64_MAX);
    side.set_length_bytes(1 << 20);
    side.set_extent_path("/extents/x");
    return side;
  }

  std::string root_;
  std::optional<SlotFiles> files_;
};

TEST_F(SlotFilesTest, PrepareMakesAPrivateDirectoryAndIsIdempotent) {
  ASSERT_TRUE(files_->Prepare().ok());
  struct stat info;
  ASSERT_EQ(::stat((root_ + "/slot-3").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
}

TEST_F(SlotFilesTest, ReadsBackWhatItWrote) {
  ASSERT_TRUE(files_->WriteFabricSide(Side()).ok());
  auto side = files_->ReadFabricSide();
  ASSERT_TRUE(side.ok());
  ASSERT_TRUE(side->has_value());
  EXPECT_EQ((*side)->SerializeAsString(), Side().SerializeAsString());
}

TEST_F(SlotFilesTest, AbsentIsNothingAndRemoveIsIdempotent) {
  ASSERT_TRUE(files_->WriteFabricSide(Side()).ok());
  ASSERT_TRUE(files_->RemoveFabricSide().ok());
  ASSERT_TRUE(files_->RemoveFabricSide().ok());
  auto side = files_->ReadFabricSide();
  ASSERT_TRUE(side.ok());
  EXPECT_FALSE(side->has_value());
}

TEST_F(SlotFilesTest, TornOrForeignFabricSideIsNotAnEmptySlot) {
  for (const char* text : {"", "serial: 5", "}{", "serial: 99999999999999999999999"}) {
    std::ofstream(Path("fabric.textproto"), std::ios::trunc) << text;
    EXPECT_EQ(ReasonOf(files_->ReadFabricSide().status()), "SLOT_CORRUPT") << text;
  }
}

TEST_F(SlotFilesTest, HostSideOfALaterReleaseIsRead) {
  std::ofstream(Path("host.textproto")) << "serial: 7 powered: true shininess: 3";
  auto side = files_->ReadHostSide();
  ASSERT_TRUE(side.ok()) << side.status();
  EXPECT_EQ((*side)->serial(), 7u);
  EXPECT_TRUE((*side)->powered());
}

TEST_F(SlotFilesTest, HostSideThatCannotBeBelievedIsAnError) {
  const auto reason = [&] { return ReasonOf(files_->ReadHostSide().status()); };
  std::ofstream(Path("host.textproto")) << "powered: perhaps";
  EXPECT_EQ(reason(), "SLOT_CORRUPT");
  std::ofstream(Path("host.textproto"), std::ios::trunc) << std::string(1 << 20, ' ');
  EXPECT_EQ(reason(), "SLOT_CORRUPT");
  std::string nested;
  for (int i = 0; i < 10000; ++i) nested += "a {";
  std::ofstream(Path("host.textproto"), std::ios::trunc) << nested;
  EXPECT_EQ(reason(), "SLOT_CORRUPT");
  std::filesystem::remove(Path("host.textproto"));
  std::filesystem::create_symlink("/etc/hostname", Path("host.textproto"));
  EXPECT_EQ(reason(), "SLOT_CORRUPT");
  std::filesystem::remove(Path("host.textproto"));
  ASSERT_EQ(::mkfifo(Path("host.textproto").c_str(), 0600), 0);
  EXPECT_EQ(reason(), "SLOT_CORRUPT");
}

TEST_F(SlotFilesTest, HostSideOfAnotherUserIsAnError) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  std::ofstream(Path("host.textproto")) << "serial: 7";
  ASSERT_EQ(::chown(Path("host.textproto").c_str(), 12345, 12345), 0);
  EXPECT_EQ(ReasonOf(files_->ReadHostSide().status()), "SLOT_CORRUPT");
}

}  // namespace
}  // namespace cxlpool::fm
