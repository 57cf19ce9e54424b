#include "libpool/src/map.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "cxlpool/cxlpool.h"
#include "libpool/src/copy_kernels.h"
#include "libpool/src/numa.h"
#include "libpool/src/text.h"
#include "libpool/src/visibility.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

// Linux 5.14; older headers do not have them.
constexpr int kPopulateRead = 22;
constexpr int kPopulateWrite = 23;

const char* AccessText(int32_t access) {
  return access == CXLPOOL_READ_ONLY ? "READ_ONLY" : "READ_WRITE";
}

Code MapCode(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return Code::kPermissionDenied;
    case ENOMEM:
    case EAGAIN:
    case ENFILE:
      return Code::kResourceExhausted;
    case EINVAL:
    case ENODEV:
    case ENXIO:
      return Code::kFailedPrecondition;
    default:
      return Code::kInternal;
  }
}

// The child has what is mapped already. A further range would be of a Region that its parent holds.
Status OfTheParent(const std::string& name) {
  return Refuse(Code::kFailedPrecondition, "FORKED",
                Concat(name, " was opened by another process: this process was forked from it"),
                "use what was mapped before the fork, or connect and open it in this process");
}

// Where a file stands for the DAX device, a map past its end would be found out by SIGBUS.
Status CheckBacking(const OpenReply& region, const LocalSegment& segment, int fd) {
  struct stat file = {};
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return Status();
  if (static_cast<uint64_t>(file.st_size) >= segment.offset_bytes + segment.length_bytes) {
    return Status();
  }
  return Refuse(Code::kFailedPrecondition, "BACKING_SHORT",
                Concat("the bytes of ", region.name, " at ", segment.region_offset_bytes,
                       " were taken back: it has been released"),
                "close it, and allocate or open a Region again");
}

// The options with what was left open decided, or why they do not fit this Region.
StatusOr<MapOptions> Resolve(MapOptions options, const OpenReply& region, uint64_t alignment) {
  const auto misaligned = [alignment](uint64_t value) { return value % alignment != 0; };
  if (options.length_bytes == 0 && options.offset_bytes < region.size_bytes) {
    options.length_bytes = region.size_bytes - options.offset_bytes;
  }
  if (options.length_bytes == 0 || options.offset_bytes > region.size_bytes ||
      options.length_bytes > region.size_bytes - options.offset_bytes) {
    return BadArgument(
        Concat(options.length_bytes, " bytes from ", options.offset_bytes, " on are not all in ",
               region.name, ", which has ", region.size_bytes),
        "map a part that is there");
  }
  options.reserve_bytes = std::max(options.reserve_bytes, options.length_bytes);
  if (misaligned(options.offset_bytes) || misaligned(options.length_bytes) ||
      misaligned(options.reserve_bytes) ||
      misaligned(reinterpret_cast<uintptr_t>(options.address))) {
    return BadArgument(
        Concat("the address, an offset or a length is not aligned as ", region.name, " is"),
        Concat("use multiples of ", alignment));
  }
  if (options.reserve_bytes > uint64_t{1} << 56) {
    return BadArgument(Concat("reserve_bytes is ", options.reserve_bytes),
                       "reserve what the Region may grow to");
  }
  return options;
}

// For address space that is kept for a map, without access.
constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Reserves [wanted, wanted + size) where nothing is mapped, and answers where it lies; MAP_FAILED,
// or another address: it does not. A kernel before 4.17 takes the address as a hint.
void* ReserveAt(void* wanted, uint64_t size) {
  const int fixed = CXLPOOL_MUTANT("reserve-over-a-neighbour") ? MAP_FIXED : MAP_FIXED_NOREPLACE;
  void* const at = ::mmap(wanted, size, PROT_NONE, kReserveFlags | fixed, -1, 0);
  if (at != MAP_FAILED && at != wanted) ::munmap(at, size);
  return at;
}

}  // namespace

