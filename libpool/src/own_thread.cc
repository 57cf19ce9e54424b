#include "libpool/src/own_thread.h"

#include <signal.h>

#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {

void TakeFaultsOnly() {
  if (CXLPOOL_MUTANT("copier-blocks-faults")) return;
  sigset_t others;
  ::sigfillset(&others);
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    ::sigdelset(&others, fault);
  }
  ::pthread_sigmask(SIG_SETMASK, &others, nullptr);
}

Status NoThread(std::string_view whose, const std::system_error& error) {
  return ErrnoError(Code::kResourceExhausted, "NO_THREAD",
                    Concat("cannot start a thread of ", whose),
                    "raise the limit of threads (ulimit -u, pids.max)", error.code().value());
}

Status NoMemory() {
  return Refuse(Code::kResourceExhausted, "NO_MEMORY", "this process has no memory left",
                "free some, or raise its limit (ulimit -v)");
}

}  // namespace cxlpool::libpool
