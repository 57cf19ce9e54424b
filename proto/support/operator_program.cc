#include "proto/support/operator_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

constexpr size_t kMaxOutput = size_t{4} << 10;
constexpr char kPath[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr absl::Duration kDyingTimeout = absl::Seconds(2);

using SteadyTime = std::chrono::steady_clock::time_point;

SteadyTime In(absl::Duration time) {
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
}

absl::Status Unsafe(const std::string& what, const std::string& path, const std::string& why) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "HOOK_UNSAFE",
                absl::StrCat(what, " ", path, " is not run: ", why),
                "give it, and the directories it is in, to root, with no write right for group "
                "and others",
                {{"path", path}});
}

// Why somebody else could change it; empty: no one can.
std::string WhyUnsafe(const std::string& path, bool directory) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return absl::StrCat(path, ": ", std::strerror(errno));
  if (directory ? !S_ISDIR(info.st_mode) : !S_ISREG(info.st_mode)) {
    return absl::StrCat(path, " is no ", directory ? "directory" : "file");
  }
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    return absl::StrCat(path, " belongs to user ", info.st_uid);
  }
  const bool sticky = directory && (info.st_mode & S_ISVTX) != 0;
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky) {
    return absl::StrCat(path, " can be written by its group or others");
  }
  if (!directory && ::access(path.c_str(), X_OK) != 0) {
    return absl::StrCat(path, " may not be executed");
  }
  return "";
}

absl::Status Failed(const ProgramCall& call, absl::StatusCode code, const std::string& how) {
  return Refuse(code, call.reason, absl::StrCat(call.what, " ", how),
                "what it wrote is in the log");
}

// One process of the hook's, leader of its group, and the end of the pipe that it writes to.
struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;
  UniqueFd output;
};

// Starts the program: 0, or errno. It gets no descriptors but its three, no signal that is blocked
// or ignored, and a process group of its own. Without a pidfd nothing could wait for it with a
// deadline, so where there is none it is killed.
int Spawn(const std::string& program, const ProgramCall& call, Child& child) {
  std::array<int, 2> pipe;
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return errno;
  child.output.Reset(pipe[0]);
  const UniqueFd input(pipe[1]);
  ::fcntl(pipe[0], F_SETFL, O_NONBLOCK);

  std::vector<std::string> environment = {kPath};
  environment.insert(environment.end(), call.environment.begin(), call.environment.end());
  std::vector<char*> envp;
  envp.reserve(environment.size() + 1);
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), call.arguments.begin(), call.arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&how);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, input.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, input.get(), STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  ::posix_spawn_file_actions_addchdir_np(&files, "/");
  sigset_t signals;
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&how, &signals);
  ::sigfillset(&signals);
  ::posix_spawnattr_setsigdefault(&how, &signals);
  ::posix_spawnattr_setpgroup(&how, 0);
  ::posix_spawnattr_setflags(
      &how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error =
      ::posix_spawn(&child.pid, program.c_str(), &files, &how, argv.data(), envp.data());
  ::posix_spawnattr_destroy(&how);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) return error;
  child.pidfd.Reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  if (child.pidfd.valid()) return 0;
  const int why = errno;
  ::kill(-child.pid, SIGKILL);
  while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return why;
}

// Takes what is there, and keeps what there is room for. False: nothing more comes.
bool ReadOutput(int fd, std::string& output) {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  const size_t room = kMaxOutput - output.size();
  output.append(buffer.data(), std::min(static_cast<size_t>(got), room));
  return got > 0;
}

enum class End { kExited, kTimedOut, kStopped };

// Until the process has ended, its time is up, or `stop` can be read (-1: never).
End Await(Child& child, int stop, SteadyTime deadline, std::string& output) {
  std::array<pollfd, 3> wait = {
      {{child.pidfd.get(), POLLIN, 0}, {stop, POLLIN, 0}, {child.output.get(), POLLIN, 0}}};
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return End::kTimedOut;
    const auto patience = static_cast<int>(std::min<int64_t>(left.count(), INT_MAX));
    if (::poll(wait.data(), wait.size(), patience) < 0) continue;
    if (wait[2].revents != 0 && !ReadOutput(wait[2].fd, output)) wait[2].fd = -1;
    if (wait[0].revents != 0) return End::kExited;
    if (wait[1].revents != 0) return End::kStopped;
  }
}

int Reap(Child& child) {
  int wait_status = 0;
  while (::waitpid(child.pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  child.pid = -1;
  return wait_status;
}

}  // namespace

// Answers the path with all links resolved: what was checked is what is run. Every directory above
// the file is looked at, up to the root.
absl::StatusOr<std::string> CheckProgram(const std::string& what, const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (real == nullptr) return Unsafe(what, path, std::strerror(errno));
  const std::string program = real.get();
  std::string why = WhyUnsafe(program, /*directory=*/false);
  for (size_t end = program.rfind('/'); why.empty(); end = program.rfind('/', end - 1)) {
    why = WhyUnsafe(end == 0 ? "/" : program.substr(0, end), /*directory=*/true);
    if (end == 0) break;
  }
  if (!why.empty()) return Unsafe(what, path, why);
  return program;
}

// Whatever happens, the program's whole process group is killed, so that nothing of it goes on. One
// that does not die in time is left to AwaitDeath.
absl::Status ProgramRun::Run(const ProgramCall& call) {
  const auto program = CheckProgram(call.what, call.path);
  if (!program.ok()) return program.status();
  Child child;
  if (const int error = Spawn(*program, call, child); error != 0) {
    return Failed(call, absl::StatusCode::kInternal,
                  absl::StrCat(call.path, " could not be run: ", std::strerror(error)));
  }
  std::string output;
  const End end = Await(child, call.stop, In(call.timeout), output);
  ::kill(-child.pid, SIGKILL);  // Before it is reaped: until then the group's number is its own.
  bool dead = end == End::kExited;
  if (!dead) dead = Await(child, -1, In(kDyingTimeout), output) == End::kExited;
  // What it wrote last is in the pipe still.
  ReadOutput(child.output.get(), output);
  if (!output.empty()) LogInfo(call.subject, call.about, ": ", absl::CHexEscape(output));
  const int wait_status = dead ? Reap(child) : 0;
  pid_ = child.pid;
  pidfd_ = std::move(child.pidfd);
  output_ = std::move(child.output);
  if (end == End::kStopped) {
    return Failed(call, absl::StatusCode::kCancelled, "was killed: it is to stop");
  }
  if (end == End::kTimedOut) {
    return Failed(
        call, absl::StatusCode::kDeadlineExceeded,
        absl::StrCat("was killed: it took longer than ", absl::FormatDuration(call.timeout),
                     dead ? "" : ", and it does not die"));
  }
  if (!WIFEXITED(wait_status)) {
    return Failed(call, absl::StatusCode::kAborted,
                  absl::StrCat("was ended by signal ", WTERMSIG(wait_status)));
  }
  exit_status_ = WEXITSTATUS(wait_status);
  if (exit_status_ == 0) return absl::OkStatus();
  return Failed(call, absl::StatusCode::kAborted,
                absl::StrCat("exited with status ", exit_status_));
}

void ProgramRun::AwaitDeath(int stop) {
  if (pid_ <= 0) return;
  Child child{pid_, std::move(pidfd_), std::move(output_)};
  std::string ignored;
  if (Await(child, stop, SteadyTime::max(), ignored) == End::kExited) Reap(child);
  pid_ = -1;
}

}  // namespace cxlpool
