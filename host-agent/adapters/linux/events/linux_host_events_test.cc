// The kernel's side is a tree of files; its trace_pipe a FIFO that the test writes to.
#include "host-agent/adapters/linux/events/linux_host_events.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"
#include "host-agent/adapters/linux/events/trace_instance.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

constexpr char kInstance[] = "sys/kernel/tracing/instances/cxlpool";
constexpr char kPoison[] =
    "  sh-363  [000] .....  6.446774: cxl_poison: memdev=mem0 host=0000:0f:00.0 "
    "serial=864691128455135313 trace_type=List region=region0 hpa=0x110010000 dpa=0x10000 "
    "dpa_length=0x100 source=Internal flags= overflow_time=0\n";
constexpr char kAer[] =
    "  irq/24-aerdrv-57  [000] .....  13.9: aer_event: 0000:13:00.0 PCIe Bus Error: "
    "severity=Fatal, , TLP Header=Not available\n";

constexpr char kMemoryFailure[] =
    "  sh-363  [000] .....  14.2: memory_failure_event: pfn 0x110200: recovery action for dax "
    "page: "
    "Recovered\n";

class LinuxHostEventsTest : public testing::Test {
 protected:
  LinuxHostEventsTest() {
    Memdev("mem0", 0x0c00000000000051, "devices/0000:0d:00.0/0000:0f:00.0/mem0");
    Memdev("mem1", 0x0c00000000000052, "devices/0000:13:00.0/0000:14:00.0/mem1");
    Memdev("mem2", 0x77, "devices/0000:13:00.0/0000:15:00.0/mem2");  // The host's own.
    host_.Put("sys/bus/cxl/devices/memory_x/serial", "0x0c00000000000099");
  }
  ~LinuxHostEventsTest() override {
    if (events_ != nullptr) events_->Stop();
  }

  void Memdev(const std::string& name, uint64_t serial, const std::string& device) {
    host_.Put(device + "/serial", absl::StrCat("0x", absl::Hex(serial)));
    host_.Put(device + "/trigger_poison_list", "");
    host_.Link("sys/bus/cxl/devices/" + name, device);
  }

