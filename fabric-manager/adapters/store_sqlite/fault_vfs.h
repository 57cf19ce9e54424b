// A SQLite VFS that fails on command: the default one underneath, so that files are real.
//
// Legal faults: a write finds the disk full; a sync fails; a sync hangs until it is let go.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_FAULT_VFS_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_FAULT_VFS_H_

#include <atomic>

namespace cxlpool::fm {

struct Faults {
  std::atomic<bool> log_is_full{false};   // Writes past the log's present end.
  std::atomic<bool> disk_is_full{false};  // All writes past the end of any file.
  std::atomic<bool> sync_fails{false};
  std::atomic<bool> sync_hangs{false};
  std::atomic<int> syncs{0};
};

// Registers the VFS "cxlpool-fault" once and answers its switches, all off.
Faults& FaultVfs();
inline constexpr char kFaultVfs[] = "cxlpool-fault";

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_FAULT_VFS_H_
