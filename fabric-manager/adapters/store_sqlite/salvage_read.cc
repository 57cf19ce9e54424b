// ReadImage: what can be read of a database, and whether that is all of it.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "fabric-manager/adapters/store_sqlite/page_scan.h"
#include "fabric-manager/adapters/store_sqlite/salvage.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "fabric-manager/ports/pack.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr int kMaxDamageLines = 20;

uint64_t Word(const Statement& statement, int column) {
  return static_cast<uint64_t>(sqlite3_column_int64(statement.get(), column));
}

absl::Status OutOfMemory() {
  return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                "cannot read the database: SQLite is out of memory",
                "make memory free, then try again");
}

class ImageReader {
 public:
  ImageReader(std::string image, int64_t schema, const std::optional<StoreMeta>& head)
      : image_(std::move(image)), schema_(schema), head_(head) {}

  absl::StatusOr<Salvage> Read() {
    out_.schema = schema_;
    if (absl::Status status = Connect(); !status.ok()) return status;
    CheckIntegrity();
    ReadMeta();
    ReadTable();
    ReadQuarantine();
    if (!out_of_memory_) SettleWhatIsThere();
    // What memory was missing for is no damage, and must not be repaired.
    if (out_of_memory_) return OutOfMemory();
    return std::move(out_);
  }

 private:
  // Shows SQLite the bytes as a database in memory. Bytes 18 and 19 say that it has a log: it is in
  // the bytes already.
  absl::Status Connect() {
    if (image_.size() > 20) image_[18] = image_[19] = 1;
    const auto size = static_cast<sqlite3_int64>(image_.size());
    if (Seen(sqlite3_open_v2(":memory:", &connection_.db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
                             nullptr)) != SQLITE_OK ||
        Seen(sqlite3_deserialize(db_, "main", reinterpret_cast<unsigned char*>(image_.data()), size,
                                 size, SQLITE_DESERIALIZE_READONLY)) != SQLITE_OK) {
      return OutOfMemory();
    }
    sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    return absl::OkStatus();
  }

  // Remembers what is not the file's fault.
  int Seen(int code) {
    out_of_memory_ = out_of_memory_ || (code & 0xff) == SQLITE_NOMEM;
    return code;
  }

  void Damage(std::string what) { out_.damage.push_back(std::move(what)); }

  void CheckIntegrity() {
    Statement check;
    int code = Seen(
        check.Prepare(db_, absl::StrCat("PRAGMA integrity_check(", kMaxDamageLines, ")").c_str()));
    while (code == SQLITE_OK || code == SQLITE_ROW) {
      code = Seen(sqlite3_step(check.get()));
      if (code != SQLITE_ROW) break;
      const std::string line(Blob(check, 0));
      if (line != "ok") Damage(absl::StrCat("the file's structure: ", line));
    }
    if (code != SQLITE_DONE) {
      Damage(absl::StrCat("the file's structure: ", sqlite3_errmsg(db_)));
    }
    damage_explains_gaps_ = !out_.damage.empty();
  }

  void ReadMeta() {
    const MetaRow found = ReadMetaRow(db_, schema_, out_.meta);
    if (found == MetaRow::kUnreadable) Seen(sqlite3_errcode(db_));
    out_.has_meta = found == MetaRow::kSound;
    if (out_.has_meta) return;
    out_.meta = {};
    Damage(found == MetaRow::kDamaged ? "the meta row fails its checksum"
                                      : "the meta row is missing");
  }

  // Forwards as far as it goes; where that is not to the end, backwards from there, too.
  void ReadTable() {
    const std::string sql = schema_ == kRowsSchemaVersion
                                ? "SELECT key, value, crc FROM records ORDER BY key"
                                : "SELECT first, body, 0 FROM packs ORDER BY first";
    if (!Scan(sql)) {
      Damage(absl::StrCat("records cannot be read: ", sqlite3_errmsg(db_)));
      damage_explains_gaps_ = true;
      Scan(sql + " DESC");
    }
    SetTwinsAside();
  }

