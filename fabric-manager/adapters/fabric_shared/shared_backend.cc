#include "fabric-manager/adapters/fabric_shared/shared_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/cxl_host.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

BoundLd ToLd(const v1::DeviceGrant& grant, const std::string& host) {
  return BoundLd{.host = host,
                 .slot = grant.slot(),
                 .slice = {.device = grant.device(),
                           .dpa_bytes = grant.dpa_bytes(),
                           .length_bytes = grant.length_bytes()},
                 .read_only = grant.read_only(),
                 .serial = grant.serial(),
                 .unbinding = grant.revoked(),
                 .key = LdKey{.host = host,
                              .tag = grant.region_tag(),
                              .generation = grant.generation(),
                              .extent_index = grant.extent_index()}};
}

// The grant that the binding names: by its key, or by its place.
bool IsOf(const v1::DeviceGrant& grant, const Binding& binding) {
  const LdKey& key = binding.key;
  if (!key.tag.empty() && grant.region_tag() == key.tag && grant.generation() == key.generation &&
      grant.extent_index() == key.extent_index) {
    return true;
  }
  return grant.slot() == binding.slot && grant.device() == binding.slice.device &&
         grant.dpa_bytes() == binding.slice.dpa_bytes &&
         grant.length_bytes() == binding.slice.length_bytes;
}

absl::Status HostUnreachable(const std::string& host, absl::string_view why) {
  return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE", std::string(why),
                absl::StrCat("start cxlpool-agent on ", host));
}

// Since the shell has looked.
absl::Status Gone(const std::string& device) {
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
                absl::StrCat("device ", device, " is no part of the fabric any more"),
                absl::StrCat("add it: `cxlpool device add ", device, " --path HOST/NAME`"));
}

std::string NoSession(const std::string& host) {
  return absl::StrCat("the agent of host ", host, " has no session, and nobody else can say what ",
                      host, " has");
}

}  // namespace

bool Overlap(uint64_t a_bytes, uint64_t a_length, uint64_t b_bytes, uint64_t b_length) {
  if (a_length == 0 || b_length == 0) return false;
  return a_bytes <= b_bytes ? b_bytes - a_bytes < a_length : a_bytes - b_bytes < b_length;
}

bool IsNoWord(const absl::Status& status) {
  // Says that the agent is there. What it was asked for goes on in its kernel.
  if (ReasonOf(status) == "KERNEL_TIMEOUT") return !CXLPOOL_MUTANT("under-way-is-over");
  return ReasonOf(status) == "HOST_UNREACHABLE" || ReasonOf(status) == "NO_ANSWER" ||
         absl::IsCancelled(status);
}

// No host is asked anything yet. Which bytes may still be being cleared, and by which host, is
// known from the state directory before the first of them can be given to anybody.
absl::StatusOr<std::unique_ptr<FabricDriver>> SharedBackend::Open(SharedFabricConfig config,
                                                                  AgentTasks* tasks) {
  if (!absl::StartsWith(config.state_directory, "/")) {
    return BadConfig(
        absl::StrCat("state directory \"", config.state_directory, "\" is not absolute"),
        "give the shared fabric a path that begins with /");
  }
  std::set<std::string> ids;
  for (const DeviceEntry& device : config.tables.devices) {
    absl::Status status =
        CheckDeviceConfig(device.id, device.capacity_bytes, device.granule_bytes, ids);
    if (!status.ok()) return status;
  }
  absl::StatusOr<SharedState> state = SharedState::Open(config.state_directory);
  if (!state.ok()) return state.status();
  FabricShell::Options options;
  options.operation = config.timing.operation;
  options.patience = config.timing.patience;
  options.idle = config.timing.watch;
  options.fence_program = config.fence;
  options.fence_confirmed = config.timing.fence_confirmed;
  std::unique_ptr<SharedBackend> backend(
      new SharedBackend(std::move(config), *std::move(state), tasks));
  backend->TakeTables(backend->config_.tables);
  // Where the records know a host in no life, this is the one that a fence has to end.
  for (const Clearing& each : backend->state_.clearings()) {
    const auto host = backend->hosts_.find(each.host);
    if (host != backend->hosts_.end()) host->second.life = each.life;
  }
  return std::make_unique<FabricShell>(std::move(backend), options);
}

SharedBackend::~SharedBackend() { tasks_->SetOnSession({}); }

