// Which bytes of a heap are free. In DRAM; the smallest range that fits is taken.
//
// Invariant: ranges neither overlap nor touch; both tables have each of them. What throws
// std::bad_alloc has changed nothing. Not thread-safe.
#ifndef CXLPOOL_LIBPOOL_SRC_FREE_RANGES_H_
#define CXLPOOL_LIBPOOL_SRC_FREE_RANGES_H_

#include <cstdint>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <utility>

namespace cxlpool::libpool {

class FreeRanges {
 public:
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

  // Where `bytes` (more than 0) are now taken; nothing: no range is as long. Does not throw.
  std::optional<uint64_t> Take(uint64_t bytes) {
    const auto fits = by_size_.lower_bound({bytes, 0});
    if (fits == by_size_.end()) return std::nullopt;
    const auto [length, at] = *fits;
    Resize(by_place_.find(at), at + bytes, length - bytes);
    free_bytes_ -= bytes;
    return at;
  }

  // Takes exactly [at, at + bytes). False, and nothing is taken: it is not all free.
  bool TakeAt(uint64_t at, uint64_t bytes) {
    auto range = by_place_.upper_bound(at);
    if (range == by_place_.begin()) return false;
    --range;
    const auto [begin, length] = *range;
    if (at + bytes > begin + length) return false;
    const uint64_t head = at - begin;
    const uint64_t tail = length - head - bytes;
    if (head > 0 && tail > 0) Insert(at + bytes, tail);
    head > 0 ? Resize(range, begin, head) : Resize(range, at + bytes, tail);
    free_bytes_ -= bytes;
    return true;
  }

  // Gives back what was taken, or a range that was never there. Does not throw where a free range
  // is before or behind it.
  void Give(uint64_t at, uint64_t bytes) {
    const auto next = by_place_.lower_bound(at);
    const bool joins_next = next != by_place_.end() && next->first == at + bytes;
    const auto before = next == by_place_.begin() ? by_place_.end() : std::prev(next);
    const bool joins_before = before != by_place_.end() && before->first + before->second == at;
    const uint64_t behind = joins_next ? next->second : 0;
    if (joins_before) {
      if (joins_next) Resize(next, 0, 0);
      Resize(before, before->first, before->second + bytes + behind);
    } else if (joins_next) {
      Resize(next, at, bytes + behind);
    } else {
      Insert(at, bytes);
    }
    free_bytes_ += bytes;
  }

 private:
  using ByPlace = std::map<uint64_t, uint64_t>;

  // Neither of the two changes free_bytes_.
  void Insert(uint64_t at, uint64_t bytes) {
    by_place_.emplace(at, bytes);
    try {
      by_size_.emplace(bytes, at);
    } catch (const std::bad_alloc&) {
      by_place_.erase(at);
      throw;
    }
  }
  // Makes another range of one: [at, at + bytes), or none where that is empty. Moves the tables'
  // nodes, and needs no memory.
  void Resize(ByPlace::iterator range, uint64_t at, uint64_t bytes) noexcept {
    auto by_size = by_size_.extract({range->second, range->first});
    auto by_place = by_place_.extract(range);
    if (bytes == 0) return;
    by_size.value() = {bytes, at};
    by_size_.insert(std::move(by_size));
    by_place.key() = at;
    by_place.mapped() = bytes;
    by_place_.insert(std::move(by_place));
  }

  ByPlace by_place_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // Length, place.
  uint64_t free_bytes_ = 0;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_FREE_RANGES_H_
