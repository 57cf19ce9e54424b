#include "host-agent/support/device_memory.h"

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace cxlpool::agent {
namespace {

constexpr size_t kLine = 64;  // The least that a processor of these two kinds has.

#if defined(__x86_64__)

// CPUID.(EAX=07H, ECX=0):EBX, bit 23 (Intel SDM, volume 2A).
bool HasClflushopt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & (1u << 23)) != 0;
}

__attribute__((target("clflushopt"))) void FlushLines(char* at, const char* end) {
  for (; at < end; at += kLine) _mm_clflushopt(at);
}

void FlushLinesInOrder(char* at, const char* end) {
  for (; at < end; at += kLine) _mm_clflush(at);
}

void Flush(char* at, const char* end) {
  static const bool optimized = HasClflushopt();
  _mm_mfence();  // Stores before it are in the caches, where a flush finds them.
  optimized ? FlushLines(at, end) : FlushLinesInOrder(at, end);
  _mm_mfence();  // Later loads see memory: SFENCE would order only stores.
}

void ClearLines(char* at, const char* end) {
  const __m128i zero = _mm_setzero_si128();
  for (; at < end; at += sizeof(zero)) _mm_stream_si128(reinterpret_cast<__m128i*>(at), zero);
}

__attribute__((target("avx2"))) void ClearLinesByHalves(char* at, const char* end) {
  const __m256i zero = _mm256_setzero_si256();
  for (; at < end; at += sizeof(zero)) _mm256_stream_si256(reinterpret_cast<__m256i*>(at), zero);
}

void Clear(char* at, const char* end) {
  static const bool by_halves = __builtin_cpu_supports("avx2");
  _mm_mfence();
  by_halves ? ClearLinesByHalves(at, end) : ClearLines(at, end);
  _mm_mfence();  // Until then the stores are in buffers of their own.
}

#elif defined(__aarch64__)

void Flush(char* at, const char* end) {
  asm volatile("dsb sy" ::: "memory");
  for (; at < end; at += kLine) asm volatile("dc civac, %0" ::"r"(at) : "memory");
  asm volatile("dsb sy" ::: "memory");
}

void Clear(char* at, const char* end) {
  std::memset(at, 0, static_cast<size_t>(end - at));
  Flush(at, end);
}

#else
#error "say how this processor writes a cache line back and invalidates it"
#endif

thread_local sigjmp_buf* volatile guarded = nullptr;

void OnBusError(int) {
  if (guarded != nullptr) siglongjmp(*guarded, 1);
  // No guard expects it: the instruction runs again, and this time it ends the process.
  signal(SIGBUS, SIG_DFL);
}

bool TakeOver() {
  struct sigaction action = {};
  action.sa_handler = OnBusError;
  return sigaction(SIGBUS, &action, nullptr) == 0;
}

}  // namespace

void WriteBackAndInvalidate(void* data, size_t size) {
  char* const begin = static_cast<char*>(data);
  Flush(begin - reinterpret_cast<uintptr_t>(begin) % kLine, begin + size);
}

void ClearInMemory(void* data, size_t size) {
  char* const begin = static_cast<char*>(data);
  Clear(begin, begin + size);
}

bool IsZero(const void* data, size_t size) {
  const auto* words = static_cast<const uint64_t*>(data);
  const size_t count = size / sizeof(uint64_t);
  // A whole page at a time, so that the inner loop has no branch.
  constexpr size_t kStep = 512;
  for (size_t i = 0; i < count; i += kStep) {
    uint64_t any = 0;
    const size_t end = i + kStep < count ? i + kStep : count;
    for (size_t j = i; j < end; ++j) any |= words[j];
    if (any != 0) return false;
  }
  return true;
}

bool WithoutBusError(const std::function<void()>& touch) {
  [[maybe_unused]] static const bool taken_over = TakeOver();
  sigjmp_buf back;
  // With the signal mask: SIGBUS is blocked while its handler runs.
  if (sigsetjmp(back, 1) != 0) {
    guarded = nullptr;
    return false;
  }
  guarded = &back;
  touch();
  guarded = nullptr;
  return true;
}

}  // namespace cxlpool::agent
