#include "fabric-manager/adapters/fabric_qemu/qemu_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/process_stat.h"

namespace cxlpool::fm {
namespace {

// A process that waits to be killed.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      while (true) ::pause();
    }
  }
  ~Child() { Reap(); }
  pid_t pid() const { return pid_; }
  void Reap() {
    if (reaped_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }

 private:
  const pid_t pid_;
  bool reaped_ = false;
};

TEST(QemuProcessTest, StartTimeIsFoundBehindAnyCommandName) {
  const std::string tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21 22 23";
  EXPECT_EQ(*ParseStartTicks("77 (qemu)" + tail), 987654u);
  EXPECT_EQ(*ParseStartTicks("77 (a) b (c d) 1 2)" + tail), 987654u);
}

TEST(QemuProcessTest, OtherTextHasNoStartTime) {
  for (const char* text : {"", "77 (qemu", "77 (qemu) S 1 2",
                           "77 (q) S 1 2 3 4 5 6 7 8 9 10 11 12 "
                           "13 14 15 16 17 18 x"}) {
    EXPECT_FALSE(ParseStartTicks(text).ok()) << text;
  }
}

TEST(QemuProcessTest, KillIsConfirmedAndLasts) {
  Child child;
  auto process = QemuProcess::Open(child.pid());
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(process->name().pid, child.pid());
  EXPECT_TRUE(process->HasThread(static_cast<uint64_t>(child.pid())));
  EXPECT_FALSE(process->HasThread(1));
  EXPECT_FALSE(process->HasExited());
  EXPECT_TRUE(process->Kill(absl::Seconds(10)).ok());
  EXPECT_TRUE(process->HasExited());
  child.Reap();
  EXPECT_TRUE(process->HasExited());
  EXPECT_TRUE(process->Kill(absl::Seconds(10)).ok()) << "again";
}

TEST(QemuProcessTest, EndedProcessCannotBeOpened) {
  Child child;
  ::kill(child.pid(), SIGKILL);
  siginfo_t info;
  ::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(absl::IsNotFound(QemuProcess::Open(child.pid()).status())) << "a zombie";
  child.Reap();
  EXPECT_TRUE(absl::IsNotFound(QemuProcess::Open(child.pid()).status()));
}

TEST(QemuProcessTest, NeverKillsItself) {
  auto self = QemuProcess::Open(::getpid());
  ASSERT_TRUE(self.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(self->Kill(absl::Seconds(1))));
}

constexpr char kOtherBoot[] = "00000000-0000-0000-0000-000000000000";

// Of an incarnation of this machine: MACHINE, BOOT, pid:start. Nothing: it has no id.
std::vector<std::string> PartsOf(const std::string& incarnation) {
  const std::vector<std::string> parts = absl::StrSplit(incarnation, '/');
  return parts.size() == 3 ? parts : std::vector<std::string>();
}

TEST(IncarnationTest, NamesAProcessOfThisBoot) {
  const std::string incarnation = FormatIncarnation({18, 987654321012345});
  const auto former = ParseIncarnation(incarnation);
  ASSERT_TRUE(former.has_value());
  EXPECT_EQ(former->name, (ProcessName{18, 987654321012345}));
  EXPECT_TRUE(former->this_boot);
  EXPECT_FALSE(former->ended) << "its pid says whether it has";
  EXPECT_EQ(CurrentForm(incarnation), incarnation);
}

// Another machine's boots are others, too, and its processes run on.
TEST(IncarnationTest, AnotherBootIsAnEndOnTheSameMachineOnly) {
  const std::vector<std::string> parts = PartsOf(FormatIncarnation({18, 5}));
  if (parts.empty()) GTEST_SKIP() << "/etc/machine-id has none";
  const auto earlier = ParseIncarnation(absl::StrCat(parts[0], "/", kOtherBoot, "/17:5"));
  ASSERT_TRUE(earlier.has_value());
  EXPECT_EQ(earlier->name, (ProcessName{17, 5}));
  EXPECT_FALSE(earlier->this_boot);
  EXPECT_TRUE(earlier->ended);
  const std::string elsewhere = absl::StrCat(std::string(32, '0'), "/", kOtherBoot, "/17:5");
  const auto other = ParseIncarnation(elsewhere);
  ASSERT_TRUE(other.has_value());
  EXPECT_FALSE(other->this_boot);
  EXPECT_FALSE(other->ended);
  EXPECT_EQ(CurrentForm(elsewhere), elsewhere);
}

// What earlier builds wrote says a boot, and not of which machine.
TEST(IncarnationTest, WithoutAMachineOnlyThisBootSaysAnything) {
  const std::string now = FormatIncarnation({18, 5});
  const std::vector<std::string> parts = absl::StrSplit(now, '/');
  const std::string old = absl::StrCat(parts[parts.size() - 2], "/18:5");
  const auto former = ParseIncarnation(old);
  ASSERT_TRUE(former.has_value());
  EXPECT_TRUE(former->this_boot);
  EXPECT_EQ(CurrentForm(old), now);
  const auto earlier = ParseIncarnation(absl::StrCat(kOtherBoot, "/17:5"));
  ASSERT_TRUE(earlier.has_value());
  EXPECT_FALSE(earlier->this_boot);
  EXPECT_FALSE(earlier->ended);
}

TEST(IncarnationTest, OtherTextIsNone) {
  for (const char* text : {"", "x", "boot/1", "boot/x:5", "boot/17:y", "boot/1:5", "a/b/c:d",
                           "/boot/17:5", "a/b/c/17:5"}) {
    EXPECT_FALSE(ParseIncarnation(text).has_value()) << text;
  }
  EXPECT_EQ(ReadFormerIncarnation("/nowhere/host-a.qemu"), "");
}

}  // namespace
}  // namespace cxlpool::fm
