// A database that is made at once: of a store that lies elsewhere.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_NEW_DATABASE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_NEW_DATABASE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

// Makes a database of the rows and the revision of `image` at the absolute `path`: 0600, on stable
// storage, and there whole or not at all. It is as a manager leaves one that was stopped in order.
// Answers its size in bytes.
// ALREADY_EXISTS/BACKUP_EXISTS: something is at `path`. INVALID_ARGUMENT/BACKUP_BAD_PATH.
// FAILED_PRECONDITION: STORE_UNSAFE_PATH, STORE_UNUSABLE. RESOURCE_EXHAUSTED/STORE_FULL.
// UNAVAILABLE/STORE_IO.
absl::StatusOr<uint64_t> WriteNewDatabase(const std::string& path, StoreImage image);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_NEW_DATABASE_H_
