#include "libpool/src/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "libpool/src/text.h"

namespace cxlpool::libpool {
namespace {

constexpr int kBitsPerWord = 8 * sizeof(unsigned long);
constexpr int kMaxNode = 1023;  // CONFIG_NODES_SHIFT is at most 10.
constexpr size_t kPagesPerCall = 1024;

Status CheckRange(const void* address, size_t bytes) {
  if (bytes == 0) return BadArgument("size is 0", "give the range's size in bytes");
  if (reinterpret_cast<uintptr_t>(address) % PageBytes() != 0) {
    return BadArgument("the address is not at the start of a page",
                       "bind memory that mmap or aligned_alloc gave");
  }
  return Status();
}

Status NumaError(std::string what, int error) {
  Code code = Code::kInternal;
  std::string remedy = "see that the whole range is mapped";
  if (error == EIO || error == ENOMEM) {
    code = Code::kResourceExhausted;
    remedy = "free memory on the node, or allocate a larger Region";
  } else if (error == ENOSYS) {
    code = Code::kUnimplemented;
    remedy = "use a kernel with CONFIG_NUMA";
  } else if (error == EPERM) {
    code = Code::kPermissionDenied;
    remedy = "let the container or the seccomp filter pass mbind and move_pages";
  }
  return ErrnoError(code, "NUMA_FAILED", std::move(what), std::move(remedy), error);
}

}  // namespace

uint64_t PageBytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

Status BindToNode(void* address, size_t bytes, int node) {
  if (Status status = CheckRange(address, bytes); !status.ok()) return status;
  const std::string what = Concat("cannot bind ", bytes, " bytes to NUMA node ", node);
  const std::string remedy = "take the node from a system-ram Region that is open";
  if (node < 0 || node > kMaxNode) {
    return BadArgument(what + ": there is no such node", remedy);
  }
  std::array<unsigned long, (kMaxNode + 1) / kBitsPerWord> mask = {};
  mask[static_cast<size_t>(node / kBitsPerWord)] = 1ul << (node % kBitsPerWord);
  // The kernel reads one bit less than it is given.
  if (::syscall(SYS_mbind, address, bytes, MPOL_BIND, mask.data(), kMaxNode + 2,
                MPOL_MF_STRICT | MPOL_MF_MOVE) == 0) {
    return Status();
  }
  if (errno == EINVAL) {
    return ErrnoError(Code::kInvalidArgument, "BAD_ARGUMENT",
                      what + ": it is not there or has no memory", remedy, errno);
  }
  return NumaError(what, errno);
}

Status NodesOfPages(const void* address, size_t bytes, int* nodes) {
  if (Status status = CheckRange(address, bytes); !status.ok()) return status;
  const size_t page_bytes = PageBytes();
  const auto* const begin = static_cast<const std::byte*>(address);
  const size_t pages = (bytes - 1) / page_bytes + 1;
  std::array<const void*, kPagesPerCall> addresses;
  for (size_t first = 0; first < pages; first += kPagesPerCall) {
    const size_t count = std::min(kPagesPerCall, pages - first);
    for (size_t i = 0; i < count; ++i) addresses[i] = begin + (first + i) * page_bytes;
    // Without target nodes it moves nothing and says where each page is.
    if (::syscall(SYS_move_pages, 0, count, addresses.data(), nullptr, nodes + first, 0) != 0) {
      return NumaError("cannot find out where pages are", errno);
    }
  }
  // Whatever errno it is: there is no page. The zero page reads as EFAULT.
  std::replace_if(
      nodes, nodes + pages, [](int node) { return node < 0; }, -1);
  return Status();
}

}  // namespace cxlpool::libpool
