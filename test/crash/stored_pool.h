// What a database file holds, read without a manager.
//
// Blocking; nobody may have the file open.
#ifndef CXLPOOL_TEST_CRASH_STORED_POOL_H_
#define CXLPOOL_TEST_CRASH_STORED_POOL_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::crash {

struct StoredPool {
  int64_t schema = 0;
  uint64_t revision = 0;
  std::map<std::string, fm::RegionPtr> regions;  // By tag, as the API writes it.
};

// DATA_LOSS: fsck finds something in it.
absl::StatusOr<StoredPool> ReadStoredPool(const std::string& path);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_STORED_POOL_H_
