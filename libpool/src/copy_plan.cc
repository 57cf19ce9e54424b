#include "libpool/src/copy_plan.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <span>

#include "libpool/src/visibility.h"

namespace cxlpool::libpool {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds kBudget{20};
constexpr size_t kScratchBytes = size_t{1} << 20;
constexpr size_t kMeasuredBytes = size_t{64} << 10;  // At least, in one measurement.
constexpr size_t kStride = 5;                        // Odd, as the number of pieces is even or 1.
// What is measured for a class of sizes, and up to where the class goes.
constexpr std::array<size_t, 4> kSizes = {2 << 10, 16 << 10, 128 << 10, 1 << 20};
constexpr std::array<size_t, 3> kEnds = {8 << 10, 64 << 10, 512 << 10};
// By how much another kernel has to be faster than memcpy to take its place.
constexpr double kClearly = 0.95;

// Source and target, every page of which is there.
class Scratch {
 public:
  Scratch() {
    void* const at = ::mmap(nullptr, 2 * kScratchBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at != MAP_FAILED) at_ = static_cast<std::byte*>(at);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (at_ != nullptr) ::munmap(at_, 2 * kScratchBytes);
  }
  std::byte* pool() const { return at_; }
  std::byte* own() const { return at_ == nullptr ? nullptr : at_ + kScratchBytes; }

 private:
  std::byte* at_ = nullptr;
};

// How long copies of `size` bytes take, of a total of kMeasuredBytes at least. What stands for the
// Region is in no cache before, as bytes of a pool are as a rule.
double TimeOf(const CopyKernel& kernel, CopyUse use, size_t size, const Scratch& scratch) {
  const size_t total = std::max(size, kMeasuredBytes);
  InvalidateLines(scratch.pool(), total);
  const bool is_get = use == CopyUse::kGet;
  std::byte* const to = is_get ? scratch.own() : scratch.pool();
  const std::byte* const from = is_get ? scratch.pool() : scratch.own();
  const WriteBack write_back = use == CopyUse::kPublishPut ? WriteBackLines : nullptr;
  const Clock::time_point began = Clock::now();
  // Not in the order of their addresses, which a processor would foresee.
  const size_t pieces = total / size;
  for (size_t i = 0; i < pieces; ++i) {
    const size_t at = i * kStride % pieces * size;
    CopyAndPublish(kernel, to + at, from + at, size, write_back);
  }
  return Seconds(Clock::now() - began).count();
}

}  // namespace

CopyPlan::CopyPlan() {
  for (auto& of_use : chosen_) of_use.fill(&CopyKernels()[0]);
}

// Times every kernel on every size, round after round, for `budget`; at least one round. A kernel
// is chosen over the plain memcpy only where it is clearly faster.
CopyPlan CopyPlan::Measure(std::chrono::milliseconds budget) noexcept {
  CopyPlan plan;
  const std::span<const CopyKernel> kernels = CopyKernels();
  const Scratch scratch;
  if (scratch.pool() == nullptr || kernels.size() == 1) return plan;
  // The best of all rounds counts: what else the machine does only ever makes a copy slower.
  std::array<std::array<std::array<double, kMaxKernels>, kClasses>, kUses> best;
  for (auto& of_use : best) {
    for (auto& of_class : of_use) of_class.fill(std::numeric_limits<double>::max());
  }
  const Clock::time_point until = Clock::now() + budget;
  do {
    for (size_t use = 0; use < kUses; ++use) {
      for (size_t size_class = 0; size_class < kClasses; ++size_class) {
        for (size_t i = 0; i < kernels.size(); ++i) {
          // The caller of a get reads the bytes next.
          if (kernels[i].past_caches && static_cast<CopyUse>(use) == CopyUse::kGet) continue;
          double& least = best[use][size_class][i];
          least = std::min(
              least, TimeOf(kernels[i], static_cast<CopyUse>(use), kSizes[size_class], scratch));
        }
      }
    }
  } while (Clock::now() < until);
  for (size_t use = 0; use < kUses; ++use) {
    for (size_t size_class = 0; size_class < kClasses; ++size_class) {
      const std::array<double, kMaxKernels>& times = best[use][size_class];
      const auto fastest = std::min_element(times.begin(), times.end());
      if (*fastest < kClearly * times[0]) {
        plan.chosen_[use][size_class] = &kernels[static_cast<size_t>(fastest - times.begin())];
      }
    }
  }
  return plan;
}

const CopyKernel& CopyPlan::Choose(CopyUse use, size_t bytes) noexcept {
  if (bytes < kLeastBytes) return CopyKernels()[0];
  // The first caller measures. No other waits for that, so that a child that is forked meanwhile
  // does not wait for a thread that it does not have.
  static CopyPlan plan;
  static std::atomic<bool> begun = false;
  static std::atomic<bool> done = false;
  if (!done.load(std::memory_order_acquire)) {
    if (begun.exchange(true)) return CopyKernels()[0];
    plan = Measure(kBudget);
    done.store(true, std::memory_order_release);
  }
  return plan.Of(use, bytes);
}

const CopyKernel& CopyPlan::Of(CopyUse use, size_t bytes) const {
  if (bytes < kLeastBytes) return CopyKernels()[0];
  return *chosen_[static_cast<size_t>(use)][ClassOf(bytes)];
}

size_t CopyPlan::ClassOf(size_t bytes) {
  return static_cast<size_t>(std::upper_bound(kEnds.begin(), kEnds.end(), bytes) - kEnds.begin());
}

}  // namespace cxlpool::libpool
