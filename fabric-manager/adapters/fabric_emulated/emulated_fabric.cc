#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxPending = 16384;
constexpr char kLogSubject[] = "fabric-emulated";

absl::Status Refuse(absl::StatusCode code, absl::string_view reason, std::string message,
                    std::string remedy) {
  return Refusal{.code = code,
                 .reason = std::string(reason),
                 .message = std::move(message),
                 .remedy = std::move(remedy),
                 .metadata = {}}
      .ToStatus();
}

absl::Status Overloaded() {
  return Refuse(absl::StatusCode::kResourceExhausted, "FABRIC_OVERLOADED",
                absl::StrCat("the emulated fabric has ", kMaxPending, " calls waiting"),
                "try again later");
}

absl::Status Stopping() { return absl::CancelledError("the emulated fabric is stopping"); }

absl::Status UnknownHost(const std::string& host) {
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                absl::StrCat("the emulated fabric has no host ", host),
                "add its [[host]] to the manager's configuration");
}

emulated::v1::FabricSide ToSide(const BoundLd& ld, std::string extent_path) {
  emulated::v1::FabricSide side;
  side.set_tag(ld.key->tag);
  side.set_extent_index(ld.key->extent_index);
  side.set_generation(ld.key->generation);
  side.set_serial(ld.serial);
  side.set_device(ld.slice.device);
  side.set_dpa_bytes(ld.slice.dpa_bytes);
  side.set_length_bytes(ld.slice.length_bytes);
  side.set_read_only(ld.read_only);
  side.set_unbinding(ld.unbinding);
  side.set_extent_path(std::move(extent_path));
  return side;
}

BoundLd FromSide(const emulated::v1::FabricSide& side, const std::string& host, uint32_t slot) {
  return BoundLd{.host = host,
                 .slot = slot,
                 .slice = {.device = side.device(),
                           .dpa_bytes = side.dpa_bytes(),
                           .length_bytes = side.length_bytes()},
                 .read_only = side.read_only(),
                 .serial = side.serial(),
                 .unbinding = side.unbinding(),
                 .key = LdKey{.host = host,
                              .tag = side.tag(),
                              .generation = side.generation(),
                              .extent_index = side.extent_index()}};
}

std::string ExtentOf(const BoundLd& ld) {
  return ExtentFileName(ld.key->tag, ld.key->extent_index);
}

}  // namespace

EmulatedFabric::~EmulatedFabric() {
  if (loop_ != nullptr) loop_->Stop();
  for (Waiter& waiter : waiters_) std::move(waiter.done)(Stopping());
  for (auto& [id, host] : hosts_) {
    if (host.fence.has_value()) EndFence(host, Stopping());
  }
}

FabricCapabilities EmulatedFabric::capabilities() const {
  uint64_t granule = 0;
  for (const EmulatedDeviceConfig& device : config_.devices) {
    granule = granule == 0 ? device.granule_bytes : std::min(granule, device.granule_bytes);
  }
  return FabricCapabilities{.driver = "emulated",
                            .extent_granule_bytes = granule,
                            .max_lds_per_device = 0,
                            .chooses_serial = true,
                            .keeps_keys = true,
                            .enforces_read_only = false,
                            .hardware_coherent = true,
                            .can_fence = true};
}

bool EmulatedFabric::Admit(Task task) {
  if (pending_.fetch_add(1) >= kMaxPending) {
    pending_.fetch_sub(1);
    return false;
  }
  loop_->Post([this, task = std::move(task)]() mutable {
    pending_.fetch_sub(1);
    std::move(task)();
  });
  return true;
}

void EmulatedFabric::Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) {
  loop_->Post([this, known = std::move(known), sink = std::move(sink)]() mutable {
    sink_ = std::move(sink);
    for (auto& [id, host] : hosts_) Recognize(id, host, known);
    Watch();
  });
}

// The records know the host in one life. It goes on, or it is written down as ended, which proves
// that nothing of it is bound any more; anything else is another host's directory.
void EmulatedFabric::Recognize(const std::string& id, Host& host, const KnownFabric& known) {
  const auto life = known.hosts.find(id);
  if (life == known.hosts.end() || life->second.empty() || life->second == host.incarnation ||
      CXLPOOL_MUTANT("any-root-will-do")) {
    return;
  }
  const std::vector<std::string> ended = EndedLives(host.directory);
  if (std::find(ended.begin(), ended.end(), life->second) != ended.end()) {
    sink_({.kind = FabricEvent::Kind::kHostGone, .host = id, .incarnation = life->second});
    return;
  }
  host.unknown =
      Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
             absl::StrCat(host.directory,
                          " is not the directory in which the pool's records know host ", id),
             "set fabric.root to the pool's own directory, or restore it");
  LogError(kLogSubject, host.unknown.message());
}

