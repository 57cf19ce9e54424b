// Which kernel a put or a get of so many bytes takes on this machine.
//
// Below 1 KiB it is always memcpy. For more, the kernels of this processor are measured against one
// another, for about 20 ms, once in a process: memcpy is left only for one that was clearly faster.
// They are measured on memory of the process's own, because stores to a Region would change its
// bytes, and because one plan serves all maps. So what a device behind a switch makes of them is
// not measured: it may be that another kernel is the fastest there.
//
// Immutable; any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_COPY_PLAN_H_
#define CXLPOOL_LIBPOOL_SRC_COPY_PLAN_H_

#include <array>
#include <chrono>
#include <cstddef>

#include "libpool/src/copy_kernels.h"

namespace cxlpool::libpool {

// What a copy is for.
enum class CopyUse {
  kPut = 0,         // Into a Region, where the caches of hosts are coherent.
  kPublishPut = 1,  // Into a Region, where they are not: it ends with the bytes in memory.
  kGet = 2,         // Out of a Region. The target is read next, so it stays in the caches.
};

class CopyPlan {
 public:
  static constexpr size_t kLeastBytes = 1024;

  // memcpy for everything.
  CopyPlan();

  // Measures for about so long. Where there is no memory to measure in, it is memcpy.
  static CopyPlan Measure(std::chrono::milliseconds budget) noexcept;

  // By this process's plan. The first call with `bytes` of kLeastBytes or more measures; until that
  // is done, others get memcpy.
  static const CopyKernel& Choose(CopyUse use, size_t bytes) noexcept;

  const CopyKernel& Of(CopyUse use, size_t bytes) const;

 private:
  static constexpr size_t kUses = 3;
  static constexpr size_t kClasses = 4;
  static size_t ClassOf(size_t bytes);

  std::array<std::array<const CopyKernel*, kClasses>, kUses> chosen_;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_COPY_PLAN_H_
