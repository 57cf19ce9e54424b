#include "host-agent/adapters/shared/shared_host.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/shared/device_mark.h"
#include "host-agent/adapters/shared/file_space.h"
#include "host-agent/adapters/shared/shared_machine.h"
#include "host-agent/support/device_memory.h"
#include "host-agent/support/run_file.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kGranule = uint64_t{2} << 20;

// A host on files that other hosts have as well. Its space can be worked on by hand.
struct TestHost {
  TestHost(const std::string& directory, const std::string& name, std::vector<std::string> files)
      : files(std::move(files)),
        pieces(directory + "/" + name + "-pieces"),
        grants(directory + "/" + name + "-grants") {
    Restart("boot-1");
  }
  void Restart(const std::string& boot) {
    machine.reset();
    auto made = std::make_unique<FileSpace>(files, pieces, boot);
    space = made.get();
    machine = std::make_unique<SharedMachine>(std::move(made), grants, boot, absl::Seconds(10));
    EXPECT_TRUE(machine->Prepare().ok());
  }
  absl::Status Mark(const std::string& name, const std::string& id, uint64_t nonce = 0,
                    const std::string& device = "cmm-0") {
    v1::DeviceMarkTask task;
    task.set_name(name);
    task.mutable_mark()->set_id(id);
    task.mutable_mark()->set_pool("pool-1");
    task.mutable_mark()->set_device(device);
    task.mutable_mark()->set_reserved_bytes(kGranule);
    task.mutable_mark()->set_nonce(nonce);
    return machine->Mark(task);
  }
  v1::DeviceLook Look() {
    auto look = machine->Look();
    EXPECT_TRUE(look.ok()) << look.status();
    return look.ok() ? *look : v1::DeviceLook();
  }
  absl::Status Up(uint64_t number, DaxDriver driver = DaxDriver::kDeviceDax) {
    HostRegionSpec spec;
    spec.serials = {number};
    spec.size_bytes = machine->LengthOf(number);
    if (absl::Status status = machine->CreateHostRegion(spec); !status.ok()) return status;
    auto piece = machine->PieceOf(number);
    if (!piece.ok()) return piece.status();
    absl::Status status = space->Bind(*piece, driver);
    EXPECT_TRUE(machine->Observe().ok());
    return status;
  }
  absl::Status Down(uint64_t number) {
    if (auto piece = machine->PieceOf(number); piece.ok()) {
      if (absl::Status status = space->Unbind(*piece); !status.ok()) return status;
    }
    if (absl::Status status = machine->DestroyHostRegion(number); !status.ok()) return status;
    return machine->PowerOff(static_cast<uint32_t>(number), number);
  }
  std::vector<std::string> files;
  std::string pieces, grants;
  FileSpace* space = nullptr;
  std::unique_ptr<SharedMachine> machine;
};

// Granule `at` of the device, in the slot and under the serial of that number.
v1::DeviceGrant GrantOf(uint64_t number, uint64_t at, uint64_t granules = 1) {
  v1::DeviceGrant grant;
  grant.set_slot(static_cast<uint32_t>(number));
  grant.set_serial(number);
  grant.set_region_tag(absl::StrCat("tag-", number));
  grant.set_generation(number);
  grant.set_device("cmm-0");
  grant.set_mark("mark-1");
  grant.set_dpa_bytes(at * kGranule);
  grant.set_length_bytes(granules * kGranule);
  return grant;
}

v1::DeviceClearTask ClearOf(uint64_t at, bool only_check) {
  v1::DeviceClearTask task;
  task.set_device("cmm-0");
  task.set_mark("mark-1");
  task.set_dpa_bytes(at * kGranule);
  task.set_length_bytes(kGranule);
  task.set_only_check(only_check);
  return task;
}

class SharedHostTest : public ::testing::Test {
 protected:
  SharedHostTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    file_ = MakeFile("cmm-0", 300);
  }
  ~SharedHostTest() override { std::filesystem::remove_all(directory_); }

  std::string MakeFile(const std::string& name, uint64_t granules) {
    const std::string path = absl::StrCat(directory_, "/", name);
    std::ofstream(path).close();
    std::filesystem::resize_file(path, granules * kGranule);
    return path;
  }
  TestHost Host(const std::string& name) { return {directory_, name, {file_}}; }
  void Write(const std::string& path, uint64_t offset, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
  }
  std::string Read(uint64_t offset, size_t size) {
    std::string bytes(size, '?');
    std::ifstream file(file_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(bytes.data(), static_cast<std::streamsize>(size));
    return bytes;
  }

  std::string directory_, file_;
};

