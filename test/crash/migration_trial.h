// The manager is killed while it moves a database of the first release to today's schema; the next
// one finds everything that was in it.
#ifndef CXLPOOL_TEST_CRASH_MIGRATION_TRIAL_H_
#define CXLPOOL_TEST_CRASH_MIGRATION_TRIAL_H_

#include <random>

#include "absl/status/status.h"
#include "test/crash/hits.h"

namespace cxlpool::crash {

// On a pool of its own. Counts the hits "migration" (begun, not ended) and "migrated" (just ended).
absl::Status KillInMigration(std::mt19937_64& random, Hits& hits);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_MIGRATION_TRIAL_H_
