#include "host-agent/adapters/shared/shared_machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "google/protobuf/util/message_differencer.h"
#include "host-agent/adapters/shared/device_mark.h"
#include "host-agent/adapters/shared/shared_host.h"
#include "proto/support/cxl_host.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kMaxClearBytes = uint64_t{1} << 30;

absl::Status NoHostRegion(uint64_t serial) {
  return Refuse(absl::StatusCode::kNotFound, "NO_HOST_REGION",
                absl::StrFormat("there is no host region of serial %#x", serial),
                "create the host region first");
}

bool IsPieceOf(const Granted& granted, const SpacePiece& piece) {
  return piece.device == granted.name && piece.offset_bytes == granted.offset_bytes &&
         piece.length_bytes == granted.grant.length_bytes();
}

}  // namespace

SharedMachine::SharedMachine(std::unique_ptr<DaxSpace> space, const std::string& grants_path,
                             const std::string& boot_id, absl::Duration zero_patience, Probe probe)
    : space_(std::move(space)),
      zero_patience_(zero_patience),
      probe_(std::move(probe)),
      table_(grants_path, boot_id) {}

SharedMachine::~SharedMachine() {
  for (auto& [name, window] : windows_) ::munmap(window.at, window.size);
}

absl::Status SharedMachine::Prepare() {
  prepared_ = absl::Now();
  if (absl::Status status = space_->Prepare(); !status.ok()) return status;
  if (absl::Status status = EndWork(); !status.ok()) return status;
  return LookAtMarks().status();
}

// A grant is a memdev. Its piece is a host region, and a committed one once no cache can have an
// older line of it. The driver that has it before that is this agent's own doing.
absl::StatusOr<HostObservation> SharedMachine::Observe() {
  absl::StatusOr<SpaceView> view = space_->Look();
  if (!view.ok()) return view.status();
  MutexLock lock(mutex_);
  HostObservation seen;
  seen.memory_block_bytes = view->memory_block_bytes;
  seen.page_struct_spare_bytes = view->page_struct_spare_bytes;
  seen.own_nodes = view->own_nodes;
  ObservedBridge bridge{.name = kSharedBridge, .max_regions = kSharedSlots, .any_order = true};
  for (uint32_t slot = 1; slot <= kSharedSlots; ++slot) bridge.slots.push_back(slot);
  uint64_t align = 0;
  for (const SpaceDevice& device : view->devices) {
    bridge.window_bytes += device.size_bytes;
    align = std::max(align, device.align_bytes);
  }
  if (align != 0) seen.region_granule_bytes = align;
  uint64_t made = 0;
  for (const Granted& granted : table_.all()) {
    const v1::DeviceGrant& grant = granted.grant;
    seen.memdevs.push_back({.serial = grant.serial(),
                            .slot = grant.slot(),
                            .name = absl::StrCat("grant", grant.slot()),
                            .size_bytes = grant.length_bytes(),
                            .host_bridge = kSharedBridge});
    const SpacePiece* piece = view->Find(granted.name, granted.offset_bytes, grant.length_bytes());
    if (piece == nullptr) continue;
    made += piece->length_bytes;
    bridge.live_regions += granted.ready ? 1 : 0;
    ObservedHostRegion region{.name = piece->dax,
                              .serials = {grant.serial()},
                              .committed = granted.ready,
                              .hpa_bytes = piece->hpa_bytes,
                              .size_bytes = piece->length_bytes,
                              .interleave_granularity_bytes = 0,
                              .dax_device = piece->dax,
                              .dax_driver = granted.ready ? piece->driver : DaxDriver::kNone,
                              .numa_node = piece->numa_node,
                              .dax_align_bytes = align};
    region.online_blocks = piece->online_blocks;
    region.total_blocks = piece->total_blocks;
    region.all_movable = piece->all_movable;
    seen.regions.push_back(std::move(region));
  }
  bridge.free_window_bytes = bridge.window_bytes - std::min(bridge.window_bytes, made);
  seen.bridges.push_back(std::move(bridge));
  seen_ = *std::move(view);
  return seen;
}

