#include "tools/benches/child.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::bench {
namespace {

// Below Linux's ephemeral ports: a client that dials one of those before anybody listens can end
// up connected to itself.
constexpr int kFirstPort = 16384;
constexpr int kLastPort = 32767;
constexpr int kPortTries = 100;

absl::Status Failed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<Child> Child::Start(const std::vector<std::string>& command,
                                   const std::string& log) {
  const UniqueFd output(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output.valid()) return Failed(absl::StrCat("cannot open ", log));
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const std::string complaint = absl::StrCat("cannot run ", command[0], "\n");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Failed("cannot fork");
  if (pid == 0) {
    // Only what is safe between fork and exec in a program with threads.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(output.get(), STDOUT_FILENO);
    dup2(output.get(), STDERR_FILENO);
    execv(arguments[0], arguments.data());
    if (write(STDERR_FILENO, complaint.data(), complaint.size()) < 0) _exit(126);
    _exit(127);
  }
  return Child(pid);
}

Child::Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    Kill();
    pid_ = std::exchange(other.pid_, -1);
  }
  return *this;
}

Child::~Child() { Kill(); }

absl::StatusOr<absl::Duration> Child::CpuTime() const {
  clockid_t clock;
  timespec time;
  if (pid_ < 0) return absl::UnavailableError("the process has ended");
  if (const int error = clock_getcpuclockid(pid_, &clock); error != 0) {
    errno = error;
    return Failed("no CPU clock of the process");
  }
  if (clock_gettime(clock, &time) != 0) return Failed("cannot read the process's CPU clock");
  return absl::DurationFromTimespec(time);
}

absl::StatusOr<uint64_t> Child::ResidentBytes() const {
  std::ifstream statm(absl::StrCat("/proc/", pid_, "/statm"));
  uint64_t size = 0, resident = 0;
  if (!(statm >> size >> resident)) {
    return absl::UnavailableError(absl::StrCat("cannot read the memory of process ", pid_));
  }
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

int Child::Wait() {
  if (pid_ < 0) return -1;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Child::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

absl::StatusOr<int> FreePort() {
  std::random_device random;
  for (int i = 0; i < kPortTries; ++i) {
    const int port = kFirstPort + static_cast<int>(random() % (kLastPort - kFirstPort + 1));
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd.valid() && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      return port;
    }
  }
  return Failed("no free port");
}

}  // namespace cxlpool::bench
