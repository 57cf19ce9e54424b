#include "tools/benches/probes.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/ports/pack.h"
#include "proto/support/unique_fd.h"
#include "tools/benches/servers.h"
#include "tools/benches/stats.h"

namespace cxlpool::bench {
namespace {

constexpr size_t kWriteBytes = 8 << 10;
constexpr size_t kFileBytes = 8 << 20;

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

absl::Status SqliteFailed(sqlite3* db, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", sqlite3_errmsg(db)));
}

absl::StatusOr<Database> OpenDatabase(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  Database db(raw);
  if (code != SQLITE_OK) return SqliteFailed(raw, absl::StrCat("cannot open ", path));
  return db;
}

absl::StatusOr<Statement> Prepare(sqlite3* db, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, nullptr) != SQLITE_OK) {
    return SqliteFailed(db, sql);
  }
  return Statement(statement);
}

absl::Status SyncFailed(const std::string& file) {
  return absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<Sample> ProbeSync(const std::string& directory, absl::Duration measured) {
  const std::string file = directory + "/sync-probe";
  const UniqueFd fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return SyncFailed(file);
  const std::string bytes(kWriteBytes, 'x');
  for (size_t at = 0; at < kFileBytes; at += kWriteBytes) {
    if (pwrite(fd.get(), bytes.data(), kWriteBytes, static_cast<off_t>(at)) < 0) {
      return SyncFailed(file);
    }
  }
  if (fdatasync(fd.get()) != 0) return SyncFailed(file);
  std::vector<float> micros;
  const int64_t end = absl::GetCurrentTimeNanos() + absl::ToInt64Nanoseconds(measured);
  int64_t before = absl::GetCurrentTimeNanos();
  for (size_t at = 0; before < end; at = (at + kWriteBytes) % kFileBytes) {
    if (pwrite(fd.get(), bytes.data(), kWriteBytes, static_cast<off_t>(at)) < 0 ||
        fdatasync(fd.get()) != 0) {
      return SyncFailed(file);
    }
    const int64_t after = absl::GetCurrentTimeNanos();
    micros.push_back(static_cast<float>(after - before) / 1000);
    before = after;
  }
  unlink(file.c_str());
  return Sample{.p50_us = Quantile(micros, 0.5), .p99_us = Quantile(micros, 0.99)};
}

absl::StatusOr<Sample> ProbeSqlite(const std::string& directory, const std::string& value,
                                   absl::Duration measured) {
  const std::string file = directory + "/sqlite-probe.db";
  Sample sample;
  {
    auto db = OpenDatabase(file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (!db.ok()) return db.status();
    if (sqlite3_exec(db->get(),
                     "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"
                     "PRAGMA synchronous=FULL;"
                     "CREATE TABLE records(key INTEGER PRIMARY KEY, value BLOB NOT NULL,"
                     " crc INTEGER NOT NULL) STRICT",
                     nullptr, nullptr, nullptr) != SQLITE_OK) {
      return SqliteFailed(db->get(), "cannot make the probe's table");
    }
    const auto insert = Prepare(db->get(), "INSERT INTO records VALUES(?, ?, ?)");
    if (!insert.ok()) return insert.status();
    const absl::Time began = absl::Now(), end = began + measured;
    int64_t rows = 0;
    absl::Time now = began;
    for (; now < end; now = absl::Now()) {
      sqlite3_bind_int64(insert->get(), 1, ++rows);
      sqlite3_bind_blob(insert->get(), 2, value.data(), static_cast<int>(value.size()),
                        SQLITE_STATIC);
      sqlite3_bind_int64(insert->get(), 3, rows);
      if (sqlite3_step(insert->get()) != SQLITE_DONE) {
        return SqliteFailed(db->get(), "cannot insert");
      }
      sqlite3_reset(insert->get());
    }
    sample.per_second = static_cast<double>(rows) / absl::ToDoubleSeconds(now - began);
  }
  for (const char* suffix : {"", "-wal", "-shm"}) unlink((file + suffix).c_str());
  return sample;
}

absl::StatusOr<StoreContents> ReadStore(const std::string& path) {
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE, nullptr);
  const std::unique_ptr<sqlite3, CloseDatabase> db(raw);
  // The log stays: without it the manager that is started next would miss what it has to hold.
  sqlite3_db_config(raw, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_stmt* statement = nullptr;
  // Locked as the manager locks it: no shared memory beside the WAL.
  if (opened != SQLITE_OK ||
      sqlite3_exec(raw, "PRAGMA locking_mode=EXCLUSIVE", nullptr, nullptr, nullptr) != SQLITE_OK ||
      sqlite3_prepare_v2(raw, "SELECT body FROM packs ORDER BY first", -1, &statement, nullptr) !=
          SQLITE_OK) {
    return absl::UnavailableError(absl::StrCat("cannot read ", path, ": ", sqlite3_errmsg(raw)));
  }
  const std::unique_ptr<sqlite3_stmt, FinalizeStatement> packs(statement);
  StoreContents contents;
  absl::string_view newest;
  bool sound = true;
  int step;
  while ((step = sqlite3_step(statement)) == SQLITE_ROW) {
    const absl::string_view body(static_cast<const char*>(sqlite3_column_blob(statement, 0)),
                                 static_cast<size_t>(sqlite3_column_bytes(statement, 0)));
    sound = fm::ReadPack(body,
                         [&](const fm::Entry& entry) {
                           sound = sound && fm::RecordCrc(entry.key, entry.value) == entry.crc;
                           ++contents.records;
                           contents.bytes += entry.value.size();
                           newest = entry.value;
                         }) &&
            sound;
    contents.newest.assign(newest.data(), newest.size());
  }
  if (step != SQLITE_DONE) {
    return absl::UnavailableError(absl::StrCat("cannot read ", path, ": ", sqlite3_errmsg(raw)));
  }
  if (!sound) return absl::DataLossError(absl::StrCat("a record of ", path, " is damaged"));
  return contents;
}

}  // namespace cxlpool::bench
