#include "libpool/src/map_host.h"

#include <cstring>

#include "libpool/src/visibility.h"

namespace cxlpool::libpool {

void MapHost::Read(uint64_t at, void* into, uint64_t bytes) const {
  if (bytes > 0) std::memcpy(into, words_ + at, bytes);
}

void MapHost::Write(uint64_t at, const void* from, uint64_t bytes) {
  std::memcpy(words_ + at, from, bytes);
}

void MapHost::Publish(uint64_t at, uint64_t bytes) const {
  map_->is_coherent() ? OrderAccesses() : WriteBackLines(words_ + at, bytes);
}

void MapHost::Refresh(uint64_t at, uint64_t bytes) const {
  map_->is_coherent() ? OrderAccesses() : InvalidateLines(words_ + at, bytes);
}

void MapHost::Order() const { OrderAccesses(); }

void MapHost::Fence() const { FenceAccesses(); }

}  // namespace cxlpool::libpool