  bool Scan(const std::string& sql) {
    Statement read;
    if (Seen(read.Prepare(db_, sql.c_str())) != SQLITE_OK) return false;
    int code = 0;
    while ((code = Seen(sqlite3_step(read.get()))) == SQLITE_ROW) {
      const uint64_t id = Word(read, 0);
      if (!scanned_.insert(id).second) return true;  // From both ends they have met.
      if (schema_ == kRowsSchemaVersion) {
        TakeRecord(id, static_cast<uint32_t>(Word(read, 2)), Blob(read, 1));
      } else {
        TakePack(id, Blob(read, 1));
      }
    }
    return code == SQLITE_DONE;
  }

  void TakePack(uint64_t first, absl::string_view body) {
    size_t read = 0;
    const bool framed = ReadPack(body, [&](const Entry& entry) {
      read += kEntryHeaderBytes + entry.value.size();
      TakeRecord(entry.key, entry.crc, entry.value);
    });
    if (framed) return;
    Damage(absl::StrCat("the pack of records from ", first, " is broken"));
    out_.unsound.push_back(
        {first, std::string(body.substr(read)), 0, "the end of a broken pack of records", ""});
    damage_explains_gaps_ = true;
  }

  void TakeRecord(uint64_t key, uint32_t crc, absl::string_view value) {
    ++found_;
    crc_sum_ += crc;
    if (crc == RecordCrc(key, value)) {
      out_.rows.push_back({key, std::string(value)});
    } else {
      out_.unsound.push_back({key, std::string(value), crc, "it fails its checksum", ""});
    }
  }

  // Where several records have one key, the first stays.
  void SetTwinsAside() {
    const auto by_key = [](const Row& a, const Row& b) { return a.key < b.key; };
    std::stable_sort(out_.rows.begin(), out_.rows.end(), by_key);
    size_t kept = 0;
    for (Row& row : out_.rows) {
      if (kept > 0 && out_.rows[kept - 1].key == row.key) {
        const uint32_t crc = RecordCrc(row.key, row.value);
        out_.unsound.push_back(
            {row.key, std::move(row.value), crc, "another record has its key", ""});
        continue;
      }
      if (&out_.rows[kept] != &row) out_.rows[kept] = std::move(row);
      ++kept;
    }
    out_.rows.resize(kept);
  }

  void ReadQuarantine() {
    Statement read;
    int code = Seen(read.Prepare(db_, "SELECT key, value, crc, reason, time FROM quarantine"));
    if ((code & 0xff) == SQLITE_ERROR) return;  // No such table: nothing was ever set aside.
    while (code == SQLITE_OK || code == SQLITE_ROW) {
      code = Seen(sqlite3_step(read.get()));
      if (code != SQLITE_ROW) break;
      out_.quarantined.push_back({Word(read, 0), std::string(Blob(read, 1)),
                                  static_cast<uint32_t>(Word(read, 2)), std::string(Blob(read, 3)),
                                  std::string(Blob(read, 4))});
    }
    if (code != SQLITE_DONE) {
      Damage(absl::StrCat("what was set aside before cannot be read: ", sqlite3_errmsg(db_)));
    }
  }

  // Whether count and sum are those of `expected`: then nothing is missing, and nothing is of an
  // earlier moment.
  bool Adds(const StoreMeta& expected, uint64_t more = 0, uint64_t more_crc = 0) const {
    return found_ + more == expected.row_count && crc_sum_ + more_crc == expected.crc_sum;
  }