absl::Status EmulatedFabric::CheckHost(const std::string& id) {
  const auto found = hosts_.find(id);
  if (found == hosts_.end()) return UnknownHost(id);
  Host& host = found->second;
  if (!host.unknown.ok()) return host.unknown;
  for (auto& [number, slot] : host.slots) {
    if (absl::Status status = Reload(id, number, slot); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// A completion is shared between the task and the refusal of the task.
void EmulatedFabric::Discover(DoneWith<FabricView> done) {
  auto shared = std::make_shared<DoneWith<FabricView>>(std::move(done));
  if (!Admit([this, shared] { std::move (*shared)(DiscoverNow()); })) {
    std::move (*shared)(Overloaded());
  }
}

void EmulatedFabric::Bind(BindRequest request, DoneWith<BoundLd> done) {
  auto shared = std::make_shared<DoneWith<BoundLd>>(std::move(done));
  if (!Admit([this, shared, request = std::move(request)] {
        std::move (*shared)(BindNow(request));
      })) {
    std::move (*shared)(Overloaded());
  }
}

void EmulatedFabric::BeginUnbind(Binding binding, Done done) {
  auto shared = std::make_shared<Done>(std::move(done));
  if (!Admit([this, shared, key = std::move(binding.key)] {
        std::move (*shared)(BeginUnbindNow(key));
      })) {
    std::move (*shared)(Overloaded());
  }
}

void EmulatedFabric::AwaitUnbound(Binding binding, absl::Duration timeout, Done done) {
  auto shared = std::make_shared<Done>(std::move(done));
  const absl::Duration deadline = clock_.Elapsed() + timeout;
  if (!Admit([this, shared, deadline, key = std::move(binding.key)] {
        waiters_.push_back(Waiter{key, deadline, std::move(*shared)});
        if (!polling_) PollWaiters();
      })) {
    std::move (*shared)(Overloaded());
  }
}

void EmulatedFabric::Fence(std::string host, Done done) {
  auto shared = std::make_shared<Done>(std::move(done));
  if (!Admit([this, shared, host = std::move(host)] {
        const auto found = hosts_.find(host);
        if (found == hosts_.end()) {
          std::move (*shared)(UnknownHost(host));
        } else {
          StartFence(found->second, std::move(*shared));
        }
      })) {
    std::move (*shared)(Overloaded());
  }
}

void EmulatedFabric::Scrub(std::string tag, uint32_t extent_index, Slice slice, Done done) {
  auto shared = std::make_shared<Done>(std::move(done));
  if (!Admit([this, shared, extent_index, tag = std::move(tag), slice = std::move(slice)] {
        std::move (*shared)(ScrubNow(tag, extent_index, slice));
      })) {
    std::move (*shared)(Overloaded());
  }
}

absl::Status EmulatedFabric::Reload(const std::string& host, uint32_t number, Slot& slot) {
  auto side = slot.files.ReadFabricSide();
  if (!side.ok()) {
    slot.unreadable = Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                             absl::StrCat("what host ", host, " has in slot ", number,
                                          " is not known: ", side.status().message()),
                             "restore that file, or end the host and remove it");
    return slot.unreadable;
  }
  slot.unreadable = absl::OkStatus();
  if (side->has_value()) {
    slot.ld = FromSide(**side, host, number);
  } else {
    slot.ld.reset();
  }
  return absl::OkStatus();
}

absl::StatusOr<FabricView> EmulatedFabric::DiscoverNow() {
  FabricView view;
  for (const EmulatedDeviceConfig& device : config_.devices) {
    // An Extent's file is made when it is first bound: no device shows what somebody else wrote.
    view.devices.push_back({.id = device.id,
                            .serial = device.serial,
                            .capacity_bytes = device.capacity_bytes,
                            .granule_bytes = device.granule_bytes,
                            .identity = absl::StrCat(identity_, "/", device.id),
                            .has_bytes = false});
  }
  for (auto& [id, host] : hosts_) {
    for (auto& [number, slot] : host.slots) CheckSlot(id, number, slot);
    const absl::Status known = CheckHost(id);
    FabricHost& shown = view.hosts.emplace_back();
    shown.id = id;
    shown.reachable = known.ok();
    shown.fabric_incarnation = host.incarnation;
    shown.unreachable_reason = std::string(known.message());
    for (const auto& [number, slot] : host.slots) {
      (slot.closed ? shown.closed_slots : shown.slots).push_back(number);
      if (known.ok() && slot.ld.has_value()) view.bound.push_back(*slot.ld);
    }
  }
  return view;
}

absl::Status EmulatedFabric::CheckBind(const BindRequest& request) const {
  const auto host = hosts_.find(request.key.host);
  if (host == hosts_.end()) return UnknownHost(request.key.host);
  if (!host->second.unknown.ok()) return host->second.unknown;
  if (request.incarnation != host->second.incarnation && !CXLPOOL_MUTANT("bind-in-any-life")) {
    return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                  absl::StrCat("host ", request.key.host, " lives in ", host->second.incarnation,
                               " now, and the records know it in ", request.incarnation),
                  "read the fabric and try again");
  }
  const auto slot = host->second.slots.find(request.slot);
  if (slot == host->second.slots.end() || slot->second.closed) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_SLOT",
                  absl::StrCat("host ", request.key.host, " has no slot ", request.slot),
                  "use a slot of that host's configuration");
  }
  const Slice& slice = request.slice;
  const auto device =
      std::find_if(config_.devices.begin(), config_.devices.end(),
                   [&](const EmulatedDeviceConfig& d) { return d.id == slice.device; });
  if (device == config_.devices.end()) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
                  absl::StrCat("the emulated fabric has no device ", slice.device),
                  "list it in the manager's configuration");
  }
  const bool in_device = slice.length_bytes != 0 && slice.dpa_bytes <= device->capacity_bytes &&
                         slice.length_bytes <= device->capacity_bytes - slice.dpa_bytes;
  if (!in_device || slice.dpa_bytes % device->granule_bytes != 0 ||
      slice.length_bytes % device->granule_bytes != 0) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SLICE",
                  absl::StrCat("slice of ", slice.length_bytes, " bytes at ", slice.dpa_bytes,
                               " does not fit device ", device->id, " of ", device->capacity_bytes,
                               " bytes in granules of ", device->granule_bytes),
                  "use whole granules within the device");
  }
  if (auto tag = ParseUuid(request.key.tag); !tag.ok() || FormatUuid(*tag) != request.key.tag) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_UUID",
                  "the LD's tag is not a UUID in lower case", "use the Region's UUID");
  }
  if (request.serial == 0) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SERIAL", "the LD's serial is 0",
                  "count serials from 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<BoundLd> EmulatedFabric::BindNow(const BindRequest& request) {
  if (absl::Status status = CheckBind(request); !status.ok()) return status;
  Host& host = hosts_.at(request.key.host);
  Slot& slot = host.slots.at(request.slot);
  const absl::StatusOr<Slot*> same = FindSlot(request.key);
  if (!same.ok()) return same.status();
  if (*same != nullptr) {
    const BoundLd& ld = *(*same)->ld;
    if (ld.slot == request.slot && ld.slice == request.slice && ld.read_only == request.read_only &&
        ld.serial == request.serial) {
      return ld;
    }
    return Refuse(
        absl::StatusCode::kAlreadyExists, "LD_CONFLICT",
        absl::StrCat("extent ", ExtentOf(ld), " of generation ", ld.key->generation,
                     " is bound to ", request.key.host, " slot ", ld.slot, " with other arguments"),
        "unbind it first");
  }
  if (absl::Status status = Reload(request.key.host, request.slot, slot); !status.ok()) {
    return status;
  }
  if (!CXLPOOL_MUTANT("bind-over-bound") && slot.ld.has_value()) {
    return Refuse(absl::StatusCode::kResourceExhausted, "NO_FREE_PORT",
                  absl::StrCat("slot ", request.slot, " of host ", request.key.host,
                               " holds extent ", ExtentOf(*slot.ld)),
                  "choose a free slot, or unbind that extent");
  }
  const std::string extent = ExtentFileName(request.key.tag, request.key.extent_index);
  if (host.fence.has_value() || BeingFenced(extent)) {
    return Refuse(
        absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
        absl::StrCat("extent ", extent, " or host ", request.key.host, " is just being fenced"),
        "try again when the fence has ended");
  }
  if (absl::Status status = NoteSlice(request.slice, extent); !status.ok()) return status;
  if (absl::Status status = extents_->Ensure(extent, request.slice.length_bytes, host.agent_uid(),
                                             BoundElsewhere(extent, request.key.host));
      !status.ok()) {
    return status;
  }
  const BoundLd ld{.host = request.key.host,
                   .slot = request.slot,
                   .slice = request.slice,
                   .read_only = request.read_only,
                   .serial = request.serial,
                   .unbinding = false,
                   .key = request.key};
  if (absl::Status status = slot.files.WriteFabricSide(ToSide(ld, extents_->Path(extent)));
      !status.ok()) {
    return status;
  }
  slot.ld = ld;
  return ld;
}

