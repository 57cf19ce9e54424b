// Placing memory on the NUMA node that a system-ram Region became, and seeing where pages are.
//
// The node of a Region is Region::numa_node(). Linux: mbind(2) and move_pages(2), called without
// libnuma. Pure system calls, any thread.
#ifndef CXLPOOL_NUMA_H_
#define CXLPOOL_NUMA_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cxlpool {

// Pages of [address, address + size) come from `node` alone (MPOL_BIND) from now on; those that
// are elsewhere already are moved. `address` is a multiple of the page size, `size` more than 0.
// When the node is full, a touch of a new page ends in the kernel's OOM killer, as for any
// MPOL_BIND.
// INVALID_ARGUMENT/BAD_ARGUMENT: address, size, or a node that is not there or has no memory.
// RESOURCE_EXHAUSTED/NUMA_FAILED: pages did not move (EIO). UNIMPLEMENTED/NUMA_FAILED: a kernel
// without NUMA.
absl::Status BindToNode(void* address, size_t size, int node);

// The key in CountPagesByNode for pages that were never touched.
inline constexpr int kNotPresent = -1;

// How many pages of [address, address + size) are on which node. `address` as above.
absl::StatusOr<std::map<int, uint64_t>> CountPagesByNode(const void* address, size_t size);

}  // namespace cxlpool

#endif  // CXLPOOL_NUMA_H_
