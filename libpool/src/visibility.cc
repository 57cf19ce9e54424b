#include "libpool/src/visibility.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace cxlpool::libpool {
namespace {

constexpr size_t kLine = 64;  // The least that a processor of these two kinds has.

const char* FirstLine(const void* data) {
  return reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(data) & ~(kLine - 1));
}

#if defined(__x86_64__)

// Bits of CPUID.(EAX=07H, ECX=0):EBX (Intel SDM, volume 2A).
constexpr unsigned kClflushopt = 1u << 23;
constexpr unsigned kClwb = 1u << 24;

bool Has(unsigned bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit) != 0;
}

void Clflush(const char* at, const char* end) {
  for (; at < end; at += kLine) _mm_clflush(at);
}

__attribute__((target("clflushopt"))) void Clflushopt(const char* at, const char* end) {
  // The intrinsic takes a pointer to what it might change; it changes nothing.
  for (; at < end; at += kLine) _mm_clflushopt(const_cast<char*>(at));
}

__attribute__((target("clwb"))) void Clwb(const char* at, const char* end) {
  for (; at < end; at += kLine) _mm_clwb(const_cast<char*>(at));
}

using Lines = void (*)(const char* at, const char* end);

Lines Invalidator() { return Has(kClflushopt) ? Clflushopt : Clflush; }
Lines Writer() { return Has(kClwb) ? Clwb : Invalidator(); }

#elif !defined(__aarch64__)
#error "say how this processor writes a cache line back, and invalidates it"
#endif

}  // namespace

void WriteBackLines(const void* data, size_t size) {
  if (size == 0) return;
  const char* at = FirstLine(data);
  const char* const end = static_cast<const char*>(data) + size;
#if defined(__x86_64__)
  static const Lines write_back = Writer();
  write_back(at, end);
  _mm_sfence();
#else
  for (; at < end; at += kLine) asm volatile("dc cvac, %0" ::"r"(at) : "memory");
  asm volatile("dsb sy" ::: "memory");
#endif
}

void FenceAccesses() {
#if defined(__x86_64__)
  _mm_mfence();
#else
  asm volatile("dsb sy" ::: "memory");
#endif
}

void InvalidateLines(const void* data, size_t size) {
  if (size == 0) return;
  const char* at = FirstLine(data);
  const char* const end = static_cast<const char*>(data) + size;
#if defined(__x86_64__)
  static const Lines invalidate = Invalidator();
  _mm_mfence();
  invalidate(at, end);
  _mm_mfence();
#else
  asm volatile("dsb sy" ::: "memory");
  for (; at < end; at += kLine) asm volatile("dc civac, %0" ::"r"(at) : "memory");
  asm volatile("dsb sy" ::: "memory");
#endif
}

}  // namespace cxlpool::libpool