StatusOr<std::shared_ptr<Map>> Map::Make(std::shared_ptr<const OpenedRegion> region,
                                         const MapOptions& options) {
  const OpenReply& reply = region->reply;
  if (region->Forked() && !CXLPOOL_MUTANT("child-maps-its-parents-region")) {
    return OfTheParent(reply.name);
  }
  if (reply.mode == CXLPOOL_SYSTEM_RAM) {
    return Refuse(Code::kFailedPrecondition, "SYSTEM_RAM",
                  Concat(reply.name, " is system-ram on NUMA node ", reply.numa_node.value_or(-1),
                         ": there is nothing to map"),
                  "bind memory of your own to that node (cxlpool_bind_to_node, BindToNode)");
  }
  const StatusOr<MapOptions> resolved = Resolve(options, reply, AlignmentOf(reply, PageBytes()));
  if (!resolved.ok()) return resolved.status();
  std::shared_ptr<Map> map(new Map(*resolved, reply));
  if (Status status = map->Reserve(reply); !status.ok()) return status;
  if (Status status = map->Place(*region, 0, resolved->length_bytes); !status.ok()) return status;
  map->range_.bytes = resolved->length_bytes;
  map->usage_ = &region->usage;
  map->usage_->AddMap(1, static_cast<int64_t>(resolved->length_bytes));
  const MutexLock lock(map->mutex_);
  map->regions_.push_back(std::move(region));
  return map;
}

Map::Map(const MapOptions& options, const OpenReply& region)
    : caught_copy_(region.coherence == CXLPOOL_COHERENCE_HARDWARE ? CopyKernels()[0].caught
                                                                  : nullptr),
      options_(options),
      name_(region.name),
      tag_(region.tag),
      generation_(region.generation),
      is_coherent_(region.coherence == CXLPOOL_COHERENCE_HARDWARE),
      reserved_bytes_(options.reserve_bytes) {}

// Takes no lock: nobody else has it any more, and in a forked child one may never be free.
Map::~Map() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (range_.begin != nullptr) ::munmap(range_.begin, reserved_bytes_);
  if (usage_ != nullptr && !CXLPOOL_MUTANT("unmapped-counts-as-mapped")) {
    usage_->AddMap(-1, -static_cast<int64_t>(size()));
  }
}

// Address space without access, where it was wanted or at a multiple of the alignment.
Status Map::Reserve(const OpenReply& region) {
  const uint64_t size = options_.reserve_bytes;
  if (options_.address != nullptr) {
    void* const at = ReserveAt(options_.address, size);
    if (at != options_.address && (at != MAP_FAILED || errno == EEXIST)) {
      return Refuse(Code::kAlreadyExists, "ADDRESS_TAKEN",
                    Concat("something of this process is mapped where ", region.name, " was to be"),
                    "give another address, or none");
    }
    if (at == MAP_FAILED) return Failed(region, errno);
    range_.begin = static_cast<std::byte*>(at);
    return Status();
  }
  const uint64_t alignment = AlignmentOf(region, PageBytes());
  const uint64_t wanted = size + alignment;  // Neither comes near 2^63.
  void* const at = ::mmap(nullptr, wanted, PROT_NONE, kReserveFlags, -1, 0);
  if (at == MAP_FAILED) return Failed(region, errno);
  // Cut to the aligned middle.
  auto* const begin = static_cast<std::byte*>(at);
  const uint64_t head = -reinterpret_cast<uintptr_t>(begin) & (alignment - 1);
  if (head != 0) ::munmap(begin, head);
  ::munmap(begin + head + size, wanted - head - size);
  range_.begin = begin + head;
  return Status();
}

