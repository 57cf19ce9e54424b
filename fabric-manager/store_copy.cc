#include "fabric-manager/store_copy.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/store_sqlite/new_database.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "fabric-manager/config.h"
#include "fabric-manager/service/record_codec.h"
#include "fabric-manager/setup.h"
#include "proto/support/loop.h"
#include "proto/support/mutant.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// For a store that nobody has. A million records are read in some seconds.
constexpr absl::Duration kPatience = absl::Minutes(2);
// For one that others may have, beyond twice `takeover`: etcd may have to find a leader.
constexpr absl::Duration kSlack = absl::Seconds(3);

// A store that is ours, waited for.
class OpenStore {
 public:
  static absl::StatusOr<std::unique_ptr<OpenStore>> Open(const StorePlace& place) {
    SqliteStoreOptions sqlite;
    sqlite.path = place.database;
    auto store = place.etcd.has_value() ? MakeEtcdStore(*place.etcd) : MakeSqliteStore(sqlite);
    if (!store.ok()) return store.status();
    std::unique_ptr<OpenStore> open(new OpenStore(*std::move(store)));
    absl::Status status = open->Wait(place);
    if (!status.ok()) return status;
    return open;
  }

  const StoreImage& image() const { return image_; }
  StoreImage TakeImage() { return std::move(image_); }

  absl::Status Commit(uint64_t revision, std::vector<Row> puts, std::vector<uint64_t> erases) {
    std::promise<absl::Status> promise;
    store_->Commit({epoch_, revision_, revision, std::move(puts), std::move(erases)},
                   [&promise](absl::Status status) { promise.set_value(std::move(status)); });
    // Each store has a deadline of its own for that.
    absl::Status status = promise.get_future().get();
    if (status.ok()) revision_ = revision;
    return status;
  }

  // A sign of life, for one that others may want.
  void Beat() { store_->Beat(); }

 private:
  explicit OpenStore(std::unique_ptr<Store> store) : store_(std::move(store)) {}

  // A store in etcd that is looked at still after that time has an owner that lives, and is not
  // waited for. While all of it is being read there is no such look.
  absl::Status Wait(const StorePlace& place) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<StoreImage>>>();
    auto opened = promise->get_future();
    store_->Follow({.on_owner =
                        [this](const StoreOwner& owner) {
                          MutexLock lock(mutex_);
                          owner_ = owner;
                          seen_ = clock_.Elapsed();
                        },
                    .on_image = nullptr,
                    .on_batch = nullptr});
    store_->Open(
        [](const absl::Status&) {},  // The next commit says so, too.
        [promise](absl::StatusOr<StoreImage> image) { promise->set_value(std::move(image)); });
    const absl::Duration start = clock_.Elapsed();
    while (opened.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
      absl::Status status = CheckStillOpening(place, start);
      if (status.ok()) continue;
      store_ = nullptr;
      return status;
    }
    auto image = opened.get();
    if (!image.ok()) return image.status();
    image_ = *std::move(image);
    epoch_ = image_.epoch;
    revision_ = image_.revision;
    return absl::OkStatus();
  }

  absl::Status CheckStillOpening(const StorePlace& place, absl::Duration start) const {
    MutexLock lock(mutex_);
    const absl::Duration now = clock_.Elapsed();
    if (place.etcd.has_value()) {
      const absl::Duration due = start + 2 * place.etcd->takeover + kSlack;
      if (!owner_.has_value() && now > due) {
        return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                      absl::StrCat(NameOf(place), " does not answer"),
                      "see that most of its members run, and what the log says");
      }
      if (owner_.has_value() && seen_ > due) {
        const std::string& at = owner_->address;
        return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_BUSY",
                      absl::StrCat(at.empty() ? "a manager" : absl::StrCat("the manager at ", at),
                                   " has the pool in ", NameOf(place)),
                      "stop all managers of the pool, then copy");
      }
    }
    if (now < start + kPatience) return absl::OkStatus();
    return Refuse(
        absl::StatusCode::kUnknown, "STORE_STUCK",
        absl::StrCat(NameOf(place), " was not read within ", absl::FormatDuration(kPatience)),
        "see what holds its disks up, then copy again");
  }

  mutable Mutex mutex_;
  std::optional<StoreOwner> owner_ ABSL_GUARDED_BY(mutex_);
  absl::Duration seen_ ABSL_GUARDED_BY(mutex_);  // When it was looked for last.
  const SystemClock clock_;
  std::unique_ptr<Store> store_;
  StoreImage image_;
  uint64_t epoch_ = 0, revision_ = 0;
};

absl::Status Unfinished(const StorePlace& place) {
  std::optional<Refusal> refusal = RefusalOf(UnfinishedCopy());
  refusal->message = absl::StrCat(NameOf(place), ": ", refusal->message);
  return refusal->ToStatus();
}

bool IsUnfinished(const StoreImage& image) {
  return !image.rows.empty() && image.rows.front().key == kPoolKey &&
         image.rows.front().value == kUnfinishedCopy;
}

absl::Status CheckEmpty(const StorePlace& place, const StoreImage& image) {
  if (IsUnfinished(image)) return Unfinished(place);
  if (image.revision == 0) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_NOT_EMPTY",
                absl::StrCat("there are records of a pool in ", NameOf(place), " already"),
                "name another store.prefix, or make it empty with `etcdctl del --prefix`");
}

// Some of `rows` from `at` on: half of what one commit may have of them, and one at least.
std::vector<Row> TakeBatch(std::vector<Row>& rows, size_t& at, const StoreLimits& limits) {
  std::vector<Row> batch;
  size_t bytes = 0;
  while (at < rows.size() &&
         (batch.empty() || (batch.size() < limits.max_batch_rows / 2 &&
                            bytes + rows[at].value.size() <= limits.max_batch_bytes / 2))) {
    bytes += rows[at].value.size();
    batch.push_back(std::move(rows[at++]));
  }
  return batch;
}

