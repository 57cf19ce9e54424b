#include "host-agent/adapters/linux/dax/dax_carve.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "host-agent/adapters/linux/dax/dax_region.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_dax_kernel.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr uint64_t kBase = 0x110000000;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSize = 1024 * kMiB;

HpaRange At(uint64_t offset_mib, uint64_t length_mib) {
  return {kBase + offset_mib * kMiB, kBase + (offset_mib + length_mib) * kMiB};
}

// region0 of 1 GiB.
class DaxCarveTest : public testing::Test {
 protected:
  DaxCarveTest() { host_.AddCxl(0, kBase, kSize, 0x77); }

  DaxRegion Region(const std::string& name = "region0") { return *ReadDaxRegion(files_, name); }
  void TakeApart() {
    ASSERT_EQ(TakeWholeApart(files_, Region(), Deadline::In(absl::Seconds(20))), absl::OkStatus());
    TidyEmptyDax(files_, Region());  // dax0.1 is the seed from now on.
  }
  absl::Status Carve(uint64_t offset_mib, uint64_t length_mib) {
    return CarveDax(files_, Region(), At(offset_mib, length_mib));
  }
  absl::Status Uncarve(uint64_t offset_mib, uint64_t length_mib, const std::string& hint = "") {
    return UncarveDax(files_, Region(), At(offset_mib, length_mib), hint);
  }

  FakeDaxKernel host_;
  HostFiles files_ = host_.kernel();
};

TEST_F(DaxCarveTest, ReadsRegionsOfBothKinds) {
  host_.AddSoftReserved(2, 0x20000000, 256 * kMiB);
  host_.Folder("sys/bus/platform/devices/hmem_platform.0");
  host_.Folder("sys/bus/cxl/devices/region7");  // Without a DAX region.
  EXPECT_THAT(DaxRegionNames(files_), ElementsAre("region0", "hmem.2"));
  EXPECT_EQ(Region().range(), At(0, 1024));
  EXPECT_EQ(Region().align_bytes, 2 * kMiB);
  EXPECT_EQ(Region().target_node, 1);
  const DaxRegion soft_reserved = Region("hmem.2");
  EXPECT_EQ(soft_reserved.hpa_bytes, 0x20000000);
  ASSERT_NE(soft_reserved.Whole(), nullptr);
  EXPECT_EQ(soft_reserved.Whole()->name, "dax2.0");
  EXPECT_FALSE(ReadDaxRegion(files_, "region7").has_value());
  EXPECT_FALSE(ReadDaxRegion(files_, "hmem_platform.0").has_value());
}

TEST_F(DaxCarveTest, ADaxDeviceMadeByHandMayHaveSeveralRanges) {
  TakeApart();
  const std::string dax = host_.MakeByHand(Region().folder, At(0, 2).begin, At(0, 2).end);
  host_.SetDriver(dax, "");
  ASSERT_EQ(files_.Write(host_.FolderOf(dax) + "/mapping", "118000000-1181fffff"), 0);
  const DaxRegion region = Region();
  EXPECT_EQ(region.Find(At(0, 2)), nullptr);
  ASSERT_NE(region.FindOverlap(At(129, 1)), nullptr);
  EXPECT_EQ(ReasonOf(Carve(128, 2)), "RANGE_TAKEN");
}

TEST_F(DaxCarveTest, CarvesExactlyTheRangeAtAnyPlace) {
  TakeApart();
  EXPECT_EQ(Carve(512, 256), absl::OkStatus());
  EXPECT_EQ(Carve(0, 2), absl::OkStatus());
  EXPECT_EQ(Carve(1022, 2), absl::OkStatus());
  EXPECT_THAT(host_.RangesOf("dax0.2"), ElementsAre(Pair(At(512, 256).begin, At(512, 256).end)));
  EXPECT_THAT(host_.RangesOf("dax0.3"), ElementsAre(Pair(At(0, 2).begin, At(0, 2).end)));
  EXPECT_THAT(host_.RangesOf("dax0.4"), ElementsAre(Pair(At(1022, 2).begin, At(1022, 2).end)));
  EXPECT_EQ(files_.Read("sys/bus/dax/drivers_autoprobe"), "0");
}

