// LinuxSpace on a real kernel, in a machine that was booted with a whole device of at least 1 GiB:
//
//   CXLPOOL_DAX_SPACE=0x77
//
// is its serial number. Without it every test is skipped. Each test leaves the device as it found
// it: without pieces. test/qemu/rack_dax_space_test.py takes it into such a machine.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "host-agent/adapters/linux/linux_space.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kMiB = 1 << 20;
constexpr absl::Duration kPatience = absl::Seconds(60);

class DaxSpaceLinuxTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* serial = std::getenv("CXLPOOL_DAX_SPACE");
    if (serial == nullptr) {
      GTEST_SKIP() << "needs a machine with a whole CXL device: set CXLPOOL_DAX_SPACE";
    }
    serial_ = serial;
    Restart();
    ASSERT_EQ(space_->Prepare(), absl::OkStatus());
    const SpaceView view = *space_->Look();
    ASSERT_EQ(view.devices.size(), 1);
    device_ = view.devices[0];
    ASSERT_EQ(device_.unfit, "");
    ASSERT_THAT(view.pieces, IsEmpty());
    devices_before_ = files_.List("sys/bus/dax/devices");
  }

  void TearDown() override {
    if (space_ == nullptr) return;
    EXPECT_THAT(Pieces(), IsEmpty());
    EXPECT_EQ(files_.List("sys/bus/dax/devices"), devices_before_);
  }

  void Restart() { space_ = MakeLinuxSpace({.devices = {serial_}}); }

  std::vector<SpacePiece> Pieces() { return space_->Look()->pieces; }

  absl::Status Carve(uint64_t offset_mib, uint64_t length_mib) {
    return space_->Carve(device_.name, offset_mib * kMiB, length_mib * kMiB);
  }

  // As Look shows it.
  SpacePiece Piece(uint64_t offset_mib, uint64_t length_mib) {
    const SpaceView view = *space_->Look();
    const SpacePiece* const found = view.Find(device_.name, offset_mib * kMiB, length_mib * kMiB);
    EXPECT_NE(found, nullptr) << offset_mib << "+" << length_mib;
    return found == nullptr ? SpacePiece() : *found;
  }

  SpacePiece Carved(uint64_t offset_mib, uint64_t length_mib) {
    EXPECT_EQ(Carve(offset_mib, length_mib), absl::OkStatus());
    return Piece(offset_mib, length_mib);
  }

  uint64_t MemTotal(int node) {
    const std::string text =
        files_.Read(absl::StrCat("sys/devices/system/node/node", node, "/meminfo")).value_or("");
    uint64_t kib = 0;
    const size_t at = text.find("MemTotal:");
    return at != text.npos &&
                   absl::SimpleAtoi(text.substr(at + 9, text.find("kB", at) - at - 9), &kib)
               ? kib * 1024
               : 0;
  }

  const HostFiles files_;
  std::string serial_;
  std::unique_ptr<DaxSpace> space_;
  SpaceDevice device_;
  std::vector<std::string> devices_before_;
};

// The first page of a piece, mapped.
class Mapped {
 public:
  Mapped(const OpenPiece& open, bool writable)
      : memory_(mmap(nullptr, 2 * kMiB, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                     open.fd.get(), static_cast<off_t>(open.offset_bytes))) {}
  ~Mapped() {
    if (ok()) munmap(memory_, 2 * kMiB);
  }
  bool ok() const { return memory_ != MAP_FAILED; }
  volatile uint64_t& word() { return *static_cast<uint64_t*>(memory_); }

 private:
  void* const memory_;
};

TEST_F(DaxSpaceLinuxTest, ADeviceIsWhole) {
  EXPECT_EQ(device_.serial, serial_);
  EXPECT_GE(device_.size_bytes, 1024 * kMiB);
  EXPECT_EQ(device_.align_bytes, 2 * kMiB);
  const SpaceView view = *space_->Look();
  EXPECT_GT(view.memory_block_bytes, 0);
  EXPECT_GT(view.page_struct_spare_bytes, 1);
  EXPECT_THAT(view.own_nodes, ElementsAre(0));
}

