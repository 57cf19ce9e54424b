// A map that an accelerator's runtime has registered, so that its devices reach the bytes by DMA.
//
// The caller gives the runtime's functions, so that the library needs none of its headers. The map
// is registered in chunks, in the order of their addresses: runtimes refuse one of 512 GiB. It is
// unregistered in the reverse order, and is mapped for as long as one chunk of it is registered.
//
// One thread at a time.
#ifndef CXLPOOL_LIBPOOL_SRC_PIN_H_
#define CXLPOOL_LIBPOOL_SRC_PIN_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cxlpool/cxlpool.h"
#include "libpool/src/map.h"
#include "libpool/src/status.h"

namespace cxlpool::libpool {

// As cxlpool_pin_options, which says what each is.
struct PinOptions {
  cxlpool_register_fn register_fn = nullptr;
  cxlpool_unregister_fn unregister_fn = nullptr;
  void* context = nullptr;
  uint64_t chunk_bytes = 0;
  bool read_only = false;
};

class Pin {
 public:
  // Registers all that `map` has mapped. Errors as cxlpool_pin; then nothing stays registered,
  // except where the message says so: then the map stays mapped, and its Region in use, until this
  // process ends.
  static StatusOr<std::unique_ptr<Pin>> Make(std::shared_ptr<const Map> map,
                                             const PinOptions& options);
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() = default;

  // Unregisters what is registered, the last chunk first. INTERNAL/UNPIN_FAILED: the runtime would
  // not; what is left stays registered, and the next call begins there.
  // FAILED_PRECONDITION/FORKED.
  Status Undo();

 private:
  Pin(std::shared_ptr<const Map> map, const PinOptions& options);

  size_t chunk_count() const {
    return size_ / options_.chunk_bytes + (size_ % options_.chunk_bytes == 0 ? 0 : 1);
  }
  void* Begin(size_t chunk) const;
  size_t Bytes(size_t chunk) const;
  // 0, or what the runtime answered. `registered_` counts what is done.
  int UnregisterAll();

  const std::shared_ptr<const Map> map_;
  const PinOptions options_;
  const size_t size_;      // Of the map, when it was pinned.
  const pid_t process_;    // A forked child has no part in its parent's registrations.
  size_t registered_ = 0;  // So many chunks, from the first on.
  Pin* next_stuck_ = nullptr;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_PIN_H_
