// One power cut: what a machine finds after it, whether the store comes up on that as it must, goes
// on, and survives a second cut while it does.
//
// What must hold, after every cut:
//   - the store opens by its normal path, without a person's help;
//   - its revision is at least the last acknowledged one, at most the last asked for, and it holds
//     exactly that revision's records;
//   - its epoch is greater than any that was given out;
//   - commits, checkpoints and closing go on to work;
//   - a backup is whole, or there is none under its name; one that was acknowledged is there.
#ifndef CXLPOOL_TEST_STORE_POWER_TRIAL_H_
#define CXLPOOL_TEST_STORE_POWER_TRIAL_H_

#include <cstdint>
#include <string>

#include "test/store/power_story.h"

namespace cxlpool::fm {

struct PowerTrialCounts {
  CutCounts cuts;
  uint64_t opened = 0;  // Stores.
  uint64_t second_cuts = 0;
  uint64_t beyond = 0;   // Times that more was found than acknowledged.
  uint64_t fresh = 0;    // Times that there was no database yet.
  uint64_t copies = 0;   // Whole ones found.
  uint64_t refused = 0;  // Changes, by a full disk.
};

// Cuts the power of `story` at `position`, as `seed` has it. `directory` is for the files that are
// found; its contents go. An error says what was not as it must be.
absl::Status TryPowerCut(PowerStory& story, size_t position, uint64_t seed,
                         const std::string& directory, bool trace, PowerTrialCounts& counts);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_POWER_TRIAL_H_
