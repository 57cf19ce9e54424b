// The Regions that a heap has, and which of their bytes are free: takes another Region where none
// has room, up to a limit, and gives back those that are not needed.
//
// All Regions are owned by this process, so that they go with it. Each is a range of addresses of
// its own; between two of them lie addresses that nothing is mapped at, so that no extent of the
// heap lies in two.
//
// A Region that was asked for, and of which it is not known whether it was allocated (the agent or
// the manager did not answer in time), is asked for again by the same request before any other, so
// that it is not forgotten.
//
// Thread-safe. One thread at a time asks for a Region; others take and give meanwhile. A call that
// needs one waits for those that ask before it, of which each takes the options' `wait_ms` and the
// client's timeout at most, or twice that where it asks again first.
#ifndef CXLPOOL_LIBPOOL_HEAP_HEAP_REGIONS_H_
#define CXLPOOL_LIBPOOL_HEAP_HEAP_REGIONS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cxlpool/cxlpool.h"
#include "libpool/heap/aligned_ranges.h"
#include "libpool/src/status.h"
#include "proto/support/mutex.h"

namespace cxlpool::libpool {

// As cxlpool_heap_options, which says what each is.
struct HeapOptions {
  std::string name_prefix = {};
  uint64_t size_bytes = 0;
  uint64_t max_bytes = 0;
  uint64_t grow_bytes = 0;
  bool populate = false;
  uint32_t wait_ms = 0;
};

class HeapRegions {
 public:
  static constexpr size_t kMaxRegions = 256;

  // With the first Region. `client` outlives it. Errors as cxlpool_heap_create.
  static StatusOr<std::unique_ptr<HeapRegions>> Make(cxlpool_client* client, HeapOptions options);
  HeapRegions(const HeapRegions&) = delete;
  HeapRegions& operator=(const HeapRegions&) = delete;
  ~HeapRegions() = default;

  // Free bytes of one Region, the oldest first. Null: there are none, and none are to be had;
  // Check says why.
  void* Take(size_t size, size_t alignment) noexcept;
  // False: this process has no memory left to note it; the bytes stay taken.
  bool Give(void* address, size_t size) noexcept;

  // Whether this thread's last Take, of whichever heap, got nothing only because of the heap's
  // limit: what is given back may then be room enough. Check is about all threads, and another
  // one's Region makes it OK at any moment.
  static bool MetTheLimit();

  // Unmaps and releases the youngest Regions that are all free, as long as the others have
  // `size_bytes` of the options. What could not be released is tried again by the next call. Errors
  // as cxlpool_release.
  Status GiveBack();

  // Unmaps all of it, and releases it as far as the agent answers: what is left goes with this
  // process. Nothing uses it any more.
  void End();
  // The same in a forked child, which only forgets.
  void Forget();

  // OK, or why the last Region that was needed could not be had.
  Status Check() const;

  struct Usage {
    uint64_t mapped_bytes = 0;
    uint64_t free_bytes = 0;
    size_t regions = 0;
  };
  Usage Used() const;

 private:
  struct Close {
    void operator()(cxlpool_map* map) const { cxlpool_unmap(map); }
    void operator()(cxlpool_region* region) const { cxlpool_close(region); }
  };
  // One of the heap's Regions. Unmapped before it is closed.
  struct Part {
    std::unique_ptr<cxlpool_region, Close> region;
    std::unique_ptr<cxlpool_map, Close> map;
    std::string tag;
    AlignedRanges free;
  };

  HeapRegions(cxlpool_client* client, HeapOptions options, std::string name_stem)
      : client_(client), options_(std::move(options)), name_stem_(std::move(name_stem)) {}

  // What was asked for, and may have been allocated.
  struct Asked {
    std::string request_id;
    std::string name;  // "": the manager names it.
    uint64_t size_bytes = 0;
  };
  // A Region of the agent's: closed and released again, unless it is taken over.
  struct Allocated;

  void* TakeFree(size_t size, size_t alignment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void* GrowAndTake(size_t size, size_t alignment);
  // Adds Regions until there are `size` bytes at `alignment`, and takes them.
  StatusOr<void*> AddAndTake(size_t size, size_t alignment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(growing_);
  // How large that one has to be, or why none is asked for.
  StatusOr<uint64_t> SizeOfNext(size_t size, size_t alignment) const ABSL_LOCKS_EXCLUDED(mutex_);
  StatusOr<std::unique_ptr<Part>> Allocate(uint64_t size_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(growing_);
  // The Region of asked_, within `wait_ms`.
  StatusOr<std::unique_ptr<Part>> AskFor(uint32_t wait_ms) ABSL_EXCLUSIVE_LOCKS_REQUIRED(growing_);
  // After each change: what of it the heap has taken, for those who ask who uses a Region.
  static void ReportUsage(const Part& part);
  uint64_t MappedBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  cxlpool_client* const client_;
  const HeapOptions options_;
  const std::string name_stem_;  // "": the manager names the Regions.

  Mutex growing_ ABSL_ACQUIRED_BEFORE(mutex_);  // Held while a Region is asked for.
  uint64_t named_ ABSL_GUARDED_BY(growing_) = 0;
  std::optional<Asked> asked_ ABSL_GUARDED_BY(growing_);

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Part>> parts_ ABSL_GUARDED_BY(mutex_);  // By age.
  std::vector<std::string> unreleased_ ABSL_GUARDED_BY(mutex_);       // Tags.
  uint64_t refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // The last refusal: of so many and more.
  bool refused_for_the_limit_ ABSL_GUARDED_BY(mutex_) = false;
  Status last_refusal_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_HEAP_HEAP_REGIONS_H_
