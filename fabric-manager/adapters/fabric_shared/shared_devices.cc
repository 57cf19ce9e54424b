// Which device it is that a host shows.
//
// Names, places and serials differ from host to host, and two devices may have the same. What is
// certain is content. Each device bears a mark in its first bytes (v1.DeviceMark), made once: the
// pool's UUID, the device's id in it, and a UUID of the mark itself, by which the pool's records
// know the device for ever.
//
// A mark can be copied with the device. So a host is proven to reach the device only when it has
// loaded what a host that is proven already has stored there (a nonce in the mark), and then the
// other way round. The first host has nobody to compare with: its mark counts, and where the device
// was proven before in this life of the manager, the nonce in it. What was proven holds for as long
// as the host lives, and as long as each look at it shows a mark that goes with it.
#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/adapters/fabric_shared/shared_backend.h"
#include "proto/support/byte_size.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxUnsettled = 64;
constexpr size_t kAskedAtOnce = 16;  // Each is a thread that waits.
constexpr int kShownDevices = 4;     // In a text.
constexpr size_t kShownHosts = 4;    // Likewise.
constexpr size_t kMaxOfHost = 512;   // Of what is said there of one of them.
constexpr size_t kMaxWhy = 1024;     // Why one host does not reach one device.
// Before its deadline a look at the devices ends, so that the shell need not answer for it.
constexpr absl::Duration kSpare = absl::Seconds(1);

uint64_t NewNonce() {
  const std::string bytes = RandomUuid();
  uint64_t nonce = 0;
  std::memcpy(&nonce, bytes.data(), sizeof(nonce));
  return nonce == 0 ? 1 : nonce;
}

// A device as its host shows it, for people.
std::string TextOf(const v1::SharedDevice& device, const std::string& pool) {
  std::string text = absl::StrCat(device.name(), " of ", FormatByteSize(device.size_bytes()));
  if (!device.serial().empty()) absl::StrAppend(&text, " (serial ", device.serial(), ")");
  if (!device.unfit_reason().empty()) {
    absl::StrAppend(&text, ", which is unfit: ", device.unfit_reason());
  } else if (!device.has_mark()) {
    absl::StrAppend(&text, " without a mark");
  } else if (device.mark().pool() != pool) {
    absl::StrAppend(&text, " with the mark of device ", device.mark().device(), " of pool ",
                    device.mark().pool(), ", which is another pool");
  } else {
    absl::StrAppend(&text, " with the mark of device ", device.mark().device());
  }
  return text;
}

std::string TextOf(const v1::DeviceLook& look, const std::string& pool) {
  if (look.devices().empty()) return "it shows no device at all";
  std::vector<std::string> texts;
  for (const v1::SharedDevice& device : look.devices()) {
    if (static_cast<int>(texts.size()) == kShownDevices) break;
    texts.push_back(TextOf(device, pool));
  }
  return absl::StrCat("it shows ", absl::StrJoin(texts, "; "),
                      look.devices_size() > kShownDevices
                          ? absl::StrCat("; and ", look.devices_size() - kShownDevices, " more")
                          : "");
}

// What is said of each of these hosts; but of the first few only, however many the pool has.
std::string TextOfHosts(const std::vector<std::string>& hosts) {
  std::vector<std::string> texts;
  for (const std::string& host : hosts) {
    if (texts.size() == kShownHosts && !CXLPOOL_MUTANT("each-host-is-named")) break;
    texts.push_back(CutText(host, kMaxOfHost));
  }
  const size_t more = hosts.size() - texts.size();
  return absl::StrCat(absl::StrJoin(texts, "; "),
                      more == 0 ? "" : absl::StrCat("; and ", more, " more hosts"));
}

// What has to be done before a device that has a mark can be the pool's.
std::string ToMakeBare(const v1::SharedDevice& device, const std::string& host) {
  if (!device.has_mark()) return "";
  return absl::StrCat(
      ": use it as that pool's device, or, if nobody needs what is on it, zero its "
      "first 4 KiB on host ",
      host, "; it is tried again");
}