FabricCapabilities SharedBackend::capabilities() const {
  return FabricCapabilities{
      .driver = "shared",
      .chooses_serial = true,
      .keeps_keys = true,
      .isolates = false,
      .enforces_read_only = false,
      .shares_slices = true,
      .hardware_coherent = config_.coherent,
      .fence = FenceScope::kNone,
      .claims_hosts = true,
      .asks_agents = true,
      .add_device = {"cxlpool device discover", "cxlpool device add DEVICE --path HOST/NAME"}};
}

std::vector<FabricDevice> SharedBackend::devices() const {
  std::vector<FabricDevice> devices;
  MutexLock lock(mutex_);
  for (const auto& [id, device] : devices_) {
    devices.push_back({.id = id,
                       .serial = device.entry.serial,
                       .capacity_bytes = device.entry.capacity_bytes,
                       .granule_bytes = device.entry.granule_bytes,
                       .identity = device.mark.id()});
  }
  return devices;
}

std::vector<std::string> SharedBackend::hosts() const {
  std::vector<std::string> ids;
  MutexLock lock(mutex_);
  for (const auto& [id, host] : hosts_) ids.push_back(id);
  return ids;
}

// --- Hosts and their lives.

void SharedBackend::Start(const KnownFabric& known, Sink sink) {
  sink_ = std::move(sink);
  if (!CXLPOOL_MUTANT("former-managers-clear-forgotten")) {
    MutexLock lock(mutex_);
    unheard_ = known.unsettled;
  }
  tasks_->SetOnSession([this](const std::string& host) { OnSession(host); });
}

// A host that is listed no more, or is retired, is off, as the operator has said: nobody waits for
// what it was asked for, by this manager or by another one.
absl::Status SharedBackend::Configure(const FabricParts& parts) {
  TakeTables(parts.tables);
  std::set<std::string> in_use;
  for (const HostEntry& host : parts.tables.hosts) {
    if (!parts.retired.contains(host.id)) in_use.insert(host.id);
  }
  MutexLock lock(mutex_);
  std::erase_if(unheard_, [&](const std::string& host) { return !in_use.contains(host); });
  in_use_ = std::move(in_use);
  return absl::OkStatus();
}

// A device keeps what was proven of it for as long as it is described as it was.
void SharedBackend::TakeTables(const TopologyTables& tables) {
  MutexLock lock(mutex_);
  for (const HostEntry& host : tables.hosts) hosts_[host.id];
  std::set<std::string> listed;
  for (const DeviceEntry& entry : tables.devices) {
    listed.insert(entry.id);
    Device& device = devices_[entry.id];
    if (device.entry.capacity_bytes != entry.capacity_bytes ||
        device.entry.granule_bytes != entry.granule_bytes) {
      device.proofs.clear();
    }
    device.entry = entry;
  }
  std::erase_if(devices_, [&](const auto& device) { return !listed.contains(device.first); });
}

bool SharedBackend::HasHost(const HostEntry& host) const {
  MutexLock lock(mutex_);
  return hosts_.contains(host.id);
}

void SharedBackend::Forget(const std::string& host) {
  MutexLock lock(mutex_);
  hosts_.erase(host);
  for (auto& [id, device] : devices_) device.proofs.erase(host);
}

void SharedBackend::Meet(const std::string& id, const std::string& life) {
  {
    MutexLock lock(mutex_);
    Host& host = hosts_[id];
    host.met = true;
    if (!life.empty()) host.life = life;
  }
  TellIfGone(id, tasks_->LifeOf(id));
}

// On the core's thread. Whether the host reaches the devices has to be seen before it counts, and
// which devices there are may be another matter with it or without it.
void SharedBackend::OnSession(const std::string& id) {
  const std::string life = tasks_->LifeOf(id);
  {
    MutexLock lock(mutex_);
    const auto host = hosts_.find(id);
    if (host == hosts_.end()) return;
    ++host->second.sessions;
    // It may be asked for something before it is looked at, which is what shows its life.
    const bool lives_on = !life.empty() && !host->second.EndedIn(life);
    if (lives_on && !CXLPOOL_MUTANT("fenced-once-is-off-for-good")) host->second.off = false;
    if (!CXLPOOL_MUTANT("proofs-outlive-sessions")) {
      for (auto& [device, state] : devices_) state.proofs.erase(id);
    }
  }
  TellIfGone(id, life);
  sink_({.kind =
             life.empty() ? FabricEvent::Kind::kHostUnreachable : FabricEvent::Kind::kHostReachable,
         .host = id});
  sink_({.kind = FabricEvent::Kind::kDevicesChanged, .host = id});
}

