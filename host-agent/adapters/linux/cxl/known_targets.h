// Remembers which memdevs each host region was made of, for after one was pulled out.
//
// A forced unplug leaves a region without targets: the kernel no longer shows whose it was. What is
// known of a pool's regions is kept in a file too, for an agent that is started again within this
// boot; the file is a hint, and nothing is lost with it (WriteKnownRegions). Thread-safe.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_KNOWN_TARGETS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_KNOWN_TARGETS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "proto/support/mutex.h"

namespace cxlpool::agent {

// What one region was when it was last seen. A region of the same name with another address or
// inode is another region.
struct KnownRegion {
  uint64_t hpa_bytes = 0;
  uint64_t inode = 0;             // As in CxlHostRegion.
  std::vector<uint64_t> serials;  // By position; 0: unknown.
  friend bool operator==(const KnownRegion&, const KnownRegion&) = default;
};
using KnownRegions = std::map<std::string, KnownRegion>;  // By name.

class KnownTargets {
 public:
  // `file` "": memory only.
  explicit KnownTargets(std::string file = "", std::string boot_id = "");

  // Learns from `snapshot` and fills in the serials that it lacks. Regions that are gone are
  // forgotten. Writes the file if what it should say has changed.
  void Complete(CxlSnapshot& snapshot);

 private:
  void Save() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string file_;
  const std::string boot_id_;
  Mutex mutex_;
  KnownRegions regions_ ABSL_GUARDED_BY(mutex_);
  KnownRegions saved_ ABSL_GUARDED_BY(mutex_);
  bool complained_ ABSL_GUARDED_BY(mutex_) = false;
};

// --- The file in which an agent notes its host regions for the next agent of the same boot.
//
// It is a hint, not a record: everything else can be read from the kernel, except whose a region
// was that lost its targets. Only regions on a pool's serials are in it. A file that is missing,
// from another boot, from another user, too long or not understood counts as empty.
//
//   cxlpool known regions 1 BOOT-ID
//   region0 0x1000000000 4711 0xc00000000000001
//
// A line a region: name, address, inode, serials by position.

inline constexpr size_t kMaxKnownRegions = 256;

// Those of `regions` that the file may name, at most kMaxKnownRegions: they have an address and an
// inode, and all their serials are known and a pool's.
KnownRegions WorthKeeping(const KnownRegions& regions);

// Never fails: at worst nothing is known.
KnownRegions ReadKnownRegions(const std::string& path, const std::string& boot_id);

// Replaces the file in one step; mode 0600. It is not synced: it does not outlive the boot.
// UNAVAILABLE: it could not be written, and what was there stays.
absl::Status WriteKnownRegions(const std::string& path, const std::string& boot_id,
                               const KnownRegions& regions);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_KNOWN_TARGETS_H_
