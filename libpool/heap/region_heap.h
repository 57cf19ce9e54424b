// A heap whose blocks lie in Regions: jemalloc's arenas over HeapRegions.
//
// What jemalloc notes of blocks and extents lies in DRAM, and it writes nothing into a block, freed
// or not: memory that is slow or loses bytes costs only the blocks in it. Arenas serve four threads
// each. Each thread keeps a cache of blocks for a heap, which ends with the thread.
//
// Any thread may allocate, free what another one allocated, and ask; but Destroy. A forked child
// may do nothing: a page that the kernel wipes at fork shows it that, at no cost.
#ifndef CXLPOOL_LIBPOOL_HEAP_REGION_HEAP_H_
#define CXLPOOL_LIBPOOL_HEAP_REGION_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "libpool/heap/heap_regions.h"
#include "libpool/heap/jemalloc.h"
#include "libpool/src/status.h"
#include "proto/support/mutant.h"
#include "proto/support/mutex.h"

namespace cxlpool::libpool {

class RegionHeap : public std::enable_shared_from_this<RegionHeap> {
 public:
  // Errors as cxlpool_heap_create.
  static StatusOr<std::shared_ptr<RegionHeap>> Make(cxlpool_client* client, HeapOptions options);
  RegionHeap(const RegionHeap&) = delete;
  RegionHeap& operator=(const RegionHeap&) = delete;
  ~RegionHeap();

  // Null: there is no room, or the alignment is no power of two. Never memory of another kind.
  void* Allocate(size_t bytes, size_t alignment) noexcept {
    // As most are: aligned as malloc does, which jemalloc does by itself except for the smallest.
    if (IsCurrent() && bytes > 8 && (alignment == alignof(std::max_align_t) || alignment == 0)) {
      void* const block = cxlpool_je_mallocx(bytes, current.flags);
      return block != nullptr ? block : AllocateFromMoreRoom(bytes, current.flags);
    }
    return AllocateSlowly(bytes, alignment);
  }
  // Null: as above, and the block stays as it was.
  void* Reallocate(void* block, size_t bytes, size_t alignment) noexcept;
  void Free(void* block) noexcept {
    if (block == nullptr) return;
    if (CXLPOOL_MUTANT("heap-writes-freed-blocks")) *static_cast<char*>(block) = 0;
    if (IsCurrent()) return cxlpool_je_dallocx(block, current.flags);
    const int flags = FlagsOfNewThread();
    if (flags != kForked) cxlpool_je_dallocx(block, flags);
  }

  // Errors as the functions of these names in heap.h.
  Status Check() const;
  Status Trim();
  Status Profile(const char* path) const;
  struct Usage {
    HeapRegions::Usage regions;
    uint64_t live_bytes = 0;
    size_t threads = 0;
    size_t arenas = 0;
  };
  StatusOr<Usage> Describe() const;

  // Ends the heap, unless blocks live and it is not forced: then it is as before. No thread uses it
  // meanwhile, but threads may end.
  Status Destroy(bool force);

 private:
  friend class ThreadCaches;

  static constexpr uint64_t kNoHeap = UINT64_MAX;
  static constexpr int kForked = -1;

  // The heap that a thread used last, so that the usual call looks no further.
  struct Current {
    uint64_t heap = kNoHeap;
    int flags = 0;                       // For jemalloc: arena and cache.
    std::optional<unsigned> cache = {};  // Where the thread has one.
  };
  static constinit thread_local Current current;

  // What jemalloc gets, and finds us by.
  struct Hooks {
    extent_hooks_t table = {};  // The first: a pointer to it is one to the whole.
    HeapRegions* regions = nullptr;
  };
  struct Arena {
    unsigned index = 0;
    unsigned threads = 0;  // Which have a cache for it.
  };
  struct Cache {
    unsigned index = 0;  // jemalloc's number of it.
    size_t arena = 0;    // Of arenas_.
  };

  RegionHeap(std::unique_ptr<HeapRegions> regions, uint64_t* identity);

  static void* AllocateExtent(extent_hooks_t* hooks, void* wanted, size_t size, size_t alignment,
                              bool* zero, bool* commit, unsigned arena);
  static bool FreeExtent(extent_hooks_t* hooks, void* address, size_t size, bool committed,
                         unsigned arena);

  bool forked() const { return *identity_ == 0; }
  Status CheckProcess() const;
  // jemalloc's flags for this thread: its arena and its cache. -1 in a forked child.
  int Flags() noexcept { return IsCurrent() ? current.flags : FlagsOfNewThread(); }
  // Whether this thread used this heap last. Never in a forked child.
  bool IsCurrent() const noexcept { return current.heap == *identity_; }
  int FlagsOfNewThread() noexcept;
  void* AllocateSlowly(size_t bytes, size_t alignment) noexcept;

  // Where jemalloc found no room.
  void* AllocateFromMoreRoom(size_t bytes, int flags) noexcept;
  bool FindMoreRoom();
  // Gives back to the Regions what is free in this thread's cache and with the arenas.
  void GatherFreeExtents();

  // Flags with a cache for the calling thread, whose number is then in `cache`; or without, where
  // there are too many.
  int AddCache(std::optional<unsigned>& cache);
  int FlagsWithoutCache();
  // When a thread ends: its cached blocks are free for all.
  void DropCache(unsigned cache);
  size_t ChooseArena() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status AddArena() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t LiveBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<HeapRegions> regions_;
  // Which heap this is, of all that this process ever had; 0 in a forked child. In a page of its
  // own.
  uint64_t* const identity_;
  Hooks hooks_;

  mutable Mutex mutex_;
  std::vector<Arena> arenas_ ABSL_GUARDED_BY(mutex_);
  std::vector<Cache> caches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_HEAP_REGION_HEAP_H_
