// The second home of the revision: PATH-head, a small file beside the database that says which
// revision was acknowledged last.
//
// It is written after each commit was synced and before the commit is acknowledged, without a sync
// of its own: one write of 64 bytes. So it is never ahead of the log; it is exact after the process
// was killed, for the kernel keeps what was written; and after a power cut it names some revision
// since the last time that it was synced. Settle does that while the store is idle, and with
// checkpoints.
//
// Two slots in sectors of their own. Write changes the first; Settle syncs it, then writes and
// syncs the second. So a power cut that tears the one leaves the other whole: a file without any
// sound slot was damaged.
//
//   slot  magic "CXLPHEAD" · store id · epoch · revision · records · sum · clean · crc   (64 bytes)
//
// Not thread-safe.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_HEAD_FILE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_HEAD_FILE_H_

#include <sqlite3.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/adapters/store_sqlite/schema.h"

namespace cxlpool::fm {

std::string HeadPath(const std::string& database);

inline constexpr size_t kHeadSlots = 2;
using HeadSlots = std::array<std::optional<StoreMeta>, kHeadSlots>;

// The slots of the file at `path`; nothing where one is missing or its checksum does not fit.
// UNAVAILABLE/STORE_IO: it could not be read.
absl::StatusOr<HeadSlots> ReadHead(const std::string& path);

class HeadFile {
 public:
  // Opens the file beside `database` for writing, through the SQLite VFS `vfs` (empty: the default
  // one). What is missing of it or damaged is made again with `meta`, durably.
  static absl::StatusOr<std::unique_ptr<HeadFile>> Open(const std::string& database,
                                                        const std::string& vfs,
                                                        const StoreMeta& meta);
  ~HeadFile();
  HeadFile(const HeadFile&) = delete;
  HeadFile& operator=(const HeadFile&) = delete;

  // Puts `meta` down, without a sync. DATA_LOSS/STORE_IO: do not go on.
  absl::Status Write(const StoreMeta& meta);

  // Makes what was written durable. DATA_LOSS/STORE_IO.
  absl::Status Settle();
  bool settled() const { return settled_; }

 private:
  explicit HeadFile(std::string path) : path_(std::move(path)) {}
  absl::Status WriteSlot(size_t slot);
  absl::Status Sync();
  absl::Status Failed(absl::string_view doing, int code) const;

  const std::string path_;
  std::vector<char> memory_;  // Of the VFS's file.
  sqlite3_file* file_ = nullptr;
  StoreMeta meta_;
  bool settled_ = true;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_HEAD_FILE_H_
