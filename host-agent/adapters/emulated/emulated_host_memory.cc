#include "host-agent/adapters/emulated/emulated_host_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "host-agent/model/online_plan.h"
#include "host-agent/support/file_holders.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

using emulated::v1::HostSide;

constexpr absl::Duration kPoll = absl::Milliseconds(10);
constexpr size_t kMaxHolders = 32;

std::string Serial(uint64_t serial) { return absl::StrCat("0x", absl::Hex(serial)); }

DaxDriver DriverOf(const HostSide& side) {
  if (side.driver() == "device_dax") return DaxDriver::kDeviceDax;
  if (side.driver() == "kmem") return DaxDriver::kKmem;
  return DaxDriver::kNone;
}

const char* NameOf(DaxDriver driver) {
  switch (driver) {
    case DaxDriver::kDeviceDax:
      return "device_dax";
    case DaxDriver::kKmem:
      return "kmem";
    case DaxDriver::kNone:
      break;
  }
  return "";
}

// A stand-in for what the kernel could spend on page structs; fixed, so that it never flickers.
uint64_t PageStructSpareBytes() {
  struct sysinfo info;
  if (::sysinfo(&info) != 0) return 0;
  return uint64_t{info.totalram} * info.mem_unit / 8;
}

}  // namespace

EmulatedHostMemory::EmulatedHostMemory(EmulatedOptions options, Executor* executor, Clock* clock)
    : options_(std::move(options)), executor_(executor), clock_(clock) {}

void EmulatedHostMemory::Run(absl::AnyInvocable<absl::Status() &&> work, Done done) {
  executor_->Post([work = std::move(work), done = std::move(done)]() mutable {
    std::move(done)(std::move(work)());
  });
}

void EmulatedHostMemory::Prepare(Done done) {
  Run([this] { return CheckDirectories(); }, std::move(done));
}

void EmulatedHostMemory::Observe(DoneWith<HostObservation> done) {
  executor_->Post([this, done = std::move(done)]() mutable { std::move(done)(Look()); });
}

void EmulatedHostMemory::PowerOn(uint32_t slot, uint64_t serial, Done done) {
  const absl::Duration deadline = clock_->Elapsed() + options_.power_on_timeout;
  executor_->Post([this, slot, serial, deadline, done = std::move(done)]() mutable {
    AwaitLd(slot, serial, deadline, std::move(done));
  });
}

void EmulatedHostMemory::CreateHostRegion(HostRegionSpec spec, Done done) {
  Run([this, spec = std::move(spec)] { return CreateNow(spec); }, std::move(done));
}

void EmulatedHostMemory::BindDax(uint64_t serial, DaxDriver driver, Done done) {
  Run([this, serial, driver] { return BindNow(serial, driver); }, std::move(done));
}

// It has no zones: what is online is movable.
void EmulatedHostMemory::OnlineBlocks(uint64_t serial, MemoryZone, Done done) {
  Run([this, serial] { return SetOnline(serial, true); }, std::move(done));
}

void EmulatedHostMemory::OfflineBlocks(uint64_t serial, absl::Duration, Done done) {
  Run([this, serial] { return SetOnline(serial, false); }, std::move(done));
}

void EmulatedHostMemory::UnbindDax(uint64_t serial, Done done) {
  Run([this, serial] { return UnbindNow(serial); }, std::move(done));
}

void EmulatedHostMemory::DestroyHostRegion(uint64_t serial, Done done) {
  Run([this, serial] { return DestroyNow(serial); }, std::move(done));
}

void EmulatedHostMemory::PowerOff(uint32_t slot, uint64_t serial, Done done) {
  Run([this, slot, serial] { return PowerOffNow(slot, serial); }, std::move(done));
}

void EmulatedHostMemory::FindHolders(uint64_t serial, DoneWith<std::vector<ProcessId>> done) {
  executor_->Post([this, serial, done = std::move(done)]() mutable {
    absl::StatusOr<Slot> slot = SlotOf(serial);
    if (absl::IsNotFound(slot.status())) return std::move(done)(std::vector<ProcessId>());
    if (!slot.ok()) return std::move(done)(slot.status());
    if (!slot->files.has_memdev()) return std::move(done)(std::vector<ProcessId>());
    std::move(done)(FindFileHolders(slot->files.fabric.extent_path(), kMaxHolders));
  });
}

