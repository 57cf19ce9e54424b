// Threads that the library starts: what each of them does first, what a caller is told where there
// can be none, and what they report where the process has no memory left. Any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_OWN_THREAD_H_
#define CXLPOOL_LIBPOOL_SRC_OWN_THREAD_H_

#include <string_view>
#include <system_error>

#include "libpool/src/status.h"

namespace cxlpool::libpool {

// A new thread has its maker's signal mask, and the maker may block what it likes. From this call
// on the calling thread takes the signals of its own faults, which a guard needs and a debugger
// wants, and leaves all others to the program's threads.
void TakeFaultsOnly();

// RESOURCE_EXHAUSTED/NO_THREAD: `error` is what std::thread threw. `whose`: "the copier".
Status NoThread(std::string_view whose, const std::system_error& error);

// RESOURCE_EXHAUSTED/NO_MEMORY. Needs memory itself: a thread, which has no caller to whom it could
// throw std::bad_alloc, is given it beforehand.
Status NoMemory();

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_OWN_THREAD_H_
