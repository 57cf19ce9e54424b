#include "test/crash/migration_trial.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_sqlite/schema.h"
#include "fabric-manager/ports/pack.h"
#include "fabric-manager/service/record_codec.h"
#include "test/crash/client.h"
#include "test/crash/pool.h"
#include "test/crash/stored_pool.h"

namespace cxlpool::crash {
namespace {

namespace fs = std::filesystem;

constexpr int kOldSchema = 1;
constexpr int kTenants = 4000;              // It takes a while to move them.
constexpr uint64_t kLog_bytes = 500 << 10;  // What the migration writes into the WAL, and less.
constexpr absl::Duration kSlice = absl::Microseconds(200);
constexpr uint64_t kStart_us = 40000;
constexpr absl::Duration kMigrates = absl::Seconds(20);

// --- A database of the first release with more in it, so that moving it to today's schema takes a
// while. Its layout is schema 1's: a SQLite row a record, and one row of sums.

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

class OldStore {
 public:
  explicit OldStore(sqlite3* db) : db_(db) {}

  // In one transaction, with ids that the pool has not given out, and with sums that fit: a manager
  // must find nothing wrong with it.
  absl::Status Add(int tenants) {
    if (!Execute("PRAGMA locking_mode=EXCLUSIVE") || !Execute("BEGIN") || !ReadMeta()) {
      return Failed();
    }
    auto pool = ReadPool();
    if (!pool.ok()) return pool.status();
    for (int i = 0; i < tenants; ++i) {
      fm::Tenant tenant;
      tenant.key = pool->next_id++;
      tenant.id = absl::StrCat("old-", i);
      if (!Put(tenant.key, fm::EncodeItem(tenant))) return Failed();
    }
    if (!Put(fm::kPoolKey, fm::EncodePool(*pool)) || !WriteMeta() || !Execute("COMMIT")) {
      return Failed();
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Failed() const { return absl::UnavailableError(sqlite3_errmsg(db_)); }
  bool Execute(const std::string& sql) {
    return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
  }
  Statement Prepare(const char* sql) {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(db_, sql, -1, &statement, nullptr);
    return Statement(statement);
  }

  // The sums as they are; Put and ReadPool keep them in step with the records.
  bool ReadMeta() {
    const Statement read = Prepare("SELECT epoch, revision, row_count, crc_sum FROM meta");
    if (sqlite3_step(read.get()) != SQLITE_ROW) return false;
    const auto word = [&](int column) {
      return static_cast<uint64_t>(sqlite3_column_int64(read.get(), column));
    };
    meta_.epoch = word(0);
    meta_.revision = word(1);
    meta_.row_count = word(2);
    meta_.crc_sum = word(3);
    return true;
  }

  bool WriteMeta() {
    return Execute(absl::StrCat("UPDATE meta SET row_count=", meta_.row_count, ", crc_sum=",
                                meta_.crc_sum, ", crc=", meta_.Crc(fm::kRowsSchemaVersion)));
  }

  // The pool's record, which leaves the sums: Put writes it again and adds it.
  absl::StatusOr<fm::PoolMeta> ReadPool() {
    const Statement read = Prepare("SELECT value, crc FROM records WHERE key = 1");
    if (sqlite3_step(read.get()) != SQLITE_ROW) return Failed();
    const absl::string_view value(static_cast<const char*>(sqlite3_column_blob(read.get(), 0)),
                                  static_cast<size_t>(sqlite3_column_bytes(read.get(), 0)));
    meta_.crc_sum -= static_cast<uint64_t>(sqlite3_column_int64(read.get(), 1));
    --meta_.row_count;
    auto record = fm::DecodeRecord(fm::kPoolKey, value);
    if (!record.ok()) return record.status();
    return std::get<fm::PoolMeta>(*record);
  }

  bool Put(uint64_t key, const std::string& value) {
    if (put_ == nullptr) put_ = Prepare("INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3)");
    const uint32_t crc = fm::RecordCrc(key, value);
    sqlite3_bind_int64(put_.get(), 1, static_cast<sqlite3_int64>(key));
    sqlite3_bind_blob64(put_.get(), 2, value.data(), value.size(), SQLITE_STATIC);
    sqlite3_bind_int64(put_.get(), 3, crc);
    const bool done = sqlite3_step(put_.get()) == SQLITE_DONE;
    sqlite3_reset(put_.get());
    meta_.crc_sum += crc;
    ++meta_.row_count;
    return done;
  }

  sqlite3* const db_;
  fm::StoreMeta meta_;
  Statement put_;
};

// Adds so many tenants, as the first release would have written them. Nobody may have it open.
absl::Status AddTenantsToOldStore(const std::string& path, int tenants) {
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE, nullptr);
  const std::unique_ptr<sqlite3, CloseDatabase> db(raw);
  if (opened != SQLITE_OK) return absl::UnavailableError(absl::StrCat("cannot open ", path));
  return OldStore(raw).Add(tenants);
}

// --- The trial.

// As test/data/stores/README.md says.
PoolLayout Layout() {
  return {.devices = {{"cmm-0", 2 * kGiB}, {"cmm-1", 2 * kGiB}, {"cmm-2", 4 * kGiB}},
          .hosts = {"host-a", "host-b"},
          .granule_bytes = 256 * kMiB};
}

// How large the WAL is: it grows while the migration is under way, so that it says how far that is.
uint64_t LogBytes(const Pool& pool) {
  struct stat found = {};
  return stat((pool.store_file() + "-wal").c_str(), &found) == 0
             ? static_cast<uint64_t>(found.st_size)
             : 0;
}

absl::Status Copy(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error) return absl::UnavailableError(absl::StrCat(from, ": ", error.message()));
  return absl::OkStatus();
}

// What a manager that opens the store now would find; looked up in a copy, since reading it
// recovers the WAL and would take away what the next manager is to meet.
absl::StatusOr<StoredPool> LookUp(const Pool& pool) {
  const std::string directory = pool.directory() + "/copy";
  std::error_code ignored;
  fs::remove_all(directory, ignored);
  fs::create_directory(directory, ignored);
  fs::permissions(directory, fs::perms::owner_all, ignored);
  const std::string file = directory + "/pool.db";
  if (absl::Status status = Copy(pool.store_file(), file); !status.ok()) return status;
  for (const char* suffix : {"-wal", "-head"}) {
    if (!fs::exists(pool.store_file() + suffix)) continue;
    if (absl::Status status = Copy(pool.store_file() + suffix, file + suffix); !status.ok()) {
      return status;
    }
  }
  return ReadStoredPool(file);
}

// One life that ends at a moment of the migration: when the log has some bytes, or by the clock.
absl::Status KillOnce(Pool& pool, std::mt19937_64& random) {
  if (absl::Status status = pool.StartManager(); !status.ok()) return status;
  if (random() % 4 == 0) {
    absl::SleepFor(absl::Microseconds(random() % kStart_us));
  } else {
    // It runs by slices: on a machine that is busy it would be past the moment before we look.
    const uint64_t bytes = random() % kLog_bytes;
    const absl::Time end = absl::Now() + kMigrates;
    while (LogBytes(pool) <= bytes && !pool.Serving() && absl::Now() < end) {
      pool.manager().Signal(SIGCONT);
      absl::SleepFor(kSlice);
      pool.manager().Signal(SIGSTOP);
    }
  }
  pool.manager().Kill();
  return absl::OkStatus();
}

// Whether a manager that starts now serves all that was there before the first kill: each Region as
// it was, byte range by byte range, and every tenant (the default one besides). Kills it
// afterwards.
absl::Status CheckServed(Pool& pool, const StoredPool& before) {
  if (absl::Status status = pool.StartManager(); !status.ok()) return status;
  if (absl::Status status = pool.AwaitServing(); !status.ok()) return pool.WithLogs(status);
  Client client(pool.socket());
  const auto regions = client.Regions();
  if (!regions.ok()) return regions.status();
  if (regions->regions_size() != static_cast<int>(before.regions.size())) {
    return absl::InternalError(
        absl::StrCat("of ", before.regions.size(), " Regions there are ", regions->regions_size()));
  }
  for (const v1::Region& region : regions->regions()) {
    const auto was = before.regions.find(region.tag());
    bool same = was != before.regions.end() && region.state() == v1::Region::ALLOCATED &&
                region.name() == "regions/" + was->second->id &&
                region.generation() == was->second->generation &&
                region.attachments_size() == static_cast<int>(was->second->attachments.size()) &&
                region.extents_size() == static_cast<int>(was->second->extents.size());
    for (int i = 0; same && i < region.extents_size(); ++i) {
      const fm::Extent& extent = was->second->extents[static_cast<size_t>(i)];
      same = region.extents(i).device() == absl::StrCat("devices/", extent.device.str()) &&
             region.extents(i).dpa_bytes() == extent.dpa_bytes &&
             region.extents(i).length_bytes() == extent.length_bytes;
    }
    if (!same) return absl::InternalError("not as it was: " + region.ShortDebugString());
  }
  const auto tenants = client.Call(&InventoryStub::ListTenants, v1::ListTenantsRequest());
  if (!tenants.ok()) return tenants.status();
  if (tenants->tenants_size() != kTenants + 1) {
    return absl::InternalError(absl::StrCat("there are ", tenants->tenants_size(), " tenants"));
  }
  pool.manager().Kill();
  return absl::OkStatus();
}

}  // namespace

absl::Status KillInMigration(std::mt19937_64& random, Hits& hits) {
  auto pool = Pool::Make(Layout());
  if (!pool.ok()) return pool.status();
  if (absl::Status status = Copy(CXLPOOL_STORES "/first-release.db", (*pool)->store_file());
      !status.ok()) {
    return status;
  }
  // A copy has the mode of the file in the sources, which may be read-only there.
  std::error_code ignored;
  fs::permissions((*pool)->store_file(), fs::perms::owner_read | fs::perms::owner_write, ignored);
  if (absl::Status status = AddTenantsToOldStore((*pool)->store_file(), kTenants); !status.ok()) {
    return status;
  }
  const auto before = LookUp(**pool);
  if (!before.ok()) return before.status();
  // A store that has been moved has nothing left to be interrupted in.
  bool old = true;
  for (uint64_t kills = 1 + random() % 3; kills > 0 && old; --kills) {
    if (absl::Status status = KillOnce(**pool, random); !status.ok()) return status;
    const auto left = LookUp(**pool);
    if (!left.ok()) return (*pool)->WithLogs(left.status());
    old = left->schema == kOldSchema;
    hits.Add(!old ? "migrated" : LogBytes(**pool) > 0 ? "migration" : "start");
  }
  // The first start may still move it; the second reads what that one wrote.
  for (int i = 0; i < 2; ++i) {
    if (absl::Status status = CheckServed(**pool, *before); !status.ok()) {
      return (*pool)->WithLogs(status);
    }
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::crash