  void MakeTracefs() {
    for (const char* name :
         {"buffer_size_kb", "buffer_percent", "events/cxl/enable", "events/ras/aer_event/enable",
          "events/ras/memory_failure_event/enable"}) {
      host_.Put(absl::StrCat(kInstance, "/", name), "0");
    }
    host_.Folder("sys/kernel/tracing/events/cxl");
    const std::string pipe = host_.Path(absl::StrCat(kInstance, "/trace_pipe"));
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    pipe_ = UniqueFd(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));
  }
  void Say(const std::string& text) {
    ASSERT_EQ(::write(pipe_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  void Listen() {
    events_ =
        MakeLinuxHostEvents({.root = host_.Path(""), .poison_interval = absl::Milliseconds(100)});
    events_->Start([this](std::vector<v1::HostEvent> events) {
      MutexLock lock(mutex_);
      lost_ |= events.empty();
      for (v1::HostEvent& event : events) heard_.push_back(std::move(event));
    });
  }

  template <typename Condition>
  bool Await(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      ::poll(nullptr, 0, 1);
    }
    return true;
  }
  bool AwaitHeard(size_t count) {
    return Await([&] {
      MutexLock lock(mutex_);
      return heard_.size() >= count;
    });
  }

  FakeHost host_;
  UniqueFd pipe_;
  std::unique_ptr<HostEvents> events_;
  Mutex mutex_;
  std::vector<v1::HostEvent> heard_ ABSL_GUARDED_BY(mutex_);
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(LinuxHostEventsTest, MemdevsOfThePoolAloneAreSeen) {
  const std::vector<PoolMemdev> memdevs = ReadPoolMemdevs(host_.files());
  ASSERT_EQ(memdevs.size(), 2u);
  EXPECT_EQ(memdevs[1].serial, 0x0c00000000000052u);
  EXPECT_TRUE(IsBehind(memdevs[1], "0000:14:00.0"));
  EXPECT_TRUE(IsBehind(memdevs[1], "0000:13:00.0"));  // The port above it.
  EXPECT_FALSE(IsBehind(memdevs[0], "0000:13:00.0"));
  EXPECT_FALSE(IsBehind(memdevs[0], ""));
}

TEST_F(LinuxHostEventsTest, WhatTheKernelSaysIsHeard) {
  MakeTracefs();
  Listen();
  Say(kPoison);
  Say(kAer);
  Say(kMemoryFailure);
  ASSERT_TRUE(AwaitHeard(3));
  MutexLock lock(mutex_);
  EXPECT_EQ(heard_[0].kind(), v1::HostEvent::POISON);
  EXPECT_EQ(heard_[0].serial(), 0x0c00000000000051u);
  EXPECT_EQ(heard_[1].kind(), v1::HostEvent::AER_UNCORRECTABLE);
  EXPECT_EQ(heard_[1].serial(), 0x0c00000000000052u);  // Behind that port; not the host's own.
  EXPECT_EQ(heard_[2].serial(), 0u);
  EXPECT_EQ(heard_[2].hpa_bytes(), 0x110200000u);
  EXPECT_EQ(heard_.size(), 3u);
}

TEST_F(LinuxHostEventsTest, TheInstanceIsSwitchedOnAndPoisonListsAreRead) {
  MakeTracefs();
  Listen();
  EXPECT_TRUE(Await(
      [&] { return host_.files().Read("sys/bus/cxl/devices/mem1/trigger_poison_list") == "1"; }));
  EXPECT_EQ(host_.files().Read("sys/bus/cxl/devices/mem2/trigger_poison_list"), "");
  EXPECT_EQ(host_.files().Read(absl::StrCat(kInstance, "/events/cxl/enable")), "1");
  EXPECT_EQ(host_.files().Read(absl::StrCat(kInstance, "/events/ras/aer_event/enable")), "1");
  EXPECT_EQ(host_.files().Read(absl::StrCat(kInstance, "/events/ras/memory_failure_event/enable")),
            "1");
}

TEST_F(LinuxHostEventsTest, LostEventsAreAReasonToLook) {
  MakeTracefs();
  Listen();
  Say("CPU:0 [LOST 12 EVENTS]\n");
  EXPECT_TRUE(Await([&] {
    MutexLock lock(mutex_);
    return lost_;
  }));
}

TEST_F(LinuxHostEventsTest, ALineComesInPieces) {
  MakeTracefs();
  Listen();
  const std::string line = kPoison;
  Say(line.substr(0, 50));
  Say(line.substr(50));
  EXPECT_TRUE(AwaitHeard(1));
}

TEST_F(LinuxHostEventsTest, TracefsMayComeLater) {
  Listen();
  MakeTracefs();
  Say(kPoison);
  EXPECT_TRUE(AwaitHeard(1));
}

TEST_F(LinuxHostEventsTest, TheRefusalSaysWhatIsMissing) {
  TraceInstance instance(&host_.files());
  EXPECT_EQ(ReasonOf(instance.Open()), "NO_TRACING");
  host_.Folder("sys/kernel/tracing/instances");
  EXPECT_NE(instance.Open().message().find("no trace events"), std::string::npos);
  EXPECT_FALSE(host_.files().Exists(kInstance));  // Not made in vain.
  host_.Folder("sys/kernel/tracing/events/cxl");
  EXPECT_EQ(ReasonOf(instance.Open()), "NO_TRACING");
  EXPECT_FALSE(host_.files().Exists(kInstance));  // And taken away.
}

TEST_F(LinuxHostEventsTest, StoppingTwiceOrBeforeAnythingCameIsFine) {
  Listen();
  events_->Stop();
  events_->Stop();
}

}  // namespace
}  // namespace cxlpool::agent
