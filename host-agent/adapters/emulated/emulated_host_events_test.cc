#include "host-agent/adapters/emulated/emulated_host_events.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "host-agent/adapters/emulated/slot_files.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kSerial = 0x0c00000000000051;

TEST(PoisonFileTest, EntriesOfTheMemdevAlone) {
  const std::vector<v1::HostEvent> events = ParsePoisonFile(
      "0x0c00000000000051 0x1000 256\n"
      "864691128455135313\t64 0x40\n"
      "0x0c00000000000052 0 64\n"  // Another one's.
      "0x0c00000000000051 0 0\n"   // Of no length.
      "0x0c00000000000051 0\n"
      "what is this\n"
      "0x0c00000000000051 -1 64\n",
      kSerial);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].dpa_bytes(), 0x1000u);
  EXPECT_EQ(events[0].length_bytes(), 256u);
  EXPECT_TRUE(events[0].bytes_lost());
  EXPECT_EQ(events[1].dpa_bytes(), 64u);
}

class EmulatedHostEventsTest : public testing::Test {
 protected:
  EmulatedHostEventsTest() {
    std::string root = (std::filesystem::temp_directory_path() / "cxlpool-events-XXXXXX").string();
    root_ = ::mkdtemp(root.data());
    directory_ = SlotDirectory(root_, "host-a", 3);
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ + "/fabric.textproto") << "serial: " << kSerial;
    emulated::v1::HostSide side;
    side.set_serial(kSerial);
    side.set_powered(true);
    EXPECT_TRUE(WriteHostSide(directory_, side).ok());
  }
  ~EmulatedHostEventsTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void Poison(const std::string& text) { std::ofstream(directory_ + "/poison") << text; }

  std::string root_;
  std::string directory_;
  ManualExecutor executor_;
  std::vector<v1::HostEvent> heard_;
};

TEST_F(EmulatedHostEventsTest, PoisonIsToldUntilItIsStopped) {
  EmulatedHostEvents events({.root = root_, .host = "host-a", .slots = {2, 3}}, &executor_);
  events.Start([this](std::vector<v1::HostEvent> some) {
    heard_.insert(heard_.end(), some.begin(), some.end());
  });
  executor_.RunReady();
  EXPECT_TRUE(heard_.empty());
  Poison("0x0c00000000000051 0x1000 256\n");
  executor_.Advance(absl::Milliseconds(500));
  ASSERT_EQ(heard_.size(), 1u);
  EXPECT_EQ(heard_[0].serial(), kSerial);
  executor_.Advance(absl::Milliseconds(500));
  EXPECT_EQ(heard_.size(), 2u);
  events.Stop();
  executor_.Advance(absl::Seconds(5));
  EXPECT_EQ(heard_.size(), 2u);
}

// The manager is updated first, and may write what this agent does not know.
TEST_F(EmulatedHostEventsTest, ASlotOfALaterReleaseIsRead) {
  std::ofstream(directory_ + "/fabric.textproto")
      << "serial: " << kSerial << " shininess: 3 length_bytes: 4096 more { of: \"it\" }";
  const absl::StatusOr<SlotFiles> files = ReadSlot(directory_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(files->has_memdev());
  EXPECT_EQ(files->fabric.length_bytes(), 4096u);
  std::ofstream(directory_ + "/fabric.textproto") << "serial: " << kSerial << " length_bytes: x";
  EXPECT_TRUE(absl::IsDataLoss(ReadSlot(directory_).status()));
}

TEST_F(EmulatedHostEventsTest, WithoutAMemdevThereIsNoList) {
  Poison("0x0c00000000000051 0x1000 256\n");
  std::filesystem::remove(directory_ + "/fabric.textproto");
  EmulatedHostEvents events({.root = root_, .host = "host-a", .slots = {3}}, &executor_);
  events.Start([this](std::vector<v1::HostEvent> some) {
    heard_.insert(heard_.end(), some.begin(), some.end());
  });
  executor_.Advance(absl::Seconds(5));
  EXPECT_TRUE(heard_.empty());
}

}  // namespace
}  // namespace cxlpool::agent
