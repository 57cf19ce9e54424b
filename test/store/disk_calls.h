// What the store asks of its disk, as a test sees it: each call of SQLite (watched_vfs.h) and of
// store_file.cc (watched_posix.cc) passes a DiskWatcher, which may let it fail or write it down.
//
// For tests and trials alone. Files are real, except that nothing is ever synced: a watcher that
// cares keeps what is durable itself.
#ifndef CXLPOOL_TEST_STORE_DISK_CALLS_H_
#define CXLPOOL_TEST_STORE_DISK_CALLS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace cxlpool::fm {

enum class DiskOp {
  kOpen,
  kRead,
  kWrite,
  kTruncate,
  kSync,
  kSyncDirectory,
  kLink,
  kRename,
  kUnlink
};

struct DiskCall {
  DiskOp op = DiskOp::kOpen;
  int file = -1;            // As Opened has named it; -1: none, or not watched.
  absl::string_view path;   // Of the file, as it was opened; of the directory.
  absl::string_view to;     // kLink, kRename: the new name.
  uint64_t offset = 0;      // kWrite. kTruncate: the new size.
  absl::string_view bytes;  // kWrite.
  uint64_t end = 0;         // kWrite: the file's size before.
};

// What becomes of a call: 0, it is carried out; otherwise it fails with this errno, a write after
// its first `written` bytes.
struct DiskVerdict {
  int error = 0;
  size_t written = 0;
};

// Called from whichever thread makes the call.
class DiskWatcher {
 public:
  virtual ~DiskWatcher() = default;

  // A file was opened; `made`: by this call. What it is called from now on.
  virtual int Opened(const std::string& /*path*/, bool /*made*/) { return -1; }

  virtual DiskVerdict Before(const DiskCall& /*call*/) { return {}; }
  virtual void After(const DiskCall& /*call*/) {}  // It was carried out.
};

// Who watches from now on, every file that is open or will be; null: nobody. One at a time.
void WatchDisk(DiskWatcher* watcher);
DiskWatcher& CurrentDiskWatcher();  // One that does nothing where nobody watches.

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_DISK_CALLS_H_
