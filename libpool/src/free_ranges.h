// Which bytes of a heap are free. In DRAM; the smallest range that fits is taken.
//
// Invariant: ranges neither overlap nor touch. Not thread-safe.
#ifndef CXLPOOL_LIBPOOL_SRC_FREE_RANGES_H_
#define CXLPOOL_LIBPOOL_SRC_FREE_RANGES_H_

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace cxlpool::libpool {

class FreeRanges {
 public:
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

  // Where `bytes` (more than 0) are now taken; nothing: no range is as long.
  std::optional<uint64_t> Take(uint64_t bytes) {
    const auto fits = by_size_.lower_bound({bytes, 0});
    if (fits == by_size_.end()) return std::nullopt;
    const auto [length, at] = *fits;
    Erase(at, length);
    if (length > bytes) Insert(at + bytes, length - bytes);
    return at;
  }

  // Takes exactly [at, at + bytes). False, and nothing is taken: it is not all free.
  bool TakeAt(uint64_t at, uint64_t bytes) {
    auto range = by_place_.upper_bound(at);
    if (range == by_place_.begin()) return false;
    --range;
    const auto [begin, length] = *range;
    if (at + bytes > begin + length) return false;
    Erase(begin, length);
    if (at > begin) Insert(begin, at - begin);
    if (at + bytes < begin + length) Insert(at + bytes, begin + length - at - bytes);
    return true;
  }

  // Gives back what was taken, or a range that was never there.
  void Give(uint64_t at, uint64_t bytes) {
    const auto next = by_place_.lower_bound(at);
    if (next != by_place_.end() && next->first == at + bytes) {
      bytes += next->second;
      Erase(next->first, next->second);
    }
    const auto after = by_place_.lower_bound(at);
    if (after != by_place_.begin()) {
      const auto [begin, length] = *std::prev(after);
      if (begin + length == at) {
        Erase(begin, length);
        at = begin;
        bytes += length;
      }
    }
    Insert(at, bytes);
  }

 private:
  void Insert(uint64_t at, uint64_t bytes) {
    by_place_.emplace(at, bytes);
    by_size_.emplace(bytes, at);
    free_bytes_ += bytes;
  }
  void Erase(uint64_t at, uint64_t bytes) {
    by_place_.erase(at);
    by_size_.erase({bytes, at});
    free_bytes_ -= bytes;
  }

  std::map<uint64_t, uint64_t> by_place_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // Length, place.
  uint64_t free_bytes_ = 0;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_FREE_RANGES_H_
