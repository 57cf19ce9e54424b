// Disk faults on command, for what the watched VFS and the wrapped system calls carry out.
//
// Legal faults: a disk that is full, for every write or for those that make a file longer; a call
// that fails with an errno, a write after a part of it; a sync that fails, or hangs until it is let
// go. A call that fails has done nothing, but for the part of a write.
#ifndef CXLPOOL_TEST_STORE_DISK_FAULTS_H_
#define CXLPOOL_TEST_STORE_DISK_FAULTS_H_

#include <atomic>
#include <cerrno>
#include <string>

#include "test/store/disk_calls.h"
#include "test/store/watched_vfs.h"

namespace cxlpool::fm {

// Switches, all off. Watches the disk while it lives; declare it before the store.
class DiskSwitches : public DiskWatcher {
 public:
  DiskSwitches() {
    RegisterWatchedVfs(false);
    WatchDisk(this);
  }
  ~DiskSwitches() override { WatchDisk(nullptr); }
  DiskSwitches(const DiskSwitches&) = delete;
  DiskSwitches& operator=(const DiskSwitches&) = delete;

  std::atomic<bool> log_is_full{false};               // Writes past the log's present end.
  std::atomic<bool> disk_is_full{false};              // All writes past the end of any file.
  std::atomic<int64_t> writes_until_full{INT64_MAX};  // Then each finds space for its half.
  std::atomic<bool> truncation_fails{false};
  std::atomic<bool> sync_fails{false};
  std::atomic<bool> directory_sync_fails{false};
  std::atomic<bool> sync_hangs{false};
  std::atomic<int> syncs{0};

  DiskVerdict Before(const DiskCall& call) override {
    if (call.op == DiskOp::kWrite && writes_until_full-- <= 0) {
      return {ENOSPC, call.bytes.size() / 2};
    }
    if (call.op == DiskOp::kWrite && call.offset + call.bytes.size() > call.end) {
      const bool log = call.path.size() > 4 && call.path.substr(call.path.size() - 4) == "-wal";
      return {disk_is_full || (log && log_is_full) ? ENOSPC : 0, 0};
    }
    if (call.op == DiskOp::kTruncate) return {truncation_fails ? EIO : 0, 0};
    if (call.op == DiskOp::kSyncDirectory) return {directory_sync_fails ? EIO : 0, 0};
    if (call.op != DiskOp::kSync) return {};
    ++syncs;
    sync_hangs.wait(true);
    return {sync_fails ? EIO : 0, 0};
  }
};

struct DiskFault {
  std::string name;
  DiskOp op = DiskOp::kWrite;
  int error = EIO;
  bool in_part = false;  // Half of a write is done first.
  bool lasting = false;  // All calls from that one on.
};

// Lets call number `number` (from 1) of the fault's kind fail. Watches while it lives.
class NthDiskFault : public DiskWatcher {
 public:
  NthDiskFault(const DiskFault& fault, uint64_t number) : fault_(fault), number_(number) {
    WatchDisk(this);
  }
  ~NthDiskFault() override { WatchDisk(nullptr); }
  NthDiskFault(const NthDiskFault&) = delete;
  NthDiskFault& operator=(const NthDiskFault&) = delete;

  bool hit() const { return seen_ >= number_; }

  DiskVerdict Before(const DiskCall& call) override {
    if (call.op != fault_.op) return {};
    const uint64_t seen = ++seen_;
    if (seen < number_ || (seen > number_ && !fault_.lasting)) return {};
    return {fault_.error, fault_.in_part ? call.bytes.size() / 2 : 0};
  }

 private:
  const DiskFault fault_;
  const uint64_t number_;
  std::atomic<uint64_t> seen_{0};
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_DISK_FAULTS_H_