TEST_F(SharedHostTest, AMarkAndItsNonceAreSeenByEveryHost) {
  TestHost a = Host("a"), b = Host("b");
  EXPECT_FALSE(a.Look().devices(0).has_mark());
  ASSERT_TRUE(a.Mark(file_, "mark-1", 7).ok());
  const v1::DeviceMark seen = b.Look().devices(0).mark();
  EXPECT_EQ(seen.id(), "mark-1");
  EXPECT_EQ(seen.device(), "cmm-0");
  EXPECT_EQ(seen.nonce(), 7u);
  EXPECT_TRUE(seen.was_zero());
  ASSERT_TRUE(b.Mark(file_, "mark-1", 8).ok());
  EXPECT_EQ(a.Look().devices(0).mark().nonce(), 8u);
}

TEST_F(SharedHostTest, BytesThatWereThereBeforeTheMarkAreSaid) {
  TestHost a = Host("a");
  Write(file_, 290 * kGranule, "somebody's");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  EXPECT_FALSE(a.Look().devices(0).mark().was_zero());
  EXPECT_EQ(Read(290 * kGranule, 10), "somebody's");
}

TEST_F(SharedHostTest, AnotherMarkIsNotOverwritten) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  const absl::Status other = a.Mark(file_, "mark-2");
  EXPECT_EQ(ReasonOf(other), "MARK_FOREIGN") << other;
  EXPECT_EQ(a.Look().devices(0).mark().id(), "mark-1");
}

TEST_F(SharedHostTest, ADamagedMarkIsRefusedWithWhatToDo) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(a.machine->Grant(GrantOf(1, 0)).ok());
  Write(file_, 20, "X");
  EXPECT_THAT(a.Look().devices(0).unfit_reason(), testing::HasSubstr("checksum"));
  EXPECT_EQ(ReasonOf(a.machine->Grant(GrantOf(2, 1))), "UNKNOWN_DEVICE");
  EXPECT_EQ(ReasonOf(a.Mark(file_, "mark-1", 3)), "MARK_DAMAGED");
  EXPECT_EQ(ReasonOf(a.machine->Clear(ClearOf(5, false))), "UNKNOWN_DEVICE");
}

// As of a DAX device that was unbound and bound again: what was mapped before stays cut off.
TEST_F(SharedHostTest, AMarkIsReadThroughAnotherWindowOnceTheFormerIsCutOff) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  const std::string bytes = Read(0, 4096);
  std::filesystem::resize_file(file_, 0);
  EXPECT_FALSE(a.Look().devices(0).has_mark());
  EXPECT_NE(a.Look().devices(0).unfit_reason(), "");
  std::filesystem::remove(file_);
  MakeFile("cmm-0", 300);
  Write(file_, 0, bytes);
  EXPECT_EQ(a.Look().devices(0).mark().id(), "mark-1");
}

TEST_F(SharedHostTest, AMarkThatWasCutOffIsNone) {
  alignas(64) char bytes[kMarkBytes] = {};
  v1::DeviceMark mark;
  mark.set_id("mark-1");
  mark.set_pool("pool-1");
  mark.set_device("cmm-0");
  mark.set_reserved_bytes(kGranule);
  int flushes = 0;
  char cut[kMarkBytes];
  ASSERT_TRUE(WriteMark(mark, bytes, [&] {
                if (++flushes == 1) std::memcpy(cut, bytes, sizeof(cut));
              }).ok());
  EXPECT_EQ(flushes, 2);
  EXPECT_FALSE(ReadMark(cut)->has_value());
  EXPECT_TRUE(ReadMark(bytes)->has_value());
}

TEST_F(SharedHostTest, TheMarkAndNotTheNameSaysWhichDeviceItIs) {
  const std::string other = MakeFile("cmm-1", 300);
  TestHost a(directory_, "a", {file_, other});
  TestHost b(directory_, "b", {other, file_});  // Swapped.
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(a.Mark(other, "mark-2", 0, "cmm-1").ok());
  ASSERT_TRUE(b.machine->Grant(GrantOf(1, 3)).ok());
  ASSERT_TRUE(b.Up(1).ok());
  EXPECT_EQ(b.machine->PieceOf(1)->device, file_);
}