TEST_F(DaxCarveTest, CarvedAlreadyIsFine) {
  TakeApart();
  ASSERT_EQ(Carve(0, 256), absl::OkStatus());
  EXPECT_EQ(Carve(0, 256), absl::OkStatus());
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0", "dax0.1", "dax0.2"));
}

TEST_F(DaxCarveTest, AnOverlapIsRefusedAndLeavesNothing) {
  TakeApart();
  ASSERT_EQ(Carve(256, 256), absl::OkStatus());
  const absl::Status status = Carve(510, 4);
  EXPECT_EQ(ReasonOf(status), "RANGE_TAKEN");
  EXPECT_THAT(std::string(status.message()), HasSubstr("dax0.2"));
  EXPECT_EQ(ReasonOf(Carve(256, 128)), "RANGE_TAKEN");
  EXPECT_EQ(ReasonOf(Carve(0, 1024)), "RANGE_TAKEN");
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0", "dax0.1", "dax0.2"));
}

TEST_F(DaxCarveTest, AnOverlapThatComesMeanwhileLeavesNothing) {
  TakeApart();
  const std::string folder = Region().folder;
  std::string by_hand;
  host_.before_write = [&](const std::string& path) {
    if (!absl::EndsWith(path, "/mapping") || !by_hand.empty()) return;
    by_hand = host_.MakeByHand(folder, At(100, 2).begin, At(100, 2).end);
  };
  EXPECT_EQ(ReasonOf(Carve(0, 256)), "RANGE_TAKEN");
  EXPECT_EQ(by_hand, "dax0.1");
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0", "dax0.1"));
}

TEST_F(DaxCarveTest, ADaxDeviceOfAnotherMakerIsNotTakenForOnesOwn) {
  TakeApart();
  bool done = false;
  const std::string folder = Region().folder;
  // What `create` names when it is read is somebody else's, with bytes.
  host_.before_write = [&](const std::string& path) {
    if (!absl::EndsWith(path, "/create") || done) return;
    done = true;
    host_.MakeByHand(folder, At(100, 2).begin, At(100, 2).end);
  };
  EXPECT_EQ(Carve(0, 64), absl::OkStatus());
  EXPECT_THAT(host_.RangesOf("dax0.1"), ElementsAre(Pair(At(100, 2).begin, At(100, 2).end)));
  EXPECT_THAT(host_.RangesOf("dax0.2"), ElementsAre(Pair(At(0, 64).begin, At(0, 64).end)));
}

TEST_F(DaxCarveTest, WhatWasCarvedIsNotTheSeedThatDaxctlTakes) {
  TakeApart();
  for (const uint64_t offset : {0, 2, 4}) {  // Also after the seed was taken.
    ASSERT_EQ(Carve(offset, 2), absl::OkStatus());
    host_.MakeByHand(Region().folder, At(100 + offset, 2).begin, At(100 + offset, 2).end);
    EXPECT_NE(Region().Find(At(offset, 2)), nullptr) << offset;
  }
}

TEST_F(DaxCarveTest, WhatIsNotWithinTheRegionOrNotAlignedIsRefused) {
  TakeApart();
  for (const HpaRange& bad :
       {At(1022, 4), At(1, 2), At(0, 1), At(0, 0), At(2048, 2), HpaRange{kBase - 2 * kMiB, kBase},
        HpaRange{kBase + 4 * kMiB, kBase}}) {
    EXPECT_EQ(ReasonOf(CarveDax(files_, Region(), bad)), "BAD_RANGE");
  }
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0", "dax0.1"));
}

