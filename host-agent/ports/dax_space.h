// Devices that a host sees whole, and DAX devices made of exact ranges of them: what SharedHost
// needs of the machine. On Linux the dax_region of a CXL host region or of Soft Reserved memory
// (linux_space.h); elsewhere files (file_space.h).
//
// Calls block, come one at a time, and each returns within seconds, except for OfflineBlocks, which
// has its own deadline. Look may come from a second thread meanwhile. Each is idempotent, and its
// result is not relied on: Look shows what came of it.
#ifndef CXLPOOL_HOST_AGENT_PORTS_DAX_SPACE_H_
#define CXLPOOL_HOST_AGENT_PORTS_DAX_SPACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "host-agent/model/observation.h"
#include "host-agent/ports/process_watch.h"
#include "host-agent/support/device_memory.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

// A device that might be the pool's.
struct SpaceDevice {
  std::string name = {};    // As this host calls it; not stable over boots.
  std::string serial = {};  // For people; empty: not known.
  uint64_t size_bytes = 0;
  uint64_t align_bytes = 0;  // Pieces begin and end at multiples of it.
  std::string unfit = {};    // Why no piece can be made of it now, for people; empty: one can.
  // SpaceView::pieces has every DAX device that is on it. False: which there are is not known, so
  // that a piece which is not shown may be there all the same.
  bool pieces_known = true;
};

// A DAX device on a range of a device, whoever made it.
struct SpacePiece {
  std::string device = {};  // SpaceDevice::name.
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  std::string dax = {};  // daxN.M.
  DaxDriver driver = DaxDriver::kNone;
  uint64_t hpa_bytes = 0;
  std::optional<int> numa_node = {};
  uint32_t online_blocks = 0;  // kKmem only, as in ObservedHostRegion.
  uint32_t total_blocks = 0;
  bool all_movable = false;
  friend bool operator==(const SpacePiece&, const SpacePiece&) = default;
};

struct SpaceView {
  std::vector<SpaceDevice> devices;
  std::vector<SpacePiece> pieces;
  uint64_t memory_block_bytes = 0;
  uint64_t page_struct_spare_bytes = 0;  // 0: not known.
  std::vector<int> own_nodes = {};

  const SpacePiece* Find(const std::string& device, uint64_t offset_bytes,
                         uint64_t length_bytes) const {
    for (const SpacePiece& piece : pieces) {
      if (piece.device == device && piece.offset_bytes == offset_bytes &&
          piece.length_bytes == length_bytes) {
        return &piece;
      }
    }
    return nullptr;
  }
};

// A range of a device to load and store at. Bytes [offset, offset + length) of `fd` are the piece.
struct OpenPiece {
  UniqueFd fd;
  uint64_t offset_bytes = 0;
  std::string node = {};  // As OpenedDax::node.
};

class DaxSpace {
 public:
  virtual ~DaxSpace() = default;

  // The host's policy (HostMemory::Prepare), and what makes devices usable: a host region over all
  // of a memdev where firmware made none, the kernel's own whole-device DAX device taken apart.
  // What is in use is left alone, and SpaceDevice::unfit names its user.
  virtual absl::Status Prepare() = 0;

  virtual absl::StatusOr<SpaceView> Look() = 0;

  // `seen`, of an earlier Look, as it is now, if that takes less than a Look: of a device with
  // hundreds of pieces each rung would read all. Nothing: a Look is needed to say what there is.
  virtual std::optional<SpacePiece> LookAgain(const SpacePiece& /*seen*/) { return std::nullopt; }

  // Makes a DAX device of exactly this range, without a driver.
  // FAILED_PRECONDITION/RANGE_TAKEN: a DAX device has some of it; nothing is left behind.
  virtual absl::Status Carve(const std::string& device, uint64_t offset_bytes,
                             uint64_t length_bytes) = 0;

  // The DAX device goes. FAILED_PRECONDITION/DAX_BOUND while a driver has it.
  virtual absl::Status Uncarve(const SpacePiece& piece) = 0;

  // As in HostMemory.
  virtual absl::Status Bind(const SpacePiece& piece, DaxDriver driver) = 0;
  virtual absl::Status Unbind(const SpacePiece& piece) = 0;
  virtual absl::Status OnlineBlocks(const SpacePiece& piece, MemoryZone zone) = 0;
  virtual absl::Status OfflineBlocks(const SpacePiece& piece, absl::Duration patience) = 0;
  virtual absl::StatusOr<std::vector<ProcessId>> FindHolders(const SpacePiece& piece) = 0;

  // Writes every cache line of [data, data + size), which is mapped from `offset_bytes` of a device
  // on, back to the device's memory and leaves none of it in this host's caches.
  virtual void Flush(void* data, size_t size, uint64_t /*offset_bytes*/) {
    WriteBackAndInvalidate(data, size);
  }

  // Stores zeros there, and leaves none of it in this host's caches. Of whole pages.
  virtual void Clear(void* data, size_t size, uint64_t /*offset_bytes*/) {
    ClearInMemory(data, size);
  }

  // Opens a piece that device_dax has. FAILED_PRECONDITION/NOT_DEVDAX. Any thread.
  virtual absl::StatusOr<OpenPiece> Open(const SpacePiece& piece, bool read_only) = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_PORTS_DAX_SPACE_H_
