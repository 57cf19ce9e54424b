// The file in which an agent leaves word of its host regions for the next one of the same boot.
//
// A hint, not a record: the kernel tells everything but whose a region was that lost its targets.
// It names regions on a pool's serials alone. One that is missing, from another boot, from another
// user, too long or not understood is as good as empty.
//
//   cxlpool known regions 1 BOOT-ID
//   region0 0x1000000000 4711 0xc00000000000001
//
// A line a region: name, address, inode, serials by position.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_KNOWN_TARGETS_FILE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_KNOWN_TARGETS_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "host-agent/adapters/linux/cxl/known_targets.h"

namespace cxlpool::agent {

inline constexpr size_t kMaxKnownRegions = 256;

// Those that the file may name, so many at most: with address and inode, on a pool's serials alone,
// none unknown.
KnownRegions WorthKeeping(const KnownRegions& regions);

// Never fails: at worst nothing is known.
KnownRegions ReadKnownRegions(const std::string& path, const std::string& boot_id);

// Replaces the file in one step; mode 0600. It is not synced: it does not outlive the boot.
// UNAVAILABLE: it could not be written, and what was there stays.
absl::Status WriteKnownRegions(const std::string& path, const std::string& boot_id,
                               const KnownRegions& regions);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_KNOWN_TARGETS_FILE_H_
