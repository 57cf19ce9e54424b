// Compares sixteen numbers with one: a bit for each that answers. What the free runs of a device
// are searched with.
//
// Pure functions, any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_SIXTEEN_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_SIXTEEN_H_

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace cxlpool::fm {

#if defined(__SSE2__)
namespace sixteen_internal {

inline __m128i Load(const uint32_t* numbers) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers));
}

inline uint32_t Bits(__m128i a, __m128i b, __m128i c, __m128i d) {
  return static_cast<uint32_t>(
      _mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d))));
}

}  // namespace sixteen_internal
#endif

// Bit i: numbers[i] == value.
inline uint32_t EqualOfSixteen(const uint32_t* numbers, uint32_t value) {
#if defined(__SSE2__)
  using sixteen_internal::Load;
  const __m128i wide = _mm_set1_epi32(static_cast<int32_t>(value));
  return sixteen_internal::Bits(
      _mm_cmpeq_epi32(Load(numbers), wide), _mm_cmpeq_epi32(Load(numbers + 4), wide),
      _mm_cmpeq_epi32(Load(numbers + 8), wide), _mm_cmpeq_epi32(Load(numbers + 12), wide));
#else
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(numbers[i] == value) << i;
  return bits;
#endif
}

// Bit i: numbers[i] > value.
inline uint32_t AboveOfSixteen(const uint32_t* numbers, uint32_t value) {
#if defined(__SSE2__)
  // The compare is of signed numbers: both sides move by half the range.
  const __m128i half = _mm_set1_epi32(static_cast<int32_t>(0x80000000));
  const __m128i wide = _mm_xor_si128(_mm_set1_epi32(static_cast<int32_t>(value)), half);
  const auto above = [&](int i) {
    return _mm_cmpgt_epi32(_mm_xor_si128(sixteen_internal::Load(numbers + i), half), wide);
  };
  return sixteen_internal::Bits(above(0), above(4), above(8), above(12));
#else
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(numbers[i] > value) << i;
  return bits;
#endif
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_SIXTEEN_H_
