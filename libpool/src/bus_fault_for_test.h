// Memory that ends in SIGBUS, and which handlers are called then. Pages beyond the end of a file
// stand for memory that was taken away; lost bytes need a kernel's hand (test/qemu).
#ifndef CXLPOOL_LIBPOOL_SRC_BUS_FAULT_FOR_TEST_H_
#define CXLPOOL_LIBPOOL_SRC_BUS_FAULT_FOR_TEST_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "test/rigs/fake_agent.h"

namespace cxlpool::libpool {

inline constexpr size_t kPageBytes = 4096;

// Some pages, and behind them as many that are beyond the end of their file.
class Cut {
 public:
  explicit Cut(size_t pages = 1) : half_(pages * kPageBytes) {
    const TempDir dir;
    const int fd = ::open(dir.Path("cut").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (::ftruncate(fd, static_cast<off_t>(half_)) != 0) std::abort();
    void* const at = ::mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (at == MAP_FAILED) std::abort();
    at_ = static_cast<char*>(at);
  }
  Cut(const Cut&) = delete;
  Cut& operator=(const Cut&) = delete;
  ~Cut() { ::munmap(at_, size()); }
  volatile char* there() const { return at_; }
  volatile char* gone() const { return at_ + half_; }
  char* begin() const { return at_; }
  size_t size() const { return 2 * half_; }

 private:
  const size_t half_;
  char* at_ = nullptr;
};

// What happens in a process of its own, since each has one handler: its exit code, or the signal
// that ended it, below 0.
template <typename Work>
int InAChild(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    struct sigaction fresh = {};
    fresh.sa_handler = SIG_DFL;
    ::sigaction(SIGBUS, &fresh, nullptr);
    ::_exit(work());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

inline volatile sig_atomic_t g_heard = 0;

// A foreign handler: maps something over what is not ours, and goes on.
inline void OnForeign(int, siginfo_t* info, void*) {
  g_heard = g_heard + 1;
  if (info->si_code <= 0) return;
  void* const page =
      reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(info->si_addr) & ~(kPageBytes - 1));
  ::mmap(page, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

inline void InstallForeign() {
  struct sigaction action = {};
  action.sa_sigaction = OnForeign;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_BUS_FAULT_FOR_TEST_H_
