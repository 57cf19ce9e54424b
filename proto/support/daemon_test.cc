#include "proto/support/daemon.h"

#include <gtest/gtest.h>
#include <sysexits.h>
#include <unistd.h>

#include <cstdlib>

#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

TEST(DaemonTest, OnlyAConfigurationKeepsItFromBeingStartedAgain) {
  const auto refusal = [](const char* reason) {
    return Refuse(absl::StatusCode::kInvalidArgument, reason, "what", "remedy");
  };
  EXPECT_EQ(ExitStatusOf(refusal("BAD_CONFIG")), EX_CONFIG);
  EXPECT_EQ(ExitStatusOf(refusal("NO_CONFIG")), EX_CONFIG);
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
}  // namespace cxlpool
