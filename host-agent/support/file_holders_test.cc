#include "host-agent/support/file_holders.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {
namespace {

using testing::IsEmpty;

constexpr size_t kFileBytes = 8192;
constexpr char kHeldFile[] = "CXLPOOL_HELD_FILE";

// A process of its own. It maps the first page of a file that it has open, or only maps it, and
// ends its main thread; a second thread stays.
void HoldInASecondThread(bool keep_open) {
  const char* path = ::getenv(kHeldFile);
  if (path == nullptr) GTEST_SKIP() << "it is run by the tests below";
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_NE(::mmap(nullptr, kFileBytes / 2, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
  if (!keep_open) ::close(fd);
  ::alarm(60);  // It goes by itself if nobody ends it.
  std::thread([] {
    while (true) ::pause();
  }).detach();
  ::syscall(SYS_exit, 0);  // Of this thread alone.
}

TEST(HolderProgram, DISABLED_MapsAndKeepsOpen) { HoldInASecondThread(true); }
TEST(HolderProgram, DISABLED_Maps) { HoldInASecondThread(false); }

class FileHoldersTest : public testing::Test {
 protected:
  FileHoldersTest() {
    char name[] = "/tmp/cxlpool-held-XXXXXX";
    UniqueFd fd(::mkstemp(name));
    path_ = name;
    EXPECT_EQ(::ftruncate(fd.get(), kFileBytes), 0);
  }
  ~FileHoldersTest() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::unlink(path_.c_str());
  }

  // Returns once its main thread has ended: a zombie in /proc, while the process is there.
  void Start(const std::string& program) {
    const std::string filter = "--gtest_filter=HolderProgram.DISABLED_" + program;
    child_ = ::fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      ::setenv(kHeldFile, path_.c_str(), 1);
      ::execl("/proc/self/exe", "agent_support_test", filter.c_str(),
              "--gtest_also_run_disabled_tests", nullptr);
      ::_exit(1);
    }
    const std::string stat_file = "/proc/" + std::to_string(child_) + "/stat";
    bool ended = false;
    for (int i = 0; i < 1000 && !ended; ++i) {
      ::usleep(10'000);
      std::ifstream in(stat_file);
      const std::string stat(std::istreambuf_iterator<char>(in), {});
      ended = stat.find(") Z ") != std::string::npos;
    }
    ASSERT_TRUE(ended) << "its main thread did not end";
    ASSERT_EQ(::waitpid(child_, nullptr, WNOHANG), 0) << "all of it ended";
  }

  std::string path_;
  pid_t child_ = -1;
};

TEST_F(FileHoldersTest, SeesWhatAProcessHasWhoseMainThreadHasEnded) {
  Start("MapsAndKeepsOpen");
  const auto holders = FindFileHolders(path_, 8);
  ASSERT_TRUE(holders.ok()) << holders.status();
  ASSERT_EQ(holders->size(), 1u);
  EXPECT_EQ(holders->front().pid, static_cast<uint32_t>(child_));
}

TEST_F(FileHoldersTest, SeesOfWhichBytesAProcessHasAMappingWhoseMainThreadHasEnded) {
  Start("Maps");
  const auto holders = FindFileMappers(path_, 0, kFileBytes / 2, 8);
  ASSERT_TRUE(holders.ok()) << holders.status();
  ASSERT_EQ(holders->size(), 1u);
  EXPECT_EQ(holders->front().pid, static_cast<uint32_t>(child_));
  EXPECT_THAT(*FindFileMappers(path_, kFileBytes / 2, kFileBytes / 2, 8), IsEmpty());
}

TEST_F(FileHoldersTest, NobodyHoldsAFileThatOnlyThisProcessHasOpen) {
  UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  EXPECT_THAT(*FindFileHolders(path_, 8), IsEmpty());
}

}  // namespace
}  // namespace cxlpool::agent
