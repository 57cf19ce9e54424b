// Ways to copy bytes, and what makes the bytes of a put visible to other hosts.
//
// A kernel copies `bytes` bytes, of any alignment and any number, between ranges that do not
// overlap. Which one is the fastest depends on the processor, the memory and the size, and
// copy_plan.h finds it out. AArch64 has memcpy only.
//
// Each kernel has a caught copy (caught_copy.h) beside it for sizes at which the set-up of a guard
// would show, where this processor can run them.
//
// Pure, except for the caches; any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_COPY_KERNELS_H_
#define CXLPOOL_LIBPOOL_SRC_COPY_KERNELS_H_

#include <cstddef>
#include <span>

#include "libpool/src/caught_copy.h"

namespace cxlpool::libpool {

struct CopyKernel {
  const char* name;
  void (*copy)(std::byte* to, const std::byte* from, size_t bytes);
  // It stores whole lines of 64 bytes past the caches (non-temporal stores and SFENCE): when it
  // returns, they are in memory and in no cache of this host. The parts of lines at both ends are
  // not: they are stored as memcpy stores them.
  bool past_caches;
  // As fast, or faster, below kCaughtBytes. nullptr: there is none.
  CaughtCopy caught;
};

// Where the set-up of a guard shows no more.
inline constexpr size_t kCaughtBytes = size_t{64} << 10;

inline constexpr size_t kMaxKernels = 4;

// The kernels that this processor and its kernel can run; the first is memcpy.
std::span<const CopyKernel> CopyKernels();

// Writes back every line that has a byte of the range, as WriteBackLines of visibility.h.
using WriteBack = void (*)(const void* data, size_t size);

// Copies by `kernel`. With `write_back`, all of [to, to + bytes) is in memory before anything that
// this thread stores afterwards; it is called only for what the kernel left in the caches. Without
// it (nullptr), caches are coherent, and nothing has to be written back.
void CopyAndPublish(const CopyKernel& kernel, std::byte* to, const std::byte* from, size_t bytes,
                    WriteBack write_back);

// Loads from each line that has a byte of [data, data + bytes), once: afterwards its page is there,
// and the line is in the caches as far as they have room.
void TouchLines(const void* data, size_t bytes);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_COPY_KERNELS_H_
