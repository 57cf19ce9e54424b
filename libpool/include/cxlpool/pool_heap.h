// A heap in the rack's CXL pool, for programs in C++20. Header-only, on heap.h: link
// libcxlpool-heap.
//
//   auto heap = cxlpool::Heap::Create(cxlpool::Pool::Connect().value(),
//                                     {.size_bytes = 1_GiB, .max_bytes = 64_GiB}).value();
//   std::pmr::vector<float> weights(heap.resource());
//   std::vector<int, cxlpool::Allocator<int>> ids(heap.allocator<int>());
//
// Containers take memory of the pool and of nothing else: at the limit they get std::bad_alloc.
// What calls do, which errors they give, and what threads and forked children may do stands in
// heap.h. Whatever has memory of a heap ends before the heap does.
#ifndef CXLPOOL_POOL_HEAP_H_
#define CXLPOOL_POOL_HEAP_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>

#include "cxlpool/heap.h"
#include "cxlpool/pool.h"

namespace cxlpool {
inline namespace CXLPOOL_EXCEPTIONS {

namespace internal {

// Throws std::bad_alloc where `block` is NULL; without exceptions says so and aborts.
inline void* OrBadAlloc(void* block) {
  if (block != nullptr) return block;
#if defined(__cpp_exceptions)
  throw std::bad_alloc();
#else
  std::fprintf(stderr, "cxlpool: a heap has no room left\n");
  std::abort();
#endif
}

class HeapResource final : public std::pmr::memory_resource {
 public:
  explicit HeapResource(cxlpool_heap* heap) : heap_(heap) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    return OrBadAlloc(cxlpool_heap_allocate(heap_, bytes, alignment));
  }
  void do_deallocate(void* block, size_t, size_t) override { cxlpool_heap_free(heap_, block); }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  cxlpool_heap* const heap_;
};

}  // namespace internal

// For containers of the standard library: memory of one heap.
template <typename T>
class Allocator {
 public:
  using value_type = T;

  explicit Allocator(cxlpool_heap* heap) : heap_(heap) {}
  template <typename U>
  Allocator(const Allocator<U>& other) : heap_(other.heap()) {}

  T* allocate(size_t count) {
    const bool too_many = count > SIZE_MAX / sizeof(T);
    void* const block =
        too_many ? nullptr : cxlpool_heap_allocate(heap_, count * sizeof(T), alignof(T));
    return static_cast<T*>(internal::OrBadAlloc(block));
  }
  void deallocate(T* block, size_t) { cxlpool_heap_free(heap_, block); }

  cxlpool_heap* heap() const { return heap_; }
  template <typename U>
  bool operator==(const Allocator<U>& other) const {
    return heap_ == other.heap();
  }

 private:
  cxlpool_heap* heap_;
};

// As cxlpool_heap_options.
struct HeapOptions {
  std::string name_prefix = {};
  uint64_t size_bytes = 0;
  uint64_t max_bytes = 0;
  uint64_t grow_bytes = 0;
  bool populate = false;
  std::chrono::milliseconds wait = std::chrono::minutes(2);
};

// As cxlpool_heap_info.
struct HeapInfo {
  uint64_t mapped_bytes = 0;
  uint64_t live_bytes = 0;
  uint64_t slack_bytes = 0;
  uint64_t free_bytes = 0;
  uint32_t regions = 0;
  uint32_t threads = 0;
  uint32_t arenas = 0;
};

// Ends with all its blocks when it is destroyed; End() looks first whether there are any.
class Heap {
 public:
  // The heap keeps the Pool to itself.
  static Result<Heap> Create(Pool pool, const HeapOptions& options) {
    cxlpool_heap_options c = CXLPOOL_HEAP_OPTIONS_INIT;
    c.name_prefix = options.name_prefix.c_str();
    c.size_bytes = options.size_bytes;
    c.max_bytes = options.max_bytes;
    c.grow_bytes = options.grow_bytes;
    c.populate = options.populate ? 1 : 0;
    c.wait_ms = internal::Milliseconds(options.wait);
    internal::ErrorOut error;
    cxlpool_heap* heap = nullptr;
    if (cxlpool_heap_create(pool.handle(), &c, &heap, error.out()) != 0) return error.Take();
    return Heap(std::make_unique<Owned>(std::move(pool), heap));
  }

  // nullptr: cxlpool_heap_allocate says when.
  void* Allocate(size_t bytes, size_t alignment = alignof(std::max_align_t)) const noexcept {
    return cxlpool_heap_allocate(handle(), bytes, alignment);
  }
  void* Reallocate(void* block, size_t bytes,
                   size_t alignment = alignof(std::max_align_t)) const noexcept {
    return cxlpool_heap_reallocate(handle(), block, bytes, alignment);
  }
  void Free(void* block) const noexcept { cxlpool_heap_free(handle(), block); }

  // For std::pmr containers. The heap's own.
  std::pmr::memory_resource* resource() const { return &owned_->resource; }
  template <typename T>
  Allocator<T> allocator() const {
    return Allocator<T>(handle());
  }

  // cxlpool_heap_check, _trim, _describe, _profile.
  Result<void> Check() const {
    internal::ErrorOut error;
    if (cxlpool_heap_check(handle(), error.out()) != 0) return error.Take();
    return {};
  }
  Result<void> Trim() const {
    internal::ErrorOut error;
    if (cxlpool_heap_trim(handle(), error.out()) != 0) return error.Take();
    return {};
  }
  Result<HeapInfo> Describe() const {
    internal::ErrorOut error;
    cxlpool_heap_info info = CXLPOOL_HEAP_INFO_INIT;
    if (cxlpool_heap_describe(handle(), &info, error.out()) != 0) return error.Take();
    return HeapInfo{.mapped_bytes = info.mapped_bytes,
                    .live_bytes = info.live_bytes,
                    .slack_bytes = info.slack_bytes,
                    .free_bytes = info.free_bytes,
                    .regions = info.regions,
                    .threads = info.threads,
                    .arenas = info.arenas};
  }
  Result<void> Profile(const std::string& path) const {
    internal::ErrorOut error;
    if (cxlpool_heap_profile(handle(), path.c_str(), error.out()) != 0) return error.Take();
    return {};
  }

  // Ends it now, unless blocks live: HEAP_IN_USE. Afterwards it may only be assigned to or
  // destroyed.
  Result<void> End() {
    internal::ErrorOut error;
    if (cxlpool_heap_destroy(handle(), 0, error.out()) != 0) return error.Take();
    owned_->heap = nullptr;
    return {};
  }

  // For the C interface. The heap's own.
  cxlpool_heap* handle() const { return owned_->heap; }

 private:
  // At one address for as long as the heap lives.
  struct Owned {
    Owned(Pool its_pool, cxlpool_heap* its_heap)
        : pool(std::move(its_pool)), heap(its_heap), resource(its_heap) {}
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() { cxlpool_heap_destroy(heap, 1, nullptr); }

    Pool pool;
    cxlpool_heap* heap;
    internal::HeapResource resource;
  };
  explicit Heap(std::unique_ptr<Owned> owned) : owned_(std::move(owned)) {}

  std::unique_ptr<Owned> owned_;
};

}  // namespace CXLPOOL_EXCEPTIONS
}  // namespace cxlpool

#endif  // CXLPOOL_POOL_HEAP_H_
