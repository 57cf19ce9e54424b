// One copy between a map and memory of the program's own, carried out by the calling thread
// (cxlpool.h, "Copies").
//
// A put ends with its bytes published, and a get begins with a refresh, as Map::Publish and
// Map::Refresh: on a map whose coherence is HARDWARE that costs nothing. A load or store of the map
// that meets lost bytes ends the copy, and not the process.
//
// Short ones of coherent maps are tried as caught copies first, which cost next to nothing besides
// the copying. What they do not carry out is done again, under a guard that reports what was met.
//
// Thread-safe.
#ifndef CXLPOOL_LIBPOOL_SRC_COPY_H_
#define CXLPOOL_LIBPOOL_SRC_COPY_H_

#include <cstddef>
#include <cstdint>

#include "cxlpool/cxlpool.h"
#include "libpool/src/bus_guard.h"
#include "libpool/src/caught_copy.h"
#include "libpool/src/map.h"
#include "libpool/src/status.h"
#include "libpool/src/visibility.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {

struct Copy {
  enum class What {
    kPut,       // From `memory`, which is only read, into the map.
    kGet,       // From the map into `memory`.
    kPrefetch,  // From the map into this host's caches, as far as they have room. No `memory`.
  };

  What what = What::kPut;
  uint64_t offset = 0;  // Of the map's first byte.
  void* memory = nullptr;
  size_t bytes = 0;
};

// Whether it can be carried out at all. INVALID_ARGUMENT/BAD_ARGUMENT: a range that is not all in
// the map, or overlaps the memory. PERMISSION_DENIED/MAP_READ_ONLY: a put into a map that is not
// writable.
Status CheckCopy(const Map& map, const Copy& copy);

// Whether CheckCopy would let pass a get of 1 byte at least, or such a put into a writable map.
inline bool IsAllowed(const Map& map, uint64_t offset, const void* memory, size_t bytes) {
  const size_t size = map.size();
  if (offset > size || bytes > size - offset || memory == nullptr) return false;
  // As far apart as they are long: in one comparison, since the difference wraps.
  const auto pool = reinterpret_cast<uintptr_t>(map.address()) + offset;
  return reinterpret_cast<uintptr_t>(memory) - pool + bytes - 1 >= 2 * bytes - 1;
}

// Carries out a put or a get without a guard, if CheckCopy would let it pass. False: it cannot be
// done so, or met lost bytes; then CheckCopy and CarryOut say the rest. The first two are for 16 to
// 64 bytes, and inline for the sake of their price.
[[gnu::always_inline]] inline bool PutFew(const Map& map, uint64_t offset, const void* from,
                                          size_t bytes) {
  const bool may_store = map.writable() || CXLPOOL_MUTANT("short-put-into-read-only");
  if (bytes < kFewBytes || bytes > kMaxFewBytes || map.caught_copy() == nullptr || !may_store ||
      !IsAllowed(map, offset, from, bytes) || !MayGoWithoutALook() ||
      !CopyFewCaught(map.address() + offset, static_cast<const std::byte*>(from), bytes,
                     map.range())) {
    return false;
  }
  OrderAccesses();
  return true;
}
[[gnu::always_inline]] inline bool GetFew(const Map& map, uint64_t offset, void* into,
                                          size_t bytes) {
  if (bytes < kFewBytes || bytes > kMaxFewBytes || map.caught_copy() == nullptr ||
      !IsAllowed(map, offset, into, bytes) || !MayGoWithoutALook()) {
    return false;
  }
  OrderAccesses();
  return CopyFewCaught(static_cast<std::byte*>(into), map.address() + offset, bytes, map.range());
}
bool PutCaught(const Map& map, uint64_t offset, const void* from, size_t bytes) noexcept;
bool GetCaught(const Map& map, uint64_t offset, void* into, size_t bytes) noexcept;

// Carries out one that CheckCopy let pass. DATA_LOSS/DATA_LOST and FAILED_PRECONDITION/REVOKED, and
// then `lost`, which may be null, is filled: a part of the bytes may have been copied.
// INTERNAL/NO_HANDLER.
Status CarryOut(const Map& map, const Copy& copy, cxlpool_lost* lost);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_COPY_H_
