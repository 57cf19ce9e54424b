#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kLogSubject[] = "fabric-emulated";

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

FabricCapabilities EmulatedFabric::capabilities() const {
  return FabricCapabilities{.driver = "emulated",
                            .chooses_serial = true,
                            .keeps_keys = true,
                            .isolates = false,  // Files, open to everybody who may open files.
                            .enforces_read_only = false,
                            .shares_slices = true,
                            .hardware_coherent = true,
                            .fence = FenceScope::kHost,
                            .claims_hosts = true,
                            .add_device = {"cxlpool device add DEVICE --capacity SIZE"}};
}

void EmulatedFabric::Start(const KnownFabric& known, Sink sink) {
  sink_ = std::move(sink);
  epoch_ = known.epoch;
  NoteEffect("claim");
}

// One write for each line: those of several managers are never mixed.
void EmulatedFabric::NoteEffect(const std::string& what) const {
  if (!effects_.valid()) return;
  const std::string line = absl::StrCat(epoch_, " ", what, "\n");
  if (::write(effects_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    LogError(kLogSubject, "cannot note \"", what, "\" for a test");
  }
}

// An Extent's file is made when it is first bound: no device shows what somebody else wrote.
std::vector<FabricDevice> EmulatedFabric::devices() const {
  std::vector<FabricDevice> devices;
  for (const EmulatedDeviceConfig& device : config_.devices) {
    devices.push_back({.id = device.id,
                       .serial = device.serial,
                       .capacity_bytes = device.capacity_bytes,
                       .granule_bytes = device.granule_bytes,
                       .identity = absl::StrCat(identity_, "/", device.id),
                       .has_bytes = false});
  }
  return devices;
}

std::vector<std::string> EmulatedFabric::hosts() const {
  std::vector<std::string> ids;
  for (const auto& [id, host] : hosts_) ids.push_back(id);
  return ids;
}

// The records know the host in one life. It goes on, or it is written down as ended, which proves
// that nothing of it is bound any more; anything else is another host's directory.
void EmulatedFabric::Meet(const std::string& id, const std::string& life) {
  Host& host = hosts_.at(id);
  if (!host.unknown.ok()) return;  // It could not be set up.
  if (life.empty() || life == host.incarnation || CXLPOOL_MUTANT("any-root-will-do")) return;
  const std::vector<std::string> ended = EndedLives(host.directory);
  if (std::find(ended.begin(), ended.end(), life) != ended.end()) {
    sink_({.kind = FabricEvent::Kind::kHostGone, .host = id, .incarnation = life});
    return;
  }
  host.unknown =
      Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
             absl::StrCat(host.directory,
                          " is not the directory in which the pool's records know host ", id),
             "set fabric.root to the pool's own directory, or restore it");
  LogError(kLogSubject, host.unknown.message());
}