// What is more than one commit takes begins with the mark. The pool's own record, which has the
// lowest key, then comes last. `keep` is called before each commit: it says whether what is copied
// is still all there is.
absl::StatusOr<uint64_t> Fill(OpenStore& to, StoreImage image,
                              const std::function<absl::Status(bool last)>& keep) {
  // What this store has answered to Open: another one takes less, or more.
  StoreLimits limits = to.image().limits;
  if (CXLPOOL_MUTANT("copy-ignores-limits")) limits = StoreLimits();
  std::vector<std::vector<Row>> batches;
  for (size_t at = 0; at < image.rows.size();) {
    batches.push_back(TakeBatch(image.rows, at, limits));
  }
  if (batches.size() <= 1) {
    absl::Status status = keep(true);
    if (batches.empty()) batches.emplace_back();
    if (status.ok()) status = to.Commit(image.revision, std::move(batches[0]), {});
    if (!status.ok()) return status;
    return image.revision;
  }
  std::vector<Row> last;
  std::vector<Row>& first = batches.front();
  if (first.front().key == kPoolKey) {
    last.push_back(std::move(first.front()));
    first.erase(first.begin());
  }
  // No less than the revision that clients have seen; where there are more commits than that, more.
  const uint64_t revision = std::max<uint64_t>(image.revision, batches.size() + 2);
  uint64_t next = revision - batches.size() - 1;
  absl::Status status;
  if (!CXLPOOL_MUTANT("copy-without-a-mark")) {
    status = to.Commit(next, {{kPoolKey, std::string(kUnfinishedCopy)}}, {});
  }
  for (std::vector<Row>& batch : batches) {
    if (status.ok()) status = keep(false);
    if (status.ok()) status = to.Commit(++next, std::move(batch), {});
  }
  if (status.ok()) status = keep(true);
  std::vector<uint64_t> mark;
  if (last.empty()) mark.push_back(kPoolKey);
  if (status.ok()) status = to.Commit(revision, std::move(last), std::move(mark));
  if (!status.ok()) return status;
  return revision;
}

}  // namespace

std::string NameOf(const StorePlace& place) {
  if (!place.etcd.has_value()) return place.database;
  return absl::StrCat("etcd at ", absl::StrJoin(place.etcd->etcd.endpoints, ","), " under ",
                      place.etcd->prefix);
}

absl::StatusOr<StorePlace> PlaceOf(const std::string& argument, const FabricReaders& drivers) {
  if (!absl::EndsWith(argument, ".toml")) {
    return StorePlace{std::filesystem::absolute(argument).string(), std::nullopt};
  }
  const auto config = LoadFmConfig(argument, drivers);
  if (!config.ok()) return config.status();
  if (config->store == FmConfig::StoreKind::kEtcd) {
    if (absl::Status status = CheckEtcdTls(*config); !status.ok()) return status;
    return StorePlace{"", EtcdOptionsOf(*config)};
  }
  if (config->store == FmConfig::StoreKind::kSqlite) {
    return StorePlace{config->store_path, std::nullopt};
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "NO_RECORDS",
                absl::StrCat(argument, " keeps its records in memory: there is nothing to copy"),
                "name a configuration with another store.kind, or a database");
}

// No record in `from` is changed. The last commit into `to` comes only after `from` was found to be
// ours still, so that a copy which succeeds lacks nothing that a manager has committed. One that
// fails leaves nothing in `to` that a manager would take for a pool.
absl::StatusOr<StoreCopied> CopyStore(const StorePlace& from, const StorePlace& to) {
  if (!from.etcd.has_value() && !StoreFileExists(from.database)) {
    return Refuse(absl::StatusCode::kNotFound, "STORE_MISSING",
                  absl::StrCat("there is no database at ", from.database),
                  "name a manager's configuration, its store.path, or a backup");
  }
  if (!to.etcd.has_value() && StoreFileExists(to.database)) return BackupExistsError(to.database);
  auto source = OpenStore::Open(from);
  if (!source.ok()) return source.status();
  StoreImage image = (*source)->TakeImage();
  if (IsUnfinished(image)) return Unfinished(from);
  if (image.revision == 0) {
    return Refuse(absl::StatusCode::kNotFound, "STORE_MISSING",
                  absl::StrCat("there are no records in ", NameOf(from)),
                  "name the store that has the pool");
  }
  // In etcd: a commit of nothing succeeds only if nobody has taken the store over meanwhile. A
  // database is locked.
  if (from.etcd.has_value()) ++image.revision;
  StoreCopied copied{.records = image.rows.size(), .revision = image.revision};
  const auto keep = [&](bool last) {
    if (last && from.etcd.has_value()) return (*source)->Commit(copied.revision, {}, {});
    (*source)->Beat();
    return absl::OkStatus();
  };
  if (to.etcd.has_value()) {
    auto target = OpenStore::Open(to);
    if (!target.ok()) return target.status();
    if (absl::Status status = CheckEmpty(to, (*target)->image()); !status.ok()) return status;
    const auto revision = Fill(**target, std::move(image), keep);
    if (!revision.ok()) return revision.status();
    return StoreCopied{copied.records, *revision};
  }
  if (absl::Status status = keep(/*last=*/true); !status.ok()) return status;
  const auto written = WriteNewDatabase(to.database, std::move(image));
  if (!written.ok()) return written.status();
  return copied;
}

}  // namespace cxlpool::fm