std::string OtherBytes(const std::string& reader, const std::string& writer) {
  return absl::StrCat("host ", reader, " does not load what host ", writer,
                      " has just stored there: with the same mark, it is a copy or another device");
}

}  // namespace

bool SharedBackend::Device::MayShow(uint64_t nonce) const {
  return nonce == mark.nonce() ||
         std::find(unsettled.begin(), unsettled.end(), nonce) != unsettled.end();
}

bool SharedBackend::IsProven(const Device& device, const std::string& host) {
  const auto proof = device.proofs.find(host);
  if (proof == device.proofs.end() || !proof->second.why.empty()) return false;
  const std::string& life = proof->second.life;
  const auto known = hosts_.find(host);
  const bool ended = known != hosts_.end() && known->second.EndedIn(life);
  return !life.empty() && !ended && life == tasks_->LifeOf(host);
}

uint64_t SharedBackend::SessionOf(const std::string& host) {
  MutexLock lock(mutex_);
  const auto known = hosts_.find(host);
  return known != hosts_.end() ? known->second.sessions : 0;
}

std::vector<std::string> SharedBackend::HostsOf(const std::string& id) {
  std::vector<std::string> hosts;
  MutexLock lock(mutex_);
  const auto device = devices_.find(id);
  if (device == devices_.end()) return hosts;
  for (const auto& [host, proof] : device->second.proofs) {
    if (IsProven(device->second, host)) hosts.push_back(host);
  }
  return hosts;
}

// The one that counts is alone with its mark, whole, and used by nobody else. NOT_FOUND: the host
// shows none, and what it shows instead; FAILED_PRECONDITION: one that will not do.
absl::StatusOr<const v1::SharedDevice*> SharedBackend::FindByMark(const v1::DeviceLook& look,
                                                                  const std::string& id,
                                                                  const std::string& mark) const {
  const v1::SharedDevice* found = nullptr;
  for (const v1::SharedDevice& device : look.devices()) {
    const bool ours = device.mark().pool() == state_.pool() || CXLPOOL_MUTANT("any-pool-will-do");
    if (!ours || device.mark().device() != id) continue;
    if (found != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("two devices there have its mark: ", found->name(), " and ", device.name()));
    }
    found = &device;
  }
  if (found == nullptr) return absl::NotFoundError(TextOf(look, state_.pool()));
  const v1::DeviceMark& own = found->mark();
  if (!mark.empty() && own.id() != mark && !CXLPOOL_MUTANT("any-mark-of-ours")) {
    return absl::FailedPreconditionError(absl::StrCat(found->name(), " there has mark ", own.id(),
                                                      ", and the device has mark ", mark));
  }
  if (!found->unfit_reason().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(found->name(), " there is unfit: ", found->unfit_reason()));
  }
  return found;
}

absl::StatusOr<const v1::SharedDevice*> SharedBackend::FindMarked(const v1::DeviceLook& look,
                                                                  const DeviceEntry& entry,
                                                                  const std::string& mark) const {
  const absl::StatusOr<const v1::SharedDevice*> by_mark = FindByMark(look, entry.id, mark);
  if (!by_mark.ok()) return by_mark;
  const v1::SharedDevice* const found = *by_mark;
  const v1::DeviceMark& own = found->mark();
  if (own.reserved_bytes() == 0 || own.reserved_bytes() % entry.granule_bytes != 0 ||
      own.reserved_bytes() > found->size_bytes() ||
      found->size_bytes() - own.reserved_bytes() < entry.capacity_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(found->name(), " there has ", FormatByteSize(found->size_bytes()), " with ",
                     FormatByteSize(own.reserved_bytes()), " kept for its mark, which is not ",
                     FormatByteSize(entry.capacity_bytes), " in granules of ",
                     FormatByteSize(entry.granule_bytes)));
  }
  if (found->align_bytes() != 0 && entry.granule_bytes % found->align_bytes() != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(found->name(), " there is made use of in multiples of ",
                     FormatByteSize(found->align_bytes()), ", which a granule of ",
                     FormatByteSize(entry.granule_bytes), " is not"));
  }
  return found;
}

// --- What each look at a host says of what was proven.

