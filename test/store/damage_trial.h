// One damage to the files of a store that was killed or closed in order: what a manager, fsck and a
// repair make of it.
//
// A life is a small pool whose records are allocated, changed and released at random, in a real
// database. After some of its commits, and after its end, the files are taken as they are: that is
// what a killed process leaves, for the kernel keeps what it wrote. Then one of the files is
// damaged: bits, bytes, blocks, blocks of an earlier moment, two blocks swapped, its end or all of
// it gone.
//
// What must hold:
//   - a manager starts with exactly the records that were acknowledged last, or it does not start;
//     on files without damage it starts;
//   - fsck changes nothing, and calls nothing sound that a manager would start wrong with or would
//     not start with;
//   - after a repair a manager starts, fsck finds nothing more, no byte of a Region that was
//     acknowledged is free or belongs to another Region that can be released without force, on no
//     device of the configuration, and numbers (ids, revision, epoch) are not given out again.
#ifndef CXLPOOL_TEST_STORE_DAMAGE_TRIAL_H_
#define CXLPOOL_TEST_STORE_DAMAGE_TRIAL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/ports/store.h"
#include "test/store/power_cut_disk.h"

namespace cxlpool::fm {

// Of the devices of a life, and of its database.
inline constexpr uint64_t kDamageGranule = 256 << 20;
inline constexpr uint64_t kDamageMaxBytes = 64 << 20;

// The files at one moment, and what had been acknowledged then.
struct DamageMoment {
  DiskImage files;
  bool killed = false;  // Otherwise closed in order.
  uint64_t epoch = 0;
  uint64_t revision = 0;
  uint64_t next_id = 0;
  std::map<uint64_t, std::string> rows;
  std::vector<RegionPtr> regions;
};

struct DamageLife {
  std::vector<Device> devices;  // Of the configuration.
  std::vector<DamageMoment> moments;
};

// Lives once in the empty `directory`. The watched VFS is the default one.
absl::StatusOr<DamageLife> LiveForDamage(const std::string& directory, uint64_t seed);

struct DamageCounts {
  std::map<std::string, uint64_t> kinds;     // Of damage, with the file.
  std::map<std::string, uint64_t> refusals;  // By reason.
  uint64_t right = 0;                        // Started with the right pool.
  uint64_t undamaged = 0;                    // Of these: nothing was changed.
  uint64_t sound = 0;                        // Called so by fsck.
  uint64_t repaired = 0;
  uint64_t not_repaired = 0;  // Refused: restore a backup.
  uint64_t lossless = 0;      // Repairs that lost no record.

  // What must never be.
  uint64_t started_wrong = 0;
  uint64_t sound_wrongly = 0;
  uint64_t given_away = 0;  // Repairs that left a byte of a Region to others.
};

// Damages a moment of `life`, as `seed` has it, in `directory`, whose contents go. An error says
// what was not as it must be.
absl::Status TryDamage(const DamageLife& life, uint64_t seed, const std::string& directory,
                       bool trace, DamageCounts& counts);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_DAMAGE_TRIAL_H_
