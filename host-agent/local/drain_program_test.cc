#include "host-agent/local/drain_program.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "proto/support/process_stat.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// An answer that a test waits for.
class Answer {
 public:
  Done Take() {
    return [this](absl::Status status) {
      MutexLock lock(mutex_);
      status_ = std::move(status);
      came_.notify_all();
    };
  }
  absl::Status Wait() {
    MutexLock lock(mutex_);
    if (!came_.wait_for(lock.native(), std::chrono::seconds(20),
                        [this] { return status_.has_value(); })) {
      return absl::UnknownError("no answer");
    }
    return *status_;
  }
  bool came() {
    MutexLock lock(mutex_);
    return status_.has_value();
  }

 private:
  Mutex mutex_;
  std::condition_variable came_;
  std::optional<absl::Status> status_;
};

bool Soon(const std::function<bool()>& holds) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!holds()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

class DrainProgramTest : public testing::Test {
 protected:
  DrainProgramTest() {
    std::string made = (std::filesystem::temp_directory_path() / "cxlpool-drain-XXXXXX").string();
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    directory_ = made;
    program_ = directory_ + "/hook";
  }
  ~DrainProgramTest() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& script) {
    std::ofstream(program_) << "#!/bin/sh\n" << script;
    ::chmod(program_.c_str(), 0755);
  }
  std::string Read(const std::string& file) const {
    std::ostringstream text;
    text << std::ifstream(directory_ + "/" + file).rdbuf();
    return text.str();
  }
  absl::Status Run(absl::Duration timeout = absl::Seconds(20)) { return Run(timeout, kRequest); }
  absl::Status Run(absl::Duration timeout, const DrainRequest& request) {
    DrainProgram hook(program_, timeout);
    Answer answer;
    hook.Run(request, answer.Take());
    return answer.Wait();
  }
  // Whether the process whose pid the file holds has ended; a zombie has.
  bool HasEnded(const std::string& file) const {
    std::ifstream stat(
        absl::StrCat("/proc/", Read(file).substr(0, Read(file).find('\n')), "/stat"));
    std::string pid;
    std::string name;
    std::string state;
    return !(stat >> pid >> name >> state) || state == "Z";
  }

  const DrainRequest kRequest = {.region = "kv",
                                 .tag = "123e4567-e89b-42d3-a456-426614174000",
                                 .mode = "system-ram",
                                 .numa_node = 2,
                                 .dax_device = "dax0.0",
                                 .processes = {},
                                 .reason = "BLOCKS_BUSY"};
  std::string directory_;
  std::string program_;
};

TEST_F(DrainProgramTest, GetsWhatItMustKnowAndNothingElse) {
  ::setenv("CXLPOOL_SECRET", "x", 1);
  Write(absl::StrCat("env | grep -v '^PWD=\\|^_=\\|^SHLVL=' | sort > ", directory_, "/env\npwd > ",
                     directory_, "/pwd\nls /proc/self/fd | wc -l > ", directory_, "/fds\n"));
  const absl::Status status = Run();
  ::unsetenv("CXLPOOL_SECRET");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Read("env"),
            "CXLPOOL_DAX=dax0.0\nCXLPOOL_MODE=system-ram\nCXLPOOL_NODE=2\n"
            "CXLPOOL_PIDS=\nCXLPOOL_PID_STARTS=\nCXLPOOL_REASON=BLOCKS_BUSY\nCXLPOOL_REGION=kv\n"
            "CXLPOOL_TAG=123e4567-e89b-42d3-a456-426614174000\n"
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
  EXPECT_EQ(Read("pwd"), "/\n");
  EXPECT_EQ(Read("fds"), "4\n") << "three, and the one that lists them";
}

// Root's hook is about to signal these: a pid that is another's by now must not be among them.
TEST_F(DrainProgramTest, IsToldOfProcessesThatLiveAndOfNoPidThatIsAnothers) {
  Write(absl::StrCat("echo \"$CXLPOOL_PIDS:$CXLPOOL_PID_STARTS\" > ", directory_, "/pids\n"));
  const auto self = static_cast<uint32_t>(::getpid());
  const uint64_t start = StartTicksOf(self);
  const uint64_t init = StartTicksOf(1);
  DrainRequest request = kRequest;
  request.processes = {{self, start}, {self, start + 1}, {self, 0}, {0x7ffffffe, start},
                       {0, 0},        {1, init}};
  ASSERT_TRUE(Run(absl::Seconds(20), request).ok());
  EXPECT_EQ(Read("pids"), absl::StrCat(self, " 1:", start, " ", init, "\n"));
}

