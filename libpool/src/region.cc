#include "cxlpool/region.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libpool/src/address_range.h"
#include "libpool/src/errors.h"
#include "libpool/src/opened_region.h"

namespace cxlpool {
namespace {

using libpool::AddressRange;
using libpool::ErrnoError;
using libpool::Error;
using libpool::MapSegment;
using libpool::OpenReply;

absl::StatusCode MapCode(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case ENOMEM:
    case EAGAIN:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case EINVAL:
    case ENODEV:
    case ENXIO:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status MapError(const OpenReply& region, bool writable, int error) {
  std::string remedy = "see that the Region is online (Client::List)";
  if (error == ENOMEM) {
    remedy = "free address space: look at ulimit -v and at vm.max_map_count";
  } else if ((error == EACCES || error == EPERM) && writable &&
             region.access == Access::kReadOnly) {
    remedy = "map it read-only, or attach and open it READ_WRITE";
  } else if (error == EACCES || error == EPERM) {
    remedy = "ask the operator of this host why its DAX device may not be mapped";
  }
  return ErrnoError(MapCode(error), "MAP_FAILED",
                    absl::StrCat("cannot map ", region.name, ", open ", ToString(region.access),
                                 ", for ", writable ? "reading and writing" : "reading"),
                    std::move(remedy), error);
}

// Where a file stands for the DAX device, a map past its end would be found out by SIGBUS.
absl::Status CheckBacking(const OpenReply& region, const MapSegment& segment, int fd) {
  struct stat file = {};
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return absl::OkStatus();
  if (static_cast<uint64_t>(file.st_size) >= segment.offset_bytes + segment.length_bytes) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kFailedPrecondition, "BACKING_SHORT",
               absl::StrCat("the bytes of ", region.name, " at ", segment.region_offset_bytes,
                            " were taken back: it has been released"),
               "close it, and allocate or open a Region anew");
}

uint64_t LargestAlignment(const OpenReply& region) {
  uint64_t alignment = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const MapSegment& segment : region.segments) {
    alignment = std::max(alignment, segment.alignment_bytes);
  }
  return alignment;
}

}  // namespace

Region::Region(std::shared_ptr<const OpenedRegion> opened) : opened_(std::move(opened)) {}
Region::Region(Region&&) noexcept = default;
Region& Region::operator=(Region&&) noexcept = default;
Region::~Region() = default;

const std::string& Region::name() const { return opened_->reply.name; }
const std::string& Region::tag() const { return opened_->reply.tag; }
uint64_t Region::generation() const { return opened_->reply.generation; }
uint64_t Region::size_bytes() const { return opened_->reply.size_bytes; }
Access Region::access() const { return opened_->reply.access; }
Mode Region::mode() const { return opened_->reply.mode; }
Coherence Region::coherence() const { return opened_->reply.coherence; }
std::optional<int> Region::numa_node() const { return opened_->reply.numa_node; }
absl::Status Region::Check() const { return opened_->hold.Check(); }

absl::StatusOr<Mapping> Region::Map(const MapOptions& options) const {
  const OpenReply& region = opened_->reply;
  const bool writable = options.writable.value_or(region.access == Access::kReadWrite);
  if (region.mode == Mode::kSystemRam) {
    return Error(absl::StatusCode::kFailedPrecondition, "SYSTEM_RAM",
                 absl::StrCat(region.name, " is system-ram on NUMA node ",
                              region.numa_node.value_or(-1), ": there is nothing to map"),
                 "bind memory of your own to that node with BindToNode");
  }
  AddressRange range;
  if (int error = range.Reserve(region.size_bytes, LargestAlignment(region)); error != 0) {
    return MapError(region, writable, error);
  }
  for (const MapSegment& segment : region.segments) {
    const int fd = opened_->descriptors[segment.descriptor].get();
    if (absl::Status status = CheckBacking(region, segment, fd); !status.ok()) return status;
    // Writable although the descriptor is read-only? The kernel says no, and that is what counts.
    if (int error = range.Place(segment, fd, writable); error != 0) {
      return MapError(region, writable, error);
    }
  }
  return Mapping(range.Release(), writable, opened_);
}

void Mapping::Unmap() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  bytes_ = {};
  writable_ = false;
  region_.reset();
}

}  // namespace cxlpool
