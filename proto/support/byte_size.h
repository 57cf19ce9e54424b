// Amounts of memory as people write and read them. Units are powers of 1024, however written.
//
// Pure functions, any thread.
#ifndef CXLPOOL_PROTO_SUPPORT_BYTE_SIZE_H_
#define CXLPOOL_PROTO_SUPPORT_BYTE_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cxlpool {

// "512MiB", "1.3GiB", "4G", "268435456": bytes, powers of 1024 whether written K, KB or KiB. A
// fraction of a unit is rounded up to a whole byte. INVALID_ARGUMENT/BAD_SIZE.
absl::StatusOr<uint64_t> ParseByteSize(absl::string_view text);

// Always in the largest unit that it has one of, with at most three decimals: "512 MiB",
// "17.125 TiB", "1000 B". What three decimals do not show exactly is marked: "~476.837 MiB".
std::string FormatByteSize(uint64_t bytes);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_BYTE_SIZE_H_
