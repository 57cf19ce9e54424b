// Going on behind a load or store that the kernel answers with SIGBUS.
//
// One handler for the process, installed by the first call, and never before. It goes back to the
// innermost guard of the faulting thread whose range has the address. Every other SIGBUS is for the
// handler that was there before, with that one's own flags; where there was none, the instruction
// runs again without a handler, so that the core dump shows it. A handler that the program installs
// later gets everything first; the next guard puts ours before it again, and passes on to it.
// Copies look for such a handler only now and then, since a copy may take less time than to look:
// each 64th of a thread does, where the thread last looked before the present tick of the kernel's
// coarse clock (10 ms at most).
//
// Any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_BUS_GUARD_H_
#define CXLPOOL_LIBPOOL_SRC_BUS_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "libpool/src/status.h"

namespace cxlpool::libpool {

// What could not be reached.
struct BusFault {
  uintptr_t address = 0;    // Where it begins; as far as the kernel says.
  size_t bytes = 0;         // Of lost bytes; 0: not said.
  bool taken_away = false;  // The memory itself went (BUS_ADRERR), and not only its bytes.
};

// When a guard sees to it that our handler comes first.
enum class Handler { kNow, kNowAndThen };

// How many copies of this thread may still go without a look. Laid out when the thread is made, so
// that no access of it allocates.
extern constinit __attribute__((tls_model("initial-exec"))) thread_local int t_without_a_look;

// Whether the next copy of this thread may go without a look at the handler of SIGBUS: ours has
// come first when it last looked. Counts it. False: let a guard with kNowAndThen carry it out.
inline bool MayGoWithoutALook() {
  if (t_without_a_look == 0) return false;
  --t_without_a_look;
  return true;
}

// Calls `work(context)`. Nothing: it returned. Else it was left at the fault: what it had done till
// then is done, and nothing of its own is destroyed. Guards nest.
StatusOr<std::optional<BusFault>> RunGuarded(const void* begin, size_t size, void (*work)(void*),
                                             void* context, Handler handler = Handler::kNow);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_BUS_GUARD_H_
