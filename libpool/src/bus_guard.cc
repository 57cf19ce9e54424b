#include "libpool/src/bus_guard.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>

#include "libpool/src/caught_copy.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {

constinit __attribute__((tls_model("initial-exec"))) thread_local int t_without_a_look = 0;

namespace {

constexpr int kMaxWithoutALook = 63;
constexpr int kMaxPageBits = 48;
// In si_errno, where the kernel has 0, of a signal that was passed on. The mark goes with the
// signal: a handler may leave by siglongjmp, after which a mark of the thread would stay.
constexpr int kPassedOn = 0x6378706c;

// A call that is under way in this thread.
struct Guard {
  uintptr_t begin = 0;
  size_t size = 0;
  Guard* outer = nullptr;
  sigjmp_buf back;  // Filled by sigsetjmp: to clear it first would take longer than a small copy.
  BusFault fault = {};
};

// Read by the handler: laid out when the thread is made, so that no access of it allocates.
__attribute__((tls_model("initial-exec"))) thread_local Guard* t_guard = nullptr;
// The tick in which this thread last looked at the handler of SIGBUS.
__attribute__((tls_model("initial-exec"))) thread_local timespec t_looked = {};

// The process of which a thread installs the handler; 0: none does.
constinit std::atomic<pid_t> g_installing = 0;
// Whose every SIGBUS is that is not ours. Written before ours is installed, and read by it.
struct sigaction g_before = {};

void Default(int signal) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
}

// As the kernel would have called it, but on our stack. The handler may leave by siglongjmp.
void PassOn(int signal, siginfo_t* info, void* context) {
  // By kill, or an early report of lost bytes that no access has touched: it does not happen again
  // by itself.
  const bool sent = info->si_code <= 0 ||
                    (info->si_code == BUS_MCEERR_AO && !CXLPOOL_MUTANT("early-word-goes-by"));
  // A handler that passes on to ours in turn has no other one behind it.
  const bool passed_back = info->si_errno == kPassedOn && !CXLPOOL_MUTANT("passed-on-for-ever");
  if (g_before.sa_handler == SIG_DFL || g_before.sa_handler == SIG_IGN || passed_back) {
    if (sent && g_before.sa_handler == SIG_IGN) return;
    Default(signal);
    if (sent) ::raise(signal);
    return;
  }
  // With SIGBUS among what is blocked, unless the handler wants it: a fault within it ends the
  // process, and is not passed on to it without end.
  sigset_t blocked = g_before.sa_mask;
  if ((g_before.sa_flags & SA_NODEFER) == 0) ::sigaddset(&blocked, signal);
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, &blocked, &mask);
  const int as_it_came = info->si_errno;
  info->si_errno = kPassedOn;
  if ((g_before.sa_flags & SA_SIGINFO) != 0) {
    g_before.sa_sigaction(signal, info, context);
  } else {
    g_before.sa_handler(signal);
  }
  info->si_errno = as_it_came;
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

// SIGBUS of the process. A fault of ours leaves the guarded code by siglongjmp; every other goes to
// the handler that was there before. Calls only what may be called in a signal handler.
void OnBusError(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool of_memory = info->si_code == BUS_MCEERR_AR || info->si_code == BUS_ADRERR;
  // Lost bytes: the address is that of their page, perhaps before the access, and the code says how
  // long it is.
  const bool has_size =
      info->si_code == BUS_MCEERR_AR && info->si_addr_lsb > 0 && info->si_addr_lsb < kMaxPageBits;
  const size_t unit = has_size ? size_t{1} << info->si_addr_lsb : 1;
  const uintptr_t begin = address & ~(unit - 1);
  // A caught copy is the innermost guard.
  if (of_memory && LeaveCaughtCopy(begin, unit, context)) {
    errno = saved_errno;
    return;
  }
  for (Guard* guard = of_memory ? t_guard : nullptr; guard != nullptr; guard = guard->outer) {
    if (begin + unit <= guard->begin || begin >= guard->begin + guard->size) continue;
    guard->fault = {begin, has_size ? unit : 0, info->si_code == BUS_ADRERR};
    // Ours blocks no signal, but a handler that passed this on to us may.
    if (!CXLPOOL_MUTANT("guard-leaves-signals-blocked")) {
      ::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    }
    siglongjmp(guard->back, 1);
  }
  PassOn(signal, info, context);
  errno = saved_errno;
}

// One thread at a time. A forked child may find its parent's number, of a thread that it does not
// have, and does not wait for that one.
class Installing {
 public:
  Installing() {
    const pid_t self = ::getpid();
    for (pid_t by = 0; !g_installing.compare_exchange_weak(by, self);) {
      if (by != self && !CXLPOOL_MUTANT("child-waits-for-its-parents-guard")) continue;
      ::poll(nullptr, 0, 1);
      by = 0;
    }
  }
  Installing(const Installing&) = delete;
  Installing& operator=(const Installing&) = delete;
  ~Installing() { g_installing = 0; }
};

// Ours comes first from now on.
Status Install() {
  struct sigaction now = {};
  if (::sigaction(SIGBUS, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
      now.sa_sigaction == OnBusError) {
    return Status();
  }
  const Installing installing;
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  // On the program's own signal stack, if it has one; a fault within a handler is a fault too.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  if (::sigaction(SIGBUS, nullptr, &now) != 0) {
    return ErrnoError(Code::kInternal, "NO_HANDLER", "cannot look at the handler of SIGBUS", "",
                      errno);
  }
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return Status();
  if (!CXLPOOL_MUTANT("foreign-handler-forgotten")) g_before = now;
  if (::sigaction(SIGBUS, &action, nullptr) == 0) return Status();
  return ErrnoError(Code::kInternal, "NO_HANDLER", "cannot install a handler of SIGBUS",
                    "let the seccomp filter pass rt_sigaction", errno);
}

// The same, but for each thread only once in a tick of the coarse clock, and in so many calls: to
// look at the handler takes a system call, and to read the clock as long as some copies take.
Status InstallNowAndThen() {
  if (MayGoWithoutALook()) return Status();
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  if (now.tv_nsec != t_looked.tv_nsec || now.tv_sec != t_looked.tv_sec) {
    if (Status status = Install(); !status.ok()) return status;
    t_looked = now;
  }
  t_without_a_look = CXLPOOL_MUTANT("handler-looked-at-once") ? INT_MAX : kMaxWithoutALook;
  return Status();
}

}  // namespace

StatusOr<std::optional<BusFault>> RunGuarded(const void* begin, size_t size, void (*work)(void*),
                                             void* context, Handler handler) {
  Status installed = handler == Handler::kNow ? Install() : InstallNowAndThen();
  if (!installed.ok()) return installed;
  Guard guard;
  guard.begin = reinterpret_cast<uintptr_t>(begin);
  guard.size = size;
  guard.outer = t_guard;
  // Without the signal mask, which would take a system call: the handler sets it before it is left.
  if (sigsetjmp(guard.back, 0) != 0) {
    t_guard = guard.outer;
    return std::optional<BusFault>(guard.fault);
  }
  t_guard = &guard;
  work(context);
  t_guard = guard.outer;
  // Made only here: loading what was stored before the work, and wider, waits for all of its
  // stores.
  return std::optional<BusFault>();
}

}  // namespace cxlpool::libpool
