// A Region's bytes in this process: one contiguous range, whatever number of DAX devices hold it.
//
// Loads and stores go straight to the memory; libpool is not between. The range is unmapped when
// the Mapping is destroyed. A Mapping keeps the Region in use: the host agent sees the Region
// closed only when the Region object and every Mapping of it are gone.
//
// If the memory is taken away all the same (surprise removal, a forced release), loads and stores
// end in SIGBUS.
//
// Movable, not copyable. Threads: const functions any; move and destroy with nobody using it.
// What the bytes need between threads and hosts is the application's affair (Region::coherence).
#ifndef CXLPOOL_MAPPING_H_
#define CXLPOOL_MAPPING_H_

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace cxlpool {

struct OpenedRegion;  // Internal.

class Mapping {
 public:
  // Maps nothing: bytes() is empty.
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})),
        writable_(std::exchange(other.writable_, false)),
        region_(std::move(other.region_)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      Unmap();
      bytes_ = std::exchange(other.bytes_, {});
      writable_ = std::exchange(other.writable_, false);
      region_ = std::move(other.region_);
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { Unmap(); }

  // Every byte of the Region, to read. Starts at a multiple of the largest alignment of its DAX
  // devices (2 MiB as a rule), so at least at a page.
  std::span<const std::byte> bytes() const { return bytes_; }

  // The same to write; empty unless writable().
  std::span<std::byte> mutable_bytes() const { return writable_ ? bytes_ : std::span<std::byte>(); }

  bool writable() const { return writable_; }

  // Unmaps now. Pointers into the range are dead; bytes() is empty.
  void Unmap();

 private:
  friend class Region;
  Mapping(std::span<std::byte> bytes, bool writable, std::shared_ptr<const OpenedRegion> region)
      : bytes_(bytes), writable_(writable), region_(std::move(region)) {}

  std::span<std::byte> bytes_;
  bool writable_ = false;
  std::shared_ptr<const OpenedRegion> region_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_MAPPING_H_
