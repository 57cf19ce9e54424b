#include "fabric-manager/model/space/bytes.h"

#include <numeric>

namespace cxlpool::fm {

std::optional<uint64_t> RoundUp(uint64_t bytes, uint64_t unit) {
  if (unit == 0) return std::nullopt;
  const uint64_t over = bytes % unit;
  if (over == 0) return bytes;
  if (bytes > UINT64_MAX - (unit - over)) return std::nullopt;
  return bytes + (unit - over);
}

std::optional<uint64_t> CommonUnit(uint64_t a, uint64_t b) {
  if (a == 0 || b == 0) return a + b;
  const uint64_t factor = b / std::gcd(a, b);
  if (a > UINT64_MAX / factor) return std::nullopt;
  return a * factor;
}

}  // namespace cxlpool::fm
