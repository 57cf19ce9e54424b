// A device's memory, mapped: other hosts store to it and nothing keeps caches coherent, and its
// bytes may be lost. Blocking; any thread.
#ifndef CXLPOOL_HOST_AGENT_SUPPORT_DEVICE_MEMORY_H_
#define CXLPOOL_HOST_AGENT_SUPPORT_DEVICE_MEMORY_H_

#include <cstddef>
#include <functional>

namespace cxlpool::agent {

// Writes back and invalidates every line that has a byte of [data, data + size): afterwards this
// host's caches have none of them.
//
// A dirty line may be written back at any later time, and then overwrites what another host has
// stored there since; a line that was read ahead shows what was there before. So a host
// that gives a range up calls this after its last store, and a host that gets one before its first
// load.
//
// x86-64: CLFLUSHOPT (CLFLUSH where the processor has no other) between MFENCEs; AArch64: DC CIVAC
// between DSB SYs.
void WriteBackAndInvalidate(void* data, size_t size);

// Stores zeros, and leaves none of these lines in this host's caches. `data` and `size` are
// multiples of 64.
//
// x86-64: stores around the caches (MOVNTDQ; VMOVNTDQ where the processor has AVX2) between
// MFENCEs. What the caches have of a line goes when it is stored to so (Intel SDM, volume
// 1, 10.4.6.2), which Linux relies on for persistent memory (memcpy_flushcache). AArch64: plain
// stores, and as above.
void ClearInMemory(void* data, size_t size);

// Whether every byte is zero, as this processor sees it. `size` is a multiple of 64.
bool IsZero(const void* data, size_t size);

// Runs `touch`, and goes on behind it when it meets SIGBUS: false. The processor answers a load of
// a poisoned line so (Linux: BUS_MCEERR_AR), and the kernel any access to a page that it took out
// of the mapping. What `touch` had done till then is done; it makes no objects, for nothing would
// destroy them. Not one inside the other. The first call takes SIGBUS over for the process; outside
// of `touch` it ends the process, as before.
bool WithoutBusError(const std::function<void()>& touch);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SUPPORT_DEVICE_MEMORY_H_
