// A Directory's memory as this process has it mapped: the Host of directory_format.h on real
// memory, where the cache model's test has a host of its own.
//
// As thread-safe as the memory. The map must outlive it.
#ifndef CXLPOOL_LIBPOOL_SRC_MAP_HOST_H_
#define CXLPOOL_LIBPOOL_SRC_MAP_HOST_H_

#include <cstdint>

#include "libpool/src/map.h"
#include "libpool/src/status.h"

namespace cxlpool::libpool {

// `at`, and `bytes`: offset in the map and a length, both in bytes.
class MapHost {
 public:
  explicit MapHost(const Map* map) : map_(map), words_(map->address()) {}

  uint64_t Load(uint64_t at) const {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(words_ + at), __ATOMIC_RELAXED);
  }
  void Store(uint64_t at, uint64_t word) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(words_ + at), word, __ATOMIC_RELAXED);
  }
  void Read(uint64_t at, void* into, uint64_t bytes) const;
  void Write(uint64_t at, const void* from, uint64_t bytes);
  void Publish(uint64_t at, uint64_t bytes) const;
  void Refresh(uint64_t at, uint64_t bytes) const;
  void Order() const;
  void Fence() const;

  template <typename Work>
  Status Guarded(const Work& work) const {
    return map_->Guard([](void* context) { (*static_cast<const Work*>(context))(); },
                       const_cast<void*>(static_cast<const void*>(&work)), nullptr,
                       Handler::kNowAndThen);
  }

 private:
  const Map* map_;
  std::byte* words_;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_MAP_HOST_H_
