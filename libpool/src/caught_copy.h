// Copies that come back by themselves from a load or store that the kernel answers with SIGBUS.
//
// They are for copies that take less time than a guard (bus_guard.h), which has to be set up before
// and taken down afterwards. Here nothing is: the handler of SIGBUS knows by the address of the
// instruction that faulted that it is one of these copies, and has the thread go on where the copy
// returns false. So our handler has to come first (MayGoWithoutALook of bus_guard.h).
//
// x86-64 with AVX2 has them; other processors have none. Nor have builds with sanitizers, which do
// not see the loads and stores of assembly.
//
// Any thread, and handlers of signals too: there is no state but in registers.
#ifndef CXLPOOL_LIBPOOL_SRC_CAUGHT_COPY_H_
#define CXLPOOL_LIBPOOL_SRC_CAUGHT_COPY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CXLPOOL_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CXLPOOL_SANITIZED
#endif
#if defined(__x86_64__) && !defined(CXLPOOL_SANITIZED)
#define CXLPOOL_HAS_CAUGHT_COPIES
#endif

namespace cxlpool::libpool {

// The memory whose faults a copy catches. Those of other memory are no business of the copy's: they
// are for the guards and the handlers that there are, as those of any instruction.
struct CaughtRange {
  std::byte* begin = nullptr;
  std::atomic<size_t> bytes = 0;
};

// Copies `bytes` bytes between two ranges that do not overlap. False: it met a fault in `range`,
// and some of the bytes may have been copied.
using CaughtCopy = bool (*)(std::byte* to, const std::byte* from, size_t bytes,
                            const CaughtRange& range);

// Whether this processor can run them.
bool HasCaughtCopies();

inline constexpr size_t kFewBytes = 16, kMaxFewBytes = 64;

#ifdef CXLPOOL_HAS_CAUGHT_COPIES

// An entry of the table by which the handler of SIGBUS knows these copies, in the section
// cxlpool_caught: where an instruction from `begin` up to `end` faults, the thread goes on at
// `left`. RCX points to the CaughtRange at each of them. Distances, so that nothing has to be
// relocated.
#define CXLPOOL_CAUGHT(begin, end, left)    \
  ".pushsection cxlpool_caught, \"a\"\n"    \
  ".balign 4\n"                             \
  ".long " begin " - ., " end " - ., " left \
  " - .\n"                                  \
  ".popsection\n"

// Any number of bytes, of any alignment, as memcpy: by loads and stores of 32 bytes, and of 64,
// which need AVX-512F.
extern "C" __attribute__((visibility("hidden"))) bool cxlpool_caught_copy_32(
    std::byte* to, const std::byte* from, size_t bytes, const CaughtRange& range);
extern "C" __attribute__((visibility("hidden"))) bool cxlpool_caught_copy_64(
    std::byte* to, const std::byte* from, size_t bytes, const CaughtRange& range);

// Whole lines of 64 bytes past the caches, by stores of 32 and of 64 bytes: `to` is at a line's
// beginning, and `bytes` a multiple of a line. Without SFENCE. The second needs AVX-512F.
extern "C" __attribute__((visibility("hidden"))) bool cxlpool_caught_lines_32(
    std::byte* to, const std::byte* from, size_t bytes, const CaughtRange& range);
extern "C" __attribute__((visibility("hidden"))) bool cxlpool_caught_lines_64(
    std::byte* to, const std::byte* from, size_t bytes, const CaughtRange& range);

// kFewBytes to kMaxFewBytes, without a call: its return address and what the caller has to save for
// it are stores, which wait behind those of the copies before where these are in no cache.
[[gnu::always_inline]] inline bool CopyFewCaught(std::byte* to, const std::byte* from, size_t bytes,
                                                 const CaughtRange& range) {
  if (bytes >= 32) {
    asm goto(
        "1: vmovdqu (%[from]), %%ymm0\n"
        "vmovdqu -32(%[from],%[bytes]), %%ymm1\n"
        "vmovdqu %%ymm0, (%[to])\n"
        "vmovdqu %%ymm1, -32(%[to],%[bytes])\n"
        "2: vzeroupper\n"  //
        CXLPOOL_CAUGHT("1b", "2b", "%l[left]")
        :
        : [to] "r"(to), [from] "r"(from), [bytes] "r"(bytes), "c"(&range)
        : "memory", "xmm0", "xmm1"
        : left);
  } else {
    asm goto(
        "1: movups (%[from]), %%xmm0\n"
        "movups -16(%[from],%[bytes]), %%xmm1\n"
        "movups %%xmm0, (%[to])\n"
        "movups %%xmm1, -16(%[to],%[bytes])\n"
        "2:\n"  //
        CXLPOOL_CAUGHT("1b", "2b", "%l[left]")
        :
        : [to] "r"(to), [from] "r"(from), [bytes] "r"(bytes), "c"(&range)
        : "memory", "xmm0", "xmm1"
        : left);
  }
  return true;
left:
  return false;
}

#else

inline bool CopyFewCaught(std::byte*, const std::byte*, size_t, const CaughtRange&) {
  return false;
}

#endif

// For the handler of SIGBUS. True: the instruction that `context` (a ucontext_t) was interrupted at
// is one of these copies, and some of the `bytes` lost bytes at `address` are in the memory whose
// faults it catches. The thread goes on behind the copy when the handler returns.
bool LeaveCaughtCopy(uintptr_t address, size_t bytes, void* context);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_CAUGHT_COPY_H_