TEST_F(DrainProgramTest, NamesABoundedNumberOfProcesses) {
  Write(absl::StrCat("echo $CXLPOOL_PIDS | wc -w > ", directory_, "/count\n"));
  const auto self = static_cast<uint32_t>(::getpid());
  DrainRequest request = kRequest;
  request.processes.assign(10'000, {self, StartTicksOf(self)});
  ASSERT_TRUE(Run(absl::Seconds(20), request).ok());
  EXPECT_EQ(Read("count"), absl::StrCat(kMaxDrainPids, "\n"));
}

TEST_F(DrainProgramTest, ItsFailureIsTold) {
  Write("echo cannot; exit 3\n");
  const absl::Status status = Run();
  EXPECT_EQ(ReasonOf(status), "DRAIN_HOOK");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_NE(status.message().find("status 3"), absl::string_view::npos) << status;
  Write("kill -9 $$\n");
  EXPECT_NE(Run().message().find("signal 9"), absl::string_view::npos);
}

TEST_F(DrainProgramTest, WhatHangsIsKilledWithItsChildren) {
  Write(absl::StrCat("trap '' TERM INT HUP\nsleep 1000 &\necho $! > ", directory_,
                     "/child\necho $$ > ", directory_, "/self\nwait\nsleep 1000\n"));
  const absl::Time begun = absl::Now();
  const absl::Status status = Run(absl::Seconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(ReasonOf(status), "DRAIN_HOOK");
  EXPECT_LT(absl::Now() - begun, absl::Seconds(15));
  ASSERT_FALSE(Read("child").empty());
  EXPECT_TRUE(Soon([&] { return HasEnded("child") && HasEnded("self"); }));
}

TEST_F(DrainProgramTest, WhatItLeavesBehindEndsWithIt) {
  Write(absl::StrCat("sleep 1000 &\necho $! > ", directory_, "/child\n"));
  EXPECT_TRUE(Run().ok());
  EXPECT_TRUE(Soon([&] { return HasEnded("child"); }));
}

TEST_F(DrainProgramTest, AFloodOfOutputHoldsNothingUp) {
  Write("head -c 1000000 /dev/zero\nhead -c 1000000 /dev/zero >&2\n");
  EXPECT_TRUE(Run().ok());
}

TEST_F(DrainProgramTest, SeveralRunAtOnceAndStopEndsThem) {
  Write("while [ ! -e $0.$CXLPOOL_REGION ]; do sleep 0.01; done\n");
  DrainProgram hook(program_, absl::Minutes(10));
  Answer a;
  Answer b;
  Answer c;
  DrainRequest request = kRequest;
  request.region = "a";
  hook.Run(request, a.Take());
  request.region = "b";
  hook.Run(request, b.Take());
  std::ofstream(program_ + ".b") << "go";
  EXPECT_TRUE(b.Wait().ok());
  EXPECT_FALSE(a.came());
  hook.Stop();
  EXPECT_EQ(a.Wait().code(), absl::StatusCode::kCancelled);
  hook.Run(request, c.Take());
  EXPECT_EQ(c.Wait().code(), absl::StatusCode::kCancelled);
}

TEST_F(DrainProgramTest, TooManyAtOnceAreNotRun) {
  Write("sleep 1000\n");
  DrainProgram hook(program_, absl::Minutes(10));
  std::vector<Answer> answers(kMaxDrainRuns);
  for (Answer& answer : answers) hook.Run(kRequest, answer.Take());
  Answer more;
  hook.Run(kRequest, more.Take());
  EXPECT_EQ(more.Wait().code(), absl::StatusCode::kResourceExhausted);
  hook.Stop();
  for (Answer& answer : answers) EXPECT_FALSE(answer.Wait().ok());
}

// Until it goes, no thread can be made: each is to have a stack larger than the address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t wanted;
    EXPECT_EQ(::pthread_getattr_default_np(&before_), 0);
    EXPECT_EQ(::pthread_getattr_default_np(&wanted), 0);
    EXPECT_EQ(::pthread_attr_setstacksize(&wanted, size_t{1} << 62), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&wanted), 0);
    ::pthread_attr_destroy(&wanted);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    EXPECT_EQ(::pthread_setattr_default_np(&before_), 0);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

// With many programs that have threads of their own, the unit's TasksMax leaves none.
TEST_F(DrainProgramTest, WhereNoThreadIsToBeHadItIsNotRunAndTheAgentGoesOn) {
  Write(absl::StrCat("touch ", directory_, "/ran\n"));
  DrainProgram hook(program_, absl::Seconds(20));
  {
    const NoThreads none;
    Answer refused;
    hook.Run(kRequest, refused.Take());
    EXPECT_EQ(refused.Wait().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(refused.Wait()), "DRAIN_HOOK");
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/ran"));
  Answer again;
  hook.Run(kRequest, again.Take());
  EXPECT_TRUE(again.Wait().ok());
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/ran"));
}

TEST_F(DrainProgramTest, WhatOthersCouldChangeIsNotRun) {
  const auto reason = [&] { return ReasonOf(CheckDrainProgram(program_).status()); };
  EXPECT_EQ(reason(), "HOOK_UNSAFE") << "there is none";
  Write(absl::StrCat("touch ", directory_, "/ran\n"));
  EXPECT_EQ(reason(), "");
  for (const mode_t mode : {0775, 0757, 0644}) {
    ::chmod(program_.c_str(), mode);
    EXPECT_EQ(reason(), "HOOK_UNSAFE") << std::oct << mode;
    EXPECT_EQ(ReasonOf(Run()), "HOOK_UNSAFE");
  }
  ::chmod(program_.c_str(), 0755);
  ::chmod(directory_.c_str(), 0777);
  EXPECT_EQ(reason(), "HOOK_UNSAFE") << "anybody could put another in its place";
  ::chmod(directory_.c_str(), 0700);
  EXPECT_EQ(reason(), "");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/ran"));
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(program_.c_str(), 65534, 0), 0);
    EXPECT_EQ(reason(), "HOOK_UNSAFE");
    ASSERT_EQ(::chown(program_.c_str(), 0, 0), 0);
  }
  const std::string link = directory_ + "/link";
  std::filesystem::create_symlink(program_, link);
  EXPECT_EQ(CheckDrainProgram(link).value(), program_) << "what it leads to is what counts";
  EXPECT_EQ(ReasonOf(CheckDrainProgram(directory_).status()), "HOOK_UNSAFE");
}

TEST_F(DrainProgramTest, WhatCannotBeRunIsTold) {
  std::ofstream(program_) << "no interpreter";
  ::chmod(program_.c_str(), 0755);
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(ReasonOf(status), "DRAIN_HOOK");
}

}  // namespace
}  // namespace cxlpool::agent