// Maps the bytes [from, to) of the map at their place in the reserved range, segment by segment.
// After an error some may be mapped: the caller takes the range away again.
Status Map::Place(const OpenedRegion& region, uint64_t from, uint64_t to) {
  const int protection = options_.writable ? PROT_READ | PROT_WRITE : PROT_READ;
  for (const LocalSegment& segment : region.reply.segments) {
    // The bytes of this segment that are wanted.
    const uint64_t begin = std::max(segment.region_offset_bytes, options_.offset_bytes + from);
    const uint64_t end =
        std::min(segment.region_offset_bytes + segment.length_bytes, options_.offset_bytes + to);
    if (begin >= end) continue;
    const int fd = region.descriptors[segment.fd_index].get();
    if (Status status = CheckBacking(region.reply, segment, fd); !status.ok()) return status;
    const uint64_t skipped =
        CXLPOOL_MUTANT("part-from-the-start") ? 0 : begin - segment.region_offset_bytes;
    // Writable although the descriptor is read-only? The kernel refuses, and that is what counts.
    if (::mmap(range_.begin + (begin - options_.offset_bytes), end - begin, protection,
               MAP_SHARED | MAP_FIXED, fd,
               static_cast<off_t>(segment.offset_bytes + skipped)) == MAP_FAILED) {
      return Failed(region.reply, errno);
    }
  }
  // A core dump would have all of it. A kernel that does not know this dumps it.
  ::madvise(range_.begin + from, to - from, MADV_DONTDUMP);
  if (!options_.populate) return Status();
  const int advice = options_.writable ? kPopulateWrite : kPopulateRead;
  while (::madvise(range_.begin + from, to - from, advice) != 0) {
    if (errno != EINTR) return Failed(region.reply, errno);
  }
  return Status();
}

bool Map::ReserveBehind(uint64_t wanted) const {
  std::byte* const behind = range_.begin + reserved_bytes_;
  return ReserveAt(behind, wanted - reserved_bytes_) == behind;
}

// Maps what the Region has behind what is mapped. What is mapped already is not touched, and the
// length grows last: who sees the new one sees what is there. On an error the range is as it was.
Status Map::Extend(std::shared_ptr<const OpenedRegion> grown) {
  const OpenReply& reply = grown->reply;
  // Before the lock, which a thread that the child does not have may have held at the fork.
  if ((Forked() || grown->Forked()) && !CXLPOOL_MUTANT("child-extends-its-parents-map")) {
    return OfTheParent(reply.name);
  }
  if (reply.tag != tag_ || reply.generation != generation_) {
    return Refuse(Code::kFailedPrecondition, "STALE_GENERATION",
                  Concat("what is mapped is another Region than ", reply.name, " (tag ", tag_,
                         ", generation ", generation_, ")"),
                  "map the other one by itself");
  }
  const MutexLock lock(mutex_);
  const uint64_t mapped = range_.bytes;
  const uint64_t all = reply.size_bytes - std::min(reply.size_bytes, options_.offset_bytes);
  if (all <= mapped) return Status();  // It has not grown.
  if (all % AlignmentOf(reply, PageBytes()) != 0 || mapped % AlignmentOf(reply, PageBytes()) != 0) {
    return BadArgument(
        Concat("the end of the map is not aligned as what was added to ", reply.name),
        "map it again");
  }
  const uint64_t reserved = reserved_bytes_;
  if (all > reserved && !ReserveBehind(all)) {
    return Refuse(Code::kFailedPrecondition, "NO_RESERVE",
                  Concat(reply.name, " has ", all, " bytes now, the map has room for ", reserved,
                         ", and no more is free behind that"),
                  "map it again, with a larger reserve_bytes");
  }
  if (Status status = Place(*grown, mapped, all); !status.ok()) {
    // As it was: the reserve without access, and nothing behind it.
    const uint64_t kept = std::min(all, reserved);
    if (kept > mapped) {
      ::mmap(range_.begin + mapped, kept - mapped, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0);
    }
    if (all > kept && !CXLPOOL_MUTANT("half-a-growth-stays")) {
      ::munmap(range_.begin + kept, all - kept);
    }
    return status;
  }
  reserved_bytes_ = std::max(all, reserved);
  regions_.push_back(std::move(grown));
  usage_->AddMap(0, static_cast<int64_t>(all - mapped));
  range_.bytes.store(all, std::memory_order_release);
  return Status();
}