// A descriptor of the extent file, as a DAX device would give one: only while the segment is
// devdax, never for writing where it is bound read-only, and never a file that has become shorter
// than the segment, since a store beyond its end would kill the application.
absl::StatusOr<OpenedDax> EmulatedHostMemory::OpenDax(uint64_t serial, bool read_only) {
  absl::StatusOr<Slot> slot = SlotOf(serial);
  if (!slot.ok()) return slot.status();
  const SlotFiles& files = slot->files;
  if (!files.has_memdev() || !files.host.committed() ||
      DriverOf(files.host) != DaxDriver::kDeviceDax) {
    return FailedPrecondition("NOT_DEVDAX",
                              absl::StrCat("serial ", Serial(serial), " has no devdax device now"),
                              "wait until the Attachment is ONLINE");
  }
  if (files.fabric.read_only() && !read_only) {
    return Refuse(absl::StatusCode::kPermissionDenied, "ATTACHMENT_READ_ONLY",
                  absl::StrCat("serial ", Serial(serial), " is bound read-only"),
                  "open it READ_ONLY");
  }
  const std::string& path = files.fabric.extent_path();
  UniqueFd fd(::open(path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW));
  struct stat extent;
  if (!fd.valid() || ::fstat(fd.get(), &extent) != 0) {
    return Refuse(absl::StatusCode::kUnavailable, "EXTENT_FILE",
                  absl::StrCat(path, ": ", std::strerror(errno)),
                  "check that the extent belongs to the agent's user");
  }
  if (!S_ISREG(extent.st_mode) ||
      static_cast<uint64_t>(extent.st_size) < files.fabric.length_bytes()) {
    return Refuse(absl::StatusCode::kUnavailable, "EXTENT_FILE",
                  absl::StrCat(path, " is not a file of ", files.fabric.length_bytes(), " bytes"),
                  "see whether the Region is being released");
  }
  return OpenedDax(std::move(fd), 0, path);
}

// --- Looking.

// The manager makes the folders, so it has to come first. A wrong root, name or user shows here and
// not at the first allocation.
absl::Status EmulatedHostMemory::CheckDirectories() const {
  for (const EmulatedBridge& bridge : options_.bridges) {
    for (uint32_t slot : bridge.slots) {
      const std::string path = SlotDirectory(options_.root, options_.host, slot);
      struct stat directory;
      if (::stat(path.c_str(), &directory) != 0 || !S_ISDIR(directory.st_mode) ||
          ::access(path.c_str(), W_OK) != 0) {
        return FailedPrecondition(
            "EMULATED_ROOT", absl::StrCat(path, " is not a directory that this user can write"),
            "start the manager with the emulated driver first, with the same root and a host of "
            "this name, slots and user");
      }
    }
  }
  return absl::OkStatus();
}

// Both sides of every slot as they are now: the files are the truth, and nothing is kept between
// calls.
absl::StatusOr<std::vector<EmulatedHostMemory::Slot>> EmulatedHostMemory::ReadSlots() const {
  std::vector<Slot> slots;
  for (size_t b = 0; b < options_.bridges.size(); ++b) {
    for (uint32_t number : options_.bridges[b].slots) {
      Slot slot{.number = number,
                .bridge = b,
                .directory = SlotDirectory(options_.root, options_.host, number),
                .files = {}};
      absl::StatusOr<SlotFiles> files = ReadSlot(slot.directory);
      if (!files.ok()) return files.status();
      slot.files = *std::move(files);
      slots.push_back(std::move(slot));
    }
  }
  return slots;
}

BridgeStack EmulatedHostMemory::StackOfBridge(size_t bridge, const std::vector<Slot>& slots) const {
  BridgeStack stack(WindowBase(bridge), options_.bridges[bridge].window_bytes);
  for (const Slot& slot : slots) {
    const HostSide& host = slot.files.host;
    if (slot.bridge != bridge || !host.committed()) continue;
    stack.Add(host.hpa_bytes(), host.size_bytes(), host.serial());
  }
  return stack;
}