  // Holds what was found against count and sum, as the meta row has them, or the head file. Where
  // SQL did not find all of it, the pages are looked through one by one.
  void SettleWhatIsThere() {
    if (out_.has_meta && Adds(out_.meta)) return;
    ScanWhatIsMissing();
    std::vector<StoreMeta> witnesses = scanned_metas_;
    if (out_.has_meta) witnesses = {out_.meta};
    if (!out_.has_meta && head_.has_value()) witnesses.push_back(*head_);
    const StoreMeta* latest = nullptr;
    for (const StoreMeta& witness : witnesses) {
      if (latest == nullptr || witness.IsAfter(*latest)) latest = &witness;
    }
    const bool all_by_sql = latest != nullptr && Adds(*latest);
    const bool all_by_pages =
        latest != nullptr && Adds(*latest, scanned_rows_.size(), scanned_crcs_);
    if (all_by_sql || all_by_pages) {
      if (!out_.has_meta) Damage("what it said is known all the same, and no record is missing");
      out_.meta = *latest;
      out_.has_meta = true;
      if (!all_by_sql) {
        Damage(absl::StrCat("the way to ", scanned_rows_.size(),
                            " records is damaged; they were found by looking through the pages"));
        TakeScanned();
      }
      return;
    }
    out_.records_lost = true;
    out_.maybe_stale = !out_.has_meta || !damage_explains_gaps_;
    if (out_.has_meta) {
      Damage(found_ == out_.meta.row_count ? "a record came back from the past"
                                           : absl::StrCat("there are ", found_, " records where ",
                                                          out_.meta.row_count, " were written"));
    }
    // What the pages give may have been erased since; better held than forgotten.
    if (damage_explains_gaps_ && !scanned_rows_.empty()) {
      out_.maybe_stale = true;
      TakeScanned();
    }
  }

  void ScanWhatIsMissing() {
    std::set<uint64_t> known;
    for (const Row& row : out_.rows) known.insert(row.key);
    for (const SetAside& aside : out_.unsound) known.insert(aside.key);
    const auto take = [&](uint64_t key, uint32_t crc, absl::string_view value) {
      if (crc != RecordCrc(key, value) || !known.insert(key).second) return;
      scanned_rows_.push_back({key, std::string(value)});
      scanned_crcs_ += crc;
    };
    using Kind = ScannedValue::Kind;
    ScanPages(image_, [&](const ScannedRow& row) {
      const std::vector<ScannedValue>& values = row.values;
      if (values[0].kind != Kind::kNull) return;
      const bool bytes = values.size() > 1 && values[1].kind == Kind::kBytes;
      if (bytes && values.size() == 2) {
        ReadPack(values[1].bytes,
                 [&](const Entry& entry) { take(entry.key, entry.crc, entry.value); });
      } else if (bytes && values.size() == 3 && schema_ == kRowsSchemaVersion) {
        take(row.id, static_cast<uint32_t>(values[2].integer), values[1].bytes);
      } else {
        TakeScannedMeta(row);
      }
    });
  }

  void TakeScannedMeta(const ScannedRow& row) {
    const size_t columns = schema_ > kPacksSchemaVersion ? 8 : 6;
    if (row.id != 1 || row.values.size() != columns) return;
    const auto word = [&](size_t i) { return static_cast<uint64_t>(row.values[i].integer); };
    StoreMeta meta{.epoch = word(1), .revision = word(2), .row_count = word(3), .crc_sum = word(4)};
    if (columns == 8) {
      meta.clean = word(5) == 1;
      meta.store_id = word(6);
    }
    if (word(columns - 1) == meta.Crc(schema_)) scanned_metas_.push_back(meta);
  }

  void TakeScanned() {
    for (Row& row : scanned_rows_) out_.rows.push_back(std::move(row));
    scanned_rows_.clear();
    SetTwinsAside();
  }

  std::string image_;
  const int64_t schema_;
  const std::optional<StoreMeta> head_;
  Connection connection_;
  sqlite3*& db_ = connection_.db;
  Salvage out_;
  std::set<uint64_t> scanned_;     // Row ids.
  uint64_t found_ = 0;             // Records, by SQL.
  uint64_t crc_sum_ = 0;           // As stored, over all of them.
  std::vector<Row> scanned_rows_;  // By pages: those with other keys.
  uint64_t scanned_crcs_ = 0;
  std::vector<StoreMeta> scanned_metas_;
  bool damage_explains_gaps_ = false;  // Records that are missing may be in what is broken.
  bool out_of_memory_ = false;
};

}  // namespace

absl::StatusOr<Salvage> ReadImage(std::string image, int64_t schema,
                                  const std::optional<StoreMeta>& head) {
  return ImageReader(std::move(image), schema, head).Read();
}

}  // namespace cxlpool::fm