TEST_F(SharedHostTest, AGrantIsAMemdevAndItsDaxDeviceIsOfExactlyItsBytes) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(a.machine->Grant(GrantOf(1, 3, 2)).ok());
  EXPECT_TRUE(a.machine->Grant(GrantOf(1, 3, 2)).ok());
  HostObservation seen = *a.machine->Observe();
  ASSERT_EQ(seen.memdevs.size(), 1u);
  EXPECT_EQ(seen.memdevs[0].host_bridge, kSharedBridge);
  EXPECT_TRUE(seen.regions.empty());
  ASSERT_TRUE(a.Up(1).ok());
  seen = *a.machine->Observe();
  ASSERT_EQ(seen.regions.size(), 1u);
  EXPECT_TRUE(seen.regions[0].committed);
  EXPECT_EQ(seen.regions[0].size_bytes, 2 * kGranule);
  auto open = a.machine->Open(1, false);
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->offset_bytes, 4 * kGranule);  // Behind the mark.
  EXPECT_EQ(ReasonOf(a.machine->PowerOff(1, 1)), "REGION_LIVE");
  EXPECT_EQ(ReasonOf(a.machine->DestroyHostRegion(1)), "DAX_BOUND");
  EXPECT_EQ(ReasonOf(a.machine->PowerOff(1, 9)), "OTHER_MEMDEV");
  ASSERT_TRUE(a.Down(1).ok());
  EXPECT_EQ(a.Look().grants_size(), 0);
}

// Counts what is flushed besides marks.
class CountingSpace : public FileSpace {
 public:
  using FileSpace::FileSpace;
  void Flush(void* data, size_t size, uint64_t offset) override {
    if (offset != 0) flushed += size;
    FileSpace::Flush(data, size, offset);
  }
  uint64_t flushed = 0;
};

// As `daxctl destroy-device` by hand: the flush that is owed is still done, once.
TEST_F(SharedHostTest, AGrantWhoseDaxDeviceWasRemovedByHandIsFlushedBeforeItEnds) {
  for (const bool destroys_first : {false, true}) {
    auto made = std::make_unique<CountingSpace>(std::vector{file_}, directory_ + "/p", "boot-1");
    CountingSpace* const space = made.get();
    SharedMachine machine(std::move(made), directory_ + "/g", "boot-1", absl::Seconds(10));
    ASSERT_TRUE(machine.Prepare().ok());
    TestHost a = Host("a");
    ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
    ASSERT_TRUE(machine.Grant(GrantOf(1, 3)).ok());
    HostRegionSpec spec;
    spec.serials = {1};
    spec.size_bytes = kGranule;
    ASSERT_TRUE(machine.CreateHostRegion(spec).ok());
    ASSERT_TRUE(space->Uncarve(*machine.PieceOf(1)).ok());
    space->flushed = 0;
    if (destroys_first) {
      EXPECT_TRUE(machine.DestroyHostRegion(1).ok());
      EXPECT_EQ(space->flushed, kGranule);
    }
    // Somebody else has taken the bytes.
    ASSERT_TRUE(space->Carve(file_, 3 * kGranule, 2 * kGranule).ok());
    if (!destroys_first) {
      EXPECT_EQ(ReasonOf(machine.PowerOff(1, 1)), "RANGE_TAKEN");
    }
    ASSERT_TRUE(space->Uncarve(*space->Look()->Find(file_, 3 * kGranule, 2 * kGranule)).ok());
    EXPECT_TRUE(machine.PowerOff(1, 1).ok());
    EXPECT_EQ(space->flushed, kGranule);
    EXPECT_EQ(machine.Look()->grants_size(), 0);
    EXPECT_EQ(space->Look()->pieces.size(), 1u);
  }
}

TEST_F(SharedHostTest, ADaxDeviceThatWasRemovedByHandIsMadeAnew) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(a.machine->Grant(GrantOf(1, 3)).ok());
  ASSERT_TRUE(a.Up(1).ok());
  const SpacePiece piece = *a.machine->PieceOf(1);
  ASSERT_TRUE(a.space->Unbind(piece).ok());
  ASSERT_TRUE(a.space->Uncarve(piece).ok());
  EXPECT_TRUE(a.machine->Observe()->regions.empty());
  ASSERT_TRUE(a.Up(1).ok());
  EXPECT_TRUE(a.machine->Observe()->regions.at(0).committed);
  EXPECT_TRUE(a.machine->Open(1, false).ok());
}

