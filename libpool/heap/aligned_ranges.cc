#include "libpool/heap/aligned_ranges.h"

#include <iterator>
#include <new>
#include <utility>

namespace cxlpool::libpool {
namespace {

constexpr size_t kPage = 4096;
constexpr int kTries = 8;

}  // namespace

AlignedRanges::AlignedRanges(uintptr_t begin, size_t size)
    : begin_(begin), size_(size), free_bytes_(size) {
  Insert(begin, size);
}

// Looks at a few of the smallest ranges that are large enough, and then at once among those in
// which any alignment finds its place, so that a call takes no longer in a heap of many holes.
uintptr_t AlignedRanges::Take(size_t size, size_t alignment) {
  const size_t surely = size + (alignment > kPage ? alignment - kPage : 0);
  auto candidate = by_size_.lower_bound({size, 0});
  uintptr_t taken = 0;
  for (int tried = 0; candidate != by_size_.end(); ++tried) {
    const auto [available, begin] = *candidate;
    taken = (begin + alignment - 1) & ~(uintptr_t{alignment} - 1);
    if (taken - begin <= available && available - (taken - begin) >= size) break;
    taken = 0;
    candidate = tried < kTries ? std::next(candidate) : by_size_.lower_bound({surely, 0});
  }
  if (taken == 0) return 0;
  const auto [available, begin] = *candidate;
  const auto range = by_address_.find(begin);
  const size_t head = taken - begin;
  const size_t tail = available - head - size;
  // What needs memory comes first, so that a failure changes nothing.
  if (head > 0 && tail > 0) {
    Insert(taken + size, tail);
    Resize(range, begin, head);
  } else if (head > 0) {
    Resize(range, begin, head);
  } else if (tail > 0) {
    Resize(range, taken + size, tail);
  } else {
    Erase(range);
  }
  free_bytes_ -= size;
  return taken;
}

void AlignedRanges::Give(uintptr_t begin, size_t size) {
  Insert(begin, size);
  free_bytes_ += size;
  auto range = by_address_.find(begin);
  const auto after = std::next(range);
  if (after != by_address_.end() && begin + size == after->first) {
    const size_t more = after->second;
    Erase(after);
    Resize(range, begin, size + more);
    range = by_address_.find(begin);
  }
  if (range == by_address_.begin()) return;
  const auto before = std::prev(range);
  if (before->first + before->second != begin) return;
  const size_t more = range->second;
  Erase(range);
  Resize(before, before->first, before->second + more);
}

void AlignedRanges::Insert(uintptr_t begin, size_t size) {
  by_address_.emplace(begin, size);
  try {
    by_size_.emplace(size, begin);
  } catch (const std::bad_alloc&) {
    by_address_.erase(begin);
    throw;
  }
}

void AlignedRanges::Erase(ByAddress::iterator range) {
  by_size_.erase({range->second, range->first});
  by_address_.erase(range);
}

// Moves the tables' nodes, and needs no memory.
void AlignedRanges::Resize(ByAddress::iterator range, uintptr_t begin, size_t size) noexcept {
  auto by_size = by_size_.extract({range->second, range->first});
  by_size.value() = {size, begin};
  by_size_.insert(std::move(by_size));
  auto by_address = by_address_.extract(range);
  by_address.key() = begin;
  by_address.mapped() = size;
  by_address_.insert(std::move(by_address));
}

}  // namespace cxlpool::libpool
