// What a store is asked for while its disk or its memory fails, and whether its answers are those
// of the port's header (ports/store.h):
//
//   OK              the change is there, whatever comes
//   STORE_FULL      nothing changed; the next one, planned on the same revision, may be tried
//   lost            every later one is refused
//   DATA_LOSS       the change is there as a whole or not at all; every later one is refused alike
//   Open, Backup    a failure that is not damage, and nothing changed; no file where a backup
//   failed
//
// A store that a fault has stopped opens again once the fault is gone, with just that.
#ifndef CXLPOOL_TEST_STORE_FAULT_STORY_H_
#define CXLPOOL_TEST_STORE_FAULT_STORY_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fabric-manager/ports/store.h"
#include "test/store/commit_script.h"
#include "test/store/power_cut_disk.h"

namespace cxlpool::fm {

enum class FaultScene {
  kNew,        // A new database: made, changed, backed up, closed.
  kWithLog,    // One whose log holds changes.
  kMigration,  // The first release's.
  kRepair,     // fsck's Replace, on one whose log holds changes.
};

class FaultStory {
 public:
  // `disk`: its disk will fail; otherwise its memory. `directory` is its own; `first_release` is
  // the path of that database.
  FaultStory(FaultScene scene, bool disk, const std::string& directory,
             const std::string& first_release);

  // Puts the files as they were and forgets what happened.
  absl::Status Reset();

  // With the fault. An error says which answer was not as it must be.
  absl::Status Run();

  // After the fault is gone: whether all is there that must be, and no more; and goes on.
  absl::Status CheckAfterwards();

 private:
  struct State {
    uint64_t revision = 0;
    ScriptedPool pool;
  };

  absl::Status RunStore();
  absl::Status Commit(Store& store, int count);
  absl::Status Judge(const StoreBatch& batch, const absl::Status& answer, bool stopped);
  absl::Status Backup(Store& store);
  absl::Status RunRepair();
  absl::Status CheckFile(const std::string& path, const std::vector<State>& states);

  const FaultScene scene_;
  const bool disk_;
  const std::string directory_, path_;
  DiskImage files_;
  State first_;

  // What may be found: the first was acknowledged, the others may have happened.
  std::vector<State> states_;
  std::optional<State> backed_up_;
  uint64_t epoch_ = 0;
  uint64_t attempt_ = 0;  // What was refused is not asked for again with the same records.
  std::atomic<bool> stopped_ = false;  // DATA_LOSS, or lost.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_FAULT_STORY_H_
