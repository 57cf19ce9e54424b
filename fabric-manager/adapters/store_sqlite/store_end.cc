#include "fabric-manager/adapters/store_sqlite/store_end.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

// A head file that is missing and one without a sound slot have the same slots; `has_head_file`
// tells them apart.
absl::StatusOr<StoreEnd> StoreEnd::Read(const std::string& path) {
  StoreEnd end;
  absl::StatusOr<LogFile> log = LogFile::Read(path + "-wal");
  if (!log.ok()) return log.status();
  end.log = *std::move(log);
  const absl::StatusOr<HeadSlots> head = ReadHead(HeadPath(path));
  if (!head.ok()) return head.status();
  end.head = *head;
  end.has_head_file = StoreFileExists(HeadPath(path));
  return end;
}

std::optional<StoreMeta> StoreEnd::Latest(uint64_t store_id) const {
  std::optional<StoreMeta> latest;
  for (const std::optional<StoreMeta>& slot : head) {
    if (!slot.has_value() || slot->store_id != store_id) continue;
    if (!latest.has_value() || slot->IsAfter(*latest)) latest = slot;
  }
  return latest;
}

namespace {

// Why, by the head file, the database is not the last one; "": it agrees.
std::string WhatTheHeadKnows(const StoreEnd& end, const StoreMeta& meta) {
  for (const std::optional<StoreMeta>& slot : end.head) {
    if (slot.has_value() && slot->store_id != meta.store_id) {
      return "its head file belongs to another database";
    }
  }
  const std::optional<StoreMeta> latest = end.Latest(meta.store_id);
  if (!latest.has_value() || !latest->IsAfter(meta) || CXLPOOL_MUTANT("store-ignore-head")) {
    return "";
  }
  return absl::StrCat("it holds revision ", meta.revision, " of epoch ", meta.epoch, "; revision ",
                      latest->revision, " of epoch ", latest->epoch, " was acknowledged");
}

// The same by the log.
absl::StatusOr<std::string> WhatTheLogShows(
    const StoreEnd& end, bool in_use, const std::function<absl::StatusOr<std::string>()>& main) {
  if (end.log.has_commits_behind_damage()) {
    return absl::StrCat("frame ", end.log.first_broken(),
                        " of its log is damaged, and changes that were committed lie behind it");
  }
  if (end.log.empty() || end.log.header_is_sound()) return std::string();
  // A power cut tears the header while a new round of the log begins. Then the round before is
  // still there, whole, and every page of it has been copied.
  if (end.log.committed() > 0) {
    const absl::StatusOr<std::string> bytes = main();
    if (!bytes.ok()) return bytes.status();
    if (end.log.IsCopiedInto(*bytes)) return std::string();
  } else if (!in_use) {
    return std::string();  // It never held a change.
  }
  return std::string("the header of its log is damaged, and with it what the log held");
}

}  // namespace

// Head file and log are asked first, for each may know of a change that is missing. Where neither
// does, a store that was in use must have both: the one that is gone may have known.
absl::StatusOr<std::string> WhatIsMissing(
    const StoreEnd& end, int64_t schema, const StoreMeta& meta,
    const std::function<absl::StatusOr<std::string>()>& main) {
  const bool in_use = schema > kPacksSchemaVersion && !meta.clean;
  absl::StatusOr<std::string> log = WhatTheLogShows(end, in_use, main);
  std::string head = WhatTheHeadKnows(end, meta);
  if (!head.empty() || !log.ok() || !log->empty()) {
    if (!head.empty() && log.ok() && !log->empty()) return absl::StrCat(head, "; ", *log);
    return head.empty() ? log : head;
  }
  if (!in_use) return std::string();
  if (end.log.empty()) {
    return std::string(
        "the manager did not stop in order, and the log, which has its last changes, "
        "is missing");
  }
  const bool known = std::any_of(end.head.begin(), end.head.end(),
                                 [](const auto& slot) { return slot.has_value(); });
  if (known) return std::string();
  return absl::StrCat(
      "the manager did not stop in order, and its head file, which says what was "
      "acknowledged last, is ",
      end.has_head_file ? "damaged" : "missing");
}

absl::Status IncompleteError(const std::string& path, const std::string& what) {
  return Refuse(
      absl::StatusCode::kDataLoss, "STORE_INCOMPLETE",
      absl::StrCat("the store ", path, " may lack changes that were acknowledged: ", what),
      absl::StrCat("see ", FsckCommand(path), "; restore a backup, or repair with ",
                   FsckCommand(path, " --repair"),
                   ", which gives no byte away; if this is a backup that you just restored, move ",
                   path, "-head and ", path, "-wal of the store before it away"));
}

// In parts: one read takes its length as an int.
absl::StatusOr<std::string> ReadMainFile(sqlite3* db, const std::string& path) {
  sqlite3_file* file = nullptr;
  sqlite3_int64 size = 0;
  std::string bytes;
  int code = sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (code == SQLITE_OK) code = file->pMethods->xFileSize(file, &size);
  constexpr sqlite3_int64 kAtOnce = 64 << 20;
  if (code == SQLITE_OK) bytes.resize(static_cast<size_t>(size));
  for (sqlite3_int64 at = 0; code == SQLITE_OK && at < size; at += kAtOnce) {
    code = file->pMethods->xRead(file, bytes.data() + at,
                                 static_cast<int>(std::min(size - at, kAtOnce)), at);
  }
  if (code == SQLITE_OK) return bytes;
  return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                absl::StrCat("cannot read ", path, ": ", sqlite3_errstr(code)),
                "check the disk and the kernel log, then start again");
}

}  // namespace cxlpool::fm