// Devices of which this host was proven, and is not any more. What was read before a proof, or
// while a nonce was being written, says nothing.
std::vector<std::string> SharedBackend::CheckProofs(const std::string& host,
                                                    const std::string& life,
                                                    const v1::DeviceLook& seen,
                                                    const std::map<std::string, uint64_t>& writes) {
  std::vector<std::string> broken;
  for (auto& [id, device] : devices_) {
    const auto proof = device.proofs.find(host);
    if (proof == device.proofs.end() || proof->second.life != life || !proof->second.why.empty()) {
      continue;
    }
    const auto at = writes.find(id);
    if (at == writes.end() || at->second != device.writes || at->second % 2 != 0) continue;
    const auto found = FindMarked(seen, device.entry, device.mark.id());
    std::string why;
    if (!found.ok()) {
      why = std::string(found.status().message());
    } else if (!device.MayShow((*found)->mark().nonce())) {
      why = "its mark is not as it was left: it is a copy or another device";
    }
    if (why.empty() || CXLPOOL_MUTANT("once-proven-always")) continue;
    proof->second.why = CutText(why, kMaxWhy);
    broken.push_back(id);
  }
  return broken;
}

// --- Looks at the devices.

// Some are asked at a time, and each look goes on behind the host that the last one ended with, so
// that hosts which do not answer keep no other from ever being asked.
bool SharedBackend::LookAtUnproven(absl::Duration deadline, std::map<std::string, Seen>& seen) {
  std::vector<std::string> order;
  {
    MutexLock lock(mutex_);
    for (const auto& [host, state] : hosts_) {
      // Named anew: clang before 16 takes no structured binding into a lambda.
      const auto proven = [this, &host = host](const auto& device) {
        return IsProven(device.second, host);
      };
      const bool all = std::all_of(devices_.begin(), devices_.end(), proven);
      if (!all && !tasks_->LifeOf(host).empty()) order.push_back(host);
    }
  }
  std::rotate(order.begin(), std::upper_bound(order.begin(), order.end(), asked_last_),
              order.end());
  const size_t asked = AskForLooks(order, deadline, seen);
  if (asked != 0) asked_last_ = order[asked - 1];
  return asked == order.size();
}

size_t SharedBackend::AskForLooks(const std::vector<std::string>& hosts, absl::Duration deadline,
                                  std::map<std::string, Seen>& seen) {
  using Asked = std::pair<std::string, std::future<std::optional<Seen>>>;
  size_t next = 0;
  while (next < hosts.size()) {
    const absl::Duration now = clock_.Elapsed();
    if (now >= deadline) break;
    const absl::Duration end = std::min(deadline, now + config_.timing.answer);
    std::vector<Asked> asked;
    for (; next < hosts.size() && asked.size() < kAskedAtOnce; ++next) {
      asked.emplace_back(
          hosts[next],
          std::async(std::launch::async, [this, host = hosts[next], end]() -> std::optional<Seen> {
            Seen shown{.life = tasks_->LifeOf(host), .session = SessionOf(host), .look = {}};
            auto look = AskLook(host, shown.life, end);
            if (!look.ok()) return std::nullopt;
            shown.look = *std::move(look);
            return shown;
          }));
    }
    for (auto& [host, look] : asked) {
      if (auto shown = look.get(); shown.has_value()) seen[host] = *std::move(shown);
    }
  }
  return next;
}

