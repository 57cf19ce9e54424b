// Between hosts whose caches nothing keeps coherent: what makes stores seen by others, and others'
// stores seen. The rules that make these enough stand in docs/libpool.md, "Between hosts".
//
// Pure, except for the caches; any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_VISIBILITY_H_
#define CXLPOOL_LIBPOOL_SRC_VISIBILITY_H_

#include <cstddef>

namespace cxlpool::libpool {

// Writes back every line that has a byte of [data, data + size): what this processor stored there
// before is in memory before anything that it stores afterwards. Caches may keep the line.
//
// x86-64: CLWB, else CLFLUSHOPT, else CLFLUSH, and SFENCE (Intel SDM, volume 1, 11.4.4). AArch64:
// DC CVAC, and DSB SY (Arm ARM, D7.4.8).
void WriteBackLines(const void* data, size_t size);

// Removes every such line from this host's caches, so that the next load is from
// memory. A dirty one is written back: over what another host may have stored there.
//
// x86-64: CLFLUSHOPT, else CLFLUSH, between MFENCEs: without the first, the line may be loaded
// before its flush by a load that comes after. AArch64: DC CIVAC between DSB SYs.
void InvalidateLines(const void* data, size_t size);

// A release and an acquire fence in one: all that is needed where caches are coherent. x86-64
// orders loads with loads and stores with stores by itself; AArch64: DMB ISH. (Not
// std::atomic_thread_fence, which ThreadSanitizer does not know.)
inline void OrderAccesses() {
#if defined(__x86_64__)
  asm volatile("" ::: "memory");
#else
  asm volatile("dmb ish" ::: "memory");
#endif
}

// Every load and store of this thread before it is done before any after it: also a store before a
// load, which OrderAccesses leaves out. x86-64: MFENCE; AArch64: DSB SY.
void FenceAccesses();

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_VISIBILITY_H_