TEST_F(SharedHostTest, ReadOnlyGivesNoWritableDescriptor) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  v1::DeviceGrant grant = GrantOf(1, 0);
  grant.set_read_only(true);
  ASSERT_TRUE(a.machine->Grant(grant).ok());
  ASSERT_TRUE(a.Up(1).ok());
  EXPECT_EQ(ReasonOf(a.machine->Open(1, false).status()), "ATTACHMENT_READ_ONLY");
  EXPECT_TRUE(a.machine->Open(1, true).ok());
}

TEST_F(SharedHostTest, NoByteIsGrantedTwice) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(a.machine->Grant(GrantOf(1, 3, 2)).ok());
  EXPECT_EQ(ReasonOf(a.machine->Grant(GrantOf(2, 4))), "RANGE_TAKEN");
  EXPECT_EQ(ReasonOf(a.machine->Grant(GrantOf(1, 9))), "SLOT_TAKEN");
  v1::DeviceGrant same_serial = GrantOf(2, 9);
  same_serial.set_serial(1);
  EXPECT_EQ(ReasonOf(a.machine->Grant(same_serial)), "SLOT_TAKEN");
  EXPECT_EQ(ReasonOf(a.machine->Clear(ClearOf(4, false))), "RANGE_TAKEN");
  EXPECT_EQ(ReasonOf(a.machine->Clear(ClearOf(4, true))), "RANGE_TAKEN");
  EXPECT_EQ(ReasonOf(a.machine->Grant(GrantOf(2, 299))), "BAD_GRANT");  // The mark has one.
  EXPECT_EQ(ReasonOf(a.machine->Grant(GrantOf(2000, 9))), "BAD_GRANT");
}

TEST_F(SharedHostTest, WhatAnotherHostStoredIsClearedAndCheckedByAThird) {
  TestHost a = Host("a"), b = Host("b");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  Write(file_, 6 * kGranule + 77, "secret");
  EXPECT_EQ(ReasonOf(b.machine->Clear(ClearOf(5, true))), "NOT_ZERO");
  EXPECT_TRUE(a.machine->Clear(ClearOf(5, false)).ok());
  EXPECT_TRUE(b.machine->Clear(ClearOf(5, true)).ok());
  EXPECT_EQ(Read(6 * kGranule + 77, 6), std::string(6, '\0'));
  EXPECT_EQ(a.Look().foreign_size(), 0);
  EXPECT_EQ(a.space->Look()->pieces.size(), 1u);  // The mark's window.
}

// A file that ends early answers as poisoned memory does: with SIGBUS.
class LostSpace : public FileSpace {
 public:
  using FileSpace::FileSpace;
  absl::StatusOr<OpenPiece> Open(const SpacePiece& piece, bool read_only) override {
    if (!short_file.empty() && piece.offset_bytes != 0) {
      if (unbinds) FileSpace::Unbind(piece).IgnoreError();  // What was opened stays open.
      return OpenPiece{UniqueFd(::open(short_file.c_str(), O_RDWR | O_CLOEXEC)), 0};
    }
    return FileSpace::Open(piece, read_only);
  }
  std::string short_file;
  bool unbinds = false;
};

TEST_F(SharedHostTest, LostBytesEndNeitherTheAgentNorTheClearingOfTheOthers) {
  auto made = std::make_unique<LostSpace>(std::vector{file_}, directory_ + "/p", "boot-1");
  LostSpace* const space = made.get();
  SharedMachine machine(std::move(made), directory_ + "/g", "boot-1", absl::Seconds(10));
  ASSERT_TRUE(machine.Prepare().ok());
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  space->short_file = absl::StrCat(directory_, "/short");
  std::ofstream(space->short_file) << std::string(kGranule - 4 * 4096, 'x');
  const absl::Status cleared = machine.Clear(ClearOf(5, false));
  EXPECT_EQ(ReasonOf(cleared), "BYTES_LOST") << cleared;
  EXPECT_THAT(cleared.message(), testing::HasSubstr("16384 of"));
  std::string left(kGranule - 4 * 4096, '?');
  std::ifstream(space->short_file).read(left.data(), static_cast<std::streamsize>(left.size()));
  EXPECT_EQ(left, std::string(left.size(), '\0'));
  EXPECT_EQ(ReasonOf(machine.Clear(ClearOf(5, true))), "BYTES_LOST");
  EXPECT_EQ(space->Look()->pieces.size(), 1u);
}

