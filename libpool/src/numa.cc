#include "cxlpool/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libpool/src/errors.h"

namespace cxlpool {
namespace {

using libpool::BadArgument;
using libpool::ErrnoError;

constexpr int kBitsPerWord = 8 * sizeof(unsigned long);
constexpr int kMaxNode = 1023;  // CONFIG_NODES_SHIFT is at most 10.
constexpr size_t kPagesPerCall = 4096;

size_t PageBytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

absl::Status CheckRange(const void* address, size_t size) {
  if (size == 0) return BadArgument("size is 0", "give the range's size in bytes");
  if (reinterpret_cast<uintptr_t>(address) % PageBytes() != 0) {
    return BadArgument("the address is not at the start of a page",
                       "bind memory that mmap or aligned_alloc gave");
  }
  return absl::OkStatus();
}

absl::Status NumaError(absl::string_view what, int error) {
  absl::StatusCode code = absl::StatusCode::kInternal;
  std::string remedy = "see that the whole range is mapped";
  if (error == EIO || error == ENOMEM) {
    code = absl::StatusCode::kResourceExhausted;
    remedy = "free memory on the node, or allocate a larger Region";
  } else if (error == ENOSYS) {
    code = absl::StatusCode::kUnimplemented;
    remedy = "use a kernel with CONFIG_NUMA";
  } else if (error == EPERM) {
    code = absl::StatusCode::kPermissionDenied;
    remedy = "let the container or the seccomp filter pass mbind and move_pages";
  }
  return ErrnoError(code, "NUMA_FAILED", std::string(what), remedy, error);
}

}  // namespace

absl::Status BindToNode(void* address, size_t size, int node) {
  if (absl::Status status = CheckRange(address, size); !status.ok()) return status;
  const std::string what = absl::StrCat("cannot bind ", size, " bytes to NUMA node ", node);
  const std::string remedy = "take the node from Region::numa_node of a system-ram Region";
  if (node < 0 || node > kMaxNode) {
    return BadArgument(absl::StrCat(what, ": there is no such node"), remedy);
  }
  unsigned long mask[(kMaxNode + 1) / kBitsPerWord] = {};
  mask[node / kBitsPerWord] = 1ul << (node % kBitsPerWord);
  // The kernel reads one bit less than it is given.
  if (::syscall(SYS_mbind, address, size, MPOL_BIND, mask, kMaxNode + 2,
                MPOL_MF_STRICT | MPOL_MF_MOVE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EINVAL) {
    return ErrnoError(absl::StatusCode::kInvalidArgument, "BAD_ARGUMENT",
                      absl::StrCat(what, ": it is not there or has no memory"), remedy, errno);
  }
  return NumaError(what, errno);
}

absl::StatusOr<std::map<int, uint64_t>> CountPagesByNode(const void* address, size_t size) {
  if (absl::Status status = CheckRange(address, size); !status.ok()) return status;
  const size_t page_bytes = PageBytes();
  const auto* begin = static_cast<const std::byte*>(address);
  const size_t pages = (size - 1) / page_bytes + 1;
  std::map<int, uint64_t> counts;
  std::vector<const void*> addresses;
  std::vector<int> nodes;
  for (size_t first = 0; first < pages; first += kPagesPerCall) {
    const size_t count = std::min(kPagesPerCall, pages - first);
    addresses.clear();
    for (size_t i = 0; i < count; ++i) addresses.push_back(begin + (first + i) * page_bytes);
    nodes.assign(count, 0);
    // Without target nodes it moves nothing and says where each page is.
    if (::syscall(SYS_move_pages, 0, count, addresses.data(), nullptr, nodes.data(), 0) != 0) {
      return NumaError("cannot find out where pages are", errno);
    }
    for (int node : nodes) {
      // The zero page reads as EFAULT.
      ++counts[node >= 0 ? node : kNotPresent];
    }
  }
  return counts;
}

}  // namespace cxlpool