ObservedBridge EmulatedHostMemory::ShowBridge(size_t bridge, const BridgeStack& stack) const {
  const EmulatedBridge& made = options_.bridges[bridge];
  return {.name = made.name,
          .slots = made.slots,
          .max_regions = made.max_regions,
          .live_regions = stack.live(),
          .blocked = stack.blocked(),
          .blocking_serial = stack.topmost_serial(),
          .window_bytes = made.window_bytes,
          .free_window_bytes = stack.free_bytes()};
}

// All that the host has, in the words of a kernel: names follow the slot, so that they are the same
// after a restart.
absl::StatusOr<HostObservation> EmulatedHostMemory::Look() const {
  absl::StatusOr<std::vector<Slot>> slots = ReadSlots();
  if (!slots.ok()) return slots.status();
  HostObservation seen;
  seen.memory_block_bytes = kEmulatedMemoryBlockBytes;
  seen.region_granule_bytes = kEmulatedGranuleBytes;
  seen.page_struct_spare_bytes = PageStructSpareBytes();
  for (size_t b = 0; b < options_.bridges.size(); ++b) {
    seen.bridges.push_back(ShowBridge(b, StackOfBridge(b, *slots)));
  }
  for (const Slot& slot : *slots) {
    const SlotFiles& files = slot.files;
    if (files.has_memdev()) {
      seen.memdevs.push_back({.serial = files.fabric.serial(),
                              .slot = slot.number,
                              .name = absl::StrCat("mem", slot.number),
                              .size_bytes = files.fabric.length_bytes(),
                              .host_bridge = options_.bridges[slot.bridge].name});
    }
    if (!files.host.committed()) continue;
    ObservedHostRegion region;
    region.name = absl::StrCat("region", slot.number);
    region.serials = {files.host.serial()};
    region.committed = true;
    region.hpa_bytes = files.host.hpa_bytes();
    region.size_bytes = files.host.size_bytes();
    region.interleave_granularity_bytes = 256;
    region.dax_device = absl::StrCat("dax", slot.number, ".0");
    region.dax_driver = DriverOf(files.host);
    region.numa_node = 0;
    region.dax_align_bytes = kEmulatedGranuleBytes;
    region.online_blocks = files.host.online_blocks();
    region.total_blocks = files.host.total_blocks();
    region.all_movable = files.host.online_blocks() > 0;
    seen.regions.push_back(std::move(region));
  }
  return seen;
}

absl::StatusOr<EmulatedHostMemory::Slot> EmulatedHostMemory::SlotOf(uint64_t serial) const {
  absl::StatusOr<std::vector<Slot>> slots = ReadSlots();
  if (!slots.ok()) return slots.status();
  for (Slot& slot : *slots) {
    if (serial != 0 && slot.files.host.serial() == serial) return std::move(slot);
  }
  return Refuse(absl::StatusCode::kNotFound, "NO_MEMDEV",
                absl::StrCat("no slot of this host was powered on for serial ", Serial(serial)),
                "power the slot on first");
}

// --- Rungs up.

// Looks for the LD until the deadline. Once it is there the host side begins afresh: nothing of
// what was in the slot before may be taken for it.
void EmulatedHostMemory::AwaitLd(uint32_t slot, uint64_t serial, absl::Duration deadline,
                                 Done done) {
  const std::string directory = SlotDirectory(options_.root, options_.host, slot);
  absl::StatusOr<SlotFiles> files = ReadSlot(directory);
  if (!files.ok()) return std::move(done)(files.status());
  if (files->fabric.serial() == serial) {
    if (files->has_memdev()) return std::move(done)(absl::OkStatus());
    HostSide side;  // A new device: nothing of an earlier one remains.
    side.set_serial(serial);
    side.set_powered(true);
    return std::move(done)(WriteHostSide(directory, side));
  }
  if (clock_->Elapsed() >= deadline) {
    return std::move(done)(
        Refuse(absl::StatusCode::kDeadlineExceeded, "MEMDEV_TIMEOUT",
               absl::StrCat("no memdev with serial ", Serial(serial), " came in slot ", slot),
               "see on the manager whether the Region is bound to this host"));
  }
  executor_->PostAfter(kPoll, [this, slot, serial, deadline, done = std::move(done)]() mutable {
    AwaitLd(slot, serial, deadline, std::move(done));
  });
}

