#include "libpool/src/copy_kernels.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "proto/support/mutant.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace cxlpool::libpool {
namespace {

constexpr size_t kLine = 64;

void Memcpy(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

#if defined(__x86_64__)

// Bit of CPUID.(EAX=07H, ECX=0):EBX: REP MOVSB is fast (Intel SDM, volume 1, 7.3.9.3).
constexpr unsigned kErms = 1u << 9;

bool HasFastStrings() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kErms) != 0;
}

void RepMovsb(std::byte* to, const std::byte* from, size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// Copies whole lines: `to` is at a line's beginning, `bytes` a multiple of a line.
using Lines = void (*)(std::byte* to, const std::byte* from, size_t bytes);

__attribute__((target("avx2"))) void LinesAvx2(std::byte* to, const std::byte* from, size_t bytes) {
  for (const std::byte* const end = to + bytes; to < end; to += kLine, from += kLine) {
    const auto* const source = reinterpret_cast<const __m256i*>(from);
    auto* const target = reinterpret_cast<__m256i*>(to);
    const __m256i low = _mm256_loadu_si256(source);
    const __m256i high = _mm256_loadu_si256(source + 1);
    _mm256_stream_si256(target, low);
    _mm256_stream_si256(target + 1, high);
  }
}

__attribute__((target("avx512f"))) void LinesAvx512(std::byte* to, const std::byte* from,
                                                    size_t bytes) {
  for (const std::byte* const end = to + bytes; to < end; to += kLine, from += kLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
}

// The bytes of a copy up to the first whole line of its target, those of whole lines, and those
// behind the last one.
struct Parts {
  Parts(const std::byte* to, size_t bytes)
      : head(std::min(bytes, -reinterpret_cast<uintptr_t>(to) & (kLine - 1))),
        whole((bytes - head) & ~(kLine - 1)),
        tail(CXLPOOL_MUTANT("copy-tail-left") ? 0 : bytes - head - whole) {}
  const size_t head, whole, tail;
};

// Whole lines by `lines`, what is before and behind by memcpy. SFENCE: non-temporal stores are
// ordered with no others without one (Intel SDM, volume 1, 10.4.6.2).
template <Lines lines>
void PastCaches(std::byte* to, const std::byte* from, size_t bytes) {
  const Parts parts(to, bytes);
  std::memcpy(to, from, parts.head);
  lines(to + parts.head, from + parts.head, parts.whole);
  const size_t done = parts.head + parts.whole;
  std::memcpy(to + done, from + done, parts.tail);
  _mm_sfence();
}

#endif

#ifdef CXLPOOL_HAS_CAUGHT_COPIES

// The same, caught.
template <CaughtCopy lines>
bool PastCachesCaught(std::byte* to, const std::byte* from, size_t bytes,
                      const CaughtRange& range) {
  const Parts parts(to, bytes);
  const size_t done = parts.head + parts.whole;
  const bool there =
      (parts.head == 0 || cxlpool_caught_copy_32(to, from, parts.head, range)) &&
      lines(to + parts.head, from + parts.head, parts.whole, range) &&
      (parts.tail == 0 || cxlpool_caught_copy_32(to + done, from + done, parts.tail, range));
  _mm_sfence();
  return there;
}

CaughtCopy CaughtMemcpy() {
  if (!HasCaughtCopies()) return nullptr;
  return __builtin_cpu_supports("avx512f") ? cxlpool_caught_copy_64 : cxlpool_caught_copy_32;
}
constexpr CaughtCopy kCaughtLines32 = PastCachesCaught<cxlpool_caught_lines_32>;
constexpr CaughtCopy kCaughtLines64 = PastCachesCaught<cxlpool_caught_lines_64>;

#else

CaughtCopy CaughtMemcpy() { return nullptr; }
constexpr CaughtCopy kCaughtLines32 = nullptr, kCaughtLines64 = nullptr;

#endif

// What this processor has, in a fixed array: it is made once, and never freed.
struct Found {
  std::array<CopyKernel, kMaxKernels> kernels = {};
  size_t count = 0;

  Found() {
    const CaughtCopy caught = CaughtMemcpy();
    Add({"memcpy", Memcpy, false, caught});
#if defined(__x86_64__)
    // Fast strings show at larger sizes only.
    if (HasFastStrings()) Add({"rep movsb", RepMovsb, false, caught});
    if (__builtin_cpu_supports("avx2")) {
      Add({"stores of 32 past caches", PastCaches<LinesAvx2>, true, kCaughtLines32});
    }
    if (__builtin_cpu_supports("avx512f")) {
      Add({"stores of 64 past caches", PastCaches<LinesAvx512>, true, kCaughtLines64});
    }
#endif
  }
  void Add(const CopyKernel& kernel) { kernels[count++] = kernel; }
};

}  // namespace

std::span<const CopyKernel> CopyKernels() {
  static const Found found;
  return {found.kernels.data(), found.count};
}

void CopyAndPublish(const CopyKernel& kernel, std::byte* to, const std::byte* from, size_t bytes,
                    WriteBack write_back) {
  if (bytes == 0) return;
  kernel.copy(to, from, bytes);
  if (write_back == nullptr) return;
  if (!kernel.past_caches) {
    write_back(to, bytes);
    return;
  }
  // The lines at the two ends of which only a part was stored, and that by the caches.
  std::byte* const end = to + bytes;
  if (reinterpret_cast<uintptr_t>(to) % kLine != 0) write_back(to, 1);
  if (CXLPOOL_MUTANT("put-edge-unpublished")) return;
  if (reinterpret_cast<uintptr_t>(end) % kLine != 0) write_back(end - 1, 1);
}

void TouchLines(const void* data, size_t bytes) {
  if (bytes == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto* const first = static_cast<const volatile unsigned char*>(data);
  // From the range's own first byte, and then from the beginning of each further line.
  for (size_t at = 0; at < bytes; at += kLine - (begin + at) % kLine) (void)first[at];
}

}  // namespace cxlpool::libpool
