#include "test/crash/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::crash {
namespace {

absl::Status Failed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

// As exec wants them: the words' own bytes, and a null at the end.
std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

// All that allocates is done before the fork: in the child another thread's lock may be held for
// ever. OK says that there is a child; one that could not run the program ends with 127, and its
// log says so.
absl::StatusOr<Process> Process::Start(const std::vector<std::string>& command,
                                       const std::string& log,
                                       const std::vector<std::string>& environment,
                                       std::optional<int> network) {
  const UniqueFd output(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const UniqueFd input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!output.valid() || !input.valid()) return Failed(absl::StrCat("cannot open ", log));
  std::vector<std::string> words = command, variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  const std::vector<char*> arguments = Pointers(words), environs = Pointers(variables);
  const std::string complaint = absl::StrCat("cannot run ", command[0], "\n");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Failed("cannot fork");
  if (pid == 0) {
    // Only what is safe between fork and exec in a program with threads.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // It had ended before the line above counted.
    if (network.has_value() && setns(*network, CLONE_NEWNET) != 0) _exit(127);
    dup2(input.get(), STDIN_FILENO);
    dup2(output.get(), STDOUT_FILENO);
    dup2(output.get(), STDERR_FILENO);
    execve(arguments[0], arguments.data(), environs.data());
    if (write(STDERR_FILENO, complaint.data(), complaint.size()) < 0) _exit(126);
    _exit(127);
  }
  Process process;
  process.pid_ = pid;
  return process;
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    Kill();
    pid_ = std::exchange(other.pid_, -1);
  }
  return *this;
}

Process::~Process() { Kill(); }

void Process::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

// OK once: the process is gone then, and waiting again is FAILED_PRECONDITION. Its end is awaited
// by a descriptor, since waitpid knows no deadline; a signal that this process gets meanwhile (the
// trials' SIGTERM) is no end. Ended by a signal it has 128 and its number, as a shell says it.
absl::StatusOr<int> Process::Wait(absl::Duration limit) {
  if (pid_ < 0) return absl::FailedPreconditionError("no process to wait for");
  const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!handle.valid()) return Failed("cannot open the process");
  const absl::Time end = absl::Now() + limit;
  pollfd ended{handle.get(), POLLIN, 0};
  int ready = 0;
  do {
    const absl::Duration left = std::max(end - absl::Now(), absl::ZeroDuration());
    ready =
        poll(&ended, 1,
             static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return Failed("cannot wait for the process");
  if (ready == 0) {
    return absl::DeadlineExceededError(
        absl::StrCat("process ", pid_, " goes on after ", absl::FormatDuration(limit)));
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Also a process that is stopped. When it returns the process is gone, and nothing of it is left.
void Process::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

std::string TailOf(const std::string& path, size_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() > bytes) text.erase(0, text.size() - bytes);
  return text;
}

}  // namespace cxlpool::crash