// Commits a host region at the top of its bridge's stack, by the rule that a decoder stack has
// (bridge_stack.h): the emulated host refuses what a kernel would refuse. Again: no effect.
absl::Status EmulatedHostMemory::CreateNow(const HostRegionSpec& spec) {
  if (spec.serials.size() != 1) {
    return Refuse(
        absl::StatusCode::kUnimplemented, "INTERLEAVE_UNSUPPORTED",
        absl::StrCat("the emulated host cannot stripe a host region over ", spec.serials.size(),
                     " extents: each is a file of its own, and a mapping has one file"),
        "allocate it with another placement policy than bandwidth, or try interleaving "
        "on the emulated rack (driver qemu)");
  }
  absl::StatusOr<std::vector<Slot>> slots = ReadSlots();
  if (!slots.ok()) return slots.status();
  absl::StatusOr<Slot> slot = SlotOf(spec.serials[0]);
  if (!slot.ok()) return slot.status();
  if (!slot->files.has_memdev()) {
    return FailedPrecondition(
        "MEMDEV_GONE", absl::StrCat("serial ", Serial(spec.serials[0]), " is not in its slot"),
        "power the slot on first");
  }
  HostSide side = slot->files.host;
  if (side.committed()) return absl::OkStatus();
  const EmulatedBridge& bridge = options_.bridges[slot->bridge];
  const BridgeStack stack = StackOfBridge(slot->bridge, *slots);
  if (bridge.name != spec.host_bridge) {
    return FailedPrecondition("WRONG_BRIDGE",
                              absl::StrCat("slot ", slot->number, " is under ", bridge.name),
                              absl::StrCat("ask for bridge ", bridge.name));
  }
  if (spec.size_bytes == 0 || spec.size_bytes != slot->files.fabric.length_bytes()) {
    return Refuse(absl::StatusCode::kInternal, "REGION_COMMIT",
                  absl::StrCat("a host region of ", spec.size_bytes, " bytes does not fit memdev ",
                               "of ", slot->files.fabric.length_bytes()),
                  "detach the Region and attach it again");
  }
  if (auto refusal = WhyBridgeTakesNoMore(ShowBridge(slot->bridge, stack), spec.size_bytes)) {
    return refusal->ToStatus();
  }
  side.set_committed(true);
  side.set_hpa_bytes(stack.next_hpa_bytes());
  side.set_size_bytes(spec.size_bytes);
  return WriteHostSide(slot->directory, side);
}

// Gives the DAX device to a driver that it is not with. Memory blocks begin offline, as the
// kernel's do.
absl::Status EmulatedHostMemory::BindNow(uint64_t serial, DaxDriver driver) {
  absl::StatusOr<Slot> slot = SlotOf(serial);
  if (!slot.ok()) return slot.status();
  HostSide side = slot->files.host;
  if (!side.committed() || !slot->files.has_memdev()) {
    return FailedPrecondition("NO_HOST_REGION",
                              absl::StrCat("serial ", Serial(serial), " has no host region"),
                              "create the host region first");
  }
  if (DriverOf(side) == driver) return absl::OkStatus();
  if (DriverOf(side) != DaxDriver::kNone) {
    return FailedPrecondition("DAX_BOUND",
                              absl::StrCat("driver ", side.driver(), " has the DAX device"),
                              "unbind it first");
  }
  side.set_driver(NameOf(driver));
  if (driver == DaxDriver::kKmem) {
    const uint64_t blocks = side.size_bytes() / kEmulatedMemoryBlockBytes;
    if (blocks == 0) {
      return Refuse(absl::StatusCode::kInvalidArgument, "NO_MEMORY_BLOCK",
                    absl::StrCat(side.size_bytes(), " bytes hold no memory block of 128 MiB"),
                    "use DEVDAX, or a Region of 128 MiB or more");
    }
    side.set_total_blocks(static_cast<uint32_t>(blocks));
  }
  return WriteHostSide(slot->directory, side);
}