// `life`: of the session that the host has now. Another boot than the one that the records know is
// the proof that nothing of that one is left: grants are the kernel's and the agent's, and both
// began anew.
void SharedBackend::TellIfGone(const std::string& id, const std::string& life) {
  std::string gone;
  {
    MutexLock lock(mutex_);
    const auto host = hosts_.find(id);
    if (host == hosts_.end() || !host->second.met) return;
    const bool another = !life.empty() && host->second.life != life;
    if (another && host->second.successor != life) {
      gone = host->second.life;
      host->second.successor = life;
    }
    if (life.empty() && CXLPOOL_MUTANT("silence-ends-a-life")) gone = host->second.life;
  }
  if (gone.empty()) return;
  sink_({.kind = FabricEvent::Kind::kHostGone, .host = id, .incarnation = gone});
}

// A host whose agent has a session lives, whatever its power supply is said to be.
absl::Status SharedBackend::EndLife(const std::string& host, const std::string& life) {
  if (tasks_->LifeOf(host) == life && !CXLPOOL_MUTANT("ended-while-it-answers")) {
    return FenceFailed(host,
                       "its fence program says that its power is off, and its agent has a session",
                       "cut its power by hand, and repair the program");
  }
  {
    MutexLock lock(mutex_);
    Host& ended = hosts_[host];
    ended.ended = life;
    ended.off = tasks_->LifeOf(host).empty();  // In its next life it may be there already.
  }
  sink_({.kind = FabricEvent::Kind::kHostGone, .host = host, .incarnation = life});
  return absl::OkStatus();
}

bool SharedBackend::IsOff(const std::string& host) {
  MutexLock lock(mutex_);
  const auto found = hosts_.find(host);
  return found != hosts_.end() && found->second.off;
}

bool SharedBackend::IsGivenUp(const std::string& host) {
  MutexLock lock(mutex_);
  return in_use_.has_value() && !in_use_->contains(host);
}

// --- Looking.

absl::StatusOr<v1::DeviceLook> SharedBackend::Ask(const std::string& host, const std::string& life,
                                                  v1::DeviceTask task, absl::Duration deadline,
                                                  uint64_t session) {
  return tasks_->Ask(host, life, session, std::move(task), deadline - clock_.Elapsed());
}

absl::StatusOr<v1::DeviceLook> SharedBackend::AskLook(const std::string& host,
                                                      const std::string& life,
                                                      absl::Duration deadline, uint64_t session) {
  return Ask(host, life, LookTask(), deadline, session);
}

v1::DeviceTask SharedBackend::LookTask() {
  v1::DeviceTask task;
  task.mutable_look();
  return task;
}

absl::StatusOr<uint64_t> SharedBackend::Claim(const std::string& id, absl::Duration) {
  const uint64_t session = tasks_->SessionOf(id);
  MutexLock lock(mutex_);
  hosts_[id].claimed = session;
  if (session == 0) return HostUnreachable(id, NoSession(id));
  return session;
}

// The life that it was last shown in stays: a fence has to know which one is to end.
HostLook SharedBackend::Unreachable(const std::string& id, absl::string_view why) {
  HostLook look;
  look.host.id = id;
  look.host.unreachable_reason = std::string(why);
  MutexLock lock(mutex_);
  look.host.fabric_incarnation = hosts_[id].life;
  return look;
}

HostLook SharedBackend::LookAt(const std::string& id, absl::Duration deadline) {
  const std::string life = tasks_->LifeOf(id);
  if (life.empty()) return Unreachable(id, NoSession(id));
  bool ended;
  uint64_t session;
  std::map<std::string, uint64_t> writes;
  {
    MutexLock lock(mutex_);
    session = hosts_[id].claimed;
    ended = hosts_[id].EndedIn(life) && !CXLPOOL_MUTANT("the-dead-are-believed");
    for (const auto& [device, state] : devices_) writes[device] = state.writes;
  }
  if (ended) {
    return Unreachable(id, "it was fenced, and goes on in the life that was ended: reboot it");
  }
  if (session == 0) return Unreachable(id, "its agent has just come");
  const absl::StatusOr<v1::DeviceLook> seen = AskLook(id, life, deadline, session);
  if (!seen.ok()) return Unreachable(id, seen.status().message());
  TellIfGone(id, life);  // Before it is shown in this one.
  return TakeLook(id, life, *seen, writes);
}