TEST_F(SharedHostTest, AFlushUnderWhichTheDriverGoesIsNone) {
  auto made = std::make_unique<LostSpace>(std::vector{file_}, directory_ + "/p", "boot-1");
  LostSpace* const space = made.get();
  SharedMachine machine(std::move(made), directory_ + "/g", "boot-1", absl::Seconds(10));
  ASSERT_TRUE(machine.Prepare().ok());
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(machine.Grant(GrantOf(1, 3)).ok());
  HostRegionSpec spec;
  spec.serials = {1};
  spec.size_bytes = kGranule;
  ASSERT_TRUE(machine.CreateHostRegion(spec).ok());
  space->short_file = absl::StrCat(directory_, "/short");
  std::ofstream(space->short_file).close();
  space->unbinds = true;
  EXPECT_EQ(ReasonOf(machine.DestroyHostRegion(1)), "FLUSH_CUT_OFF");
  EXPECT_EQ(ReasonOf(machine.PowerOff(1, 1)), "REGION_LIVE");
  // The DAX device goes as well: what is owed is flushed through another, and that is cut off, too.
  ASSERT_TRUE(space->Uncarve(*space->Look()->Find(file_, 4 * kGranule, kGranule)).ok());
  EXPECT_EQ(ReasonOf(machine.PowerOff(1, 1)), "FLUSH_CUT_OFF");
  EXPECT_EQ(machine.Look()->grants_size(), 1);
  // Bytes that are lost have nothing to flush.
  space->unbinds = false;
  EXPECT_TRUE(machine.PowerOff(1, 1).ok());
  EXPECT_EQ(machine.Look()->grants_size(), 0);
}

TEST_F(SharedHostTest, AnAgentOfTheSameBootFindsItsGrantsAndOneOfTheNextBootNone) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(a.machine->Grant(GrantOf(1, 3)).ok());
  ASSERT_TRUE(a.Up(1, DaxDriver::kDeviceDax).ok());
  v1::DeviceRevokeTask revoke;
  revoke.set_slot(1);
  revoke.set_serial(1);
  ASSERT_TRUE(a.machine->Revoke(revoke).ok());
  a.Restart("boot-1");
  ASSERT_EQ(a.Look().grants_size(), 1);
  EXPECT_TRUE(a.Look().grants(0).revoked());
  EXPECT_EQ(a.Look().foreign_size(), 0);
  EXPECT_TRUE(a.machine->Observe()->regions.at(0).committed);
  EXPECT_TRUE(a.machine->Observe()->regions.at(0).dax_driver == DaxDriver::kDeviceDax);
  a.Restart("boot-2");
  EXPECT_EQ(a.Look().grants_size(), 0);
  EXPECT_TRUE(a.Look().devices(0).has_mark());
}

// The configuration names other devices than before: what is on this one goes on, unseen.
TEST_F(SharedHostTest, WhatIsOnADeviceThatIsNotSeenIsNotGivenUp) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(a.machine->Grant(GrantOf(1, 3)).ok());
  ASSERT_TRUE(a.Up(1).ok());
  a.files = {MakeFile("cmm-1", 8)};
  a.Restart("boot-1");
  EXPECT_EQ(ReasonOf(a.machine->PieceOf(1).status()), "DEVICE_GONE");
  EXPECT_EQ(ReasonOf(a.machine->DestroyHostRegion(1)), "DEVICE_GONE");
  EXPECT_EQ(ReasonOf(a.machine->PowerOff(1, 1)), "DEVICE_GONE");
  EXPECT_EQ(a.Look().grants_size(), 1);
  a.files = {file_};
  a.Restart("boot-1");
  EXPECT_TRUE(a.machine->Observe()->regions.at(0).committed);
  ASSERT_TRUE(a.Down(1).ok());
  EXPECT_EQ(a.Look().grants_size(), 0);
  EXPECT_EQ(a.space->Look()->pieces.size(), 1u);
}

