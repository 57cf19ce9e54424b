// Lives of a store, recorded for power cuts: what it did to its disk, what it was asked for and
// what it had acknowledged at each moment, and what each revision holds.
//
//   commits    a new database; 200 operations, alone and in groups, with checkpoints and a backup
//              among them; closed and opened again on the way
//   migration  the first release's database, moved to this schema; then operations
//   repair     fsck's Replace, of a database whose log still holds changes
#ifndef CXLPOOL_TEST_STORE_POWER_STORY_H_
#define CXLPOOL_TEST_STORE_POWER_STORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "test/store/commit_script.h"
#include "test/store/power_cut_disk.h"

namespace cxlpool::fm {

inline constexpr char kDatabaseName[] = "pool.db";

// What was known outside the store at a moment.
struct PowerNote {
  size_t position = 0;        // Of the recording.
  uint64_t epoch = 0;         // The greatest that Open has answered.
  uint64_t acknowledged = 0;  // Revisions.
  uint64_t asked = 0;
  bool copied = false;  // The story's copy has been acknowledged.
};

// The last note of `notes` (ascending) at or before `position`.
PowerNote NoteAt(const std::vector<PowerNote>& notes, size_t position);

// What each revision holds: given for the first, by the script from there on.
class PowerHistory {
 public:
  PowerHistory(uint64_t script, uint64_t first_revision, ScriptedPool first)
      : script_(script), first_revision_(first_revision), pools_{std::move(first)} {}

  StoreBatch Batch(uint64_t epoch, uint64_t revision) const {
    return ScriptedBatch(epoch, revision, script_);
  }
  const ScriptedPool& At(uint64_t revision);       // At least the first.
  void Set(uint64_t revision, ScriptedPool pool);  // The one after the last.

 private:
  uint64_t script_;
  uint64_t first_revision_;
  std::vector<ScriptedPool> pools_;
};

struct PowerStory {
  std::string name;
  std::unique_ptr<PowerCutDisk> disk;
  std::vector<PowerNote> notes;
  PowerHistory history{0, 0, {}};
  uint64_t repaired = 0;                  // The revision that fsck made; 0: none.
  PowerHistory without_repair{0, 0, {}};  // Where a cut came before it, and the store went on.
  std::string copy;  // The name of a second database that is made on the way; empty: none.
};

// A database whose log holds the last of `operations` changes, as a killed process leaves it.
struct StoreWithLog {
  DiskImage files;
  PowerHistory history{0, 0, {}};
  PowerNote note;  // Position 0.
};

using DiskLies = std::function<bool(absl::string_view name)>;

// Each in an empty directory of its own. The watched VFS is the default one.
absl::StatusOr<PowerStory> TellCommits(const std::string& directory, uint64_t script,
                                       const DiskLies& lies = nullptr);
absl::StatusOr<PowerStory> TellMigration(const std::string& directory, uint64_t script,
                                         const std::string& first_release);
absl::StatusOr<PowerStory> TellRepair(const std::string& directory, uint64_t script);

absl::StatusOr<StoreWithLog> MakeStoreWithLog(const std::string& directory, uint64_t script,
                                              uint64_t operations);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_POWER_STORY_H_
