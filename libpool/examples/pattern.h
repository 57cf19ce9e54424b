// A pattern over every byte, which a seed makes and anyone with the seed can verify.
//
// Word i (8 bytes, this machine's order) is a bijection of seed ^ i: every word differs from every
// other, so that bytes that land in the wrong place are found, not only bytes that are lost. One
// multiplication a word: quick under emulation too.
//
// Ranges start at a multiple of 8; their size is one too. Pure functions.
#ifndef CXLPOOL_LIBPOOL_EXAMPLES_PATTERN_H_
#define CXLPOOL_LIBPOOL_EXAMPLES_PATTERN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cxlpool::examples {

// The first `bytes` of a range, or all of it where it has fewer.
template <typename Byte>
std::span<Byte> FirstOf(std::span<Byte> range, uint64_t bytes) {
  return range.first(std::min<uint64_t>(bytes, range.size()));
}

inline uint64_t PatternWord(uint64_t seed, uint64_t index) {
  uint64_t word = (seed ^ index) * 0x9e3779b97f4a7c15u;  // Odd: invertible.
  return word ^ (word >> 32);
}

inline void FillPattern(std::span<std::byte> bytes, uint64_t seed) {
  auto* words = reinterpret_cast<uint64_t*>(bytes.data());
  for (uint64_t i = 0; i < bytes.size() / sizeof *words; ++i) words[i] = PatternWord(seed, i);
}

struct Mismatches {
  uint64_t words = 0;         // How many differ; 0: all as they should be.
  uint64_t first_offset = 0;  // Bytes, of the first that differs,
  uint64_t expected = 0;      // what it should be,
  uint64_t found = 0;         // and what it is.
};

template <typename Expected>
Mismatches CompareWords(std::span<const std::byte> bytes, Expected expected) {
  const auto* words = reinterpret_cast<const uint64_t*>(bytes.data());
  Mismatches result;
  for (uint64_t i = 0; i < bytes.size() / sizeof *words; ++i) {
    const uint64_t found = words[i];
    if (found == expected(i)) continue;
    if (result.words++ == 0) {
      result.first_offset = i * sizeof *words;
      result.expected = expected(i);
      result.found = found;
    }
  }
  return result;
}

inline Mismatches VerifyPattern(std::span<const std::byte> bytes, uint64_t seed) {
  return CompareWords(bytes, [seed](uint64_t i) { return PatternWord(seed, i); });
}

inline Mismatches VerifyZero(std::span<const std::byte> bytes) {
  return CompareWords(bytes, [](uint64_t) { return uint64_t{0}; });
}

}  // namespace cxlpool::examples

#endif  // CXLPOOL_LIBPOOL_EXAMPLES_PATTERN_H_