// Fresh looks of all that have a session. What they show is passed on as it is: whether two of them
// are one device is for the caller to guess, and for Prove to know.
absl::StatusOr<SeenDevices> SharedBackend::ShowDevices(const std::string& host,
                                                       absl::Duration deadline) {
  deadline -= std::min(kSpare, config_.timing.operation / 10);
  SeenDevices result;
  std::vector<std::string> order;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, state] : hosts_) {
      if (!host.empty() && id != host) continue;
      if (tasks_->LifeOf(id).empty()) {
        result.silent[id] = "its agent has no session";
      } else {
        order.push_back(id);
      }
    }
  }
  std::map<std::string, Seen> seen;
  AskForLooks(order, deadline, seen);
  for (const std::string& id : order) {
    if (!seen.contains(id)) result.silent[id] = "its agent did not answer in time";
  }
  for (const auto& [id, shown] : seen) {
    const size_t first = result.devices.size();
    for (const v1::SharedDevice& device : shown.look.devices()) {
      SeenDevice& out = result.devices.emplace_back();
      out.host = id;
      out.name = device.name();
      out.serial = device.serial();
      out.size_bytes = device.size_bytes();
      out.align_bytes = device.align_bytes();
      out.unfit_reason = device.unfit_reason();
      if (!device.has_mark()) continue;
      const v1::DeviceMark& mark = device.mark();
      const bool ours = mark.pool() == state_.pool() || CXLPOOL_MUTANT("discover-claims-all");
      out.mark = ours ? SeenDevice::Mark::kThisPool : SeenDevice::Mark::kOtherPool;
      out.mark_id = mark.id();
      out.marked_device = mark.device();
      out.marked_pool = mark.pool();
      out.reserved_bytes = mark.reserved_bytes();
    }
    std::sort(result.devices.begin() + static_cast<std::ptrdiff_t>(first), result.devices.end(),
              [](const SeenDevice& a, const SeenDevice& b) { return a.name < b.name; });
  }
  return result;
}

// A device is shown once some host is proven to reach it; of each other one the answer says why
// not. What could not be asked or proven before the deadline is wanted again at once
// (kDevicesChanged). Hosts of which it was found out just now whether they reach a device are
// looked at again: what is bound there could not be judged before.
absl::StatusOr<DeviceLook> SharedBackend::LookAtDevices(absl::Duration deadline) {
  deadline -= std::min(kSpare, config_.timing.operation / 10);
  std::map<std::string, Seen> seen;
  bool all = LookAtUnproven(deadline - (deadline - clock_.Elapsed()) / 2, seen);
  std::vector<std::string> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, device] : devices_) ids.push_back(id);
  }
  // First their marks; what is marked only now, other hosts have to be shown anew.
  std::map<std::string, std::string> unmarked;  // With why.
  bool written = false;
  for (const std::string& id : ids) {
    {
      MutexLock lock(mutex_);
      if (!devices_[id].mark.id().empty()) continue;
    }
    // One that bears a mark already, of an earlier life of this manager, is never marked again.
    std::string why = TakeFirstMark(id, seen);
    if (why.empty()) continue;
    const std::string more = WriteFirstMark(id, seen, deadline);
    if (more.empty()) {
      written = true;
    } else {
      unmarked[id] = absl::StrCat(why, more);
    }
  }
  if (written) {
    seen.clear();
    all &= LookAtUnproven(deadline - (deadline - clock_.Elapsed()) / 2, seen);
  }

  DeviceLook result;
  std::set<std::string> changed;  // Hosts of which it is known now what they reach.
  for (const std::string& id : ids) {
    for (const auto& [host, shown] : seen) {
      {
        MutexLock lock(mutex_);
        if (devices_[id].mark.id().empty() || IsProven(devices_[id], host)) continue;
      }
      if (clock_.Elapsed() >= deadline) {
        all = false;
        break;
      }
      const std::string refused = Prove(id, host, shown, deadline);
      MutexLock lock(mutex_);
      if (!TakeProof(devices_[id], host, shown, refused)) continue;
      changed.insert(host);
      if (refused.empty()) {
        LogInfo(kSharedLogSubject, "host ", host, " reaches device ", id);
      } else {
        LogWarning(kSharedLogSubject, "host ", host, " does not reach device ", id, ": ", refused);
      }
    }
    MutexLock lock(mutex_);
    const Device& device = devices_[id];
    const bool reached = std::any_of(device.proofs.begin(), device.proofs.end(),
                                     [&](const auto& p) { return IsProven(device, p.first); });
    if (!reached) {
      result.missing[id] = device.mark.id().empty() ? unmarked[id] : WhyMissing(device);
      continue;
    }
    result.devices.push_back({.id = id,
                              .serial = device.entry.serial,
                              .capacity_bytes = device.entry.capacity_bytes,
                              .granule_bytes = device.entry.granule_bytes,
                              .identity = device.mark.id(),
                              .has_bytes = !device.mark.was_zero()});
  }
  if (!all) sink_({.kind = FabricEvent::Kind::kDevicesChanged});
  for (const std::string& host : changed) {
    sink_({.kind = FabricEvent::Kind::kHostReachable, .host = host});
  }
  return result;
}

