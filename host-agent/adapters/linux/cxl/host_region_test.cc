#include "host-agent/adapters/linux/cxl/host_region.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_cxl_for_test.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A kernel that takes every write, and does one thing: a region that is deleted is gone.
class HostRegionTest : public testing::Test {
 protected:
  HostRegionTest() {
    host_.OnBus("cxl", FakeCxl::kEndpoint + "/decoder4.0");  // So the memdev is ready.
    host_.Put(kMemory + "block_size_bytes", "8000000\n");
  }

  HostFiles Kernel() {
    return HostFiles(host_.Path(""), [this](const std::string& path, absl::string_view text) {
      writes_.push_back(path.substr(path.rfind('/') + 1));
      if (absl::EndsWith(path, "/delete_region")) {
        deleted_.emplace_back(text);
        std::filesystem::remove(host_.Path(absl::StrCat("sys/bus/cxl/devices/", deleted_.back())));
      }
      return 0;
    });
  }

  // The memdev of region0 is pulled out: the kernel resets its decoders, and keeps its addresses.
  void PullTarget() const {
    host_.Put(FakeCxl::kRegion + "/commit", "0\n");
    host_.Put(FakeCxl::kRegion + "/target0", "\n");
  }

  static inline const std::string kMemory = "sys/devices/system/memory/";

  FakeCxl host_;
  std::vector<std::string> writes_;  // The files' names.
  std::vector<std::string> deleted_;
};

TEST_F(HostRegionTest, IsNotDestroyedUnderABlockThatStayedOnline) {
  Machine machine(Kernel());
  host_.Put(kMemory + "memory34/state", "offline\n");
  host_.Put(kMemory + "memory35/state", "online\n");
  const absl::Status status = DestroyHostRegionOf(machine, 0x1001);
  EXPECT_EQ(ReasonOf(status), "BLOCKS_BUSY");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("1 of 2 memory blocks of host region region0 are online"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("(reboot the host)"));
  EXPECT_THAT(writes_, IsEmpty());

  host_.Put(kMemory + "memory35/state", "offline\n");
  EXPECT_EQ(DestroyHostRegionOf(machine, 0x1001), absl::OkStatus());
  EXPECT_THAT(deleted_, ElementsAre("region0"));
}

// There is nothing behind it, and its blocks stay whatever becomes of it.
TEST_F(HostRegionTest, WhatLostItsMemdevGoesThoughItsBlocksStayOnline) {
  Machine machine(Kernel());
  LookAtCxl(machine);
  PullTarget();
  host_.Put(kMemory + "memory34/state", "online\n");
  EXPECT_EQ(DestroyHostRegionOf(machine, 0x1001), absl::OkStatus());
  EXPECT_THAT(deleted_, ElementsAre("region0"));
}

}  // namespace
}  // namespace cxlpool::agent
