// One copy between a map and memory of the program's own, carried out by the calling thread
// (cxlpool.h, "Copies").
//
// A put ends with its bytes published, and a get begins with a refresh, as Map::Publish and
// Map::Refresh: on a map whose coherence is HARDWARE that costs nothing. A load or store of the map
// that meets lost bytes ends the copy, and not the process.
//
// Thread-safe.
#ifndef CXLPOOL_LIBPOOL_SRC_COPY_H_
#define CXLPOOL_LIBPOOL_SRC_COPY_H_

#include <cstddef>
#include <cstdint>

#include "cxlpool/cxlpool.h"
#include "libpool/src/map.h"
#include "libpool/src/status.h"

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

// Carries out one that CheckCopy let pass. DATA_LOSS/DATA_LOST and FAILED_PRECONDITION/REVOKED, and
// then `lost`, which may be null, is filled: a part of the bytes may have been copied.
// INTERNAL/NO_HANDLER.
Status CarryOut(const Map& map, const Copy& copy, cxlpool_lost* lost);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_COPY_H_
