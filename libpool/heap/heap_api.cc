// heap.h, on what this folder has in C++. No exception leaves it.
#include <algorithm>
#include <memory>
#include <utility>

#include "cxlpool/heap.h"
#include "libpool/heap/region_heap.h"
#include "libpool/src/c_api.h"
#include "libpool/src/status.h"
#include "libpool/src/text.h"

namespace lib = cxlpool::libpool;
using lib::NotGiven;
using lib::Run;
using lib::Status;

struct cxlpool_heap {
  std::shared_ptr<lib::RegionHeap> heap;
};

int cxlpool_heap_create(cxlpool_client* client, const cxlpool_heap_options* options,
                        cxlpool_heap** heap, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (client == nullptr || heap == nullptr) return NotGiven("client or heap");
    const auto read = lib::Read<cxlpool_heap_options>(options, CXLPOOL_HEAP_OPTIONS_INIT);
    if (!read.ok()) return read.status();
    auto handle = std::make_unique<cxlpool_heap>();
    auto made = lib::RegionHeap::Make(
        client, {.name_prefix = read->name_prefix == nullptr ? "" : read->name_prefix,
                 .size_bytes = read->size_bytes,
                 .max_bytes = read->max_bytes,
                 .grow_bytes = read->grow_bytes,
                 .populate = read->populate != 0,
                 .wait_ms = read->wait_ms});
    if (!made.ok()) return made.status();
    handle->heap = *std::move(made);
    *heap = handle.release();
    return Status();
  });
}

int cxlpool_heap_destroy(cxlpool_heap* heap, int force, cxlpool_error* error) {
  if (heap == nullptr) return CXLPOOL_OK;
  const int code = Run(error, [&] { return heap->heap->Destroy(force != 0); });
  if (code == CXLPOOL_OK) delete heap;
  return code;
}

void* cxlpool_heap_allocate(cxlpool_heap* heap, size_t bytes, size_t alignment) {
  return heap == nullptr ? nullptr : heap->heap->Allocate(bytes, alignment);
}

void* cxlpool_heap_reallocate(cxlpool_heap* heap, void* block, size_t bytes, size_t alignment) {
  return heap == nullptr ? nullptr : heap->heap->Reallocate(block, bytes, alignment);
}

void cxlpool_heap_free(cxlpool_heap* heap, void* block) {
  if (heap != nullptr) heap->heap->Free(block);
}

int cxlpool_heap_check(const cxlpool_heap* heap, cxlpool_error* error) {
  return Run(error, [&] { return heap == nullptr ? NotGiven("heap") : heap->heap->Check(); });
}

int cxlpool_heap_trim(cxlpool_heap* heap, cxlpool_error* error) {
  return Run(error, [&] { return heap == nullptr ? NotGiven("heap") : heap->heap->Trim(); });
}

int cxlpool_heap_describe(const cxlpool_heap* heap, cxlpool_heap_info* info, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (heap == nullptr || info == nullptr) return NotGiven("heap or info");
    const auto usage = heap->heap->Describe();
    if (!usage.ok()) return usage.status();
    cxlpool_heap_info filled = CXLPOOL_HEAP_INFO_INIT;
    filled.mapped_bytes = usage->regions.mapped_bytes;
    filled.live_bytes = usage->live_bytes;
    // The two are counted one after the other, and other threads go on meanwhile.
    filled.slack_bytes =
        usage->regions.mapped_bytes - std::min(usage->regions.mapped_bytes, usage->live_bytes);
    filled.free_bytes = usage->regions.free_bytes;
    filled.regions = static_cast<uint32_t>(usage->regions.regions);
    filled.threads = static_cast<uint32_t>(usage->threads);
    filled.arenas = static_cast<uint32_t>(usage->arenas);
    lib::CopyOut(filled, info);
    return Status();
  });
}

int cxlpool_heap_profile(const cxlpool_heap* heap, const char* path, cxlpool_error* error) {
  return Run(error, [&]() -> Status {
    if (heap == nullptr || path == nullptr) return NotGiven("heap or path");
    return heap->heap->Profile(path);
  });
}
