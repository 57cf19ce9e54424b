#include "test/crash/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

namespace cxlpool::crash {
namespace {

TEST(ProcessTest, ASignalThatComesMeanwhileIsNoEndOfTheOther) {
  auto process = Process::Start({"/bin/sleep", "60"}, testing::TempDir() + "/process_test.log");
  ASSERT_TRUE(process.ok()) << process.status();
  struct sigaction ignored = {};
  struct sigaction former = {};
  ignored.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &ignored, &former), 0);
  const itimerval often = {{0, 20'000}, {0, 20'000}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  const auto ended = process->Wait(absl::Milliseconds(200));
  const itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &former, nullptr);
  EXPECT_EQ(ended.status().code(), absl::StatusCode::kDeadlineExceeded) << ended.status();
  EXPECT_TRUE(process->started());
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(absl::Seconds(20)).value_or(0), 128 + SIGTERM);
}

}  // namespace
}  // namespace cxlpool::crash
