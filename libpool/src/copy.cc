#include "libpool/src/copy.h"

#include "libpool/src/copy_kernels.h"
#include "libpool/src/copy_plan.h"
#include "libpool/src/text.h"
#include "libpool/src/visibility.h"

namespace cxlpool::libpool {
namespace {

// What the guarded function works on: plain values, since a fault leaves it as longjmp does.
struct Work {
  const CopyKernel& kernel;
  Copy::What what;
  std::byte* pool;
  std::byte* memory;
  size_t bytes;
  bool is_coherent;
};

// Another host's stores of before are seen by the loads that follow.
void RefreshFirst(const Work& work) {
  work.is_coherent ? OrderAccesses() : InvalidateLines(work.pool, work.bytes);
}

void Do(void* context) {
  const Work& work = *static_cast<const Work*>(context);
  switch (work.what) {
    case Copy::What::kPut:
      CopyAndPublish(work.kernel, work.pool, work.memory, work.bytes,
                     work.is_coherent ? nullptr : WriteBackLines);
      if (work.is_coherent) OrderAccesses();
      return;
    case Copy::What::kGet:
      RefreshFirst(work);
      work.kernel.copy(work.memory, work.pool, work.bytes);
      return;
    case Copy::What::kPrefetch:
      RefreshFirst(work);
      TouchLines(work.pool, work.bytes);
      return;
  }
}

CopyUse UseOf(const Map& map, Copy::What what) {
  if (what != Copy::What::kPut) return CopyUse::kGet;
  return map.is_coherent() ? CopyUse::kPut : CopyUse::kPublishPut;
}

// That of memcpy. nullptr: only a guarded copy will do.
CaughtCopy CaughtFor(const Map& map, size_t bytes) {
  const CaughtCopy copy = map.caught_copy();
  return bytes - 1 >= kCaughtBytes - 1 || !MayGoWithoutALook() ? nullptr : copy;
}

}  // namespace

bool PutCaught(const Map& map, uint64_t offset, const void* from, size_t bytes) noexcept {
  if (!map.writable() || !IsAllowed(map, offset, from, bytes)) return false;
  CaughtCopy copy = CaughtFor(map, bytes);
  if (copy != nullptr && bytes >= CopyPlan::kLeastBytes) {
    copy = CopyPlan::Choose(CopyUse::kPut, bytes).caught;
  }
  if (copy == nullptr ||
      !copy(map.address() + offset, static_cast<const std::byte*>(from), bytes, map.range())) {
    return false;
  }
  OrderAccesses();
  return true;
}

bool GetCaught(const Map& map, uint64_t offset, void* into, size_t bytes) noexcept {
  if (!IsAllowed(map, offset, into, bytes)) return false;
  // No plan has another for gets: what is got stays in the caches.
  const CaughtCopy copy = CaughtFor(map, bytes);
  if (copy == nullptr) return false;
  OrderAccesses();
  return copy(static_cast<std::byte*>(into), map.address() + offset, bytes, map.range());
}

Status CheckCopy(const Map& map, const Copy& copy) {
  const size_t size = map.size();
  if (copy.offset > size || copy.bytes > size - copy.offset) {
    return BadArgument(
        Concat(copy.bytes, " bytes from ", copy.offset, " on are not all in the map of ",
               map.region_name(), ", which has ", size),
        "copy a part that is in the map");
  }
  if (copy.what == Copy::What::kPut && !map.writable()) {
    return Refuse(
        Code::kPermissionDenied, "MAP_READ_ONLY",
        Concat("the map of ", map.region_name(), " is read-only: nothing can be put into it"),
        "open the Region and map it for writing");
  }
  if (copy.what == Copy::What::kPrefetch || copy.bytes == 0) return Status();
  if (copy.memory == nullptr) return BadArgument("the memory to copy is NULL", "give some");
  const auto pool = reinterpret_cast<uintptr_t>(map.address()) + copy.offset;
  const auto memory = reinterpret_cast<uintptr_t>(copy.memory);
  if (memory < pool + copy.bytes && pool < memory + copy.bytes) {
    return BadArgument("the memory overlaps the part of the map that it is copied with",
                       "copy by way of other memory");
  }
  return Status();
}

Status CarryOut(const Map& map, const Copy& copy, cxlpool_lost* lost) {
  if (copy.bytes == 0) return Status();
  // A prefetch copies nothing.
  const bool copies = copy.what != Copy::What::kPrefetch;
  Work work = {copies ? CopyPlan::Choose(UseOf(map, copy.what), copy.bytes) : CopyKernels()[0],
               copy.what,
               map.address() + copy.offset,
               static_cast<std::byte*>(copy.memory),
               copy.bytes,
               map.is_coherent()};
  return map.Guard(Do, &work, lost, Handler::kNowAndThen);
}

}  // namespace cxlpool::libpool
