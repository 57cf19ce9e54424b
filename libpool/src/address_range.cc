#include "libpool/src/address_range.h"

#include <sys/mman.h>

#include <cerrno>

namespace cxlpool::libpool {

AddressRange::~AddressRange() {
  if (!range_.empty()) ::munmap(range_.data(), range_.size());
}

int AddressRange::Reserve(uint64_t size, uint64_t alignment) {
  const uint64_t wanted = size + alignment;  // Neither comes near 2^63: see ParseOpen.
  void* address =
      ::mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return errno;
  // Cut to the aligned middle.
  auto* begin = static_cast<std::byte*>(address);
  const uint64_t head = -reinterpret_cast<uintptr_t>(begin) & (alignment - 1);
  if (head != 0) ::munmap(begin, head);
  ::munmap(begin + head + size, wanted - head - size);
  range_ = {begin + head, size};
  return 0;
}

int AddressRange::Place(const MapSegment& segment, int fd, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address =
      ::mmap(range_.data() + segment.region_offset_bytes, segment.length_bytes, protection,
             MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(segment.offset_bytes));
  return address == MAP_FAILED ? errno : 0;
}

}  // namespace cxlpool::libpool