// The device is there, and where it lies is not known: none of its DAX devices can be seen.
class BlindSpace : public FileSpace {
 public:
  using FileSpace::FileSpace;
  absl::StatusOr<SpaceView> Look() override {
    absl::StatusOr<SpaceView> view = FileSpace::Look();
    if (!view.ok() || !blind) return view;
    view->devices.front().pieces_known = false;
    view->pieces.clear();
    return view;
  }
  bool blind = false;
};

TEST_F(SharedHostTest, WhatCannotBeLookedAtIsNotGivenUp) {
  auto made = std::make_unique<BlindSpace>(std::vector{file_}, directory_ + "/p", "boot-1");
  BlindSpace* const space = made.get();
  SharedMachine machine(std::move(made), directory_ + "/g", "boot-1", absl::Seconds(10));
  ASSERT_TRUE(machine.Prepare().ok());
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(machine.Grant(GrantOf(1, 3)).ok());
  space->blind = true;
  EXPECT_EQ(ReasonOf(machine.PowerOff(1, 1)), "DEVICE_GONE");
  space->blind = false;
  EXPECT_TRUE(machine.PowerOff(1, 1).ok());
}

TEST_F(SharedHostTest, WhatAKilledAgentLeftHalfDoneIsFinishedOrTakenAway) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(a.machine->Grant(GrantOf(1, 3)).ok());
  // Carved and bound for the flush, which has not ended.
  ASSERT_TRUE(a.space->Carve(file_, 4 * kGranule, kGranule).ok());
  ASSERT_TRUE(
      a.space->Bind(*a.space->Look()->Find(file_, 4 * kGranule, kGranule), DaxDriver::kDeviceDax)
          .ok());
  // Killed in a clear: the note, and the piece.
  {
    GrantTable table(a.grants, "boot-1");
    ASSERT_TRUE(table.SetWork(WorkRange{file_, 9 * kGranule, kGranule}).ok());
  }
  ASSERT_TRUE(a.space->Carve(file_, 9 * kGranule, kGranule).ok());
  a.Restart("boot-1");
  EXPECT_EQ(a.Look().foreign_size(), 0);
  EXPECT_EQ(a.space->Look()->Find(file_, 9 * kGranule, kGranule), nullptr);
  HostObservation seen = *a.machine->Observe();
  ASSERT_EQ(seen.regions.size(), 1u);
  EXPECT_FALSE(seen.regions[0].committed);
  EXPECT_TRUE(seen.regions[0].dax_driver == DaxDriver::kNone);
  EXPECT_EQ(ReasonOf(a.machine->Open(1, true).status()), "NOT_DEVDAX");
  ASSERT_TRUE(a.Up(1).ok());
  ASSERT_TRUE(a.Down(1).ok());
}

TEST_F(SharedHostTest, ADaxDeviceThatAPersonMadeIsLeftAloneAndReported) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  ASSERT_TRUE(a.space->Carve(file_, 10 * kGranule, 2 * kGranule).ok());
  const v1::DeviceLook look = a.Look();
  ASSERT_EQ(look.foreign_size(), 1);
  EXPECT_EQ(look.foreign(0).device(), "cmm-0");
  EXPECT_EQ(look.foreign(0).dpa_bytes(), 9 * kGranule);
  EXPECT_EQ(look.foreign(0).length_bytes(), 2 * kGranule);
  EXPECT_EQ(ReasonOf(a.machine->Grant(GrantOf(1, 10))), "RANGE_TAKEN");
  EXPECT_EQ(ReasonOf(a.machine->Clear(ClearOf(10, false))), "RANGE_TAKEN");
  EXPECT_TRUE(a.machine->Grant(GrantOf(1, 11)).ok());
}

