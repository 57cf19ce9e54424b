// Reads a manager's database as plainly as it can be read: every byte, every checksum, and nothing
// made of them.
#ifndef CXLPOOL_TOOLS_BENCHES_STORE_READER_H_
#define CXLPOOL_TOOLS_BENCHES_STORE_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cxlpool::bench {

struct StoreContents {
  uint64_t records = 0;
  uint64_t bytes = 0;  // Of all values.
  std::string newest;  // Value of the record with the greatest key.
};

// The database at `path`, which nobody has open. DATA_LOSS: a checksum does not fit.
absl::StatusOr<StoreContents> ReadStore(const std::string& path);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_STORE_READER_H_
