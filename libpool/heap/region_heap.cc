#include "libpool/heap/region_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr unsigned kThreadsOfAnArena = 4;
constexpr size_t kMaxArenas = 64;

constinit thread_local bool thread_ends = false;  // Its caches are gone already.

// A control of jemalloc's, with the number of an arena in its name.
template <typename T>
int ReadControl(const char* format, unsigned arena, T* value) {
  char name[64];
  std::snprintf(name, sizeof name, format, arena);
  size_t size = sizeof *value;
  return cxlpool_je_mallctl(name, value, &size, nullptr, 0);
}
int CallControl(const char* format, unsigned arena) {
  char name[64];
  std::snprintf(name, sizeof name, format, arena);
  return cxlpool_je_mallctl(name, nullptr, nullptr, nullptr, 0);
}
// One that is given the number of a cache.
int CallOfCache(const char* name, unsigned cache) {
  return cxlpool_je_mallctl(name, nullptr, nullptr, &cache, sizeof cache);
}

bool IsOn(const char* name) {
  bool on = false;
  size_t size = sizeof on;
  return cxlpool_je_mallctl(name, &on, &size, nullptr, 0) == 0 && on;
}

// A page that the kernel wipes in a forked child (Linux 4.14), with a number that no other heap of
// this process ever has.
StatusOr<uint64_t*> NewIdentity() {
  static std::atomic<uint64_t> last = 0;
  void* const page =
      ::mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || ::madvise(page, sizeof(uint64_t), MADV_WIPEONFORK) != 0) {
    Status status =
        ErrnoError(Code::kInternal, "HEAP_FAILED", "cannot set up the heap's first page",
                   "see that there is address space (ulimit -v), and Linux 4.14 or later", errno);
    if (page != MAP_FAILED) ::munmap(page, sizeof(uint64_t));
    return status;
  }
  auto* const identity = static_cast<uint64_t*>(page);
  *identity = ++last;
  return identity;
}

int AlignmentFlag(size_t bytes, size_t alignment) {
  // jemalloc aligns blocks of 16 bytes and more to 16, those of 8 to 8.
  if (alignment <= 8 || (alignment == 16 && bytes > 8)) return 0;
  return MALLOCX_LG_ALIGN(std::countr_zero(alignment));
}

}  // namespace

constinit thread_local RegionHeap::Current RegionHeap::current = {};

// The caches that one thread has, each of another heap. They end with the thread, or with the heap.
class ThreadCaches {
 public:
  static ThreadCaches& OfThisThread() {
    static thread_local ThreadCaches caches;
    return caches;
  }
  ~ThreadCaches() {
    thread_ends = true;
    RegionHeap::current = {};
    for (const Entry& entry : entries_) {
      const std::shared_ptr<RegionHeap> heap = entry.owner.lock();
      if (heap != nullptr && entry.here.cache.has_value()) heap->DropCache(*entry.here.cache);
    }
  }

  RegionHeap::Current Of(RegionHeap& heap) {
    const uint64_t identity = *heap.identity_;
    for (const Entry& entry : entries_) {
      if (entry.here.heap == identity) return entry.here;
    }
    std::erase_if(entries_, [](const Entry& entry) { return entry.owner.expired(); });
    // Room first: a cache that is made is noted.
    RegionHeap::Current& here = entries_.emplace_back(Entry{.owner = heap.weak_from_this()}).here;
    here.flags = heap.AddCache(here.cache);
    here.heap = identity;
    return here;
  }

 private:
  struct Entry {
    RegionHeap::Current here = {};
    std::weak_ptr<RegionHeap> owner = {};
  };
  std::vector<Entry> entries_;
};

StatusOr<std::shared_ptr<RegionHeap>> RegionHeap::Make(cxlpool_client* client,
                                                       HeapOptions options) {
  auto regions = HeapRegions::Make(client, std::move(options));
  if (!regions.ok()) return regions.status();
  const StatusOr<uint64_t*> identity = NewIdentity();
  Status status = identity.status();
  if (status.ok()) {
    std::shared_ptr<RegionHeap> heap(new RegionHeap(*std::move(regions), *identity));
    {
      const MutexLock lock(heap->mutex_);
      status = heap->AddArena();
    }
    if (status.ok()) return heap;
    heap->regions_->End();
    return status;
  }
  (*regions)->End();
  return status;
}

RegionHeap::RegionHeap(std::unique_ptr<HeapRegions> regions, uint64_t* identity)
    : regions_(std::move(regions)), identity_(identity) {
  hooks_.table.alloc = &AllocateExtent;
  hooks_.table.dalloc = &FreeExtent;
  // Extents of one Region are parted and joined as jemalloc likes; those of two never touch.
  hooks_.table.split = [](extent_hooks_t*, void*, size_t, size_t, size_t, bool, unsigned) {
    return false;
  };
  hooks_.table.merge = [](extent_hooks_t*, void*, size_t, void*, size_t, bool, unsigned) {
    return false;
  };
  hooks_.regions = regions_.get();
}

