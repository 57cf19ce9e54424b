#include "libpool/src/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <nmmintrin.h>
#endif

namespace cxlpool::libpool {
namespace {

using Function = uint32_t (*)(uint32_t crc, const unsigned char* at, size_t size);

// The CRC of each value of a byte.
constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    table[i] = crc;
  }
  return table;
}

uint32_t ByTable(uint32_t crc, const unsigned char* at, size_t size) {
  static constexpr std::array<uint32_t, 256> kTable = MakeTable();
  for (; size > 0; --size) crc = crc >> 8 ^ kTable[(crc ^ *at++) & 0xff];
  return crc;
}

#if defined(__x86_64__)
// Bit of CPUID.1:ECX (Intel SDM, volume 2A).
constexpr unsigned kSse42 = 1u << 20;

__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc, const unsigned char* at,
                                                         size_t size) {
  uint64_t wide = crc;
  for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; size > 0; --size) crc = _mm_crc32_u8(crc, *at++);
  return crc;
}

Function Best() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kSse42) != 0 ? ByInstruction : ByTable;
}
#else
Function Best() { return ByTable; }
#endif

}  // namespace

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
  static const Function best = Best();
  return ~best(~crc, static_cast<const unsigned char*>(data), size);
}

}  // namespace cxlpool::libpool
