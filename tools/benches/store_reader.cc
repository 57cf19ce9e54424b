#include "tools/benches/store_reader.h"

#include <sqlite3.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/pack.h"

namespace cxlpool::bench {
namespace {

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

}  // namespace

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
