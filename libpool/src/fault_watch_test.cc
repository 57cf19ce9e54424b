#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/src/reason_for_test.h"
#include "proto/support/mutex.h"
#include "test/rigs/fake_agent.h"

extern "C" void __tsan_init() __attribute__((weak));  // Where ThreadSanitizer is.

namespace cxlpool::libpool {
namespace {

v1::LocalFault FaultAt(uint64_t offset, const std::string& tag = "tag-1") {
  v1::LocalFault fault;
  fault.set_name("regions/kv");
  fault.set_tag(tag);
  fault.set_region_offset_bytes(offset);
  fault.set_length_bytes(64);
  fault.set_message("poison, source Internal");
  return fault;
}

v1::LocalSize SizeOf(uint64_t bytes, const std::string& tag = "tag-1") {
  v1::LocalSize size;
  size.set_name("regions/kv");
  size.set_tag(tag);
  size.set_size_bytes(bytes);
  return size;
}

class FaultWatchTest : public ::testing::Test {
 protected:
  Result<FaultWatch> Watch() {
    return FaultWatch::Start(
        {.socket_path = agent_.socket_path(), .timeout = std::chrono::seconds(5)},
        [this](const Fault& fault) {
          MutexLock lock(mutex_);
          heard_.push_back(fault);
        },
        [this](const RegionSize& now) {
          MutexLock lock(mutex_);
          sizes_.push_back(now.size_bytes);
        });
  }
  std::vector<uint64_t> Sizes() {
    MutexLock lock(mutex_);
    return sizes_;
  }
  std::vector<uint64_t> Offsets() {
    MutexLock lock(mutex_);
    std::vector<uint64_t> offsets;
    for (const Fault& fault : heard_) offsets.push_back(fault.region_offset_bytes);
    return offsets;
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
    return Await([&] { return Offsets().size() >= count; });
  }