TEST_F(SharedHostTest, WhatTheKernelReportsIsOfTheGrantThatHasTheBytes) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  for (const uint64_t number : {1, 2}) {
    ASSERT_TRUE(a.machine->Grant(GrantOf(number, 2 * number, 2)).ok());
    ASSERT_TRUE(a.Up(number).ok());
  }
  const uint64_t hpa = a.machine->PieceOf(2)->hpa_bytes;
  std::vector<v1::HostEvent> events(4);
  events[0].set_serial(0x77);  // The hardware's.
  events[0].set_dpa_bytes(123);
  events[0].set_hpa_bytes(hpa + kGranule + 64);
  events[1].set_serial(0x77);
  events[1].set_hpa_bytes(hpa + 2 * kGranule);  // Behind it: nobody's.
  events[1].set_dpa_bytes(9);
  events[2].set_serial(0x77);  // No device has this serial.
  events[2].set_dpa_bytes(5 * kGranule);
  events[3].set_hpa_bytes(a.machine->PieceOf(1)->hpa_bytes);
  a.machine->Place(events);
  EXPECT_EQ(events[0].serial(), 2u);
  EXPECT_EQ(events[0].dpa_bytes(), kGranule + 64);
  EXPECT_EQ(events[1].serial(), 0x77u);
  EXPECT_EQ(events[1].dpa_bytes(), 9u);
  EXPECT_EQ(events[2].serial(), 0x77u);
  EXPECT_EQ(events[3].serial(), 1u);
  EXPECT_EQ(events[3].dpa_bytes(), 0u);
}

// From the last page before a grant into the next grant.
TEST_F(SharedHostTest, BytesThatAreLostInSeveralGrantsAreLostInEachOfThem) {
  TestHost a = Host("a");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  for (const uint64_t number : {1, 2}) {
    ASSERT_TRUE(a.machine->Grant(GrantOf(number, 2 * number, 2)).ok());
    ASSERT_TRUE(a.Up(number).ok());
  }
  const uint64_t hpa = a.machine->PieceOf(1)->hpa_bytes;
  ASSERT_EQ(a.machine->PieceOf(2)->hpa_bytes, hpa + 2 * kGranule);
  std::vector<v1::HostEvent> events(1);
  events[0].set_hpa_bytes(hpa - 4096);
  events[0].set_length_bytes(4096 + 2 * kGranule + 64);
  events[0].set_bytes_lost(true);
  a.machine->Place(events);
  ASSERT_EQ(events.size(), 2u);
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].serial(), i + 1);
    EXPECT_EQ(events[i].dpa_bytes(), 0u);
    EXPECT_TRUE(events[i].bytes_lost());
  }
  EXPECT_EQ(events[0].length_bytes(), 2 * kGranule);
  EXPECT_EQ(events[1].length_bytes(), 64u);
}

TEST_F(SharedHostTest, TwoHundredGrantsComeAndGoInAnyOrder) {
  TestHost a = Host("a"), b = Host("b");
  ASSERT_TRUE(a.Mark(file_, "mark-1").ok());
  std::vector<uint64_t> numbers(200);
  for (uint64_t i = 0; i < numbers.size(); ++i) numbers[i] = i + 1;
  std::mt19937_64 random(1);
  std::shuffle(numbers.begin(), numbers.end(), random);
  for (const uint64_t number : numbers) {
    ASSERT_TRUE(a.machine->Grant(GrantOf(number, number)).ok());
    ASSERT_TRUE(a.Up(number).ok());
  }
  EXPECT_EQ(a.machine->Observe()->regions.size(), 200u);
  EXPECT_FALSE(a.machine->Observe()->bridges.at(0).blocked);
  std::shuffle(numbers.begin(), numbers.end(), random);
  for (const uint64_t number : numbers) ASSERT_TRUE(a.Down(number).ok());
  EXPECT_EQ(a.Look().grants_size(), 0);
  EXPECT_EQ(a.space->Look()->pieces.size(), 1u);
}

// A device that somebody uses until `let_go`; Prepare takes it then.
class UsedSpace : public FileSpace {
 public:
  using FileSpace::FileSpace;
  absl::Status Prepare() override {
    ++prepared;
    taken = taken || let_go;
    return absl::OkStatus();
  }
  absl::StatusOr<SpaceView> Look() override {
    absl::StatusOr<SpaceView> view = FileSpace::Look();
    if (view.ok() && !taken) view->devices.front().unfit = "somebody uses it";
    return view;
  }
  bool let_go = false, taken = false;
  int prepared = 0;
};

