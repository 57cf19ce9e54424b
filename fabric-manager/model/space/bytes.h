// Amounts of memory: the units they are written in, and rounding that cannot overflow.
//
// Pure functions, any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_BYTES_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_BYTES_H_

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>

#include "proto/support/byte_size.h"

namespace cxlpool::fm {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// The smallest multiple of `unit` that is not below `bytes`. Nothing if it does not fit 64 bits or
// `unit` is 0.
inline std::optional<uint64_t> RoundUp(uint64_t bytes, uint64_t unit) {
  if (unit == 0) return std::nullopt;
  const uint64_t over = bytes % unit;
  if (over == 0) return bytes;
  if (bytes > UINT64_MAX - (unit - over)) return std::nullopt;
  return bytes + (unit - over);
}

// The smallest unit that is a multiple of both; 0 counts as "no demand". Nothing on overflow.
inline std::optional<uint64_t> CommonUnit(uint64_t a, uint64_t b) {
  if (a == b || b == 0) return a;  // Without a division, as nearly always.
  if (a == 0) return b;
  const uint64_t factor = b / std::gcd(a, b);
  if (a > UINT64_MAX / factor) return std::nullopt;
  return a * factor;
}

// For people.
inline std::string FormatBytes(uint64_t bytes) { return FormatByteSize(bytes); }

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_BYTES_H_