// --- Rungs.

absl::Status SharedMachine::CheckPlugged(uint32_t slot, uint64_t serial) {
  const std::optional<Granted> granted = FindGranted(serial);
  if (granted.has_value() && granted->grant.slot() == slot) return absl::OkStatus();
  return Refuse(absl::StatusCode::kDeadlineExceeded, "MEMDEV_TIMEOUT",
                absl::StrFormat("nothing of serial %#x was granted in slot %u", serial, slot),
                "see on the manager whether the Region is bound to this host");
}

// Ready only once the caches have nothing of it: what another host stored there is what is read.
absl::Status SharedMachine::CreateHostRegion(const HostRegionSpec& spec) {
  if (spec.serials.size() != 1) {
    return Refuse(absl::StatusCode::kUnimplemented, "INTERLEAVE_UNSUPPORTED",
                  "a shared device is interleaved by firmware, or not at all",
                  "allocate it with another placement policy than bandwidth");
  }
  const std::optional<Granted> granted = FindGranted(spec.serials[0]);
  if (!granted.has_value()) {
    return FailedPrecondition("MEMDEV_GONE",
                              absl::StrFormat("nothing of serial %#x is granted", spec.serials[0]),
                              "wait until the manager has bound it");
  }
  const v1::DeviceGrant& grant = granted->grant;
  if (granted->ready) {
    const auto there = LookForPiece(granted->name, granted->offset_bytes, grant.length_bytes());
    if (there.ok() || CXLPOOL_MUTANT("ready-is-there")) return absl::OkStatus();
    if (!absl::IsNotFound(there.status())) return there.status();
    // Somebody has removed it by hand. What is made anew is flushed before it is ready, which
    // writes back what the former one's users stored as well.
    MutexLock lock(mutex_);
    if (absl::Status status = table_.SetReady(grant.serial(), false); !status.ok()) return status;
  }
  if (spec.size_bytes != grant.length_bytes()) {
    return Refuse(absl::StatusCode::kInternal, "REGION_COMMIT",
                  absl::StrCat("a host region of ", spec.size_bytes, " bytes on a grant of ",
                               grant.length_bytes()),
                  "detach the Region and attach it again");
  }
  absl::Status status = space_->Carve(granted->name, granted->offset_bytes, grant.length_bytes());
  if (!status.ok()) return status;
  const auto piece = LookForPiece(granted->name, granted->offset_bytes, grant.length_bytes());
  if (!piece.ok()) return piece.status();
  if (CXLPOOL_MUTANT("ready-before-invalidate")) {
    MutexLock lock(mutex_);
    if (status = table_.SetReady(grant.serial(), true); !status.ok()) return status;
  }
  Pass("carved");
  if (!grant.coherent() && !CXLPOOL_MUTANT("attach-without-invalidate")) {
    if (status = FlushPiece(*piece); !status.ok()) return status;
  }
  Pass("invalidated");
  MutexLock lock(mutex_);
  return table_.SetReady(grant.serial(), true);
}

// Written back while nobody can store any more, and before the DAX device goes: a line that stays
// dirty would be written over the next owner's bytes. OK: no flush is owed any more.
absl::Status SharedMachine::DestroyHostRegion(uint64_t serial) {
  const std::optional<Granted> granted = FindGranted(serial);
  if (!granted.has_value()) return absl::OkStatus();
  const v1::DeviceGrant& grant = granted->grant;
  const auto piece = LookForPiece(granted->name, granted->offset_bytes, grant.length_bytes());
  if (absl::IsNotFound(piece.status())) return FlushOwed(*granted);
  if (!piece.ok()) return piece.status();
  if (granted->ready) {
    if (piece->driver != DaxDriver::kNone && !CXLPOOL_MUTANT("flush-while-bound")) {
      return FailedPrecondition("DAX_BOUND", absl::StrCat("a driver has ", piece->dax),
                                "unbind it first");
    }
    // From here on the driver that has it is this agent's.
    MutexLock lock(mutex_);
    if (absl::Status status = table_.SetReady(serial, false); !status.ok()) return status;
  }
  const bool flushes = granted->ready || !CXLPOOL_MUTANT("flush-is-not-repeated");
  if (!grant.coherent() && flushes && !CXLPOOL_MUTANT("release-without-flush")) {
    if (absl::Status status = FlushPiece(*piece); !status.ok()) return status;
  }
  Pass("written-back");
  if (absl::Status status = space_->Unbind(*piece); !status.ok()) return status;
  if (absl::Status status = space_->Uncarve(*piece); !status.ok()) return status;
  MutexLock lock(mutex_);
  return table_.SetFlushed(serial);
}