TEST_F(DaxSpaceLinuxTest, CarvesExactRangesAtAnyPlaceInAnyOrder) {
  const std::vector<std::pair<uint64_t, uint64_t>> ranges = {
      {512, 256}, {0, 2}, {1022, 2}, {256, 256}, {2, 254}};
  for (const auto& [offset, length] : ranges) {
    const SpacePiece piece = Carved(offset, length);
    EXPECT_EQ(piece.driver, DaxDriver::kNone);
    EXPECT_NE(piece.numa_node, 0);
    EXPECT_EQ(Carve(offset, length), absl::OkStatus());  // Again.
  }
  EXPECT_EQ(Pieces().size(), ranges.size());
  const uint64_t base = Piece(0, 2).hpa_bytes;
  EXPECT_EQ(Piece(512, 256).hpa_bytes, base + 512 * kMiB);
  const std::vector<std::string> devices = files_.List("sys/bus/dax/devices");
  for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 4}, {510, 4}, {600, 2}, {0, 1024}, {766, 4}}) {
    EXPECT_EQ(ReasonOf(Carve(offset, length)), "RANGE_TAKEN") << offset << "+" << length;
  }
  for (const auto& [offset, length] :
       std::vector<std::pair<uint64_t, uint64_t>>{{769, 2}, {770, 1}, {1 << 20, 2}, {770, 0}}) {
    EXPECT_EQ(ReasonOf(Carve(offset, length)), "BAD_RANGE") << offset << "+" << length;
  }
  EXPECT_EQ(files_.List("sys/bus/dax/devices"), devices);  // Nothing was left behind.
  for (const size_t i : {3, 0, 4, 2, 1}) {
    const SpacePiece piece = Piece(ranges[i].first, ranges[i].second);
    EXPECT_EQ(space_->Uncarve(piece), absl::OkStatus());
    EXPECT_EQ(space_->Uncarve(piece), absl::OkStatus());
  }
}

TEST_F(DaxSpaceLinuxTest, BytesAreWhereTheyWereWhateverThePieceIsCalled) {
  SpacePiece piece = Carved(64, 4);
  EXPECT_EQ(ReasonOf(space_->Open(piece, false).status()), "NOT_DEVDAX");
  ASSERT_EQ(space_->Bind(piece, DaxDriver::kDeviceDax), absl::OkStatus());
  EXPECT_EQ(Piece(64, 4).driver, DaxDriver::kDeviceDax);
  const uint64_t word = 0x600dULL << 32 | static_cast<uint64_t>(getpid());
  {
    const absl::StatusOr<OpenPiece> open = space_->Open(piece, false);
    ASSERT_TRUE(open.ok()) << open.status();
    Mapped mapped(*open, true);
    ASSERT_TRUE(mapped.ok());
    mapped.word() = word;
  }
  EXPECT_EQ(ReasonOf(space_->Uncarve(piece)), "DAX_BOUND");
  ASSERT_EQ(space_->Unbind(piece), absl::OkStatus());
  ASSERT_EQ(space_->Uncarve(piece), absl::OkStatus());
  // Another takes the name; the range alone counts.
  const SpacePiece other = Carved(32, 2);
  EXPECT_EQ(other.dax, piece.dax);
  EXPECT_EQ(ReasonOf(space_->Bind(piece, DaxDriver::kDeviceDax)), "NO_DAX_DEVICE");
  piece = Carved(64, 4);
  ASSERT_EQ(space_->Bind(piece, DaxDriver::kDeviceDax), absl::OkStatus());
  EXPECT_EQ(Piece(32, 2).driver, DaxDriver::kNone);
  {
    const absl::StatusOr<OpenPiece> open = space_->Open(piece, true);
    ASSERT_TRUE(open.ok()) << open.status();
    EXPECT_FALSE(Mapped(*open, true).ok());
    Mapped mapped(*open, false);
    ASSERT_TRUE(mapped.ok());
    EXPECT_EQ(mapped.word(), word);
  }
  ASSERT_EQ(space_->Unbind(piece), absl::OkStatus());
  ASSERT_EQ(space_->Uncarve(piece), absl::OkStatus());
  ASSERT_EQ(space_->Uncarve(other), absl::OkStatus());
}