// `writes`: of each device, as Device::writes was when the look began.
HostLook SharedBackend::TakeLook(const std::string& id, const std::string& life,
                                 const v1::DeviceLook& seen,
                                 const std::map<std::string, uint64_t>& writes) {
  HostLook look;
  look.host.id = id;
  look.host.reachable = true;
  look.host.fabric_incarnation = life;
  std::vector<FabricEvent> events;
  std::vector<std::string> broken;
  {
    MutexLock lock(mutex_);
    unheard_.erase(id);
    Host& host = hosts_[id];
    for (const v1::DeviceGrant& grant : seen.grants()) {
      if (IsOurs(grant, seen)) {
        look.bound.push_back(ToLd(grant, id));
      } else {
        look.foreign[grant.slot()] = "a grant of another pool";
      }
    }
    std::map<Piece, uint32_t> former;
    former.swap(host.foreign);
    for (const v1::DeviceGrant& piece : seen.foreign()) {
      if (!IsOurs(piece, seen) || CXLPOOL_MUTANT("foreign-pieces-unseen")) continue;
      const Piece place(piece.device(), piece.dpa_bytes(), piece.length_bytes());
      const auto known = former.find(place);
      host.foreign[place] =
          known != former.end() ? known->second : kSharedSlots + 1 + host.next_foreign++;
      if (auto ld = ForeignLd(host, id, piece); ld.has_value()) look.bound.push_back(*ld);
    }
    KeepUnseen(host, former, seen, look);
    for (uint32_t slot = 1; slot <= kSharedSlots; ++slot) {
      if (!look.foreign.contains(slot)) look.host.slots.push_back(slot);
    }
    events = LostSince(host, look);
    broken = CheckProofs(id, life, seen, writes);
    for (const auto& [device, state] : devices_) {
      const auto proof = state.proofs.find(id);
      if (proof == state.proofs.end() || proof->second.life != life) continue;  // Not asked yet.
      if (!proof->second.why.empty()) look.host.unreached[device] = proof->second.why;
    }
    host.life = life;
    host.bound = look.bound;
    host.looked = clock_.Elapsed();
  }
  for (const std::string& device : broken) {
    LogWarning(kSharedLogSubject, "host ", id, " no longer reaches device ", device,
               " for certain: it is proven anew");
    events.push_back({.kind = FabricEvent::Kind::kDevicesChanged, .host = id});
  }
  for (FabricEvent& event : events) sink_(std::move(event));
  return look;
}

// By the mark. Before anybody has shown the device's own, the host itself may say whose mark it is;
// where it cannot either, what bears the name of a device of ours is taken for ours.
bool SharedBackend::IsOurs(const v1::DeviceGrant& grant, const v1::DeviceLook& seen) {
  const auto device = devices_.find(grant.device());
  if (device != devices_.end() && !device->second.mark.id().empty()) {
    return device->second.mark.id() == grant.mark();
  }
  for (const v1::SharedDevice& shown : seen.devices()) {
    if (shown.mark().id() == grant.mark()) return shown.mark().pool() == state_.pool();
  }
  return device != devices_.end();
}

// A DAX device that the pool did not make, as an LD that no record has: the core keeps its granules
// from everybody. Nothing: it is not on the pool's bytes.
std::optional<BoundLd> SharedBackend::ForeignLd(Host& host, const std::string& id,
                                                const v1::DeviceGrant& piece) {
  const auto device = devices_.find(piece.device());
  if (device == devices_.end()) return std::nullopt;
  const uint64_t granule = device->second.entry.granule_bytes;
  const uint64_t capacity = device->second.entry.capacity_bytes;
  if (piece.length_bytes() == 0 || piece.dpa_bytes() >= capacity) return std::nullopt;
  const uint64_t length = std::min(piece.length_bytes(), capacity - piece.dpa_bytes());
  const uint64_t first = piece.dpa_bytes() / granule * granule;
  const uint64_t end = (piece.dpa_bytes() + length + granule - 1) / granule * granule;
  BoundLd ld;
  ld.host = id;
  ld.slot = host.foreign[Piece(piece.device(), piece.dpa_bytes(), piece.length_bytes())];
  ld.slice = {piece.device(), first, end - first};
  return ld;
}

