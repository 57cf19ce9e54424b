// A piece of address space that segments are mapped into, one beside the other.
//
// Reserved first, without access, so that nothing else can come between the segments; unmapped
// when destroyed unless released. Not thread-safe.
#ifndef CXLPOOL_LIBPOOL_SRC_ADDRESS_RANGE_H_
#define CXLPOOL_LIBPOOL_SRC_ADDRESS_RANGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "libpool/src/reply.h"

namespace cxlpool::libpool {

class AddressRange {
 public:
  AddressRange() = default;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange();

  // Both in bytes; `alignment` is a power of two and at least a page, `size` a multiple of a
  // page. Once. Returns 0 or the errno.
  int Reserve(uint64_t size, uint64_t alignment);

  // Maps `segment` of `fd` at its place, shared. Returns 0 or the errno.
  int Place(const MapSegment& segment, int fd, bool writable);

  // The range, which is the caller's to unmap.
  std::span<std::byte> Release() { return std::exchange(range_, {}); }

 private:
  std::span<std::byte> range_;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_ADDRESS_RANGE_H_
