#include "host-agent/adapters/linux/memory/offline_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr absl::Duration kDyingTimeout = absl::Seconds(2);

int OfflineOne(const char* path) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = write(fd, "offline", 7) == 7 ? 0 : errno;
  close(fd);
  return error;
}

// The child. Nothing here may allocate, lock or use stdio.
[[noreturn]] void OfflineAll(const char* const* paths, size_t count, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EINTR);
  close_range(0, ~0U, 0);
  int first_error = 0;
  for (size_t i = 0; i < count; ++i) {
    if (OfflineOne(paths[i]) != 0 && first_error == 0) first_error = 1;
  }
  if (first_error != 0) {  // Offlining one block may have made room for another.
    first_error = 0;
    for (size_t i = 0; i < count; ++i) {
      const int error = OfflineOne(paths[i]);
      if (error != 0 && first_error == 0) first_error = error;
    }
  }
  _exit(first_error);  // Linux errno values fit into an exit status.
}

}  // namespace

// If the child has not ended after `patience`, it stays known, and the next Run looks for it again.
bool OfflineChild::Reap(absl::Duration patience, int* wait_status) {
  pollfd exited{pidfd_.get(), POLLIN, 0};
  const Deadline deadline = Deadline::In(patience);
  int ready = 0;
  do {
    ready = poll(&exited, 1, static_cast<int>(absl::ToInt64Milliseconds(deadline.left())));
  } while (ready < 0 && errno == EINTR);
  if (ready != 1) return false;
  while (waitpid(pid_, wait_status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  pidfd_.Reset();
  return true;
}

// One child at a time: one that was killed, and is stuck in the kernel, has to end first. A child
// without a pidfd is killed at once, since it could not be awaited with a deadline.
absl::StatusOr<OfflineChild::Outcome> OfflineChild::Run(const std::vector<std::string>& state_files,
                                                        const Deadline& deadline) {
  int wait_status = 0;
  if (pid_ > 0 && !Reap(absl::ZeroDuration(), &wait_status)) {
    return Refuse(absl::StatusCode::kUnavailable, "OFFLINE_STUCK",
                  absl::StrCat("process ", pid_,
                               " is stuck in the kernel, offlining memory, and "
                               "was killed"),
                  "look at the kernel's log; if it never ends, reboot the host");
  }
  std::vector<const char*> paths;
  paths.reserve(state_files.size());
  for (const std::string& file : state_files) paths.push_back(file.c_str());
  const pid_t self = getpid();
  const pid_t pid = _Fork();  // Not fork(): no handler of any library belongs in this child.
  if (pid == 0) OfflineAll(paths.data(), paths.size(), self);
  if (pid > 0) {
    pid_ = pid;
    pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  }
  if (pid < 0 || !pidfd_.valid()) {
    const int error = errno;
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, &wait_status, 0);
      pid_ = -1;
    }
    return Refuse(absl::StatusCode::kInternal, "FORK",
                  absl::StrCat("no child process to offline memory in: ", ErrnoText(error)),
                  "check the limits on processes and open files");
  }
  Outcome outcome;
  if (!Reap(deadline.left(), &wait_status)) {
    outcome.killed = true;
    kill(pid_, SIGKILL);
    Reap(kDyingTimeout, &wait_status);
    return outcome;
  }
  outcome.killed = WIFSIGNALED(wait_status);
  outcome.error = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : EINTR;
  return outcome;
}

}  // namespace cxlpool::agent