// Somebody has removed the DAX device by hand, before its lines were written back: it is done
// through one of the agent's own. RANGE_TAKEN: somebody has made another DAX device there.
absl::Status SharedMachine::FlushOwed(const Granted& granted) {
  if (!granted.owes_flush || CXLPOOL_MUTANT("flush-owed-is-forgotten")) return absl::OkStatus();
  const v1::DeviceGrant& grant = granted.grant;
  {
    // What is there meanwhile is the agent's, and not the applications'.
    MutexLock lock(mutex_);
    absl::Status status = table_.SetReady(grant.serial(), false);
    if (!status.ok()) return status;
  }
  if (!grant.coherent()) {
    const WorkRange range{granted.name, granted.offset_bytes, grant.length_bytes()};
    absl::Status status = OnWorkPiece(range, FlushOf(granted.name, granted.offset_bytes));
    if (!status.ok()) return status;
  }
  MutexLock lock(mutex_);
  return table_.SetFlushed(grant.serial());
}

// Without a DAX device the agent's ladder comes here at once, and not by DestroyHostRegion.
absl::Status SharedMachine::PowerOff(uint32_t slot, uint64_t serial) {
  std::optional<Granted> granted;
  {
    MutexLock lock(mutex_);
    if (const Granted* found = table_.FindSlot(slot)) granted = *found;
  }
  if (!granted.has_value()) return absl::OkStatus();
  if (granted->grant.serial() != serial) {
    return FailedPrecondition(
        "OTHER_MEMDEV",
        absl::StrFormat("slot %u holds serial %#x, not %#x", slot, granted->grant.serial(), serial),
        "see on the manager what is bound there");
  }
  const auto piece =
      LookForPiece(granted->name, granted->offset_bytes, granted->grant.length_bytes());
  if (piece.ok()) {
    return FailedPrecondition("REGION_LIVE",
                              absl::StrCat("there is a DAX device on it: ", piece->dax),
                              "destroy the host region first");
  }
  if (!absl::IsNotFound(piece.status())) return piece.status();
  if (CXLPOOL_MUTANT("flush-after-the-grant")) {
    MutexLock lock(mutex_);
    if (absl::Status status = table_.Remove(serial); !status.ok()) return status;
  }
  if (absl::Status status = FlushOwed(*granted); !status.ok()) return status;
  MutexLock lock(mutex_);
  return table_.Remove(serial);
}

absl::StatusOr<SpacePiece> SharedMachine::PieceOf(uint64_t serial) {
  const std::optional<Granted> granted = FindGranted(serial);
  if (!granted.has_value() || !granted->ready) return NoHostRegion(serial);
  auto piece = LookForPiece(granted->name, granted->offset_bytes, granted->grant.length_bytes());
  if (absl::IsNotFound(piece.status())) return NoHostRegion(serial);
  return piece;
}

absl::StatusOr<OpenPiece> SharedMachine::Open(uint64_t serial, bool read_only) {
  SpacePiece piece;
  {
    MutexLock lock(mutex_);
    const Granted* granted = table_.FindSerial(serial);
    const SpacePiece* seen =
        granted == nullptr || !granted->ready
            ? nullptr
            : seen_.Find(granted->name, granted->offset_bytes, granted->grant.length_bytes());
    if (seen == nullptr) {
      return FailedPrecondition("NOT_DEVDAX",
                                absl::StrFormat("serial %#x has no devdax device now", serial),
                                "wait until the Attachment is ONLINE");
    }
    if (granted->grant.read_only() && !read_only) {
      return Refuse(absl::StatusCode::kPermissionDenied, "ATTACHMENT_READ_ONLY",
                    absl::StrFormat("serial %#x was granted read-only", serial),
                    "open it READ_ONLY");
    }
    piece = *seen;
  }
  return space_->Open(piece, read_only);
}

