// What a host can take of CXL memory, by the rules that manager, agent, emulated host and simulator
// have in common: each of them is stated here once, in words and in code.
//
// Pure; uses only the standard library.
#ifndef CXLPOOL_PROTO_SUPPORT_CXL_HOST_H_
#define CXLPOOL_PROTO_SUPPORT_CXL_HOST_H_

#include <bit>
#include <cstdint>

namespace cxlpool {

// --- Serials.
//
// Where the fabric lets the pool choose (capability chooses_serial), each binding gets a serial of
// its own: this first byte, which no vendor's device has, and a number that was never used before.
// Elsewhere the host sees the hardware's serial. Other CXL memory of a host is not the pool's.
inline constexpr uint64_t kSerialBase = 0x0c00'0000'0000'0000;
inline constexpr bool IsPoolSerial(uint64_t serial) { return serial >> 56 == kSerialBase >> 56; }

// --- Page structs.
//
// Linux keeps a struct of 64 bytes in the host's own memory for each page of 4096 that comes
// online, as devdax and as system-ram. (It shares most of those of devdax since 5.18; nothing
// relies on that.)
inline constexpr uint64_t kBytesPerPageStructByte = 4096 / 64;
inline constexpr uint64_t PageStructBytes(uint64_t length_bytes) {
  return length_bytes / kBytesPerPageStructByte;
}

// --- Interleaving, as HDM decoders can do it (CXL 3.1, 8.2.4.20.7).
inline constexpr uint32_t kMaxInterleaveWays = 16;
inline constexpr uint32_t kMinInterleaveGranularityBytes = 256;
inline constexpr uint32_t kMaxInterleaveGranularityBytes = 16384;
inline constexpr bool IsInterleaveGranularity(uint32_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kMinInterleaveGranularityBytes &&
         bytes <= kMaxInterleaveGranularityBytes;
}

// --- Shared devices: memory that hosts see whole, so that nothing is plugged.
//
// What stands for the slots of such a host: as many grants it has at a time, numbered from 1.
inline constexpr uint32_t kSharedSlots = 1024;

// --- The decoder stack.
//
// A host region takes one HDM decoder of its host bridge, and of each switch on its path. The
// hardware wants the decoders of a port committed in ascending order, of number and of host address
// (HPA), and freed in reverse (CXL 3.1, 8.2.4.20.12, Committing Decoder Programming). So they are a
// stack: a new host region goes on top. One that is freed below a live one leaves a hole. Linux
// would put the next host region into it, the hardware would refuse, and so the bridge is blocked
// until everything above the hole is freed too.

// The topmost of the entries that stay above a hole: what has to go first. Null: nothing is
// blocked. `entries` is a range of pointers or of objects; `under(a, b)` is whether b lies above
// a.
template <typename Entry, typename Entries, typename IsHole, typename Stays, typename Under>
const Entry* TopmostAboveHole(const Entries& entries, IsHole is_hole, Stays stays, Under under) {
  const Entry* topmost = nullptr;
  for (const Entry& hole : entries) {
    if (!is_hole(hole)) continue;
    for (const Entry& above : entries) {
      if (!stays(above) || !under(hole, above)) continue;
      if (topmost == nullptr || under(*topmost, above)) topmost = &above;
    }
  }
  return topmost;
}

// The stack of a bridge that makes each host region at the lowest address above the others, as the
// emulated and the simulated host do. It follows from the live host regions: a restart finds the
// same. Addresses and sizes in bytes.
class BridgeStack {
 public:
  BridgeStack(uint64_t window_base_bytes, uint64_t window_bytes)
      : base_bytes_(window_base_bytes),
        end_bytes_(window_base_bytes + window_bytes),
        next_hpa_bytes_(window_base_bytes) {}

  // A live host region inside the window; in any order.
  void Add(uint64_t hpa_bytes, uint64_t size_bytes, uint64_t serial) {
    ++live_;
    used_bytes_ += size_bytes;
    if (hpa_bytes + size_bytes <= next_hpa_bytes_) return;
    next_hpa_bytes_ = hpa_bytes + size_bytes;
    topmost_serial_ = serial;
  }

  uint32_t live() const { return live_; }
  // Without a hole the live ones fill all from the window's base to the end of the topmost.
  bool blocked() const { return used_bytes_ != next_hpa_bytes_ - base_bytes_; }
  uint64_t topmost_serial() const { return topmost_serial_; }  // 0: none is live.
  uint64_t next_hpa_bytes() const {
    return next_hpa_bytes_;
  }  // Where the next goes, unless blocked.
  uint64_t free_bytes() const {
    return end_bytes_ > next_hpa_bytes_ ? end_bytes_ - next_hpa_bytes_ : 0;
  }

 private:
  uint64_t base_bytes_;
  uint64_t end_bytes_;
  uint64_t next_hpa_bytes_;
  uint32_t live_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t topmost_serial_ = 0;
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_CXL_HOST_H_
