#include "cxlpool/mapping.h"

#include <sys/mman.h>

#include "libpool/src/opened_region.h"

namespace cxlpool {

void Mapping::Unmap() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  bytes_ = {};
  writable_ = false;
  region_.reset();
}

}  // namespace cxlpool