TEST_F(SharedHostTest, ADeviceThatIsLetGoLaterIsTakenThen) {
  for (const bool let_go : {false, true}) {
    auto made = std::make_unique<UsedSpace>(std::vector<std::string>{file_}, directory_ + "/pieces",
                                            "boot-1");
    UsedSpace& space = *made;
    SharedMachine machine(std::move(made), directory_ + "/grants", "boot-1", absl::Seconds(10));
    space.let_go = let_go;
    for (int looks = 0; looks < 3; ++looks) {
      const auto look = machine.Look();
      ASSERT_TRUE(look.ok());
      EXPECT_EQ(look->devices(0).unfit_reason(), let_go ? "" : "somebody uses it");
    }
    EXPECT_EQ(space.prepared, 1);  // Not with each look.
  }
}

TEST_F(SharedHostTest, OneAgentAtATimeHasTheGrants) {
  const std::string grants = directory_ + "/grants";
  EXPECT_TRUE(HoldRunFile(grants).ok());
  EXPECT_EQ(ReasonOf(HoldRunFile(grants)), "AGENT_RUNS");
  EXPECT_EQ(ReasonOf(HoldRunFile(directory_ + "/none/grants")), "RUN_FILE");
}

TEST_F(SharedHostTest, AGrantWhoseStateIsNotKnownOwesAFlush) {
  const std::string grants = directory_ + "/grants";
  for (const auto& [state, owes] : {std::pair("ready", true), std::pair("owing", true),
                                    std::pair("bare", false), std::pair("later", true)}) {
    const std::string line = absl::StrCat("grant ", state, " 0  device\n");
    ASSERT_EQ(WriteRunFile(grants, kGrantsText, "boot-1", line), 0);
    const GrantTable table(grants, "boot-1");
    ASSERT_EQ(table.all().size(), 1u) << state;
    EXPECT_EQ(table.all()[0].owes_flush, owes) << state;
  }
}

TEST(CacheLinesTest, ClearsWholeLinesAndNoOther) {
  constexpr size_t kSize = 4096;
  alignas(64) char bytes[kSize];
  for (const size_t begin : {size_t{0}, size_t{64}, size_t{1984}}) {
    for (const size_t size : {size_t{64}, size_t{128}, size_t{2048}}) {
      std::memset(bytes, 1, kSize);
      ClearInMemory(bytes + begin, size);
      for (size_t at = 0; at < kSize; ++at) {
        ASSERT_EQ(bytes[at], at >= begin && at < begin + size ? 0 : 1) << at;
      }
    }
  }
}

TEST(CacheLinesTest, SeesEveryByteAndFlushesAnyRange) {
  constexpr size_t kSize = 4096 * 3;
  void* at = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  char* bytes = static_cast<char*>(at);
  for (const size_t wrong : {size_t{0}, size_t{63}, size_t{4096}, kSize - 1}) {
    bytes[wrong] = 1;
    EXPECT_FALSE(IsZero(at, kSize)) << wrong;
    WriteBackAndInvalidate(bytes + wrong, 1);
    EXPECT_EQ(bytes[wrong], 1);
    bytes[wrong] = 0;
    EXPECT_TRUE(IsZero(at, kSize));
  }
  ::munmap(at, kSize);
}

// The first task is under way when the session ends; the second has not begun.
TEST_F(SharedHostTest, WhatAFormerSessionAskedForIsNotBegun) {
  SharedHostOptions options;
  options.grants_path = directory_ + "/grants";
  options.boot_id = "boot-7";
  std::vector<std::string> files = {file_};
  const auto memory = MakeSharedHost(
      std::make_unique<FileSpace>(files, directory_ + "/pieces", options.boot_id), options);
  const auto ask = [&](v1::DeviceTask task) {
    auto answer = std::make_shared<std::promise<absl::Status>>();
    memory->Do(std::move(task), [answer](const absl::StatusOr<v1::DeviceLook>& look) {
      answer->set_value(look.status());
    });
    return answer->get_future();
  };
  std::promise<void> begun, go_on;
  v1::DeviceTask look, clear;
  look.mutable_look();
  *clear.mutable_clear() = ClearOf(1, false);
  memory->Do(look, [&](const absl::StatusOr<v1::DeviceLook>&) {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  auto late = ask(clear);
  memory->EndSession();
  auto next = ask(look);
  go_on.set_value();
  EXPECT_TRUE(absl::IsCancelled(late.get()));
  EXPECT_TRUE(next.get().ok());
}

}  // namespace
}  // namespace cxlpool::agent