// What was there in this life at the last look, and is on a device that this look does not show: it
// counts as there. `former`: host.foreign as it was.
void SharedBackend::KeepUnseen(Host& host, const std::map<Piece, uint32_t>& former,
                               const v1::DeviceLook& seen, HostLook& look) {
  if (host.life != look.host.fabric_incarnation || CXLPOOL_MUTANT("unseen-lds-are-gone")) return;
  const auto is_unseen = [&](const std::string& id) {
    const auto device = devices_.find(id);
    return device != devices_.end() &&
           !FindByMark(seen, device->first, device->second.mark.id()).ok();
  };
  for (const BoundLd& ld : host.bound) {
    const bool shown = std::any_of(look.bound.begin(), look.bound.end(),
                                   [&](const BoundLd& now) { return now.slot == ld.slot; });
    if (!shown && is_unseen(ld.slice.device)) look.bound.push_back(ld);
  }
  for (const auto& [piece, slot] : former) {
    if (is_unseen(std::get<0>(piece))) host.foreign[piece] = slot;
  }
}

// What was there at the last look, or has been bound since, and was not asked to go.
std::vector<FabricEvent> SharedBackend::LostSince(Host& host, const HostLook& look) {
  std::vector<FabricEvent> events;
  if (host.life != look.host.fabric_incarnation) return events;
  for (const BoundLd& ld : host.bound) {
    if (ld.unbinding || !ld.key.has_value()) continue;
    const bool there = std::any_of(look.bound.begin(), look.bound.end(),
                                   [&](const BoundLd& now) { return now.key == ld.key; });
    if (there) continue;
    events.push_back(
        {.kind = FabricEvent::Kind::kLdLost, .host = ld.host, .key = ld.key, .slot = ld.slot});
  }
  return events;
}

// A host that has something is looked at now and then: a grant may go behind our back.
bool SharedBackend::Idle(const std::string& lane, int wake_fd, absl::Duration at_most) {
  const bool look = FabricBackend::Idle(lane, wake_fd, std::min(at_most, config_.timing.watch));
  const absl::Duration now = clock_.Elapsed();
  {
    MutexLock lock(mutex_);
    const auto host = hosts_.find(lane);
    if (host == hosts_.end() || !host->second.met || host->second.bound.empty() ||
        now < host->second.looked + config_.timing.watch) {
      return look;
    }
    host->second.looked = now;  // Whatever comes of it.
    // In another life the core is to see it first.
    if (tasks_->LifeOf(lane) != host->second.life) return look;
  }
  LookAt(lane, now + config_.timing.patience);
  return look;
}

// --- Binding.

// Nothing is granted of a device that this host was not seen to reach: what it calls so may be
// other bytes, of another pool or of nobody.
absl::StatusOr<BoundLd> SharedBackend::Bind(const BindRequest& request, absl::Duration deadline) {
  const std::string& host = request.key.host;
  v1::DeviceTask task;
  v1::DeviceGrant& grant = *task.mutable_grant();
  {
    MutexLock lock(mutex_);
    if (hosts_[host].claimed != request.claim) return HostUnreachable(host, NoSession(host));
    const auto found = devices_.find(request.slice.device);
    if (found == devices_.end()) return Gone(request.slice.device);
    const Device& device = found->second;
    const auto proof = device.proofs.find(host);
    const bool known = proof != device.proofs.end() && proof->second.life == request.incarnation;
    if ((!known || !proof->second.why.empty()) && !CXLPOOL_MUTANT("grant-unproven")) {
      return Refuse(
          absl::StatusCode::kFailedPrecondition, "DEVICE_NOT_PROVEN",
          absl::StrCat("host ", host, " is not proven to reach device ", request.slice.device, ": ",
                       known ? proof->second.why : "it has not been looked at yet"),
          absl::StrCat("compare what `cxlpool device list` and `cxlpool-agent check` on ", host,
                       " say; it is tried again"),
          {{"host", host}, {"device", request.slice.device}});
    }
    grant.set_mark(device.mark.id());
  }
  grant.set_slot(request.slot);
  grant.set_serial(request.serial);
  grant.set_region_tag(request.key.tag);
  grant.set_generation(request.key.generation);
  grant.set_extent_index(request.key.extent_index);
  grant.set_device(request.slice.device);
  grant.set_dpa_bytes(request.slice.dpa_bytes);
  grant.set_length_bytes(request.slice.length_bytes);
  grant.set_read_only(request.read_only);
  grant.set_coherent(config_.coherent);
  const BoundLd ld = ToLd(grant, host);
  const absl::Status granted =
      Ask(host, request.incarnation, std::move(task), deadline, request.claim).status();
  if (IsNoWord(granted)) {
    return Refuse(
        absl::StatusCode::kUnknown, "OUTCOME_UNKNOWN",
        absl::StrCat("host ", host, " may have been granted it, or not: ", granted.message()),
        "read back what is bound");
  }
  if (ReasonOf(granted) == "SLOT_TAKEN") {
    return Refuse(absl::StatusCode::kResourceExhausted, "NO_FREE_PORT",
                  std::string(granted.message()), "use another slot");
  }
  if (!granted.ok()) return granted;
  MutexLock lock(mutex_);
  hosts_[host].bound.push_back(ld);
  return ld;
}

