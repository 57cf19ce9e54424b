#include "host-agent/local/pidfd_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "host-agent/local/processes.h"
#include "proto/support/process_stat.h"

extern "C" void __tsan_init() __attribute__((weak));  // Where ThreadSanitizer is.

namespace cxlpool::agent {
namespace {

constexpr auto kSoon = std::chrono::seconds(20);

// A child that does nothing until it is killed.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      while (true) ::pause();
    }
  }
  ~Child() {
    Kill();
    ::waitpid(pid_, nullptr, 0);
  }
  void Kill() const { ::kill(pid_, SIGKILL); }
  ProcessId id() const {
    const auto pid = static_cast<uint32_t>(pid_);
    return {.pid = pid, .start_ticks = StartTicksOf(pid)};
  }

 private:
  const pid_t pid_;
};

class PidfdWatchTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(watch_.Start().ok()); }

  std::future<absl::Status> Watch(const ProcessId& process) {
    auto heard = std::make_shared<std::promise<absl::Status>>();
    auto future = heard->get_future();
    watch_.Watch(process, [heard](absl::Status status) { heard->set_value(std::move(status)); });
    return future;
  }
  static bool Ready(std::future<absl::Status>& future) {
    return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  PidfdWatch watch_;
};

TEST_F(PidfdWatchTest, HearsOfTheEndBeforeTheParentDoes) {
  const Child child, other;
  auto ended = Watch(child.id());
  auto lives = Watch(other.id());
  EXPECT_FALSE(Ready(ended));
  child.Kill();  // A zombie until it is waited for.
  ASSERT_EQ(ended.wait_for(kSoon), std::future_status::ready);
  EXPECT_TRUE(ended.get().ok());
  EXPECT_FALSE(Ready(lives));
}

TEST_F(PidfdWatchTest, ALaterProcessOfTheSamePidIsAnother) {
  const Child child;
  ProcessId earlier = child.id();
  --earlier.start_ticks;
  auto ended = Watch(earlier);
  ASSERT_TRUE(Ready(ended));
  EXPECT_TRUE(ended.get().ok());
}

TEST_F(PidfdWatchTest, WhatIsNotThereHasEnded) {
  auto ended = Watch({.pid = 0x7ffffffe, .start_ticks = 1});
  ASSERT_TRUE(Ready(ended));
  EXPECT_TRUE(ended.get().ok());
}

// Otherwise the memory of processes that live would be released.
TEST_F(PidfdWatchTest, WhereThereAreNoDescriptorsNobodyHasEnded) {
  const Child child;
  const ProcessId id = child.id();
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  auto ended = Watch(id);
  const bool has_ended = watch_.HasEnded(id);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_FALSE(has_ended);
  ASSERT_TRUE(Ready(ended));
  EXPECT_TRUE(absl::IsResourceExhausted(ended.get()));
}

TEST_F(PidfdWatchTest, WhatIsForgottenIsToldOnceAndCanBeWatchedAgain) {
  const Child child;
  auto first = Watch(child.id());
  watch_.Forget(child.id());
  watch_.Forget(child.id());
  ASSERT_TRUE(Ready(first));
  EXPECT_TRUE(absl::IsCancelled(first.get()));
  auto second = Watch(child.id());
  child.Kill();
  ASSERT_EQ(second.wait_for(kSoon), std::future_status::ready);
  EXPECT_TRUE(second.get().ok());
}

TEST_F(PidfdWatchTest, AnotherWatchOfAProcessEndsTheOneBefore) {
  const Child child;
  auto first = Watch(child.id());
  auto second = Watch(child.id());
  ASSERT_TRUE(Ready(first));
  EXPECT_TRUE(absl::IsCancelled(first.get()));
  EXPECT_FALSE(Ready(second));
  child.Kill();
  ASSERT_EQ(second.wait_for(kSoon), std::future_status::ready);
  EXPECT_TRUE(second.get().ok());
}

TEST_F(PidfdWatchTest, StopAnswersEveryWatch) {
  const Child child;
  auto ended = Watch(child.id());
  watch_.Stop();
  ASSERT_TRUE(Ready(ended));
  EXPECT_TRUE(absl::IsCancelled(ended.get()));
  auto late = Watch(child.id());
  ASSERT_TRUE(Ready(late));
  EXPECT_TRUE(absl::IsCancelled(late.get()));
}

bool HoldsSoon(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST_F(PidfdWatchTest, AZombieHasEnded) {
  const Child child;
  const ProcessId id = child.id();
  EXPECT_FALSE(watch_.HasEnded(id));
  EXPECT_TRUE(watch_.HasEnded({id.pid, id.start_ticks - 1})) << "an earlier one of that pid";
  EXPECT_TRUE(watch_.HasEnded({id.pid, 0}));
  child.Kill();  // A zombie until it is waited for.
  EXPECT_TRUE(HoldsSoon([&] { return watch_.HasEnded(id); }));
  EXPECT_EQ(StartTicksOf(id.pid), id.start_ticks) << "it is still there to be seen";
}

// In /proc it is a zombie, and it has all that it had.
TEST_F(PidfdWatchTest, AProcessLivesAsLongAsAnyThreadOfIt) {
  if (&__tsan_init != nullptr) GTEST_SKIP() << "ThreadSanitizer lets no child have threads";
  const pid_t child = ::fork();
  if (child == 0) {
    std::thread([] {
      while (true) ::pause();
    }).detach();
    ::syscall(SYS_exit, 0);  // This thread's own end.
  }
  const auto pid = static_cast<uint32_t>(child);
  const ProcessId id = {.pid = pid, .start_ticks = StartTicksOf(pid)};
  EXPECT_TRUE(HoldsSoon([&] {
    std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
    std::string number, name, state;
    return stat >> number >> name >> state && state == "Z";
  }));
  EXPECT_FALSE(watch_.HasEnded(id));
  ::kill(child, SIGKILL);
  EXPECT_TRUE(HoldsSoon([&] { return watch_.HasEnded(id); }));
  ::waitpid(child, nullptr, 0);
}

TEST(ProcessesTest, StartTicksStandBehindANameThatMayHoldAnything) {
  const std::string fields = "S 1 2 2 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 8675309 1000 10";
  EXPECT_EQ(ParseStartTicks("42 (cat) " + fields).value_or(0), 8675309u);
  EXPECT_EQ(ParseStartTicks("42 (a) R 1 (b) c) " + fields + "\n").value_or(0), 8675309u);
  EXPECT_FALSE(ParseStartTicks("42 (cat) S 1 2 2 0 -1").ok());
  EXPECT_FALSE(ParseStartTicks("").ok());
  EXPECT_FALSE(
      ParseStartTicks("42 (cat) S 1 2 2 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 x 10").ok());
  EXPECT_GT(StartTicksOf(static_cast<uint32_t>(::getpid())), 0u);
  EXPECT_EQ(StartTicksOf(0x7ffffffe), 0u);
}

TEST(ProcessesTest, ThePeerOfASocketIsKnown) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd here(pair[0]), there(pair[1]);
  const auto pid = static_cast<uint32_t>(::getpid());
  EXPECT_EQ(PeerStartTicks(here.get(), ::getpid()), StartTicksOf(pid));
  EXPECT_EQ(PeerStartTicks(here.get(), 0), 0u);  // Of another PID namespace.
  const std::vector<uint32_t> groups = PeerGroups(here.get(), ::getegid());
  EXPECT_NE(std::find(groups.begin(), groups.end(), ::getegid()), groups.end());
}

}  // namespace
}  // namespace cxlpool::agent
