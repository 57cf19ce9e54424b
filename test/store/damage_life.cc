// LiveForDamage: a small pool at work.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "fabric-manager/service/record_codec.h"
#include "test/store/damage_trial.h"
#include "test/store/power_story.h"
#include "test/store/seeded.h"
#include "test/store/watched_vfs.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostCommits = 60;
constexpr uint64_t kMostHosts = 1500;  // Many records make a tree of many pages.

// The files as they are now: what the kernel keeps of a process that is killed at this moment.
DiskImage FilesIn(const std::string& directory) {
  DiskImage image;
  for (const auto& entry : fs::directory_iterator(directory)) {
    std::ifstream in(entry.path(), std::ios::binary);
    image.names[entry.path().filename().string()] = image.files.size();
    image.files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return image;
}

// A manager as the database sees it. `now_` and `regions_` are what was acknowledged last; `free_`
// are granules that no Region has.
class Pool {
 public:
  Pool(const std::string& directory, uint64_t seed) : directory_(directory), random_(seed) {}

  // Commits at random, with a checkpoint, a settled log or a restart now and then, so that the
  // images differ in what is in the database and what only in the log. There is at least one image
  // of a killed process, and the last is of one that was closed in order.
  absl::StatusOr<DamageLife> Live() {
    absl::Status status = Open();
    if (status.ok()) status = Commit(FirstRecords());
    const uint64_t commits = 1 + random_.Below(kMostCommits);
    for (uint64_t i = 0; status.ok() && i < commits; ++i) {
      status = Commit(SomeChanges());
      if (status.ok() && random_.Below(12) == 0) status = database_->Checkpoint();
      if (status.ok() && random_.Below(12) == 0) status = database_->Settle();
      if (random_.Below(6) == 0 || i + 1 == commits) Take(true);
      if (status.ok() && random_.Below(25) == 0) {
        database_.reset();
        Take(false);
        status = Open();
      }
    }
    if (!status.ok()) return status;
    database_.reset();
    Take(false);
    return std::move(life_);
  }

 private:
  absl::Status Open() {
    auto database =
        Database::Open(absl::StrCat(directory_, "/", kDatabaseName), kDamageMaxBytes, kWatchedVfs);
    if (!database.ok()) return database.status();
    database_ = *std::move(database);
    // As a manager does: without an epoch of its own it could not commit.
    const absl::StatusOr<StoreImage> image = database_->TakeOver();
    if (!image.ok()) return image.status();
    now_.epoch = image->epoch;
    return absl::OkStatus();
  }

  // Keeps the files, with what has to come back from them.
  void Take(bool killed) {
    DamageMoment moment = now_;
    moment.files = FilesIn(directory_);
    moment.killed = killed;
    for (const auto& [key, region] : regions_) moment.regions.push_back(region);
    life_.moments.push_back(std::move(moment));
  }

  // OK: acknowledged, so that from now on it has to come back.
  absl::Status Commit(StoreBatch batch) {
    batch.epoch = now_.epoch;
    batch.base_revision = now_.revision;
    batch.revision = now_.revision + 1;
    // Ids are reserved in blocks; here in each change, so that the record is often written.
    PoolMeta pool;
    pool.next_id = now_.next_id;
    batch.puts.push_back({kPoolKey, EncodePool(pool)});
    if (absl::Status status = database_->Commit(batch); !status.ok()) return status;
    now_.revision = batch.revision;
    for (const Row& row : batch.puts) now_.rows[row.key] = row.value;
    for (const uint64_t key : batch.erases) now_.rows.erase(key);
    return absl::OkStatus();
  }

  uint64_t NewId() { return now_.next_id++; }

  // Two devices and the hosts. Most lives have two hosts; every third has up to kMostHosts.
  StoreBatch FirstRecords() {
    StoreBatch batch;
    now_.next_id = 16;
    for (const uint64_t granules : {64, 32}) {
      Device device;
      device.key = NewId();
      device.id = absl::StrCat("cmm-", life_.devices.size());
      device.capacity_bytes = granules * kDamageGranule;
      device.granule_bytes = kDamageGranule;
      life_.devices.push_back(device);
      batch.puts.push_back({device.key, EncodeItem(device)});
      for (uint64_t i = 0; i < granules; ++i) free_.insert({device.id, i * kDamageGranule});
    }
    const uint64_t hosts = random_.Below(3) == 0 ? random_.Below(kMostHosts) : 2;
    for (uint64_t i = 0; i < hosts; ++i) {
      Host host;
      host.key = NewId();
      host.id = absl::StrCat("host-", i);
      host.identity = absl::StrCat("cxlpool://host/host-", i);
      host.retired = i > 1;
      batch.puts.push_back({host.key, EncodeItem(host)});
    }
    return batch;
  }

  // One to three changes. Allocating is what happens most, as long as there is room.
  StoreBatch SomeChanges() {
    StoreBatch batch;
    for (uint64_t n = 1 + random_.Below(3); n > 0; --n) {
      const uint64_t dice = random_.Below(10);
      if (regions_.empty() || (dice < 6 && free_.size() > 4)) {
        Allocate(batch);
      } else if (dice < 8) {
        Release(batch);
      } else {
        Change(batch);
      }
    }
    return batch;
  }

  // A Region of up to three granules from anywhere, so that extents are not in the order of keys.
  void Allocate(StoreBatch& batch) {
    auto region = std::make_shared<Region>();
    region->key = NewId();
    region->generation = NewId();
    region->id = absl::StrCat("r-", region->key);
    // From the seed, and not RandomUuid: a life is the same each time.
    std::string tag(16, '\0');
    for (char& c : tag) c = static_cast<char>(random_.Next());
    region->tag = Uuid(tag);
    region->tenant = kDefaultTenant;
    region->state = RegionState::kAllocated;
    for (uint64_t extents = 1 + random_.Below(3); extents > 0 && !free_.empty(); --extents) {
      auto at = free_.begin();
      std::advance(at, random_.Below(free_.size()));
      region->extents.push_back({at->first, at->second, kDamageGranule});
      free_.erase(at);
    }
    if (region->extents.empty()) return;
    region->requested_bytes = region->extents.size() * kDamageGranule;
    Put(region, batch);
  }

  // The granules of any Region are free for the next one at once: nothing scrubs here.
  void Release(StoreBatch& batch) {
    auto at = regions_.begin();
    std::advance(at, random_.Below(regions_.size()));
    for (const Extent& extent : at->second->extents) {
      free_.insert({extent.device.str(), extent.dpa_bytes});
    }
    // One that was put in this very change is erased after all puts.
    batch.erases.push_back(at->first);
    regions_.erase(at);
  }

  // The same Region in a record of another length, which moves what lies behind it in its page.
  void Change(StoreBatch& batch) {
    auto at = regions_.begin();
    std::advance(at, random_.Below(regions_.size()));
    auto edited = std::make_shared<Region>(*at->second);
    edited->state_reason = std::string(random_.Below(600), 'x');
    Put(edited, batch);
  }

  void Put(const std::shared_ptr<Region>& region, StoreBatch& batch) {
    region->revision = now_.revision + 1;
    regions_[region->key] = region;
    batch.puts.push_back({region->key, EncodeItem(RegionPtr(region))});
  }

  const std::string directory_;
  Seeded random_;
  DamageLife life_;
  DamageMoment now_;
  std::unique_ptr<Database> database_;
  std::map<uint64_t, RegionPtr> regions_;
  std::set<std::pair<std::string, uint64_t>> free_;
};

}  // namespace

absl::StatusOr<DamageLife> LiveForDamage(const std::string& directory, uint64_t seed) {
  SeedSqlite(seed);
  return Pool(directory, seed).Live();
}

}  // namespace cxlpool::fm
