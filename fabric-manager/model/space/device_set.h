// A set of the pool's devices, as bits: what a host reaches, what a failure domain holds, what may
// be placed on. Small enough to keep one for each host, and quick to intersect.
//
// A plain value; not thread-safe.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_DEVICE_SET_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_DEVICE_SET_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cxlpool::fm {

// Dense number of a device while the manager runs: given in the order in which devices are added,
// never stored.
using DeviceIndex = uint16_t;
inline constexpr size_t kMaxDevices = 4096;

class DeviceSet {
 public:
  static constexpr size_t kWords = kMaxDevices / 64;

  static DeviceSet All() {
    DeviceSet set;
    set.words_.fill(~uint64_t{0});
    set.summary_ = ~uint64_t{0};
    return set;
  }

  void Add(DeviceIndex device) {
    words_[device / 64] |= uint64_t{1} << (device % 64);
    summary_ |= uint64_t{1} << (device / 64);
  }
  void Remove(DeviceIndex device) {
    words_[device / 64] &= ~(uint64_t{1} << (device % 64));
    if (words_[device / 64] == 0) summary_ &= ~(uint64_t{1} << (device / 64));
  }
  bool Contains(DeviceIndex device) const { return (words_[device / 64] >> (device % 64)) & 1; }
  bool empty() const { return summary_ == 0; }
  size_t size() const {
    size_t count = 0;
    for (uint64_t rest = summary_; rest != 0; rest &= rest - 1) {
      count += std::popcount(words_[std::countr_zero(rest)]);
    }
    return count;
  }

  // Devices 64 * word .. 64 * word + 63; bit `word` of the summary says whether there are any.
  uint64_t word(size_t word) const { return words_[word]; }
  uint64_t summary() const { return summary_; }

  DeviceSet& operator&=(const DeviceSet& other) {
    return Merge(other, [](auto a, auto b) { return a & b; });
  }
  DeviceSet& operator|=(const DeviceSet& other) {
    return Merge(other, [](auto a, auto b) { return a | b; });
  }
  DeviceSet& operator-=(const DeviceSet& other) {
    return Merge(other, [](auto a, auto b) { return a & ~b; });
  }
  friend DeviceSet operator&(DeviceSet a, const DeviceSet& b) { return a &= b; }
  friend DeviceSet operator|(DeviceSet a, const DeviceSet& b) { return a |= b; }
  friend DeviceSet operator-(DeviceSet a, const DeviceSet& b) { return a -= b; }
  friend bool operator==(const DeviceSet&, const DeviceSet&) = default;

  // Calls visit(DeviceIndex) for each, ascending.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (uint64_t rest = summary_; rest != 0; rest &= rest - 1) {
      const size_t word = std::countr_zero(rest);
      for (uint64_t bits = words_[word]; bits != 0; bits &= bits - 1) {
        visit(static_cast<DeviceIndex>(word * 64 + std::countr_zero(bits)));
      }
    }
  }

 private:
  template <typename Op>
  DeviceSet& Merge(const DeviceSet& other, Op op) {
    summary_ = 0;
    for (size_t i = 0; i < kWords; ++i) {
      words_[i] = op(words_[i], other.words_[i]);
      if (words_[i] != 0) summary_ |= uint64_t{1} << i;
    }
    return *this;
  }

  std::array<uint64_t, kWords> words_ = {};
  uint64_t summary_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_DEVICE_SET_H_
