#include "test/crash/stored_pool.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_sqlite/salvage.h"
#include "fabric-manager/fsck/examine.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/names.h"

namespace cxlpool::crash {

absl::StatusOr<StoredPool> ReadStoredPool(const std::string& path) {
  auto database = fm::DamagedDatabase::Open(path);
  if (!database.ok()) return database.status();
  const auto read = (*database)->Read();
  if (!read.ok()) return read.status();
  if (!read->damage.empty()) return absl::DataLossError(absl::StrCat(path, ": ", read->damage[0]));
  const fm::Examination found = fm::Examine(
      read->rows, {.records_lost = read->records_lost, .now = absl::Now(), .make_tag = RandomUuid});
  if (!found.findings.empty() || !read->unsound.empty()) {
    return absl::DataLossError(absl::StrCat(
        path, ": ", found.findings.empty() ? "a checksum does not fit" : found.findings[0].what));
  }
  StoredPool pool{.schema = read->schema, .revision = read->meta.revision, .regions = {}};
  for (const fm::Row& row : read->rows) {
    auto record = fm::DecodeRecord(row.key, row.value);
    if (!record.ok()) return record.status();
    const auto* item = std::get_if<fm::Item>(&*record);
    const auto* region = item == nullptr ? nullptr : std::get_if<fm::RegionPtr>(item);
    if (region != nullptr) pool.regions[FormatUuid((*region)->tag.bytes())] = *region;
  }
  return pool;
}

}  // namespace cxlpool::crash