std::shared_ptr<const OpenedRegion> Map::region() const {
  const MutexLock lock(mutex_);
  return regions_.front();
}

std::shared_ptr<const OpenedRegion> Map::newest_region() const {
  const MutexLock lock(mutex_);
  return regions_.back();
}

Status Map::CheckRange(const void* address, size_t bytes) const {
  const size_t offset =
      reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(range_.begin);
  if (offset <= size() && bytes <= size() - offset) return Status();
  return BadArgument(Concat("a range that is not all in the map of ", name_),
                     "give an address and a length within it");
}

Status Map::Publish(const void* address, size_t bytes) const {
  if (Status status = CheckRange(address, bytes); !status.ok()) return status;
  is_coherent_ ? OrderAccesses() : WriteBackLines(address, bytes);
  return Status();
}

Status Map::Refresh(const void* address, size_t bytes) const {
  if (Status status = CheckRange(address, bytes); !status.ok()) return status;
  is_coherent_ ? OrderAccesses() : InvalidateLines(address, bytes);
  return Status();
}

Status Map::Guard(void (*work)(void*), void* context, cxlpool_lost* lost, Handler handler) const {
  const StatusOr<std::optional<BusFault>> ran =
      RunGuarded(range_.begin, size(), work, context, handler);
  if (!ran.ok()) return ran.status();
  if (!ran->has_value()) return Status();
  const BusFault& fault = **ran;
  // What the kernel names may begin before the map, or end behind it.
  const auto first = reinterpret_cast<uintptr_t>(range_.begin);
  const uintptr_t begin = std::max(fault.address, first);
  const uintptr_t end = std::min(fault.address + std::max<size_t>(fault.bytes, 1), first + size());
  const uint64_t offset = options_.offset_bytes + (begin - first);
  if (lost != nullptr) {
    lost->region_offset_bytes = offset;
    lost->length_bytes = end - begin;
  }
  if (fault.taken_away) {
    return Refuse(Code::kFailedPrecondition, "REVOKED",
                  Concat("the memory of ", name_, " was taken away; a load or store at ", offset,
                         " met that"),
                  "unmap and close it: it was released by force, or its device has gone");
  }
  return Refuse(Code::kDataLoss, "DATA_LOST",
                Concat(end - begin, " bytes from ", offset, " on of ", name_, " are lost"),
                "save what can be read elsewhere, allocate another Region, and release this one");
}

Status Map::Failed(const OpenReply& region, int error) const {
  if (error == EHWPOISON) {  // Of populate.
    return ErrnoError(Code::kDataLoss, "DATA_LOST",
                      Concat("cannot populate the map of ", region.name, ": some bytes are lost"),
                      "map it without populate, save what can be read elsewhere, allocate another "
                      "Region, and release this one",
                      error);
  }
  std::string remedy = "see that the Region is online (`cxlpool region list`)";
  if (error == ENOMEM) {
    remedy = "free address space: look at ulimit -v and at vm.max_map_count";
  } else if ((error == EACCES || error == EPERM) && options_.writable &&
             region.access == CXLPOOL_READ_ONLY) {
    remedy = "map it read-only, or attach and open it READ_WRITE";
  } else if (error == EACCES || error == EPERM) {
    remedy = "ask the operator of this host why its DAX device may not be mapped";
  }
  return ErrnoError(MapCode(error), "MAP_FAILED",
                    Concat("cannot map ", region.name, ", open ", AccessText(region.access),
                           ", for ", options_.writable ? "reading and writing" : "reading"),
                    std::move(remedy), error);
}

}  // namespace cxlpool::libpool