// All blocks at once. Offline of what is gone, or is not with kmem, has nothing to do.
absl::Status EmulatedHostMemory::SetOnline(uint64_t serial, bool online) {
  absl::StatusOr<Slot> slot = SlotOf(serial);
  if (!online && absl::IsNotFound(slot.status())) return absl::OkStatus();
  if (!slot.ok()) return slot.status();
  HostSide side = slot->files.host;
  if (DriverOf(side) != DaxDriver::kKmem) {
    if (!online) return absl::OkStatus();
    return FailedPrecondition("NOT_KMEM",
                              absl::StrCat("serial ", Serial(serial), " is not with kmem"),
                              "bind the DAX device to kmem first");
  }
  side.set_online_blocks(online ? side.total_blocks() : 0);
  return WriteHostSide(slot->directory, side);
}

// --- Rungs down.

// Takes the DAX device from its driver; memory that is online stays with it. What is gone is
// unbound.
absl::Status EmulatedHostMemory::UnbindNow(uint64_t serial) {
  absl::StatusOr<Slot> slot = SlotOf(serial);
  if (absl::IsNotFound(slot.status())) return absl::OkStatus();
  if (!slot.ok()) return slot.status();
  HostSide side = slot->files.host;
  if (DriverOf(side) == DaxDriver::kNone) return absl::OkStatus();
  if (side.online_blocks() > 0) {
    return FailedPrecondition("BLOCKS_BUSY",
                              absl::StrCat(side.online_blocks(), " of ", side.total_blocks(),
                                           " memory blocks are online"),
                              "bring them offline first");
  }
  side.clear_driver();
  side.clear_total_blocks();
  return WriteHostSide(slot->directory, side);
}

// Ends the host region. A device that a driver still has is in somebody's hands.
absl::Status EmulatedHostMemory::DestroyNow(uint64_t serial) {
  absl::StatusOr<Slot> slot = SlotOf(serial);
  if (absl::IsNotFound(slot.status())) return absl::OkStatus();
  if (!slot.ok()) return slot.status();
  HostSide side = slot->files.host;
  if (!side.committed()) return absl::OkStatus();
  if (DriverOf(side) != DaxDriver::kNone) {
    return FailedPrecondition("DAX_BOUND",
                              absl::StrCat("driver ", side.driver(), " has the DAX device"),
                              "unbind it first");
  }
  side.clear_committed();
  side.clear_hpa_bytes();
  side.clear_size_bytes();
  return WriteHostSide(slot->directory, side);
}

// Says to the fabric that the host has let go of the slot: it takes the LD away only then. Another
// LD's slot is left alone, and one that never was powered on for this LD is told all the same,
// else the fabric would wait for ever.
absl::Status EmulatedHostMemory::PowerOffNow(uint32_t slot, uint64_t serial) {
  const std::string directory = SlotDirectory(options_.root, options_.host, slot);
  absl::StatusOr<SlotFiles> files = ReadSlot(directory);
  if (!files.ok()) return files.status();
  if (files->host.serial() == serial) {
    if (files->host.committed()) {
      return FailedPrecondition("REGION_LIVE",
                                absl::StrCat("the memdev in slot ", slot, " carries a host region"),
                                "destroy the host region first");
    }
  } else if (files->has_memdev()) {
    return FailedPrecondition("OTHER_MEMDEV",
                              absl::StrCat("slot ", slot, " holds serial ",
                                           Serial(files->host.serial()), ", not ", Serial(serial)),
                              "see on the manager what is bound there");
  } else if (files->fabric.serial() != serial) {
    return absl::OkStatus();  // Empty, or not powered on yet for another LD.
  }
  HostSide side;
  side.set_serial(serial);  // Powered off, also where it never was on: the fabric waits for it.
  return WriteHostSide(directory, side);
}

}  // namespace cxlpool::agent