absl::StatusOr<EmulatedFabric::Slot*> EmulatedFabric::FindSlot(const LdKey& key) {
  const auto host = hosts_.find(key.host);
  if (host == hosts_.end()) return UnknownHost(key.host);
  if (!host->second.unknown.ok()) return host->second.unknown;
  absl::Status unreadable;
  for (auto& [number, slot] : host->second.slots) {
    // It may be the one: as long as it cannot be read, the LD cannot be said to be absent.
    if (!slot.unreadable.ok()) unreadable.Update(Reload(key.host, number, slot));
    if (!slot.ld.has_value() || slot.ld->key != key) continue;
    CheckSlot(key.host, number, slot);
    if (!slot.unreadable.ok()) return slot.unreadable;
    return slot.ld.has_value() ? &slot : nullptr;
  }
  if (!unreadable.ok()) return unreadable;
  return nullptr;
}

absl::Status EmulatedFabric::BeginUnbindNow(const LdKey& key) {
  const absl::StatusOr<Slot*> found = FindSlot(key);
  if (!found.ok()) return found.status();
  Slot* slot = *found;
  if (slot == nullptr || slot->ld->unbinding) return absl::OkStatus();
  BoundLd ld = *slot->ld;
  ld.unbinding = true;
  if (absl::Status status = slot->files.WriteFabricSide(ToSide(ld, extents_->Path(ExtentOf(ld))));
      !status.ok()) {
    return status;
  }
  slot->ld = ld;
  return absl::OkStatus();
}