// By host address where the kernel knows it: it is right for interleaved devices too. Else by the
// memdev's serial, whose address is the device's where it is the only one. What lies in several
// pieces of a device is an event of each.
void SharedMachine::Place(std::vector<v1::HostEvent>& events) {
  MutexLock lock(mutex_);
  std::vector<v1::HostEvent> placed;
  for (v1::HostEvent& event : events) {
    const Granted* first = nullptr;
    for (const Granted& granted : table_.all()) {
      if (first != nullptr && granted.name != first->name) continue;
      const SpacePiece* piece =
          seen_.Find(granted.name, granted.offset_bytes, granted.grant.length_bytes());
      if (piece == nullptr) continue;
      const auto device =
          std::find_if(seen_.devices.begin(), seen_.devices.end(),
                       [&](const SpaceDevice& each) { return each.name == granted.name; });
      const bool by_hpa = event.hpa_bytes() != 0 && piece->hpa_bytes != 0;
      const bool by_serial =
          device != seen_.devices.end() && device->serial == absl::StrFormat("%#x", event.serial());
      const uint64_t at = by_hpa ? event.hpa_bytes() : event.dpa_bytes();
      const uint64_t begin = by_hpa ? piece->hpa_bytes : granted.offset_bytes;
      const uint64_t length = std::max(event.length_bytes(), uint64_t{1});
      const uint64_t from = std::max(at, begin);
      const uint64_t to = std::min(at + std::min(length, ~at), begin + piece->length_bytes);
      if ((!by_hpa && !by_serial) || from >= to) continue;
      if (first != nullptr && CXLPOOL_MUTANT("lost-bytes-are-the-first-grants")) break;
      first = &granted;
      v1::HostEvent& own = placed.emplace_back(event);
      own.set_serial(granted.grant.serial());
      own.set_dpa_bytes(from - begin);
      if (by_hpa) own.set_hpa_bytes(from);
      if (event.length_bytes() != 0) own.set_length_bytes(to - from);
    }
    if (first == nullptr) placed.push_back(std::move(event));
  }
  events = std::move(placed);
}

uint64_t SharedMachine::LengthOf(uint64_t serial) {
  const std::optional<Granted> granted = FindGranted(serial);
  return granted.has_value() ? granted->grant.length_bytes() : 0;
}

// --- Tasks.

// Devices with their marks, what was granted here, and DAX devices on a marked device that nobody
// was granted: those are somebody else's, shown so that the pool does not place anything there.
absl::StatusOr<v1::DeviceLook> SharedMachine::Look() {
  PrepareUnfit();
  const absl::StatusOr<SpaceView> view = LookAtMarks();
  if (!view.ok()) return view.status();
  v1::DeviceLook look;
  std::map<std::string, v1::DeviceMark> marks;
  for (const SpaceDevice& device : view->devices) {
    v1::SharedDevice& out = *look.add_devices();
    out.set_name(device.name);
    out.set_serial(device.serial);
    out.set_size_bytes(device.size_bytes);
    out.set_align_bytes(device.align_bytes);
    out.set_unfit_reason(device.unfit);
    const auto window = windows_.find(device.name);
    if (window == windows_.end()) continue;
    const auto& mark = window->second.mark;
    if (!mark.ok()) {
      out.set_unfit_reason(std::string(mark.status().message()));
    } else if (mark->has_value()) {
      *out.mutable_mark() = marks[device.name] = **mark;
    }
  }
  MutexLock lock(mutex_);
  for (const Granted& granted : table_.all()) *look.add_grants() = granted.grant;
  for (const SpacePiece& piece : view->pieces) {
    const auto mark = marks.find(piece.device);
    const bool granted = std::any_of(table_.all().begin(), table_.all().end(),
                                     [&](const Granted& each) { return IsPieceOf(each, piece); });
    if (mark == marks.end() || granted || IsOwn(piece, *view)) continue;
    const uint64_t reserved = mark->second.reserved_bytes();
    const uint64_t end = piece.offset_bytes + piece.length_bytes;
    if (end <= reserved) continue;
    const uint64_t begin = std::max(piece.offset_bytes, reserved);
    v1::DeviceGrant& foreign = *look.add_foreign();
    foreign.set_device(mark->second.device());
    foreign.set_mark(mark->second.id());
    foreign.set_dpa_bytes(begin - reserved);
    foreign.set_length_bytes(end - begin);
  }
  return look;
}