RegionHeap::~RegionHeap() { ::munmap(identity_, sizeof(uint64_t)); }

void* RegionHeap::AllocateExtent(extent_hooks_t* hooks, void* wanted, size_t size, size_t alignment,
                                 bool* zero, bool* commit, unsigned) {
  // It would like the bytes behind an extent that grows, and does without.
  if (wanted != nullptr) return nullptr;
  void* const taken = reinterpret_cast<Hooks*>(hooks)->regions->Take(size, alignment);
  if (taken == nullptr) return nullptr;
  if (*zero) std::memset(taken, 0, size);
  *commit = true;
  return taken;
}

// True where it was not freed: then jemalloc keeps it, and uses it again.
bool RegionHeap::FreeExtent(extent_hooks_t* hooks, void* address, size_t size, bool, unsigned) {
  return !reinterpret_cast<Hooks*>(hooks)->regions->Give(address, size);
}

// For a thread that used another heap last, or none.
int RegionHeap::FlagsOfNewThread() noexcept {
  if (forked() && !CXLPOOL_MUTANT("heap-used-after-fork")) return kForked;
  try {
    if (!thread_ends) {
      current = ThreadCaches::OfThisThread().Of(*this);
      return current.flags;
    }
  } catch (const std::exception&) {
    // No memory for the cache: it goes without.
  }
  return FlagsWithoutCache();
}

int RegionHeap::FlagsWithoutCache() {
  const MutexLock lock(mutex_);
  return MALLOCX_ARENA(arenas_.front().index) | MALLOCX_TCACHE_NONE;
}

int RegionHeap::AddCache(std::optional<unsigned>& cache) {
  const MutexLock lock(mutex_);
  caches_.reserve(caches_.size() + 1);
  const size_t arena = ChooseArena();
  unsigned index = 0;
  size_t size = sizeof index;
  if (cxlpool_je_mallctl("tcache.create", &index, &size, nullptr, 0) != 0) {
    return MALLOCX_ARENA(arenas_[arena].index) | MALLOCX_TCACHE_NONE;
  }
  ++arenas_[arena].threads;
  caches_.push_back({.index = index, .arena = arena});
  cache = index;
  return MALLOCX_ARENA(arenas_[arena].index) | MALLOCX_TCACHE(index);
}

void RegionHeap::DropCache(unsigned cache) {
  if (forked()) return;
  const MutexLock lock(mutex_);
  const auto found = std::find_if(caches_.begin(), caches_.end(),
                                  [cache](const Cache& other) { return other.index == cache; });
  if (found == caches_.end()) return;  // The heap was destroyed meanwhile.
  if (!CXLPOOL_MUTANT("heap-cache-left")) CallOfCache("tcache.destroy", cache);
  --arenas_[found->arena].threads;
  caches_.erase(found);
}

// One with room for a thread, or a new one, or else the one that has the fewest.
size_t RegionHeap::ChooseArena() {
  const auto least =
      std::min_element(arenas_.begin(), arenas_.end(),
                       [](const Arena& a, const Arena& b) { return a.threads < b.threads; });
  const auto chosen = static_cast<size_t>(least - arenas_.begin());
  if (least->threads < kThreadsOfAnArena || arenas_.size() == kMaxArenas) return chosen;
  return AddArena().ok() ? arenas_.size() - 1 : chosen;
}

Status RegionHeap::AddArena() {
  arenas_.reserve(arenas_.size() + 1);
  JemallocArenaConfig config = {
      .extent_hooks = &hooks_.table,
      .metadata_use_hooks = CXLPOOL_MUTANT("heap-notes-in-region") ? true : false};
  unsigned index = 0;
  size_t size = sizeof index;
  const int error =
      cxlpool_je_mallctl("experimental.arenas_create_ext", &index, &size, &config, sizeof config);
  if (error != 0) {
    return ErrnoError(Code::kInternal, "HEAP_FAILED", "cannot make an arena for the heap",
                      "destroy heaps that are not needed, and see that this process has memory",
                      error);
  }
  arenas_.push_back({.index = index});
  return Status();
}

// For a block that is not as most are, or a thread that used another heap last.
void* RegionHeap::AllocateSlowly(size_t bytes, size_t alignment) noexcept {
  if (alignment == 0) alignment = alignof(std::max_align_t);
  if (!std::has_single_bit(alignment)) return nullptr;
  int flags = Flags();
  if (flags == kForked) return nullptr;
  if (bytes == 0) bytes = 1;
  flags |= AlignmentFlag(bytes, alignment);
  void* const block = cxlpool_je_mallocx(bytes, flags);
  return block != nullptr ? block : AllocateFromMoreRoom(bytes, flags);
}

// The agent was asked already, and is asked no more: only what is here may be found.
void* RegionHeap::AllocateFromMoreRoom(size_t bytes, int flags) noexcept {
  if (CXLPOOL_MUTANT("heap-falls-back-to-dram")) return std::malloc(bytes);
  if (!FindMoreRoom() && !CXLPOOL_MUTANT("heap-asks-twice")) return nullptr;
  return cxlpool_je_mallocx(bytes, flags);
}