// Reads every slot again, so that one damaged file makes the host unknown and not a slot empty.
absl::Status EmulatedFabric::CheckHost(const std::string& id) {
  Host& host = hosts_.at(id);
  if (!host.unknown.ok()) return host.unknown;
  for (auto& [number, slot] : host.slots) {
    if (absl::Status status = Reload(id, number, slot); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Sets slot.ld to what is in the file. Where the file cannot be read slot.ld stays as it was, and
// slot.unreadable is why.
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

// Slots that are no longer listed are shown as closed, with what is bound there.
HostLook EmulatedFabric::LookAt(const std::string& id, absl::Duration) {
  Host& host = hosts_.at(id);
  HostLook look;
  look.host.id = id;
  for (auto& [number, slot] : host.slots) CheckSlot(id, number, slot);
  const absl::Status known = CheckHost(id);
  look.host.reachable = known.ok();
  look.host.fabric_incarnation = host.incarnation;
  look.host.unreachable_reason = std::string(known.message());
  for (const auto& [number, slot] : host.slots) {
    (slot.closed ? look.host.closed_slots : look.host.slots).push_back(number);
    if (known.ok() && slot.ld.has_value()) look.bound.push_back(*slot.ld);
  }
  return look;
}

// In an order that a kill may cut anywhere: the note, the extent's file, then the FabricSide. Only
// the last makes the LD bound.
absl::StatusOr<BoundLd> EmulatedFabric::Bind(const BindRequest& request, absl::Duration) {
  Host& host = hosts_.at(request.key.host);
  Slot& slot = host.slots.at(request.slot);
  const std::string extent = ExtentFileName(request.key.tag, request.key.extent_index);
  if (host.fence.has_value() || BeingFenced(extent)) {
    return Refuse(
        absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
        absl::StrCat("extent ", extent, " or host ", request.key.host, " is just being fenced"),
        "try again when the fence has ended");
  }
  // Noted first: whatever is cut off here, a scrub of these bytes finds the file.
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
  NoteEffect("bind " + request.key.host);
  slot.ld = ld;
  return ld;
}

// Null only where every slot could be read and none has the LD: only what was seen can be absent.
absl::StatusOr<EmulatedFabric::Slot*> EmulatedFabric::FindSlot(const LdKey& key) {
  Host& host = hosts_.at(key.host);
  if (!host.unknown.ok()) return host.unknown;
  absl::Status unreadable;
  for (auto& [number, slot] : host.slots) {
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

absl::StatusOr<bool> EmulatedFabric::BeginUnbind(const Binding& binding, absl::Duration) {
  const absl::StatusOr<Slot*> found = FindSlot(binding.key);
  if (!found.ok()) return found.status();
  Slot* slot = *found;
  if (slot == nullptr || slot->ld->unbinding) return true;
  BoundLd ld = *slot->ld;
  ld.unbinding = true;
  if (absl::Status status = slot->files.WriteFabricSide(ToSide(ld, extents_->Path(ExtentOf(ld))));
      !status.ok()) {
    return status;
  }
  slot->ld = ld;
  return true;
}

// The proof is the agent's word that the slot has no power. True: proven, and the FabricSide is
// gone.
absl::StatusOr<bool> EmulatedFabric::IsUnbound(const Binding& binding, absl::Duration) {
  const LdKey& key = binding.key;
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

// Notices what vanished behind our back: another FabricSide than ours, or an extent without a file.
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
}

// The watch for vanished LDs runs here, on the one lane that touches the slots.
bool EmulatedFabric::Idle(const std::string& lane, int wake_fd, absl::Duration at_most) {
  FabricBackend::Idle(lane, wake_fd, at_most);
  if (lane != LaneOf("")) return false;
  const absl::Duration now = clock_.Elapsed();
  if (now - watched_ >= config_.watch_interval) {
    watched_ = now;
    Watch();
  }
  return false;
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

// Adds to what was noted: bytes that were never scrubbed may lie in another extent's file as well.
// Refuses a file that it cannot note any more, because no scrub would find it.
absl::Status EmulatedFabric::NoteSlice(const Slice& slice, const std::string& extent) const {
  const std::string path = absl::StrCat(config_.root_directory, "/slices/", slice.device, "@",
                                        slice.dpa_bytes, "+", slice.length_bytes);
  const auto noted = ReadValue(path);
  if (!noted.ok()) return noted.status();
  std::vector<std::string> extents = absl::StrSplit(*noted, ' ', absl::SkipEmpty());
  if (std::find(extents.begin(), extents.end(), extent) != extents.end()) return absl::OkStatus();
  extents.push_back(extent);
  const std::string value = absl::StrJoin(extents, " ");
  if (value.size() > kMaxValueBytes) {
    return Refuse(absl::StatusCode::kResourceExhausted, "EXTENT_NOTES_FULL",
                  absl::StrCat(extents.size() - 1, " extent files hold bytes of ", slice.device,
                               " at ", slice.dpa_bytes, " that were never scrubbed, and ", path,
                               " has no room for another name"),
                  "scrub the extent before it is bound again");
  }
  return WriteValue(path, value);
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
    const auto extents = ReadValue(entry.path().string());
    if (!extents.ok()) return extents.status();
    noted.push_back({entry.path().string(), absl::StrSplit(*extents, ' ', absl::SkipEmpty())});
  }
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot list ", directory, ": ", error.message()));
  }
  return noted;
}

// Every file that ever held bytes of the slice. The note goes last: a scrub that is cut off is
// found again.
absl::Status EmulatedFabric::ScrubNow(const Slice& slice) {
  auto noted = NotedOn(slice);
  if (!noted.ok()) return noted.status();
  for (const NotedSlice& note : *noted) {
    for (const std::string& extent : note.extents) {
      if (absl::Status status = ScrubExtent(extent); !status.ok()) return status;
    }
    if (::unlink(note.path.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", note.path));
    }
    NoteEffect("scrub " + slice.device);
  }
  return absl::OkStatus();
}

// In one step: a file is truncated, whatever its size.
absl::StatusOr<std::unique_ptr<FabricScrub>> EmulatedFabric::BeginScrub(const Slice& slice) {
  class Scrub : public FabricScrub {
   public:
    Scrub(EmulatedFabric* fabric, Slice own) : fabric_(fabric), slice_(std::move(own)) {}
    absl::StatusOr<bool> Step(absl::Duration) override {
      if (absl::Status status = fabric_->ScrubNow(slice_); !status.ok()) return status;
      return true;
    }
    uint64_t done_bytes() const override { return 0; }

   private:
    EmulatedFabric* const fabric_;
    const Slice slice_;
  };
  return std::make_unique<Scrub>(this, slice);
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
