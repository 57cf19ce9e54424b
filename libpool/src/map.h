// A Region's bytes in this process: one contiguous range of addresses, however many DAX devices
// hold them.
//
// The range is reserved whole before anything is mapped into it, so that nothing else can come
// between its parts, and growth finds its place behind them. What does not fit into the reserve is
// mapped where nothing else is behind it; what is there already is never replaced. A Map keeps in
// use every Region handle that it was made of.
//
// Thread-safe, except for the destructor.
#ifndef CXLPOOL_LIBPOOL_SRC_MAP_H_
#define CXLPOOL_LIBPOOL_SRC_MAP_H_

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cxlpool/cxlpool.h"
#include "libpool/src/bus_guard.h"
#include "libpool/src/caught_copy.h"
#include "libpool/src/opened_region.h"
#include "libpool/src/status.h"
#include "proto/support/mutex.h"

namespace cxlpool::libpool {

// As cxlpool_map_options.
struct MapOptions {
  bool writable = false;
  bool populate = false;
  void* address = nullptr;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  uint64_t reserve_bytes = 0;
};

class Map {
 public:
  // Errors as cxlpool_map_region. FAILED_PRECONDITION/FORKED: so does Extend answer in a child.
  static StatusOr<std::shared_ptr<Map>> Make(std::shared_ptr<const OpenedRegion> region,
                                             const MapOptions& options);
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
  ~Map();

  // As cxlpool_publish, cxlpool_refresh and cxlpool_guard.
  Status Publish(const void* address, size_t bytes) const;
  Status Refresh(const void* address, size_t bytes) const;
  Status Guard(void (*work)(void*), void* context, cxlpool_lost* lost,
               Handler handler = Handler::kNow) const;

  // Errors as cxlpool_map_extend. What cannot be mapped leaves the Map as it was.
  Status Extend(std::shared_ptr<const OpenedRegion> grown);

  std::byte* address() const { return range_.begin; }
  size_t size() const { return range_.bytes.load(std::memory_order_acquire); }
  bool writable() const { return options_.writable; }
  bool is_coherent() const { return is_coherent_; }
  // For less than 1 KiB. nullptr: there is none, or caches are not coherent, and what a copy does
  // besides copying wants a guard.
  CaughtCopy caught_copy() const { return caught_copy_; }
  const CaughtRange& range() const { return range_; }
  const std::string& region_name() const { return name_; }  // When it was opened.
  const std::string& tag() const { return tag_; }
  uint64_t generation() const { return generation_; }
  uint64_t offset_bytes() const { return options_.offset_bytes; }
  // That it was made of first.
  std::shared_ptr<const OpenedRegion> region() const;
  // That it was extended by last: it has all that is mapped, where the first may end before.
  std::shared_ptr<const OpenedRegion> newest_region() const;
  const RegionUsage& usage() const { return *usage_; }

  // In a child that was forked. Takes no lock: another thread of the parent may have had it.
  bool Forked() const { return ::getpid() != process_; }

 private:
  Map(const MapOptions& options, const OpenReply& region);

  Status Reserve(const OpenReply& region);
  // Reserves what is behind the range, so that it has `wanted` bytes. False: something is there.
  bool ReserveBehind(uint64_t wanted) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status CheckRange(const void* address, size_t bytes) const;
  // Maps bytes [from, to) of the range.
  Status Place(const OpenedRegion& region, uint64_t from, uint64_t to);
  Status Failed(const OpenReply& region, int error) const;

  // What a short copy needs, in one line.
  alignas(64) CaughtRange range_;  // What is mapped.
  const CaughtCopy caught_copy_;
  const MapOptions options_;  // length_bytes and reserve_bytes as they came out at first.

  const std::string name_;
  const std::string tag_;
  const uint64_t generation_;
  const bool is_coherent_;
  const pid_t process_ = ::getpid();    // That made it.
  const RegionUsage* usage_ = nullptr;  // Of the first of regions_. Null: nothing was mapped.

  mutable Mutex mutex_;
  uint64_t reserved_bytes_
      ABSL_GUARDED_BY(mutex_);  // From range_.begin on; nothing else is mapped there.
  std::vector<std::shared_ptr<const OpenedRegion>> regions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_MAP_H_