// Whatever is there of it is asked to go: by what the agent shows, for the core may not know the
// serial yet. A DAX device that the pool did not make is its maker's to remove.
absl::StatusOr<bool> SharedBackend::BeginUnbind(const Binding& binding, absl::Duration deadline) {
  const std::string& host = binding.key.host;
  const std::string life = tasks_->LifeOf(host);
  if (life.empty()) return HostUnreachable(host, NoSession(host));
  const absl::StatusOr<v1::DeviceLook> seen = AskLook(host, life, deadline);
  if (!seen.ok()) return seen.status();
  for (const v1::DeviceGrant& grant : seen->grants()) {
    if (!IsOf(grant, binding) || grant.revoked()) continue;
    v1::DeviceTask task;
    task.mutable_revoke()->set_slot(grant.slot());
    task.mutable_revoke()->set_serial(grant.serial());
    const absl::Status revoked = Ask(host, life, std::move(task), deadline).status();
    if (!revoked.ok()) return revoked;
    MutexLock lock(mutex_);
    for (BoundLd& ld : hosts_[host].bound) {
      if (ld.slot == grant.slot() && ld.serial == grant.serial()) ld.unbinding = true;
    }
  }
  return true;
}

// Proof is what the agent shows in the session that it has now: the device with its mark, and on it
// no such grant, nobody else's grant of these bytes, and no DAX device over them that was left
// behind. Where the device is not shown, neither would be what is on it. Where the host lives
// another life than the one it was bound in, all that holds for the former one, too; and of one
// that was fenced in the life that it was last heard in, nothing is left.
absl::StatusOr<bool> SharedBackend::IsUnbound(const Binding& binding, absl::Duration deadline) {
  const std::string& host = binding.key.host;
  const Slice& slice = binding.slice;
  const std::string life = tasks_->LifeOf(host);
  if (life.empty()) {
    if (CXLPOOL_MUTANT("silent-host-has-nothing")) return true;
    if (IsOff(host)) return true;
    return HostUnreachable(host, NoSession(host));
  }
  const absl::StatusOr<v1::DeviceLook> seen = AskLook(host, life, deadline);
  if (!seen.ok()) return seen.status();
  MutexLock lock(mutex_);
  const auto device = devices_.find(slice.device);
  if (device == devices_.end()) return Gone(slice.device);
  const auto shown = FindByMark(*seen, device->first, device->second.mark.id());
  if (!shown.ok() && !CXLPOOL_MUTANT("unseen-device-is-unbound")) {
    return absl::UnavailableError(
        absl::StrCat("it does not show device ", slice.device,
                     ", so that nobody can say what it still has there (see `cxlpool device "
                     "discover`, and [shared] in its agent.toml): ",
                     shown.status().message()));
  }
  const auto on_it = [&](const v1::DeviceGrant& grant) {
    return grant.device() == slice.device && IsOurs(grant, *seen) &&
           Overlap(grant.dpa_bytes(), grant.length_bytes(), slice.dpa_bytes, slice.length_bytes);
  };
  for (const v1::DeviceGrant& grant : seen->grants()) {
    const bool asked_to_go = grant.revoked() && CXLPOOL_MUTANT("revoked-is-unbound");
    if ((IsOf(grant, binding) || on_it(grant)) && !asked_to_go) return false;
  }
  for (const v1::DeviceGrant& piece : seen->foreign()) {
    if (on_it(piece) && !CXLPOOL_MUTANT("left-over-dax-is-unbound")) return false;
  }
  released_[Piece(slice.device, slice.dpa_bytes, slice.length_bytes)] = host;
  // It does not count as there when the device is not shown later.
  if (!CXLPOOL_MUTANT("proven-lds-are-kept-unseen")) {
    std::erase_if(hosts_[host].bound, [&](const BoundLd& ld) {
      return ld.key == binding.key || (ld.slot == binding.slot && ld.slice == slice);
    });
  }
  return true;
}

}  // namespace cxlpool::fm
