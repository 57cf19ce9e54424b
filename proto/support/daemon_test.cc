#include "proto/support/daemon.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {
namespace {

TEST(DaemonTest, OnlyWhatAPersonHasToChangeKeepsItFromBeingStartedAgain) {
  const auto refusal = [](const char* reason) {
    return Refuse(absl::StatusCode::kInvalidArgument, reason, "what", "remedy");
  };
  EXPECT_EQ(ExitStatusOf(refusal("BAD_CONFIG")), EX_CONFIG);
  EXPECT_EQ(ExitStatusOf(refusal("NO_CONFIG")), EX_CONFIG);
  EXPECT_EQ(ExitStatusOf(refusal("STORE_TOO_NEW")), EX_CONFIG);
  EXPECT_EQ(ExitStatusOf(refusal("STORE_FOREIGN")), EX_CONFIG);
  EXPECT_EQ(ExitStatusOf(refusal("BAD_RECORD")), EX_CONFIG);
  EXPECT_EQ(ExitStatusOf(refusal("STORE_CORRUPT")), EXIT_FAILURE);
  EXPECT_EQ(ExitStatusOf(refusal("TLS_EXPIRED")), EXIT_FAILURE);
  EXPECT_EQ(ExitStatusOf(absl::InternalError("what")), EXIT_FAILURE);
}

// In processes of their own, for the signals are this one's.
TEST(DaemonTest, AReloadIsDoneAndTheEndIsAwaited) {
  EXPECT_EXIT(
      {
        const sigset_t signals = BlockSignals();
        ::kill(::getpid(), SIGHUP);  // It comes early, and waits.
        int reloads = 0;
        AwaitEnd(
            signals, [&] { ++reloads; }, [] { ::kill(::getpid(), SIGTERM); });
        std::exit(reloads == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(DaemonTest, CrashProbeKillsTheNthTimeAtItsPoint) {
  ::unsetenv("CXLPOOL_CRASH_AT");
  EXPECT_TRUE(CrashProbe() == nullptr);
  EXPECT_EXIT(
      {
        ::setenv("CXLPOOL_CRASH_AT", "after-bind:2", 1);
        const auto probe = CrashProbe();
        probe("after-bind");
        probe("before-bind");
        probe("after-bind");
        std::exit(0);
      },
      testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(
      {
        ::setenv("CXLPOOL_CRASH_AT", "after-bind:2", 1);
        const auto probe = CrashProbe();
        probe("after-bind");
        probe("before-bind");
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace

namespace {

TEST(ServiceNotifyTest, SendsOneDatagram) {
  std::string dir = (std::filesystem::temp_directory_path() / "notify-XXXXXX").string();
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const std::string path = dir + "/s";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const UniqueFd server(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  EXPECT_TRUE(NotifyService("READY=1").ok());
  char buffer[64];
  const ssize_t got = recv(server.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  ASSERT_GT(got, 0);
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(got)), "READY=1");
  std::filesystem::remove_all(dir);
  EXPECT_FALSE(NotifyService("READY=1").ok());
  unsetenv("NOTIFY_SOCKET");
  EXPECT_TRUE(NotifyService("READY=1").ok());
}

TEST(ServiceNotifyTest, WatchdogIsHalfOfWhatIsAskedOfThisProcess) {
  unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(WatchdogInterval(), absl::InfiniteDuration());
  setenv("WATCHDOG_USEC", "3000000", 1);
  EXPECT_EQ(WatchdogInterval(), absl::Milliseconds(1500));
  setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(WatchdogInterval(), absl::InfiniteDuration());
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  EXPECT_EQ(WatchdogInterval(), absl::Milliseconds(1500));
  unsetenv("WATCHDOG_PID");
  unsetenv("WATCHDOG_USEC");
}

}  // namespace

}  // namespace cxlpool