bool SharedBackend::TakeProof(Device& device, const std::string& host, const Seen& shown,
                              std::string why) {
  const auto known = hosts_.find(host);
  if (known == hosts_.end() || known->second.sessions != shown.session) return false;
  why = CutText(why, kMaxWhy);
  if (why.empty()) device.writes += 2;
  const auto [proof, added] = device.proofs.try_emplace(host);
  const bool news = added || proof->second.why != why || proof->second.life != shown.life;
  proof->second.life = shown.life;
  proof->second.was_proven |= why.empty();
  proof->second.why = std::move(why);
  return news;
}

std::string SharedBackend::WhyMissing(const Device& device) {
  std::vector<std::string> hosts;
  for (const auto& [host, proof] : device.proofs) {
    if (!proof.why.empty()) hosts.push_back(absl::StrCat("host ", host, ": ", proof.why));
  }
  if (hosts.empty()) return "no host that reaches it has an agent with a session now";
  return absl::StrCat("no host is proven to reach it; ", TextOfHosts(hosts));
}

// The mark that the first host shows, in the order of their names; it is proven by that alone.
// Empty: taken. Otherwise what the hosts show instead.
std::string SharedBackend::TakeFirstMark(const std::string& id,
                                         const std::map<std::string, Seen>& seen) {
  std::vector<std::string> instead;
  MutexLock lock(mutex_);
  Device& device = devices_[id];
  for (const auto& [host, shown] : seen) {
    const auto found = FindMarked(shown.look, device.entry, "");
    if (!found.ok()) {
      instead.push_back(absl::StrCat("host ", host, ": ", found.status().message()));
      continue;
    }
    device.mark = (*found)->mark();
    device.align_bytes = std::max(device.align_bytes, (*found)->align_bytes());
    TakeProof(device, host, shown, "");
    LogInfo(kSharedLogSubject, "device ", id, " has mark ", device.mark.id(), ", as host ", host,
            " shows it");
    return "";
  }
  if (instead.empty()) return "no host has an agent with a session that could show it";
  return absl::StrCat("no host shows a device with its mark; ", TextOfHosts(instead));
}