absl::StatusOr<bool> EmulatedFabric::TryUnbind(const LdKey& key) {
  const absl::StatusOr<Slot*> found = FindSlot(key);
  if (!found.ok()) return found.status();
  Slot* slot = *found;
  if (slot == nullptr) return true;
  if (hosts_.at(key.host).fence.has_value() || !slot->ld->unbinding) return false;
  const auto let_go = [&]() -> absl::StatusOr<bool> {
    auto side = slot->files.ReadHostSide();
    if (!side.ok()) return side.status();
    if (CXLPOOL_MUTANT("unbind-while-powered")) return true;
    // A serial that is not ours is an older LD's: ours was never powered on.
    return !side->has_value() || (*side)->serial() != slot->ld->serial || !(*side)->powered();
  };
  auto proven = let_go();
  if (!proven.ok() || !*proven) return proven;
  if (absl::Status status = slot->files.RemoveFabricSide(); !status.ok()) return status;
  // An agent that was about to power the slot on may have done so while we looked.
  if (proven = let_go(); !proven.ok() || !*proven) {
    const BoundLd& ld = *slot->ld;
    if (absl::Status status = slot->files.WriteFabricSide(ToSide(ld, extents_->Path(ExtentOf(ld))));
        !status.ok()) {
      return status;
    }
    return proven;
  }
  slot->ld.reset();
  return true;
}

void EmulatedFabric::PollWaiters() {
  polling_ = false;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    auto proven = TryUnbind(waiter->key);
    absl::Status answer = absl::OkStatus();
    if (!proven.ok() || !*proven) {
      if (clock_.Elapsed() < waiter->deadline) {
        ++waiter;
        continue;
      }
      answer = Refuse(absl::StatusCode::kDeadlineExceeded, "UNBIND_NOT_PROVEN",
                      absl::StrCat("host ", waiter->key.host, " has not let go of extent ",
                                   ExtentFileName(waiter->key.tag, waiter->key.extent_index),
                                   proven.ok() ? "" : ": ",
                                   proven.ok() ? absl::string_view() : proven.status().message()),
                      "wait for its agent to power the slot off, or fence the host");
    }
    Done done = std::move(waiter->done);
    waiter = waiters_.erase(waiter);
    std::move(done)(std::move(answer));
  }
  if (waiters_.empty()) return;
  polling_ = true;
  loop_->PostAfter(config_.poll_interval, [this] { PollWaiters(); });
}

