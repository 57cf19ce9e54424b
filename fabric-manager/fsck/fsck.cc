#include "fabric-manager/fsck/fsck.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cxlpool/store/v1/record.pb.h"
#include "fabric-manager/adapters/store_sqlite/salvage.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// Where records are lost, what they knew of may have had greater revisions and epochs.
constexpr uint64_t kLostRevisions = 1'000'000;

// A later release may have written what this one would take for damage: each row is as it was
// written, so a field that is not known here is none.
absl::Status CheckRecordVersion(const std::string& path, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    store::v1::Record record;
    if (!record.ParseFromString(row.value)) continue;
    const bool is_newer =
        row.key == kPoolKey && record.pool().schema_version() > PoolMeta{}.schema_version;
    const bool has_more = IsOfLaterRelease(record) && !CXLPOOL_MUTANT("fsck-repairs-what-is-newer");
    if (!is_newer && !has_more) continue;
    return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_TOO_NEW",
                  absl::StrCat("the records of ", path, " were written by a later release"),
                  "use that release's fsck");
  }
  return absl::OkStatus();
}

bool IsRegion(const Row& row) {
  store::v1::Record record;
  return record.ParseFromString(row.value) && record.has_region();
}

absl::Status Repair(DamagedDatabase& database, const Salvage& salvage, const Examination& found,
                    absl::Time now) {
  const Examination again =
      Examine(found.rows, {.records_lost = false, .now = now, .make_tag = RandomUuid});
  if (!again.findings.empty()) {
    return Refuse(absl::StatusCode::kDataLoss, "FSCK_CANNOT_REPAIR",
                  absl::StrCat("what the repair would leave is not sound either: record ",
                               again.findings[0].key, ": ", again.findings[0].what),
                  "restore a backup; nothing was changed");
  }
  const std::string time = absl::FormatTime(absl::RFC3339_sec, now, absl::UTCTimeZone());
  std::vector<SetAside> aside = salvage.quarantined;
  for (SetAside record : salvage.unsound) {
    record.time = time;
    aside.push_back(std::move(record));
  }
  for (const Removed& removed : found.removed) {
    aside.push_back({removed.key, removed.value, 0, removed.reason, time});
  }
  // A revision and an epoch that nobody has seen: watchers list again, etags of before fit nothing,
  // and old plans are refused.
  const uint64_t seen = CXLPOOL_MUTANT("fsck-revision-again") ? 0 : found.greatest_revision;
  const uint64_t margin = salvage.records_lost ? kLostRevisions : 1;
  const StoreMeta meta{.epoch = salvage.newest.epoch + margin,
                       .revision = std::max(salvage.newest.revision, seen) + margin};
  return database.Replace(meta, found.rows, aside);
}

}  // namespace

// Looks at everything before anything is written. Without `repair`, or without findings, the file
// stays as it is; a repair keeps the old one beside it.
absl::StatusOr<FsckReport> RunFsck(const std::string& path, bool repair, absl::Time now,
                                   std::optional<AuditHead> anchor,
                                   const std::function<void(const std::string&)>& doing) {
  const auto tell = [&doing](const std::string& what) {
    if (doing) doing(what);
  };
  tell(absl::StrCat("reading ", path));
  auto database = DamagedDatabase::Open(path);
  if (!database.ok()) return database.status();
  const absl::StatusOr<Salvage> salvage = (*database)->Read();
  if (!salvage.ok()) return salvage.status();
  if (absl::Status status = CheckRecordVersion(path, salvage->rows); !status.ok()) return status;

  FsckReport report;
  report.schema = salvage->schema;
  report.revision = salvage->meta.revision;
  report.records = salvage->rows.size();
  report.regions = std::count_if(salvage->rows.begin(), salvage->rows.end(), IsRegion);
  report.set_aside_before = salvage->quarantined.size();
  for (const std::string& damage : salvage->damage) {
    report.findings.push_back({0, damage, "the records that can be read go into a new file"});
  }
  for (const SetAside& record : salvage->unsound) {
    report.findings.push_back({record.key, record.reason, "it is set aside"});
  }
  const bool lost = salvage->records_lost || !salvage->unsound.empty();
  tell(absl::StrCat("examining ", report.records, " records"));
  const Examination found = Examine(salvage->rows, {.records_lost = lost,
                                                    .maybe_stale = salvage->maybe_stale,
                                                    .anchor = std::move(anchor),
                                                    .now = now,
                                                    .make_tag = RandomUuid});
  report.findings.insert(report.findings.end(), found.findings.begin(), found.findings.end());
  const bool sound = report.findings.empty();
  if (found.anchor.has_value()) report.findings.push_back(*found.anchor);
  if (!repair || sound) return report;
  tell("writing what is sound into a new file");
  if (absl::Status status = Repair(**database, *salvage, found, now); !status.ok()) return status;
  report.copy = path + ".before-fsck";
  return report;
}

}  // namespace cxlpool::fm