// Where the operator has said on which host which device it is (path HOST/NAME), and nobody shows
// its mark: has it marked. What is there must be bare: a mark that is another's or damaged, and
// memory that somebody uses, are left alone. Answers what to add to why it is missing.
std::string SharedBackend::WriteFirstMark(const std::string& id, std::map<std::string, Seen>& seen,
                                          absl::Duration deadline) {
  DeviceEntry entry;
  v1::DeviceMark mark;
  {
    MutexLock lock(mutex_);
    Device& device = devices_[id];
    entry = device.entry;
    if (!device.to_write.has_value()) {
      mark.set_id(FormatUuid(RandomUuid()));
      mark.set_pool(state_.pool());
      mark.set_device(id);
      mark.set_reserved_bytes(entry.granule_bytes);
      mark.set_nonce(NewNonce());
      device.to_write = mark;
    }
    mark = *device.to_write;  // An earlier try may still come to be.
  }
  const size_t slash = entry.path.find('/');
  if (slash == std::string::npos) {
    return "; set its path to HOST/NAME (`cxlpool device discover` shows them) to have it marked "
           "for "
           "the first time";
  }
  const std::string host = entry.path.substr(0, slash);
  const std::string name = entry.path.substr(slash + 1);
  const auto shown = seen.find(host);
  if (shown == seen.end()) return absl::StrCat("; host ", host, " is to mark it, and is not there");
  const v1::SharedDevice* bare = nullptr;
  for (const v1::SharedDevice& device : shown->second.look.devices()) {
    if (device.name() == name) bare = &device;
  }
  if (bare == nullptr) return absl::StrCat("; host ", host, " has no device ", name, " to mark");
  const uint64_t needed = entry.capacity_bytes + entry.granule_bytes;
  const bool taken = bare->has_mark() || !bare->unfit_reason().empty();
  if (taken && !CXLPOOL_MUTANT("mark-over-marks")) {
    return absl::StrCat("; it is not marked there, for that is not bare", ToMakeBare(*bare, host));
  }
  if (bare->size_bytes() < needed) {
    return absl::StrCat("; ", name, " of host ", host, " is too small: it takes ",
                        FormatByteSize(needed), ", a granule of it for the mark");
  }
  if (bare->align_bytes() != 0 && entry.granule_bytes % bare->align_bytes() != 0) {
    return absl::StrCat("; ", name, " of host ", host, " is made use of in multiples of ",
                        FormatByteSize(bare->align_bytes()), ": give it a granule that is one");
  }
  v1::DeviceTask task;
  task.mutable_mark()->set_name(name);
  *task.mutable_mark()->mutable_mark() = mark;
  LogInfo(kSharedLogSubject, "device ", id, ": host ", host, " is to mark ", name);
  const absl::Status written = Ask(host, shown->second.life, std::move(task), deadline).status();
  if (!written.ok()) return absl::StrCat("; marking it: ", written.message());
  auto look = AskLook(host, shown->second.life, deadline);
  if (!look.ok()) return absl::StrCat("; marking it: ", look.status().message());
  shown->second.look = *std::move(look);
  const std::string why = TakeFirstMark(id, {{host, shown->second}});
  return why.empty() ? "" : absl::StrCat("; it was marked, and now ", why);
}

// --- Proofs.

// Empty: this host reaches the device.
std::string SharedBackend::Prove(const std::string& id, const std::string& host, const Seen& shown,
                                 absl::Duration deadline) {
  DeviceEntry entry;
  std::string mark;
  {
    MutexLock lock(mutex_);
    entry = devices_[id].entry;
    mark = devices_[id].mark.id();
  }
  const auto found = FindMarked(shown.look, entry, mark);
  if (!found.ok()) return std::string(found.status().message());
  {
    MutexLock lock(mutex_);
    uint64_t& align_bytes = devices_[id].align_bytes;
    align_bytes = std::max(align_bytes, (*found)->align_bytes());
  }
  if (CXLPOOL_MUTANT("mark-is-proof")) return "";
  std::vector<std::string> witnesses = HostsOf(id);
  std::erase(witnesses, host);
  if (witnesses.empty()) {
    {
      MutexLock lock(mutex_);
      if (devices_[id].MayShow((*found)->mark().nonce())) return "";
    }
    return ProveAnew(id, host, deadline);
  }
  std::string unheard;
  for (const std::string& witness : witnesses) {
    // It loads what is stored before it stores: a copy is left as it is.
    absl::StatusOr<std::string> differs = Compare(id, witness, host, true, deadline);
    if (differs.ok() && differs->empty() && !CXLPOOL_MUTANT("proven-one-way")) {
      differs = Compare(id, host, witness, false, deadline);
    }
    if (differs.ok()) return *differs;
    unheard = std::string(differs.status().message());
  }
  return absl::StrCat("it could not be compared with host ", witnesses.back(), ": ", unheard);
}

