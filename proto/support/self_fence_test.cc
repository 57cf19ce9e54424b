#include "proto/support/self_fence.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "proto/support/loop.h"

namespace cxlpool {
namespace {

// How a child ends that does `what`; it exits with 0 if that returns.
int EndOf(void (*what)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    what();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(SelfFenceTest, EndsAProcessThatGaveNoSignOfLifeEvenIfItIsStopped) {
  EXPECT_EQ(EndOf([] {
              const auto fence = SelfFence::Make();
              (*fence)->Arm(SystemClock().Elapsed() + absl::Milliseconds(100));
              ::raise(SIGSTOP);
            }),
            SIGKILL);
}

TEST(SelfFenceTest, ArmedAnewItWaitsAndMadeUndoneItIsGone) {
  EXPECT_EQ(EndOf([] {
              const SystemClock clock;
              {
                const auto fence = SelfFence::Make();
                for (int i = 0; i < 10; ++i) {
                  (*fence)->Arm(clock.Elapsed() + absl::Seconds(2));
                  absl::SleepFor(absl::Milliseconds(5));
                }
                (*fence)->Arm(clock.Elapsed() + absl::Milliseconds(200));
              }
              absl::SleepFor(absl::Milliseconds(400));
            }),
            0);
}

TEST(SelfFenceTest, WhatIsOverEndsItAtOnce) {
  EXPECT_EQ(EndOf([] {
              const auto fence = SelfFence::Make();
              (*fence)->Arm(SystemClock().Elapsed() - absl::Seconds(1));
              ::pause();
            }),
            SIGKILL);
}

}  // namespace
}  // namespace cxlpool