TEST_F(DaxSpaceLinuxTest, FindsWhoHoldsThisPiece) {
  const SpacePiece held = Carved(0, 2);
  const SpacePiece idle = Carved(2, 2);
  for (const SpacePiece& piece : {held, idle}) {
    ASSERT_EQ(space_->Bind(piece, DaxDriver::kDeviceDax), absl::OkStatus());
  }
  absl::StatusOr<OpenPiece> open = space_->Open(held, false);
  ASSERT_TRUE(open.ok()) << open.status();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (true) pause();
  }
  open->fd = UniqueFd();
  const auto holders = space_->FindHolders(held);
  ASSERT_TRUE(holders.ok()) << holders.status();
  ASSERT_EQ(holders->size(), 1);
  EXPECT_EQ(holders->front().pid, static_cast<uint32_t>(child));
  EXPECT_THAT(*space_->FindHolders(idle), IsEmpty());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_THAT(*space_->FindHolders(held), IsEmpty());
  for (const SpacePiece& piece : {held, idle}) {
    ASSERT_EQ(space_->Unbind(piece), absl::OkStatus());
    ASSERT_EQ(space_->Uncarve(piece), absl::OkStatus());
  }
}

TEST_F(DaxSpaceLinuxTest, SystemRamNextToOthersThatStayAsTheyAre) {
  const SpacePiece devdax = Carved(0, 256);
  const SpacePiece unbound = Carved(768, 128);
  const SpacePiece ram = Carved(512, 256);
  ASSERT_EQ(space_->Bind(devdax, DaxDriver::kDeviceDax), absl::OkStatus());
  ASSERT_EQ(space_->Bind(ram, DaxDriver::kKmem), absl::OkStatus());
  EXPECT_EQ(Piece(768, 128).driver, DaxDriver::kNone);
  EXPECT_EQ(Piece(0, 256).driver, DaxDriver::kDeviceDax);
  const uint32_t blocks = static_cast<uint32_t>(256 * kMiB / space_->Look()->memory_block_bytes);
  SpacePiece now = Piece(512, 256);
  EXPECT_EQ(now.driver, DaxDriver::kKmem);
  EXPECT_EQ(now.total_blocks, blocks);
  EXPECT_EQ(now.online_blocks, 0);
  ASSERT_TRUE(now.numa_node.has_value());
  ASSERT_EQ(space_->OnlineBlocks(ram, MemoryZone::kMovable), absl::OkStatus());
  now = Piece(512, 256);
  EXPECT_EQ(now.online_blocks, blocks);
  EXPECT_TRUE(now.all_movable);
  EXPECT_EQ(MemTotal(*now.numa_node), 256 * kMiB);
  EXPECT_EQ(ReasonOf(space_->Unbind(ram)), "BLOCKS_BUSY");
  EXPECT_EQ(ReasonOf(space_->Uncarve(ram)), "DAX_BOUND");
  ASSERT_EQ(space_->OfflineBlocks(ram, kPatience), absl::OkStatus());
  EXPECT_EQ(Piece(512, 256).online_blocks, 0);
  ASSERT_EQ(space_->Unbind(ram), absl::OkStatus());
  ASSERT_EQ(space_->Uncarve(ram), absl::OkStatus());
  ASSERT_EQ(space_->Uncarve(unbound), absl::OkStatus());
  ASSERT_EQ(space_->Unbind(devdax), absl::OkStatus());
  ASSERT_EQ(space_->Uncarve(devdax), absl::OkStatus());
}

