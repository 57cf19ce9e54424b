// `cxlpool-fm --copy-store FROM TO`: the records of a pool go from one store into another, which
// has to be empty, as they are. No manager may have either of them meanwhile.
//
// A copy that was broken off is no pool. A database gets its name once it is whole. In etcd the
// pool's own record is a mark (kUnfinishedCopy), which no manager takes for a record, until the
// last commit puts the true one in its place.
#ifndef CXLPOOL_FABRIC_MANAGER_STORE_COPY_H_
#define CXLPOOL_FABRIC_MANAGER_STORE_COPY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/ports/fabric_settings.h"

namespace cxlpool::fm {

// Where records lie: in a database, or in etcd.
struct StorePlace {
  std::string database;  // Absolute.
  std::optional<EtcdStoreOptions> etcd;
};
std::string NameOf(const StorePlace& place);

// `argument`: a manager's configuration, whose name ends in ".toml", or a database.
// Errors as LoadFmConfig and CheckEtcdTls; FAILED_PRECONDITION/NO_RECORDS: that store is in memory.
absl::StatusOr<StorePlace> PlaceOf(const std::string& argument, const FabricReaders& drivers);

struct StoreCopied {
  uint64_t records = 0;
  uint64_t revision = 0;  // Of the copy: no less than what it was made of.
};

// Blocking. What is copied is the store as it was when the last manager ended.
// Besides what a Store answers:
// NOT_FOUND/STORE_MISSING: there is nothing at `from`.
// FAILED_PRECONDITION: STORE_BUSY (a manager has one of them), STORE_NOT_EMPTY (`to`),
//   COPY_UNFINISHED (one of them is a copy that was broken off).
// ALREADY_EXISTS/BACKUP_EXISTS: there is a file at `to`.
absl::StatusOr<StoreCopied> CopyStore(const StorePlace& from, const StorePlace& to);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_STORE_COPY_H_
