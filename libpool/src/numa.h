// Placing memory on a NUMA node, and seeing where pages are: mbind(2) and move_pages(2) without
// libnuma. As described in cxlpool.h for the two calls of the same names. Any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_NUMA_H_
#define CXLPOOL_LIBPOOL_SRC_NUMA_H_

#include <cstddef>
#include <cstdint>

#include "libpool/src/status.h"

namespace cxlpool::libpool {

Status BindToNode(void* address, size_t bytes, int node);

Status NodesOfPages(const void* address, size_t bytes, int* nodes);

// In bytes, of the kernel's own pages.
uint64_t PageBytes();

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_NUMA_H_
