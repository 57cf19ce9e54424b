#include "libpool/src/pin.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr uint64_t kChunkAlignment = uint64_t{2} << 20;

// Pins that cannot be undone any more, and whose maps stay: devices may use them. Never read, and
// only here so that a leak checker sees that they are kept.
constinit std::atomic<Pin*> g_stuck = nullptr;

}  // namespace

Pin::Pin(std::shared_ptr<const Map> map, const PinOptions& options)
    : map_(std::move(map)), options_(options), size_(map_->size()), process_(::getpid()) {}

void* Pin::Begin(size_t chunk) const { return map_->address() + chunk * options_.chunk_bytes; }

size_t Pin::Bytes(size_t chunk) const {
  return std::min<uint64_t>(options_.chunk_bytes, size_ - chunk * options_.chunk_bytes);
}

// Registers one chunk after the other. Where one is refused, those before it are unregistered, so
// that the runtime knows nothing of a map that its caller may unmap now. In a forked child nobody
// would count the pin: it has no part in what its parent says of the Region.
StatusOr<std::unique_ptr<Pin>> Pin::Make(std::shared_ptr<const Map> map,
                                         const PinOptions& options) {
  if (map->Forked() && !CXLPOOL_MUTANT("child-pins-its-parents-map")) {
    return Refuse(Code::kFailedPrecondition, "FORKED",
                  "this map is another process's: this process was forked from it",
                  "connect, open and map the Region in this process, and pin that");
  }
  if (options.chunk_bytes == 0 || options.chunk_bytes % kChunkAlignment != 0) {
    return BadArgument(Concat("chunk_bytes is ", options.chunk_bytes),
                       "give a multiple of 2 MiB, or leave the default");
  }
  PinOptions wanted = options;
  // The runtime could not write there in any case, and would refuse to try.
  wanted.read_only = options.read_only || !map->writable();
  std::unique_ptr<Pin> pin(new Pin(std::move(map), wanted));
  const size_t count = pin->chunk_count();
  while (pin->registered_ < count) {
    const size_t chunk = pin->registered_;
    const int refused = wanted.register_fn(pin->Begin(chunk), pin->Bytes(chunk),
                                           wanted.read_only ? 1 : 0, wanted.context);
    if (refused == 0) {
      ++pin->registered_;
      continue;
    }
    const int stuck = CXLPOOL_MUTANT("pin-left-behind") ? 0 : pin->UnregisterAll();
    if (stuck != 0) {
      const size_t kept = pin->registered_;
      if (!CXLPOOL_MUTANT("stuck-pin-unmapped")) {
        Pin* const stays = pin.release();
        stays->next_stuck_ = g_stuck.exchange(stays);
      }
      return Refuse(
          Code::kInternal, "PIN_FAILED",
          Concat("the runtime refused chunk ", chunk + 1, " of ", count, " with code ", refused,
                 ", and then to give back ", kept, " that it had, with code ", stuck),
          "leave its Region as it is until this process ends");
    }
    return Refuse(Code::kInternal, "PIN_FAILED",
                  Concat("the runtime refused chunk ", chunk + 1, " of ", count, " (",
                         pin->Bytes(chunk), " bytes) with code ", refused),
                  "look that code up in the runtime's manual");
  }
  pin->map_->usage().AddPins(1);
  return pin;
}

int Pin::UnregisterAll() {
  for (size_t first = 0; registered_ > 0; --registered_) {
    const size_t chunk = CXLPOOL_MUTANT("unpin-in-order") ? first++ : registered_ - 1;
    const int refused = options_.unregister_fn(Begin(chunk), Bytes(chunk), options_.context);
    if (refused != 0) return refused;
  }
  return 0;
}

Status Pin::Undo() {
  if (::getpid() != process_) {
    return Refuse(Code::kFailedPrecondition, "FORKED",
                  "this pin is another process's: this process was forked from it",
                  "pin a map of the child's own");
  }
  const int refused = UnregisterAll();
  if (refused == 0) {
    map_->usage().AddPins(-1);
    return Status();
  }
  return Refuse(Code::kInternal, "UNPIN_FAILED",
                Concat("the runtime refused to give back chunk ", registered_, " with code ",
                       refused, "; ", registered_, " of ", chunk_count(), " stay registered"),
                "end what uses the memory, and unpin it again");
}

}  // namespace cxlpool::libpool
