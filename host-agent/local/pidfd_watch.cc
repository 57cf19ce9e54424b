#include "host-agent/local/pidfd_watch.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/process_stat.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kWake = 0;  // Towards epoll; watches count from 1.

absl::Status CannotWatch() {
  return absl::ResourceExhaustedError(
      absl::StrCat("a process cannot be watched now: ", std::strerror(errno)));
}

absl::Status Cancelled() { return absl::CancelledError("it is not watched any more"); }

enum class Life { kEnded, kLives, kUnknown };

// `error`: why there is no pidfd, where it is not valid. Where this process is out of descriptors,
// neither a pidfd nor /proc can be opened, and that says nothing of the other one. The pidfd says
// it first: in /proc a process stays until its parent has waited for it, and is a zombie there also
// where only its first thread has ended.
Life LifeOf(const ProcessId& process, const UniqueFd& pidfd, int error) {
  // Read after the descriptor was opened: no matter which process has the pid by then, the
  // descriptor is of no later one.
  const uint64_t start_ticks = StartTicksOf(process.pid);
  if (start_ticks == 0 && CXLPOOL_MUTANT("out-of-descriptors-is-the-end")) return Life::kEnded;
  if (start_ticks != 0 && start_ticks != process.start_ticks) return Life::kEnded;
  if (!pidfd.valid()) return error == ESRCH ? Life::kEnded : Life::kUnknown;
  pollfd state = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  if (::poll(&state, 1, 0) == 1 && !CXLPOOL_MUTANT("a-zombie-lives")) return Life::kEnded;
  return start_ticks != 0 ? Life::kLives : Life::kUnknown;
}

}  // namespace

// After an error it stays stopped and watches nothing: Watch then answers CANCELLED for a process
// that still runs.
absl::Status PidfdWatch::Start() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kWake}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) return CannotWatch();
  MutexLock lock(mutex_);
  stopped_ = false;
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

// Whoever takes a watch out of `watched_` answers it, without the lock, so each is answered once.
// Stop returns after the answers that the thread may be giving at this moment.
void PidfdWatch::Stop() {
  std::map<ProcessId, Watched> left;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    left.swap(watched_);
    by_id_.clear();
  }
  for (auto& [process, watched] : left) std::move(watched.ended)(Cancelled());
  if (!thread_.joinable()) return;
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

// Calls `ended` at once, on this thread, where the process is gone already or cannot be watched. A
// watch of the same process that was there ends with CANCELLED.
void PidfdWatch::Watch(const ProcessId& process, Done ended) {
  absl::Status answer;
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  const int error = errno;
  const Life life = LifeOf(process, pidfd, error);
  if (life == Life::kEnded) return std::move(ended)(absl::OkStatus());
  if (life == Life::kUnknown) {
    if (!pidfd.valid()) errno = error;
    return std::move(ended)(CannotWatch());
  }
  {
    MutexLock lock(mutex_);
    epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = ++last_id_}};
    if (stopped_) {
      answer = Cancelled();
    } else if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, pidfd.get(), &event) != 0) {
      answer = CannotWatch();
    } else {
      by_id_[last_id_] = process;
      Watched& watched = watched_[process];
      by_id_.erase(watched.id);
      watched.id = last_id_;
      watched.pidfd = std::move(pidfd);
      std::swap(watched.ended, ended);
      answer = Cancelled();
    }
  }
  if (ended) std::move(ended)(std::move(answer));
}

// `watched` closes the pidfd at the end. If the thread has already got an event of it, it finds no
// such id.
void PidfdWatch::Forget(const ProcessId& process) {
  Watched watched;
  {
    MutexLock lock(mutex_);
    const auto it = watched_.find(process);
    if (it == watched_.end()) return;
    watched = std::move(it->second);
    by_id_.erase(watched.id);
    watched_.erase(it);
  }
  std::move(watched.ended)(Cancelled());
}

// Out of descriptors, it counts as alive.
bool PidfdWatch::HasEnded(const ProcessId& process) {
  if (process.start_ticks == 0) return true;
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  const int error = errno;
  return LifeOf(process, pidfd, error) == Life::kEnded;
}

// The thread. `wake_` is never read, so once written it wakes the thread until that sees
// `stopped_`.
void PidfdWatch::Run() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    std::vector<Watched> ended;
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      for (int i = 0; i < count; ++i) {
        const auto it = by_id_.find(events[static_cast<size_t>(i)].data.u64);
        if (it == by_id_.end()) continue;  // Forgotten meanwhile.
        ended.push_back(std::move(watched_.extract(it->second).mapped()));
        by_id_.erase(it);
      }
    }
    for (Watched& watched : ended) std::move(watched.ended)(absl::OkStatus());
  }
}

}  // namespace cxlpool::agent