// Notes that the host has these bytes. Nothing is made of them yet: the rungs do that. An equal
// grant is there: OK; the range is looked for on the device that has the mark, whatever the kernel
// calls it now, and must be free of every other DAX device.
absl::Status SharedMachine::Grant(const v1::DeviceGrant& grant) {
  const absl::StatusOr<SpaceView> view = LookAtMarks();
  if (!view.ok()) return view.status();
  const auto device = FindMarked(*view, grant.mark(), grant.device());
  if (!device.ok()) return device.status();
  const uint64_t reserved = windows_.at(device->name).mark.value()->reserved_bytes();
  const uint64_t room = device->size_bytes - std::min(device->size_bytes, reserved);
  const bool aligned = (reserved + grant.dpa_bytes()) % device->align_bytes == 0 &&
                       grant.length_bytes() % device->align_bytes == 0;
  if (grant.slot() == 0 || grant.slot() > kSharedSlots || grant.serial() == 0 ||
      grant.length_bytes() == 0 || !aligned || grant.dpa_bytes() > room ||
      grant.length_bytes() > room - grant.dpa_bytes()) {
    return Refuse(
        absl::StatusCode::kInvalidArgument, "BAD_GRANT",
        absl::StrCat("a grant of ", TextOf(device->name, grant.dpa_bytes(), grant.length_bytes()),
                     " in slot ", grant.slot(), " fits neither the device nor the host"),
        "see that device's size and alignment on the manager");
  }
  {
    MutexLock lock(mutex_);
    const Granted* in_slot = table_.FindSlot(grant.slot());
    if (in_slot != nullptr) {
      v1::DeviceGrant there = in_slot->grant;
      there.set_revoked(grant.revoked());
      if (google::protobuf::util::MessageDifferencer::Equals(there, grant)) return absl::OkStatus();
    }
    if (in_slot != nullptr || table_.FindSerial(grant.serial()) != nullptr) {
      return FailedPrecondition("SLOT_TAKEN",
                                absl::StrFormat("slot %u, or serial %#x, has another grant",
                                                grant.slot(), grant.serial()),
                                "read back what is bound there");
    }
  }
  const uint64_t offset = reserved + grant.dpa_bytes();
  absl::Status status = CheckFree(*view, device->name, offset, grant.length_bytes());
  if (!status.ok()) return status;
  Granted granted{.grant = grant, .name = device->name, .offset_bytes = offset};
  granted.grant.set_revoked(false);
  MutexLock lock(mutex_);
  return table_.Add(std::move(granted));
}

absl::Status SharedMachine::Revoke(const v1::DeviceRevokeTask& task) {
  MutexLock lock(mutex_);
  const Granted* granted = table_.FindSlot(task.slot());
  if (granted == nullptr || granted->grant.serial() != task.serial()) return absl::OkStatus();
  return table_.Revoke(task.slot());
}