TEST_F(DaxSpaceLinuxTest, AnotherLifeReadsBackWhatIsThere) {
  const SpacePiece unbound = Carved(128, 2);
  const SpacePiece bound = Carved(256, 256);
  ASSERT_EQ(space_->Bind(bound, DaxDriver::kDeviceDax), absl::OkStatus());
  const std::vector<SpacePiece> before = Pieces();
  // Killed between two writes: an empty DAX device.
  ASSERT_EQ(files_.Write(absl::StrCat("sys/bus/cxl/devices/", device_.name, "/dax_", device_.name,
                                      "/dax_region/create"),
                         "1"),
            0);
  EXPECT_EQ(Pieces(), before);
  Restart();
  EXPECT_EQ(Pieces(), before);
  ASSERT_EQ(space_->Prepare(), absl::OkStatus());
  EXPECT_EQ(Pieces(), before);
  EXPECT_EQ(files_.List("sys/bus/dax/devices").size(), devices_before_.size() + 2);
  ASSERT_EQ(space_->Unbind(Piece(256, 256)), absl::OkStatus());
  for (const SpacePiece& piece : Pieces()) {
    ASSERT_EQ(space_->Uncarve(piece), absl::OkStatus());
  }
}

// A look that left one out would be taken for proof that it is gone.
TEST_F(DaxSpaceLinuxTest, ALookMeanwhileShowsAllThatStand) {
  const SpacePiece standing = Carved(0, 4);
  const SpacePiece bound = Carved(1020, 4);
  ASSERT_EQ(space_->Bind(bound, DaxDriver::kDeviceDax), absl::OkStatus());
  const SpacePiece bound_now = Piece(1020, 4);
  std::atomic<bool> over = false;
  std::atomic<int> looks = 0;
  std::atomic<int> wrong = 0;
  std::thread looker([&] {
    while (!over) {
      const absl::StatusOr<SpaceView> view = space_->Look();
      for (const SpacePiece& piece : {standing, bound_now}) {
        const SpacePiece* const found =
            view.ok() ? view->Find(piece.device, piece.offset_bytes, piece.length_bytes) : nullptr;
        if (found == nullptr || !(*found == piece)) ++wrong;
      }
      const absl::StatusOr<OpenPiece> open = space_->Open(bound_now, true);
      if (!open.ok()) ++wrong;
      ++looks;
    }
  });
  for (uint64_t i = 0; i < 40 || looks < 10; ++i) {
    const SpacePiece piece = Carved(4 + i % 50 * 4, 4);
    EXPECT_EQ(space_->Bind(piece, DaxDriver::kDeviceDax), absl::OkStatus());
    EXPECT_EQ(space_->Unbind(piece), absl::OkStatus());
    EXPECT_EQ(space_->Uncarve(piece), absl::OkStatus());
  }
  over = true;
  looker.join();
  EXPECT_EQ(wrong, 0) << "in " << looks << " looks";
  ASSERT_EQ(space_->Unbind(bound), absl::OkStatus());
  for (const SpacePiece& piece : {standing, bound}) {
    ASSERT_EQ(space_->Uncarve(piece), absl::OkStatus());
  }
}

TEST_F(DaxSpaceLinuxTest, TwoHundredPiecesComeAndGo) {
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < 200; ++i) offsets.push_back(4 * i);
  std::mt19937 random(1);
  std::shuffle(offsets.begin(), offsets.end(), random);
  absl::Time began = absl::Now();
  for (const uint64_t offset : offsets) ASSERT_EQ(Carve(offset, 4), absl::OkStatus());
  std::printf("carving 200: %s\n", absl::FormatDuration(absl::Now() - began).c_str());
  began = absl::Now();
  const SpaceView view = *space_->Look();
  ASSERT_EQ(view.pieces.size(), 200);
  std::printf("one look at 200: %s\n", absl::FormatDuration(absl::Now() - began).c_str());
  EXPECT_EQ(ReasonOf(Carve(402, 4)), "RANGE_TAKEN");
  std::shuffle(offsets.begin(), offsets.end(), random);
  began = absl::Now();
  for (const uint64_t offset : offsets) {
    const SpacePiece* const piece = view.Find(device_.name, offset * kMiB, 4 * kMiB);
    ASSERT_NE(piece, nullptr);
    ASSERT_EQ(space_->Uncarve(*piece), absl::OkStatus());
  }
  std::printf("uncarving 200: %s\n", absl::FormatDuration(absl::Now() - began).c_str());
}

}  // namespace
}  // namespace cxlpool::agent