// Of a device that no host is proven to reach any more, for its nonce is none that this manager
// asked for. A host that stood still does that: it goes on with what an earlier manager asked of
// it. Such a device is the one it was if a host that was proven in this session, and another one,
// load what each other stores. Empty: so it is, and this host reaches it.
std::string SharedBackend::ProveAnew(const std::string& id, const std::string& host,
                                     absl::Duration deadline) {
  std::vector<std::pair<std::string, std::string>> pairs;  // Writes first, loads first.
  {
    MutexLock lock(mutex_);
    const auto& proofs = devices_[id].proofs;
    const auto was_proven = [&](const std::string& of) {
      const auto proof = proofs.find(of);
      return CXLPOOL_MUTANT("copies-prove-each-other") ||
             (proof != proofs.end() && proof->second.was_proven);
    };
    for (const auto& [other, proof] : proofs) {
      if (other == host || tasks_->LifeOf(other).empty()) continue;
      // The one that was proven stores first: a copy is left as it is.
      if (was_proven(host)) {
        pairs.emplace_back(host, other);
      } else if (was_proven(other)) {
        pairs.emplace_back(other, host);
      }
    }
  }
  for (const auto& [first, second] : pairs) {
    absl::StatusOr<std::string> differs = Compare(id, first, second, false, deadline);
    if (differs.ok() && differs->empty()) differs = Compare(id, second, first, false, deadline);
    if (!differs.ok() || !differs->empty()) continue;
    LogInfo(kSharedLogSubject, "device ", id, " is the one it was: hosts ", first, " and ", second,
            " load what each other stores");
    return "";
  }
  return "its mark is not as the hosts that reach the device left it, and none of them is there "
         "to compare with";
}

// Has one host store a nonce and the other load it; which of them is proven, `writer_is_proven`
// says. An error: nobody can say, for one of them did not answer or does not show the device now.
absl::StatusOr<std::string> SharedBackend::Compare(const std::string& id, const std::string& writer,
                                                   const std::string& reader, bool writer_is_proven,
                                                   absl::Duration deadline) {
  DeviceEntry entry;
  std::string mark;
  {
    MutexLock lock(mutex_);
    entry = devices_[id].entry;
    mark = devices_[id].mark.id();
  }
  // Its name may be another by now.
  const absl::Duration now = clock_.Elapsed();
  const auto before =
      AskLook(writer, tasks_->LifeOf(writer), std::min(deadline, now + config_.timing.answer));
  if (!before.ok()) return before.status();
  const auto there = FindMarked(*before, entry, mark);
  if (!there.ok()) return there.status();
  const uint64_t nonce = NewNonce();
  absl::Status written = WriteNonce(id, writer, (*there)->name(), nonce, deadline);
  if (!written.ok()) return written;
  if (writer_is_proven) SettleNonce(id, nonce, true);
  const auto after = AskLook(reader, tasks_->LifeOf(reader),
                             std::min(deadline, clock_.Elapsed() + config_.timing.answer));
  if (!after.ok()) return after.status();
  const auto read = FindMarked(*after, entry, mark);
  if (!read.ok()) return read.status();
  const bool same = (*read)->mark().nonce() == nonce || CXLPOOL_MUTANT("nonce-not-compared");
  // What was stored by a host that is not proven is in the device if a proven one has loaded it.
  if (!writer_is_proven) SettleNonce(id, nonce, same);
  return same ? std::string() : OtherBytes(reader, writer);
}

// It is known whether the device has the nonce.
void SharedBackend::SettleNonce(const std::string& id, uint64_t nonce, bool written) {
  MutexLock lock(mutex_);
  Device& device = devices_[id];
  std::erase(device.unsettled, nonce);
  if (written) device.mark.set_nonce(nonce);
}

// The mark as it is, with another nonce, which may be seen at any time until it is settled.
absl::Status SharedBackend::WriteNonce(const std::string& id, const std::string& host,
                                       const std::string& name, uint64_t nonce,
                                       absl::Duration deadline) {
  v1::DeviceTask task;
  task.mutable_mark()->set_name(name);
  {
    MutexLock lock(mutex_);
    Device& device = devices_[id];
    ++device.writes;
    device.unsettled.push_back(nonce);
    if (device.unsettled.size() > kMaxUnsettled) device.unsettled.pop_front();
    *task.mutable_mark()->mutable_mark() = device.mark;
  }
  task.mutable_mark()->mutable_mark()->set_nonce(nonce);
  const absl::Status written = Ask(host, tasks_->LifeOf(host), std::move(task),
                                   std::min(deadline, clock_.Elapsed() + config_.timing.answer))
                                   .status();
  MutexLock lock(mutex_);
  Device& device = devices_[id];
  ++device.writes;
  if (!written.ok() && !IsNoWord(written)) std::erase(device.unsettled, nonce);
  return written;
}

}  // namespace cxlpool::fm