// A mark is made once. Its nonce is replaced by whoever knows the mark.
absl::Status SharedMachine::Mark(const v1::DeviceMarkTask& task) {
  const absl::StatusOr<SpaceView> view = LookAtMarks();
  if (!view.ok()) return view.status();
  const auto device =
      std::find_if(view->devices.begin(), view->devices.end(),
                   [&](const SpaceDevice& each) { return each.name == task.name(); });
  if (device == view->devices.end()) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
                  absl::StrCat("this host has no device ", task.name()),
                  "see `cxlpool device discover`", {{"device", task.name()}});
  }
  const auto found = windows_.find(device->name);
  if (found == windows_.end()) {
    return FailedPrecondition("DEVICE_IN_USE", absl::StrCat(device->name, ": ", device->unfit),
                              "end what uses it on this host");
  }
  Window& window = found->second;
  if (!window.mark.ok()) return window.mark.status();
  const auto flush = [&] { space_->Flush(window.at, kMarkBytes, 0); };
  if (window.mark->has_value()) {
    const v1::DeviceMark& there = **window.mark;
    if (there.id() != task.mark().id()) {
      return Refuse(absl::StatusCode::kAlreadyExists, "MARK_FOREIGN",
                    absl::StrCat(device->name, " is device \"", there.device(), "\" of pool ",
                                 there.pool(), " already"),
                    "use another device; if nobody's bytes are on it, zero its first 4 KiB by hand "
                    "and add it again");
    }
    WriteNonce(task.mark().nonce(), window.at);
    flush();
    return absl::OkStatus();
  }
  v1::DeviceMark mark = task.mark();
  if (mark.reserved_bytes() % device->align_bytes != 0 ||
      mark.reserved_bytes() >= device->size_bytes) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_MARK",
                  absl::StrCat("a granule of ", mark.reserved_bytes(), " bytes does not go with ",
                               device->name, " (", device->size_bytes, " bytes, in multiples of ",
                               device->align_bytes, ")"),
                  "choose another granule");
  }
  mark.set_was_zero(IsAllZero(*device, mark));
  return WriteMark(mark, window.at, flush);
}

// Never bytes that this host has: whoever asked for it was wrong about whose they are.
absl::Status SharedMachine::Clear(const v1::DeviceClearTask& task) {
  const absl::StatusOr<SpaceView> view = LookAtMarks();
  if (!view.ok()) return view.status();
  const auto device = FindMarked(*view, task.mark(), task.device());
  if (!device.ok()) return device.status();
  const uint64_t reserved = windows_.at(device->name).mark.value()->reserved_bytes();
  const uint64_t offset = reserved + task.dpa_bytes();
  const uint64_t room = device->size_bytes - std::min(device->size_bytes, reserved);
  if (task.length_bytes() == 0 || task.length_bytes() > kMaxClearBytes || task.dpa_bytes() > room ||
      task.length_bytes() > room - task.dpa_bytes() || offset % device->align_bytes != 0 ||
      task.length_bytes() % device->align_bytes != 0) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_CLEAR",
                  absl::StrCat(TextOf(device->name, offset, task.length_bytes()),
                               " is no range to clear at once"),
                  "ask for at most 1 GiB inside the device");
  }
  absl::Status status = CheckFree(*view, device->name, offset, task.length_bytes());
  if (!status.ok()) return status;
  const auto clear_or_check = [&](char* bytes, size_t size) -> absl::Status {
    uint64_t lost = 0;
    if (!task.only_check()) {
      lost = Touch(bytes, size, [&](char* at, size_t length) {
        if (CXLPOOL_MUTANT("clear-without-flush")) {
          std::memset(at, 0, length);
        } else {
          space_->Clear(at, length, offset + static_cast<uint64_t>(at - bytes));
        }
      });
    } else if (!IsZeroInMemory(bytes, size, offset, lost)) {
      return FailedPrecondition(
          "NOT_ZERO", absl::StrCat(TextOf(device->name, offset, size), " are not all zero"),
          "clear them again; if it stays so, two hosts do not see one device");
    }
    if (lost == 0) return absl::OkStatus();
    return Refuse(absl::StatusCode::kDataLoss, "BYTES_LOST",
                  absl::StrCat(lost, " of ", TextOf(device->name, offset, size),
                               " have lost what they held and take nothing new"),
                  "nothing: nobody gets them again; see that device's health");
  };
  return OnWorkPiece({device->name, offset, task.length_bytes()}, OnBytes(clear_or_check));
}

}  // namespace cxlpool::agent
