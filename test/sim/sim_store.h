// The Store of one life of the manager, on a disk that outlives it.
//
// Legal faults: a commit takes long; the disk is full for a while (STORE_FULL, nothing changed); a
// commit fails for good (DATA_LOSS) and either took place or did not, as a commit that is under way
// when the manager dies. A commit is never made in part: that the real store keeps this under torn
// and reordered sectors is tried in test/store.
#ifndef CXLPOOL_TEST_SIM_SIM_STORE_H_
#define CXLPOOL_TEST_SIM_SIM_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/ports/store.h"
#include "fabric-manager/service/record_codec.h"
#include "test/sim/scheduler.h"

namespace cxlpool::sim {

// Outlives the managers.
struct StoreFaults {
  int64_t slow_until_us = 0;
  int64_t full_until_us = 0;
  enum class Next { kNone, kFailsDone, kFailsNotDone } next = Next::kNone;
  bool troubled = false;  // Between managers and etcd (sim_replicated_store.h).
};

// Records on their way to the disk. Most of them are written over before anybody reads them: so
// the disk holds where a record lies, and a manager that opens the store gets it encoded.
class RecordShelf {
 public:
  // Stands for the record, as a row's value.
  std::string Keep(const fm::Item& item);
  // What the value stands for, encoded; the value itself where it is no record of the shelf.
  std::string Encode(std::string value) const;

 private:
  std::vector<fm::Item> records_;
};

class SimStore : public fm::Store {
 public:
  // All outlive this. `life`: of the manager.
  SimStore(Scheduler* scheduler, LifeId life, std::shared_ptr<fm::MemoryDisk> disk,
           const RecordShelf* shelf, StoreFaults* faults, Random random)
      : scheduler_(scheduler),
        life_(life),
        disk_(std::move(disk)),
        shelf_(shelf),
        faults_(faults),
        random_(random) {}

  // The manager died: the commit under way took place or did not.
  ~SimStore() override;

  void Open(Done lost, DoneWith<fm::StoreImage> done) override;
  void Commit(fm::StoreBatch batch, Done done) override;
  void Backup(std::string path, DoneWith<fm::StoreBackup> done) override;  // NO_BACKUP

 private:
  struct Pending {
    fm::StoreBatch batch;
    Done done;
  };

  void ServeOne();
  absl::Status Serve(const fm::StoreBatch& batch);

  Scheduler* const scheduler_;
  const LifeId life_;
  const std::shared_ptr<fm::MemoryDisk> disk_;
  const RecordShelf* const shelf_;
  StoreFaults* const faults_;
  Random random_;
  std::optional<Pending> pending_;
  absl::Status broken_;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SIM_STORE_H_