TEST_F(DaxCarveTest, TheKernelIsNotBelieved) {
  TakeApart();
  // It shows a smaller alignment than it keeps to: takes the range, and does nothing.
  host_.Put(Region().folder + "/dax_region/align", "1048576\n");
  const absl::Status status = Carve(0, 1);
  EXPECT_EQ(ReasonOf(status), "DAX_CARVE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("without effect"));
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0", "dax0.1"));
}

TEST_F(DaxCarveTest, UncarvesTheRangeWhateverItIsCalled) {
  TakeApart();
  ASSERT_EQ(Carve(0, 2), absl::OkStatus());
  ASSERT_EQ(Carve(256, 256), absl::OkStatus());
  ASSERT_EQ(Uncarve(0, 2, "dax0.2"), absl::OkStatus());
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0", "dax0.1", "dax0.3"));
  EXPECT_EQ(Uncarve(0, 2, "dax0.2"), absl::OkStatus());
  EXPECT_EQ(Uncarve(256, 128), absl::OkStatus());  // Not exactly that one: it stays.
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0", "dax0.1", "dax0.3"));
  ASSERT_EQ(Carve(2, 2), absl::OkStatus());
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0", "dax0.1", "dax0.2", "dax0.3"));
}

TEST_F(DaxCarveTest, WhatADriverHasIsNotUncarved) {
  TakeApart();
  ASSERT_EQ(Carve(0, 256), absl::OkStatus());
  host_.SetDriver("dax0.2", "device_dax");
  EXPECT_EQ(ReasonOf(Uncarve(0, 256)), "DAX_BOUND");
  EXPECT_FALSE(host_.RangesOf("dax0.2").empty());
}

TEST_F(DaxCarveTest, WhatTheKernelStillUsesIsNotUncarved) {
  TakeApart();
  ASSERT_EQ(Carve(0, 256), absl::OkStatus());
  // Left of a kmem that was unbound while a block was online.
  const std::string block = "sys/devices/system/memory/memory35/state";  // The second of two.
  host_.Put(block, "online\n");
  const absl::Status status = Uncarve(0, 256);
  EXPECT_EQ(ReasonOf(status), "BLOCKS_BUSY");
  EXPECT_THAT(std::string(status.message()), HasSubstr("(reboot the host)"));
  EXPECT_FALSE(host_.RangesOf("dax0.2").empty());
  host_.Put(block, "offline\n");
  EXPECT_EQ(Uncarve(0, 256), absl::OkStatus());
}

TEST_F(DaxCarveTest, AWholeThatTheKernelStillUsesIsNotTakenApart) {
  host_.Put("sys/devices/system/memory/memory36/state", "online\n");
  EXPECT_EQ(ReasonOf(TakeWholeApart(files_, Region(), Deadline::In(absl::Seconds(20)))),
            "BLOCKS_BUSY");
  EXPECT_FALSE(host_.RangesOf("dax0.0").empty());
}

TEST_F(DaxCarveTest, TheFirstDaxDeviceOfARegionStaysEmpty) {
  ASSERT_EQ(Uncarve(0, 1024), absl::OkStatus());
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0"));
  EXPECT_TRUE(host_.RangesOf("dax0.0").empty());
}

TEST_F(DaxCarveTest, TakesTheWholeApartWhereNobodyUsesIt) {
  host_.SetDriver("dax0.0", "device_dax");
  TakeApart();
  EXPECT_TRUE(host_.RangesOf("dax0.0").empty());
  EXPECT_EQ(WhyWhole(files_, Region()), "");
  TakeApart();  // Again.
}

TEST_F(DaxCarveTest, SystemRamThatIsOnlineIsLeftAlone) {
  host_.SetDriver("dax0.0", "kmem");
  const std::string block = "sys/devices/system/memory/memory36/state";  // Of eight, from 34 on.
  host_.Put(block, "online\n");
  const absl::Status status = TakeWholeApart(files_, Region(), Deadline::In(absl::Seconds(20)));
  EXPECT_EQ(ReasonOf(status), "DEVICE_IN_USE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("NUMA node 1 (1 of 8 memory blocks"));
  EXPECT_THAT(WhyWhole(files_, Region()), HasSubstr("daxctl offline-memory dax0.0"));
  EXPECT_FALSE(host_.RangesOf("dax0.0").empty());
  host_.Put(block, "offline\n");
  TakeApart();
  EXPECT_TRUE(host_.RangesOf("dax0.0").empty());
}

TEST_F(DaxCarveTest, WhatSomebodyHasOpenIsLeftAlone) {
  host_.SetDriver("dax0.0", "device_dax");
  host_.Put("sys/module/device_dax/refcnt", "1\n");
  host_.Put("proc/77/maps", "7f00-7f01 rw-s 0 00:05 42 /dev/dax0.0\n");
  host_.Put("proc/77/stat", "77 (user) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1234 0 0\n");
  const absl::Status status = TakeWholeApart(files_, Region(), Deadline::In(absl::Seconds(20)));
  EXPECT_EQ(ReasonOf(status), "DEVICE_IN_USE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("process 77 uses it"));
  EXPECT_FALSE(host_.RangesOf("dax0.0").empty());
}

TEST_F(DaxCarveTest, WhatAnUnknownDriverHasIsLeftAlone) {
  host_.SetDriver("dax0.0", "fsdev_dax");
  EXPECT_EQ(ReasonOf(TakeWholeApart(files_, Region(), Deadline::In(absl::Seconds(20)))),
            "DEVICE_IN_USE");
  EXPECT_FALSE(host_.RangesOf("dax0.0").empty());
}

TEST_F(DaxCarveTest, WhatIsNotTheWholeIsLeftAlone) {
  TakeApart();
  ASSERT_EQ(Carve(0, 512), absl::OkStatus());
  TakeApart();
  EXPECT_FALSE(host_.RangesOf("dax0.2").empty());
}

TEST_F(DaxCarveTest, EmptyOnesThatWereLeftOverGo) {
  TakeApart();
  ASSERT_EQ(files_.Write(Region().folder + "/dax_region/create", "1"), 0);
  ASSERT_EQ(Carve(0, 2), absl::OkStatus());
  std::vector<std::string> written;
  host_.before_write = [&](const std::string& path) {
    written.push_back(path.substr(path.rfind('/') + 1));
  };
  TidyEmptyDax(files_, Region());
  EXPECT_THAT(host_.Devices(), ElementsAre("dax0.0", "dax0.1", "dax0.3"));
  EXPECT_THAT(written, ElementsAre("delete"));  // No size: see the header.
}

TEST_F(DaxCarveTest, AnEmptyOneThatGetsBytesMeanwhileKeepsThem) {
  TakeApart();
  ASSERT_EQ(files_.Write(Region().folder + "/dax_region/create", "1"), 0);
  const DaxRegion seen = Region();
  ASSERT_EQ(files_.Write(host_.FolderOf("dax0.2") + "/mapping", "118000000-1181fffff"), 0);
  TidyEmptyDax(files_, seen);
  EXPECT_THAT(host_.RangesOf("dax0.2"), ElementsAre(Pair(0x118000000, 0x118200000)));
}

TEST_F(DaxCarveTest, SoftReservedMemoryIsFoundAgainByAnEmptyDaxDevice) {
  host_.AddSoftReserved(2, 0x20000000, 256 * kMiB);
  ASSERT_EQ(TakeWholeApart(files_, Region("hmem.2"), Deadline::In(absl::Seconds(20))),
            absl::OkStatus());
  EXPECT_EQ(Region("hmem.2").hpa_bytes, 0x20000000);
  ASSERT_EQ(CarveDax(files_, Region("hmem.2"), {0x24000000, 0x26000000}), absl::OkStatus());
  EXPECT_THAT(host_.RangesOf("dax2.2"), ElementsAre(Pair(0x24000000, 0x26000000)));
  // Somebody used both that were empty: the address is not known.
  ASSERT_EQ(files_.Write(host_.FolderOf("dax2.0") + "/mapping", "28000000-29ffffff"), 0);
  EXPECT_EQ(host_.MakeByHand(Region("hmem.2").folder, 0x2a000000, 0x2c000000), "dax2.1");
  EXPECT_EQ(Region("hmem.2").hpa_bytes, 0);
  EXPECT_EQ(ReasonOf(CarveDax(files_, Region("hmem.2"), {0x20000000, 0x22000000})), "BAD_RANGE");
  TidyEmptyDax(files_, Region("hmem.2"));
  EXPECT_EQ(Region("hmem.2").hpa_bytes, 0x20000000);
  TidyEmptyDax(files_, Region("hmem.2"));
  EXPECT_EQ(Region("hmem.2").hpa_bytes, 0x20000000);
}

}  // namespace
}  // namespace cxlpool::agent