void* RegionHeap::Reallocate(void* block, size_t bytes, size_t alignment) noexcept {
  if (block == nullptr) return Allocate(bytes, alignment);
  if (alignment == 0) alignment = alignof(std::max_align_t);
  if (!std::has_single_bit(alignment)) return nullptr;
  int flags = Flags();
  if (flags == kForked) return nullptr;
  if (bytes == 0) bytes = 1;
  flags |= AlignmentFlag(bytes, alignment);
  void* const moved = cxlpool_je_rallocx(block, bytes, flags);
  if (moved != nullptr || !FindMoreRoom()) return moved;
  return cxlpool_je_rallocx(block, bytes, flags);
}

// At the limit, what was freed lies in pieces: in this thread's cache, and with each arena. Given
// back, they become one. Whether it is worth another try.
bool RegionHeap::FindMoreRoom() {
  if (!HeapRegions::MetTheLimit()) return false;
  GatherFreeExtents();
  return true;
}

// The caches of other threads are theirs to use at this moment, and stay as they are.
void RegionHeap::GatherFreeExtents() {
  Flags();  // So that `current` is of this heap, unless the thread ends and has none.
  if (current.heap == *identity_ && current.cache.has_value()) {
    CallOfCache("tcache.flush", *current.cache);
  }
  const MutexLock lock(mutex_);
  for (const Arena& arena : arenas_) CallControl("arena.%u.purge", arena.index);
}

Status RegionHeap::CheckProcess() const {
  if (!forked()) return Status();
  return Refuse(Code::kFailedPrecondition, "FORKED",
                "this heap is another process's: this process was forked from it",
                "create a heap of the child's own");
}

Status RegionHeap::Check() const {
  if (Status status = CheckProcess(); !status.ok()) return status;
  return regions_->Check();
}

Status RegionHeap::Trim() {
  if (Status status = CheckProcess(); !status.ok()) return status;
  GatherFreeExtents();
  return regions_->GiveBack();
}

Status RegionHeap::Profile(const char* path) const {
  if (Status status = CheckProcess(); !status.ok()) return status;
  if (!IsOn("config.prof")) {
    return Refuse(Code::kUnimplemented, "NO_PROFILE", "this jemalloc was built without profiles",
                  "build libcxlpool-heap with a jemalloc that has them, as Debian's does");
  }
  if (!IsOn("opt.prof")) {
    return Refuse(Code::kFailedPrecondition, "NO_PROFILE",
                  "no profile was kept: that is decided when the program starts",
                  "start it with CXLPOOL_HEAP_CONF=prof:true in its environment");
  }
  const int error = cxlpool_je_mallctl("prof.dump", nullptr, nullptr, &path, sizeof path);
  if (error == 0) return Status();
  return Refuse(Code::kInternal, "PROFILE_FAILED",
                Concat("the profile could not be written to ", path),
                "see that the folder is there and can be written to");
}

uint64_t RegionHeap::LiveBytes() const {
  uint64_t epoch = 1;
  size_t size = sizeof epoch;
  cxlpool_je_mallctl("epoch", &epoch, &size, &epoch, sizeof epoch);
  uint64_t live = 0;
  for (const Arena& arena : arenas_) {
    size_t small = 0;
    size_t large = 0;
    ReadControl("stats.arenas.%u.small.allocated", arena.index, &small);
    ReadControl("stats.arenas.%u.large.allocated", arena.index, &large);
    live += small + large;
  }
  return live;
}

StatusOr<RegionHeap::Usage> RegionHeap::Describe() const {
  if (Status status = CheckProcess(); !status.ok()) return status;
  Usage usage = {.regions = regions_->Used()};
  const MutexLock lock(mutex_);
  usage.live_bytes = LiveBytes();
  usage.threads = caches_.size();
  usage.arenas = arenas_.size();
  return usage;
}

// First the caches, in which blocks that are free count as live. Then the arenas, which give back
// all that is theirs. After that nothing knows the Regions any more.
Status RegionHeap::Destroy(bool force) {
  if (forked()) {
    regions_->Forget();
    return Status();
  }
  const MutexLock lock(mutex_);
  for (const Cache& cache : caches_) CallOfCache("tcache.flush", cache.index);
  const uint64_t live = LiveBytes();
  if (live > 0 && !force && !CXLPOOL_MUTANT("heap-in-use-ignored")) {
    return Refuse(Code::kFailedPrecondition, "HEAP_IN_USE",
                  Concat("blocks of ", live, " bytes were not freed"),
                  "free them first, or destroy it with force: then pointers into it are dead");
  }
  for (const Cache& cache : caches_) CallOfCache("tcache.destroy", cache.index);
  caches_.clear();
  for (const Arena& arena : arenas_) CallControl("arena.%u.destroy", arena.index);
  arenas_.clear();
  regions_->End();
  return Status();
}

}  // namespace cxlpool::libpool