  FakeAgent agent_;
  Mutex mutex_;
  std::vector<Fault> heard_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> sizes_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(FaultWatchTest, WhatWasThereAndWhatComes) {
  agent_.AddFault(FaultAt(4096));
  auto watch = Watch();
  ASSERT_TRUE(watch.ok()) << watch.error().text();
  EXPECT_TRUE(AwaitHeard(1));
  agent_.AddFault(FaultAt(8192));
  EXPECT_TRUE(AwaitHeard(2));
  EXPECT_TRUE(watch->Check().ok());
  MutexLock lock(mutex_);
  EXPECT_EQ(heard_[1].name, "regions/kv");
  EXPECT_EQ(heard_[1].tag, "tag-1");
  EXPECT_EQ(heard_[1].region_offset_bytes, 8192u);
  EXPECT_EQ(heard_[1].length_bytes, 64u);
  EXPECT_EQ(heard_[1].message, "poison, source Internal");
}

// The child shares the watch's connection with its parent, and has none of its threads.
TEST_F(FaultWatchTest, AForkedChildLeavesTheWatchToItsParent) {
  agent_.AddFault(FaultAt(0));
  auto watch = Watch();
  ASSERT_TRUE(watch.ok()) << watch.error().text();
  ASSERT_TRUE(AwaitHeard(1));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    const bool refused = ReasonOf(watch->Check()) == "FORKED";
    watch = Error{};
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  agent_.AddFault(FaultAt(64));
  EXPECT_TRUE(AwaitHeard(2));
  EXPECT_TRUE(watch->Check().ok());
  int from_the_beginning = 0;
  for (const v1::LocalRequest& request : agent_.Requests()) {
    from_the_beginning += request.has_faults() && request.faults().after() == 0 ? 1 : 0;
  }
  EXPECT_EQ(from_the_beginning, 1) << "it lost its connection";
}

TEST_F(FaultWatchTest, ItsThreadTakesFaultsAndNoOtherSignalsWhateverItsMakerBlocks) {
  sigset_t bus, before, mask;
  ::sigemptyset(&bus);
  ::sigaddset(&bus, SIGBUS);
  ::pthread_sigmask(SIG_BLOCK, &bus, &before);
  std::promise<void> heard;
  auto watch = FaultWatch::Start({.socket_path = agent_.socket_path()}, [&](const Fault&) {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    heard.set_value();
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(watch.ok()) << watch.error().text();
  agent_.AddFault(FaultAt(0));
  ASSERT_EQ(heard.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) {
    EXPECT_EQ(::sigismember(&mask, fault), 0) << fault;
  }
  for (const int other : {SIGTERM, SIGINT, SIGUSR1, SIGCHLD}) {
    EXPECT_EQ(::sigismember(&mask, other), 1) << other;
  }
}

TEST_F(FaultWatchTest, AProcessThatMayHaveNoMoreThreadsIsToldSo) {
  if (__tsan_init != nullptr) GTEST_SKIP() << "ThreadSanitizer starts no threads in a child";
  // In a child, as a limit of threads cannot be taken back. Root has none, so it is no longer root.
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none = {1, 1};
    if (::chmod(agent_.socket_path().c_str(), 0777) != 0 ||
        ::chmod(std::filesystem::path(agent_.socket_path()).parent_path().c_str(), 0755) != 0 ||
        (::getuid() == 0 && ::setuid(65534) != 0) || ::setrlimit(RLIMIT_NPROC, &none) != 0) {
      ::_exit(2);
    }
    const std::string reason = ReasonOf(Watch());
    ::_exit(reason == "NO_THREAD" ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "the limit of threads cannot be set here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(FaultWatchTest, AnAgentThatRestartsTellsNothingTwice) {
  agent_.AddFault(FaultAt(0));
  auto watch = Watch();
  ASSERT_TRUE(watch.ok());
  EXPECT_TRUE(AwaitHeard(1));
  agent_.Stop();
  EXPECT_TRUE(Await([&] { return ReasonOf(watch->Check()) == "AGENT_NOT_RUNNING"; }));
  agent_.Start();
  agent_.AddFault(FaultAt(64));
  agent_.AddFault(FaultAt(0, "tag-2"));
  EXPECT_TRUE(AwaitHeard(3));
  EXPECT_EQ(Offsets(), (std::vector<uint64_t>{0, 64, 0}));
  EXPECT_TRUE(Await([&] { return watch->Check().ok(); }));
}

TEST_F(FaultWatchTest, AnAgentThatRestartsIsAskedFromItsBeginning) {
  agent_.AddFault(FaultAt(0));
  agent_.AddFault(FaultAt(64));
  auto watch = Watch();
  ASSERT_TRUE(watch.ok());
  EXPECT_TRUE(AwaitHeard(2));
  agent_.Stop();
  EXPECT_TRUE(Await([&] { return !watch->Check().ok(); }));
  agent_.ForgetFaults();
  agent_.AddFault(FaultAt(128));  // The first that this agent tells.
  agent_.Start();
  EXPECT_TRUE(AwaitHeard(3));
  EXPECT_EQ(Offsets().back(), 128u);
}

TEST_F(FaultWatchTest, SizesAreToldAtFirstAndWhenTheyChange) {
  agent_.AddSize(SizeOf(4096));
  auto watch = Watch();
  ASSERT_TRUE(watch.ok()) << watch.error().text();
  EXPECT_TRUE(Await([&] { return Sizes().size() == 1; }));
  agent_.AddSize(SizeOf(8192));
  agent_.AddFault(FaultAt(64));
  agent_.AddSize(SizeOf(4096));
  agent_.AddSize(SizeOf(0));
  EXPECT_TRUE(Await([&] { return Sizes().size() == 4; }));
  EXPECT_TRUE(AwaitHeard(1));
  EXPECT_EQ(Sizes(), (std::vector<uint64_t>{4096, 8192, 4096, 0}));
}

TEST_F(FaultWatchTest, AGrowthWhileTheAgentWasAwayIsHeardOfAndNothingElse) {
  agent_.AddSize(SizeOf(4096));
  agent_.AddSize(SizeOf(512, "tag-2"));
  auto watch = Watch();
  ASSERT_TRUE(watch.ok());
  EXPECT_TRUE(Await([&] { return Sizes().size() == 2; }));
  agent_.Stop();
  EXPECT_TRUE(Await([&] { return !watch->Check().ok(); }));
  agent_.ForgetFaults();
  agent_.AddSize(SizeOf(512, "tag-2"));
  agent_.AddSize(SizeOf(8192));
  agent_.Start();
  EXPECT_TRUE(Await([&] { return Sizes().size() == 3; }));
  EXPECT_EQ(Sizes(), (std::vector<uint64_t>{4096, 512, 8192}));
}

TEST_F(FaultWatchTest, SizesThatCannotBeAreIgnored) {
  agent_.AddSize(SizeOf(~uint64_t{0}));
  agent_.AddSize(SizeOf(4096));
  auto watch = Watch();
  ASSERT_TRUE(watch.ok());
  EXPECT_TRUE(Await([&] { return !Sizes().empty(); }));
  EXPECT_EQ(Sizes(), std::vector<uint64_t>{4096});
}

// The whole of it: a program is told, opens again, and goes on with the pointers that it had.
TEST_F(FaultWatchTest, WhoIsToldOfAGrowthMapsItBehindWhatIsThere) {
  constexpr uint64_t kMiB = 1 << 20;
  agent_.Add({.name = "regions/kv", .tag = "tag-1"});
  Pool pool = Pool::Connect({.socket_path = agent_.socket_path()}).value();
  Mapping mapping = pool.Open("kv")->Map({.reserve_bytes = 4 * kMiB}).value();
  std::byte* const first = mapping.mutable_bytes().data();
  *first = std::byte{9};
  const auto watch =
      FaultWatch::Start({.socket_path = agent_.socket_path()}, nullptr, [&](const RegionSize& now) {
        if (now.size_bytes <= mapping.size()) return;
        EXPECT_TRUE(mapping.Extend(pool.Open(now.name).value()).ok());
      });
  ASSERT_TRUE(watch.ok());
  agent_.AddSize(SizeOf(kMiB));
  agent_.Add({.name = "regions/kv", .tag = "tag-1", .segment_bytes = {kMiB, kMiB}});
  agent_.AddSize(SizeOf(2 * kMiB));
  EXPECT_TRUE(Await([&] { return mapping.size() == 2 * kMiB; }));
  EXPECT_EQ(mapping.data(), first);
  EXPECT_EQ(*first, std::byte{9});
  mapping.mutable_bytes().back() = std::byte{1};
}

TEST_F(FaultWatchTest, AWaitIsCutShortByTheEnd) {
  const auto begin = std::chrono::steady_clock::now();
  {
    auto watch = Watch();
    ASSERT_TRUE(watch.ok());
    EXPECT_TRUE(Await([&] { return agent_.Requests().size() >= 2; }));  // It waits for 30 s.
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(FaultWatchTest, AnAgentThatIsGoneDoesNotHoldTheEndUp) {
  auto watch = Watch();
  ASSERT_TRUE(watch.ok());
  agent_.Stop();
  EXPECT_TRUE(Await([&] { return !watch->Check().ok(); }));
}

TEST_F(FaultWatchTest, MovesLikeAnyValue) {
  auto watch = Watch();
  ASSERT_TRUE(watch.ok());
  FaultWatch moved = *std::move(watch);
  agent_.AddFault(FaultAt(0));
  EXPECT_TRUE(AwaitHeard(1));
  EXPECT_TRUE(moved.Check().ok());
}

TEST_F(FaultWatchTest, FaultsThatCannotBeAreIgnored) {
  v1::LocalFault fault = FaultAt(0);
  fault.set_length_bytes(0);
  agent_.AddFault(fault);
  fault = FaultAt(~uint64_t{0});
  agent_.AddFault(fault);
  agent_.AddFault(FaultAt(128));
  auto watch = Watch();
  ASSERT_TRUE(watch.ok());
  EXPECT_TRUE(AwaitHeard(1));
  EXPECT_EQ(Offsets(), std::vector<uint64_t>{128});
}

TEST_F(FaultWatchTest, AnAnswerToAnotherQuestionIsSaid) {
  agent_.Next({.what = FakeAgent::Mishap::kEdit,
               .edit = [](v1::LocalResponse& response) { response.mutable_close(); }});
  EXPECT_EQ(ReasonOf(Watch()), "BAD_REPLY");
}

TEST_F(FaultWatchTest, RefusalsAreTheAgents) {
  agent_.Next({.what = FakeAgent::Mishap::kEdit, .edit = [](v1::LocalResponse& response) {
                 response.set_code(static_cast<int>(CXLPOOL_PERMISSION_DENIED));
                 response.mutable_error()->set_reason("USER_NOT_ALLOWED");
               }});
  EXPECT_EQ(ReasonOf(Watch()), "USER_NOT_ALLOWED");
}

TEST_F(FaultWatchTest, BadArguments) {
  EXPECT_EQ(ReasonOf(FaultWatch::Start({}, nullptr)), "BAD_ARGUMENT");
  EXPECT_EQ(
      ReasonOf(FaultWatch::Start({.timeout = std::chrono::milliseconds(0)}, [](const Fault&) {})),
      "BAD_ARGUMENT");
  EXPECT_EQ(
      ReasonOf(FaultWatch::Start({.socket_path = "/nowhere/agent.sock"}, [](const Fault&) {})),
      "AGENT_NOT_RUNNING");
}

}  // namespace
}  // namespace cxlpool::libpool
