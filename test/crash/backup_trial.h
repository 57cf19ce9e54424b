// The manager, or the command that asks for it, is killed while a backup is made and sent: at the
// target there is a whole file or none, and a whole one holds everything that was acknowledged up
// to its revision.
#ifndef CXLPOOL_TEST_CRASH_BACKUP_TRIAL_H_
#define CXLPOOL_TEST_CRASH_BACKUP_TRIAL_H_

#include <random>

#include "absl/status/status.h"
#include "test/crash/hits.h"
#include "test/crash/loaded_pool.h"

namespace cxlpool::crash {

// One life of `pool`'s manager. Counts the hits "backup" and "backup whole".
absl::Status KillInBackup(LoadedPool& pool, std::mt19937_64& random, Hits& hits);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_BACKUP_TRIAL_H_
