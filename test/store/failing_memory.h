// SQLite's memory, which can be made to run out at any allocation. Of SQLite alone: what the
// program itself allocates is not touched.
//
// For tests. Any thread.
#ifndef CXLPOOL_TEST_STORE_FAILING_MEMORY_H_
#define CXLPOOL_TEST_STORE_FAILING_MEMORY_H_

#include <cstdint>

namespace cxlpool::fm {

// Puts itself between SQLite and its allocator. Before SQLite is used for the first time; false: it
// was too late.
bool InstallFailingMemory();

// While it lives, allocation number `number` (from 1; from now on) fails; `lasting`: all after it,
// too.
class NthAllocationFails {
 public:
  NthAllocationFails(uint64_t number, bool lasting);
  ~NthAllocationFails();
  NthAllocationFails(const NthAllocationFails&) = delete;
  NthAllocationFails& operator=(const NthAllocationFails&) = delete;
  bool hit() const;

 private:
  const uint64_t number_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_STORE_FAILING_MEMORY_H_
