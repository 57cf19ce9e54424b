// Random numbers that follow from a seed alone, the same on every machine (splitmix64).
#ifndef CXLPOOL_TEST_STORE_SEEDED_H_
#define CXLPOOL_TEST_STORE_SEEDED_H_

#include <cstdint>

namespace cxlpool::fm {

class Seeded {
 public:
  explicit Seeded(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t word = state_;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }

  // In [0, bound); `bound` is positive and small, so the bias is nothing.
  uint64_t Below(uint64_t bound) { return Next() % bound; }

 private:
  uint64_t state_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_SEEDED_H_
