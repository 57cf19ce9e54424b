#include "fabric-manager/adapters/fabric_qemu/qemu_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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

class ProcessRecordTest : public ::testing::Test {
 protected:
  ProcessRecordTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~ProcessRecordTest() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(ProcessRecordTest, RemembersTheLastName) {
  const ProcessRecord record(directory_ + "/host-a.qemu");
  EXPECT_FALSE(record.Load().has_value());
  ASSERT_TRUE(record.Save({17, 1}).ok());
  ASSERT_TRUE(record.Save({18, 987654321012345}).ok());
  const auto former = ProcessRecord(directory_ + "/host-a.qemu").Load();
  ASSERT_TRUE(former.has_value());
  EXPECT_EQ(former->name, (ProcessName{18, 987654321012345}));
  EXPECT_TRUE(former->this_boot);
}

TEST_F(ProcessRecordTest, TextThatIsNoRecordIsNone) {
  const std::string path = directory_ + "/host-a.qemu";
  for (const char* text : {"", "x", "boot 1", "boot x 5", "boot 17 y", "boot 1 5", "a b c d"}) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_FALSE(ProcessRecord(path).Load().has_value()) << text;
  }
}

TEST_F(ProcessRecordTest, AnotherBootIsTold) {
  const std::string path = directory_ + "/host-a.qemu";
  std::ofstream(path) << "00000000-0000-0000-0000-000000000000 17 5\n";
  const auto former = ProcessRecord(path).Load();
  ASSERT_TRUE(former.has_value());
  EXPECT_FALSE(former->this_boot);
}

TEST_F(ProcessRecordTest, WithoutAPathNothingIsKept) {
  const ProcessRecord record("");
  EXPECT_TRUE(record.Save({17, 1}).ok());
  EXPECT_FALSE(record.Load().has_value());
}

}  // namespace
}  // namespace cxlpool::fm