void EmulatedFabric::CheckSlot(const std::string& host, uint32_t number, Slot& slot) {
  if (!slot.ld.has_value() || !slot.unreadable.ok()) return;
  const BoundLd was = *slot.ld;
  if (absl::Status status = Reload(host, number, slot); !status.ok()) {
    LogError(kLogSubject, "host ", host, " slot ", number, ": ", status.message());
    return;
  }
  const bool there = slot.ld.has_value() && slot.ld->key == was.key;
  if (there && extents_->Exists(ExtentOf(was), was.slice.length_bytes)) return;
  if (there) {
    // Its bytes are gone, so nothing is bound here but a name.
    if (!slot.files.RemoveFabricSide().ok()) return;
    slot.ld.reset();
  }
  LogWarning(kLogSubject, "extent ", ExtentOf(was), " vanished from host ", host, " slot ", number);
  if (sink_)
    sink_({.kind = FabricEvent::Kind::kLdLost, .host = host, .key = was.key, .slot = number});
}

void EmulatedFabric::Watch() {
  for (auto& [id, host] : hosts_) {
    if (host.fence.has_value()) continue;
    for (auto& [number, slot] : host.slots) CheckSlot(id, number, slot);
  }
  loop_->PostAfter(config_.watch_interval, [this] { Watch(); });
}

bool EmulatedFabric::BoundElsewhere(const std::string& extent, const std::string& host) const {
  for (const auto& [id, other] : hosts_) {
    if (id == host) continue;
    for (const auto& [number, slot] : other.slots) {
      if (slot.ld.has_value() && ExtentOf(*slot.ld) == extent) return true;
    }
  }
  return false;
}

absl::Status EmulatedFabric::NoteSlice(const Slice& slice, const std::string& extent) const {
  return WriteValue(absl::StrCat(config_.root_directory, "/slices/", slice.device, "@",
                                 slice.dpa_bytes, "+", slice.length_bytes),
                    extent);
}

absl::StatusOr<std::vector<EmulatedFabric::NotedSlice>> EmulatedFabric::NotedOn(
    const Slice& slice) const {
  std::vector<NotedSlice> noted;
  std::error_code error;
  const std::string directory = absl::StrCat(config_.root_directory, "/slices");
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::vector<std::string> parts =
        absl::StrSplit(entry.path().filename().string(), absl::ByAnyChar("@+"));
    uint64_t dpa = 0, length = 0;
    if (parts.size() != 3 || parts[0] != slice.device || !absl::SimpleAtoi(parts[1], &dpa) ||
        !absl::SimpleAtoi(parts[2], &length) || dpa >= slice.dpa_bytes + slice.length_bytes ||
        slice.dpa_bytes >= dpa + length) {
      continue;
    }
    auto extent = ReadValue(entry.path().string());
    if (!extent.ok()) return extent.status();
    noted.push_back({entry.path().string(), *std::move(extent)});
  }
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot list ", directory, ": ", error.message()));
  }
  return noted;
}

// The file of that tag and index, and whatever else was bound at these bytes: a LD that no record
// knew has another tag, or another index, than the Region that it became.
absl::Status EmulatedFabric::ScrubNow(const std::string& tag, uint32_t extent_index,
                                      const Slice& slice) {
  if (auto uuid = ParseUuid(tag); !uuid.ok()) return uuid.status();
  auto noted = NotedOn(slice);
  if (!noted.ok()) return noted.status();
  if (absl::Status status = ScrubExtent(ExtentFileName(tag, extent_index)); !status.ok()) {
    return status;
  }
  for (const NotedSlice& other : *noted) {
    if (absl::Status status = ScrubExtent(other.extent); !status.ok()) return status;
    if (::unlink(other.path.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", other.path));
    }
  }
  return absl::OkStatus();
}

absl::Status EmulatedFabric::ScrubExtent(const std::string& extent) {
  const bool bound = BoundElsewhere(extent, /*host=*/"") || BeingFenced(extent);
  if (!CXLPOOL_MUTANT("scrub-while-bound") && bound) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "STILL_BOUND",
                  absl::StrCat("extent ", extent, " is still bound to a host"),
                  "unbind it everywhere before it is scrubbed");
  }
  return CXLPOOL_MUTANT("scrub-leaves-bytes") ? absl::OkStatus() : extents_->Scrub(extent);
}

}  // namespace cxlpool::fm
