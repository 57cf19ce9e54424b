// Which bytes of one range of addresses are free: the simple list behind a heap's Region.
//
// Invariant: free ranges neither overlap nor touch; both tables have each of them. It writes
// nothing into the memory that it counts, so that lost bytes there cost only what a caller put
// there.
//
// Not thread-safe. Addresses and sizes in bytes, multiples of 4 KiB.
#ifndef CXLPOOL_LIBPOOL_HEAP_ALIGNED_RANGES_H_
#define CXLPOOL_LIBPOOL_HEAP_ALIGNED_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace cxlpool::libpool {

class AlignedRanges {
 public:
  // All of [begin, begin + size) is free.
  AlignedRanges(uintptr_t begin, size_t size);

  // Takes `size` bytes at a multiple of `alignment`, a power of two, from the smallest free range
  // that has them, or one almost as small. 0: none has. Throws std::bad_alloc where this process
  // has no memory for the tables; then nothing is taken.
  uintptr_t Take(size_t size, size_t alignment);

  // Gives back what was taken, or a part of it. Throws std::bad_alloc; then it stays taken.
  void Give(uintptr_t begin, size_t size);

  bool Contains(uintptr_t address) const { return address - begin_ < size_; }
  bool all_free() const { return free_bytes_ == size_; }
  size_t free_bytes() const { return free_bytes_; }

 private:
  using ByAddress = std::map<uintptr_t, size_t>;

  // These leave `free_bytes_` as it is.
  void Insert(uintptr_t begin, size_t size);
  void Erase(ByAddress::iterator range);
  void Resize(ByAddress::iterator range, uintptr_t begin, size_t size) noexcept;

  const uintptr_t begin_;
  const size_t size_;
  size_t free_bytes_;
  ByAddress by_address_;                            // Where each begins, and its size.
  std::set<std::pair<size_t, uintptr_t>> by_size_;  // The same, the smallest first.
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_HEAP_ALIGNED_RANGES_H_
