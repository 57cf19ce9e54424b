#include "test/crash/old_store.h"

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_sqlite/schema.h"
#include "fabric-manager/ports/record_crc.h"
#include "fabric-manager/service/record_codec.h"

namespace cxlpool::crash {
namespace {

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
      if (!Put(tenant.key, fm::EncodeItem(tenant, Audit()))) return Failed();
    }
    if (!Put(fm::kPoolKey, fm::EncodePool(*pool, Audit())) || !WriteMeta() || !Execute("COMMIT")) {
      return Failed();
    }
    return absl::OkStatus();
  }

 private:
  static fm::Audit Audit() {
    return {.time = absl::Now(), .principal = "test", .action = "SetTenant", .reason = ""};
  }
  absl::Status Failed() const { return absl::UnavailableError(sqlite3_errmsg(db_)); }
  bool Execute(const std::string& sql) {
    return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
  }
  Statement Prepare(const char* sql) {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(db_, sql, -1, &statement, nullptr);
    return Statement(statement);
  }

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

}  // namespace

absl::Status AddTenantsToOldStore(const std::string& path, int tenants) {
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE, nullptr);
  const std::unique_ptr<sqlite3, CloseDatabase> db(raw);
  if (opened != SQLITE_OK) return absl::UnavailableError(absl::StrCat("cannot open ", path));
  return OldStore(raw).Add(tenants);
}

}  // namespace cxlpool::crash
