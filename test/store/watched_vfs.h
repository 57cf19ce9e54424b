// The SQLite VFS whose calls a DiskWatcher sees: the default one underneath, so that files are
// real.
//
// As the default one does, the first sync of a new journal or log also syncs its directory. Its
// errors are those that the default one makes of the same errno. There is no shared memory: a
// database that is locked exclusively needs none.
#ifndef CXLPOOL_TEST_STORE_WATCHED_VFS_H_
#define CXLPOOL_TEST_STORE_WATCHED_VFS_H_

#include <cstdint>

namespace cxlpool::fm {

inline constexpr char kWatchedVfs[] = "cxlpool-watched";

// Registers it, once. `as_default`: connections that name no VFS are watched, too.
void RegisterWatchedVfs(bool as_default);

// SQLite's random numbers (a log's salts) follow from `seed` from now on. Needs the VFS as default.
void SeedSqlite(uint64_t seed);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_WATCHED_VFS_H_
