// Amounts of memory: the units they are written in, and rounding that cannot overflow.
//
// Pure functions, any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_BYTES_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_BYTES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/support/byte_size.h"

namespace cxlpool::fm {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// The smallest multiple of `unit` that is not below `bytes`. Nothing if it does not fit 64 bits or
// `unit` is 0.
std::optional<uint64_t> RoundUp(uint64_t bytes, uint64_t unit);

// The smallest unit that is a multiple of both; 0 counts as "no demand". Nothing on overflow.
std::optional<uint64_t> CommonUnit(uint64_t a, uint64_t b);

// For people.
inline std::string FormatBytes(uint64_t bytes) { return FormatByteSize(bytes); }

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_BYTES_H_
