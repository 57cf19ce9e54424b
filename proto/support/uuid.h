// A UUID (RFC 4122) as the 16 bytes that it is: in place, cheap to copy, to compare and to hash.
//
// A plain value. Text and random ones: names.h.
#ifndef CXLPOOL_PROTO_SUPPORT_UUID_H_
#define CXLPOOL_PROTO_SUPPORT_UUID_H_

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace cxlpool {

class Uuid {
 public:
  Uuid() = default;  // All zero: none.

  // The first 16 bytes of `bytes`; what is missing reads as zero.
  explicit Uuid(absl::string_view bytes) {
    std::memcpy(bytes_.data(), bytes.data(), std::min(bytes.size(), bytes_.size()));
  }

  absl::string_view bytes() const { return {bytes_.data(), bytes_.size()}; }
  std::string str() const { return std::string(bytes_.data(), bytes_.size()); }
  bool empty() const { return *this == Uuid(); }

  friend auto operator<=>(const Uuid&, const Uuid&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Uuid& uuid) {
    uint64_t halves[2];
    std::memcpy(halves, uuid.bytes_.data(), sizeof(halves));
    return H::combine(std::move(h), halves[0], halves[1]);
  }

 private:
  std::array<char, 16> bytes_ = {};
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_UUID_H_
