#include "fabric-manager/adapters/store_sqlite/new_database.h"

#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"

namespace cxlpool::fm {
namespace {

// Everything in one transaction. The database is closed when this returns, so that it needs no log.
absl::Status WriteAll(const std::string& path, StoreImage image) {
  auto database = Database::Open(path, SqliteStoreOptions().max_size_bytes, /*vfs=*/"");
  if (!database.ok()) return database.status();
  const auto empty = (*database)->TakeOver();
  if (!empty.ok()) return empty.status();
  if (image.revision == 0) return absl::OkStatus();
  return (*database)->Commit({.epoch = empty->epoch,
                              .base_revision = empty->revision,
                              .revision = image.revision,
                              .puts = std::move(image.rows),
                              .erases = {}});
}

}  // namespace

// It grows under another name. The files beside it are not needed once it was closed in order;
// where that failed, on a full disk for example, what was written is in the log alone.
absl::StatusOr<uint64_t> WriteNewDatabase(const std::string& path, StoreImage image) {
  absl::StatusOr<std::string> part = CreatePartFile(path);
  if (!part.ok()) return part.status();
  unlink(part->c_str());  // Only its name was wanted: an empty file is no database.
  absl::Status status = WriteAll(*part, std::move(image));
  if (status.ok()) status = CheckLogIsEmpty(*part);
  for (const char* suffix : {"-wal", "-head"}) unlink(absl::StrCat(*part, suffix).c_str());
  if (!status.ok()) {
    unlink(part->c_str());
    return status;
  }
  return PublishPartFile(*part, path);
}

}  // namespace cxlpool::fm
