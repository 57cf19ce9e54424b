// A database of the first release with more in it, so that moving it to today's schema takes a
// while. Its layout is schema 1's: a SQLite row a record, and one row of sums.
//
// Blocking; nobody may have the file open.
#ifndef CXLPOOL_TEST_CRASH_OLD_STORE_H_
#define CXLPOOL_TEST_CRASH_OLD_STORE_H_

#include <string>

#include "absl/status/status.h"

namespace cxlpool::crash {

// Adds so many tenants, as the first release would have written them.
absl::Status AddTenantsToOldStore(const std::string& path, int tenants);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_OLD_STORE_H_
