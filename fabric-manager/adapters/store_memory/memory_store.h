// A Store that keeps nothing past the process: for `store = "memory"` and for tests.
//
// MemoryDisk is what a crash leaves behind. Several MemoryStores may be made on one disk, one
// after another (a restart) or at once (a take-over): the last one opened owns it, and the others
// are fenced. A simulator gives an Executor, so that commits take time and come in a seeded order.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_MEMORY_MEMORY_STORE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_MEMORY_MEMORY_STORE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "fabric-manager/ports/store.h"
#include "fabric-manager/ports/store_guard.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// The rows and their guards. Any thread.
class MemoryDisk {
 public:
  // `max_bytes` of values; more is STORE_FULL.
  explicit MemoryDisk(uint64_t max_bytes = uint64_t{1} << 32, const StoreLimits& limits = {})
      : max_bytes_(max_bytes), guard_(limits) {}

  StoreImage TakeOver();
  StoreImage Read() const;  // What TakeOver would answer, in the epoch that there is.
  absl::Status Apply(const StoreBatch& batch);

  uint64_t revision() const;

 private:
  StoreImage Image() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  const uint64_t max_bytes_;
  StoreGuard guard_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::string> rows_ ABSL_GUARDED_BY(mutex_);
};

class MemoryStore : public Store {
 public:
  // How the next commit goes wrong, once.
  struct Fault {
    absl::Status status;   // What the caller gets.
    bool applied = false;  // The change is made all the same: the answer was lost, not the commit.
  };

  // Without `executor`, completions run inside the call. With it they run there, each commit
  // `latency` after it was asked for, and is applied at that moment.
  explicit MemoryStore(std::shared_ptr<MemoryDisk> disk, Executor* executor = nullptr,
                       absl::Duration latency = absl::ZeroDuration());

  // A crash: commits that have not completed are not made, and their completions never run.
  ~MemoryStore() override;

  void Open(Done lost, DoneWith<StoreImage> done) override;
  void Commit(StoreBatch batch, Done done) override;
  void Backup(std::string path, DoneWith<StoreBackup> done) override;  // NO_BACKUP

  // Faults are used up in the order they were given, one a commit. After a DATA_LOSS or UNKNOWN
  // every later commit is refused, as a real store would.
  void FailNextCommit(Fault fault);

  // The store finds by itself that it takes no more commits.
  void Lose(absl::Status why);

 private:
  struct Core;

  Executor* const executor_;
  const absl::Duration latency_;
  const std::shared_ptr<Core> core_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_MEMORY_MEMORY_STORE_H_
