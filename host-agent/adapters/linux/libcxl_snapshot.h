// Reads a CxlSnapshot and the DAX devices through libcxl and libdaxctl. Changes nothing.
//
// What disappears while it is read is left out. Any thread; each call opens a context of its own.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LIBCXL_SNAPSHOT_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LIBCXL_SNAPSHOT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/cxl_snapshot.h"

namespace cxlpool::agent {

// INTERNAL/LIBCXL.
absl::StatusOr<CxlSnapshot> ReadCxlSnapshot();

// The DAX devices on CXL regions; others (persistent memory, soft-reserved) are left out.
absl::StatusOr<std::vector<DaxDevice>> ReadDaxDevices();

// True if the memdev is there with its driver bound and its endpoint decoders enumerated.
bool MemdevReady(uint64_t serial);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LIBCXL_SNAPSHOT_H_
