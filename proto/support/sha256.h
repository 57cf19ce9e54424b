// SHA-256 (FIPS 180-4): a number that stands for bytes.
//
// Pure. OpenSSL computes it.
#ifndef CXLPOOL_PROTO_SUPPORT_SHA256_H_
#define CXLPOOL_PROTO_SUPPORT_SHA256_H_

#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace cxlpool {

inline constexpr size_t kSha256Bytes = 32;

// Of the parts as if they were one text: kSha256Bytes bytes, not as digits.
std::string Sha256(std::initializer_list<absl::string_view> parts);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_SHA256_H_
