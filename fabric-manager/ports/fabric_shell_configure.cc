// What the fabric of a FabricShell is made of: hosts and devices that come, change and go.

#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/fabric_shell.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

absl::Status BadConfig(std::string message, std::string remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_CONFIG", std::move(message),
                std::move(remedy));
}

absl::Status CheckDeviceConfig(const std::string& id, uint64_t capacity_bytes,
                               uint64_t granule_bytes, std::set<std::string>& ids) {
  if (absl::Status status = CheckResourceId(id); !status.ok()) return status;
  if (!ids.insert(id).second) {
    return BadConfig(absl::StrCat("device ", id, " is configured twice"), "remove one");
  }
  if (granule_bytes == 0 || capacity_bytes == 0 || capacity_bytes % granule_bytes != 0) {
    return BadConfig(absl::StrCat("device ", id, " has ", capacity_bytes, " bytes in granules of ",
                                  granule_bytes),
                     "make the capacity a multiple of a granule that is not 0");
  }
  return absl::OkStatus();
}

absl::Status CheckHostConfig(const std::string& id, std::set<std::string>& ids) {
  if (absl::Status status = CheckResourceId(id); !status.ok()) return status;
  if (ids.insert(id).second) return absl::OkStatus();
  return BadConfig(absl::StrCat("host ", id, " is configured twice"), "remove one");
}
namespace {

// A call whose end no one awaits. `run` returns false where it is to run again.
FabricCallPtr MakeStep(std::function<bool()> run) {
  auto call = std::make_shared<FabricCall>();
  call->attempt = [run = std::move(run)](FabricCall&) { return run(); };
  call->refuse = [](const absl::Status&) {};
  call->answered = [] { return false; };
  return call;
}

}  // namespace

void FabricShell::Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) {
  {
    MutexLock lock(sink_mutex_);
    sink_ = std::move(sink);
  }
  backend_->Start(known, [this](FabricEvent event) { Emit(std::move(event)); });
  for (const std::string& id : backend_->hosts()) Meet(id, known.hosts[id]);
  lanes_.Open(backend_->LaneOf(kScrubLane));
  lanes_.Open(backend_->LaneOf(kDeviceLane));
}

// Opens the host's lane, and lets the backend find out first whether it is the one that the records
// know in `life`.
void FabricShell::Meet(const std::string& host, const std::string& life) {
  {
    MutexLock lock(mutex_);
    hosts_[host].id = host;
    if (!life.empty()) hosts_[host].fabric_incarnation = life;
    silent_.erase(host);  // Nothing of a lane that was closed is awaited any more.
    claims_.erase(host);
  }
  lanes_.Open(backend_->LaneOf(host));
  SubmitFor(host, MakeStep([this, host, life] {
              backend_->Meet(host, life);
              return true;
            }));
}

void FabricShell::Configure(FabricParts parts, Done done) {
  const auto answer = std::make_shared<Answer<absl::Status>>(std::move(done));
  auto call = MakeFabricCall(answer);
  call->limit = options_.configure;
  call->deadline = clock_.Elapsed() + options_.configure;
  call->attempt = [this, answer, parts = std::move(parts)](FabricCall&) {
    answer->Give(ConfigureNow(parts));
    return true;
  };
  call->late = [](bool) {
    return Refuse(absl::StatusCode::kUnavailable, "FABRIC_TIMEOUT",
                  "the fabric has not taken in what it consists of", "wait; it is tried again");
  };
  lanes_.Submit(backend_->LaneOf(kDeviceLane), std::move(call));
}

// On the lane of looks at the devices: what is shown and what is proven do not come in between.
void FabricShell::ShowDevices(std::string host, DoneWith<SeenDevices> done) {
  if (!host.empty() && !Has(host)) return std::move(done)(UnknownHost(host));
  const auto answer = std::make_shared<Answer<absl::StatusOr<SeenDevices>>>(std::move(done));
  auto call = MakeFabricCall(answer);
  call->limit = options_.operation;
  call->deadline = clock_.Elapsed() + options_.patience + options_.operation;
  call->attempt = [this, answer, host = std::move(host)](FabricCall& own) {
    answer->Give(backend_->ShowDevices(host, own.end));
    return true;
  };
  call->late = [](bool) {
    return Refuse(absl::StatusCode::kUnavailable, "FABRIC_TIMEOUT",
                  "the fabric does not say which devices the hosts see", "try again");
  };
  lanes_.Submit(backend_->LaneOf(kDeviceLane), std::move(call));
}

// A host that has another description is met again, on a new lane: nothing may run on the old one
// while the backend puts another in its place. One that stays as it is notices nothing. One that is
// listed no more is left as it is, and only Look closes its slots: what is bound there is still
// bound.
absl::Status FabricShell::ConfigureNow(const FabricParts& parts) {
  std::set<std::string> wanted, to_meet;
  for (const HostEntry& host : parts.tables.hosts) {
    wanted.insert(host.id);
    if (!Has(host.id) || !backend_->HasHost(host)) to_meet.insert(host.id);
  }
  std::vector<std::pair<std::string, uint64_t>> leaving;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, host] : hosts_) {
      if (wanted.contains(id)) {
        leaving_.erase(id);
      } else if (leaving_.try_emplace(id, leavings_ + 1).second) {
        leaving.emplace_back(id, ++leavings_);
      }
    }
  }
  for (const std::string& id : to_meet) CloseLaneOf(id);
  const absl::Status status = backend_->Configure(parts);
  {
    MutexLock lock(mutex_);
    listed_.emplace();
    for (const DeviceEntry& device : parts.tables.devices) listed_->insert(device.id);
    devices_ = backend_->devices();
    KeepListed(devices_);
  }
  for (const std::string& id : backend_->hosts()) {
    const auto life = parts.known.hosts.find(id);
    if (to_meet.contains(id)) Meet(id, life == parts.known.hosts.end() ? "" : life->second);
  }
  if (CXLPOOL_MUTANT("left-host-is-forgotten-at-once")) {
    for (const auto& [id, number] : leaving) ForgetNow(id, number);
  }
  return status;
}

// Where the host shares its lane with others, that one stays: Configure and Forget run on it, too.
void FabricShell::CloseLaneOf(const std::string& host) {
  const std::string lane = backend_->LaneOf(host);
  if (lane != backend_->LaneOf(kDeviceLane)) lanes_.Close(lane);
}

// A lane cannot end itself.
void FabricShell::ForgetLater(const std::string& host, uint64_t leaving) {
  lanes_.Submit(backend_->LaneOf(kDeviceLane), MakeStep([this, host, leaving] {
                  ForgetNow(host, leaving);
                  return true;
                }));
}

// Since it was seen that nothing is bound there nothing could be bound: its slots are closed,
// unless it was listed again meanwhile, and then it leaves under another number, if at all.
void FabricShell::ForgetNow(const std::string& host, uint64_t leaving) {
  {
    MutexLock lock(mutex_);
    const auto found = leaving_.find(host);
    if (found == leaving_.end() || found->second != leaving || fences_.contains(host)) return;
    leaving_.erase(found);
    hosts_.erase(host);
    silent_.erase(host);
    claims_.erase(host);
    gone_.erase(host);
    std::erase_if(unbinding_, [&](const auto& entry) { return entry.first == host; });
  }
  CloseLaneOf(host);
  if (!CXLPOOL_MUTANT("fence-lanes-stay")) CloseFenceLaneOf(host);
  backend_->Forget(host);
}

// The program may not have died yet. Nothing waits for it here; its lane is tried again later. If
// the host has come back by then, it uses that lane again. It cannot come back while this runs:
// Configure runs on the same lane.
void FabricShell::CloseFenceLaneOf(const std::string& host) {
  auto call = MakeStep([this, host] {
    return Has(host) || lanes_.Close(FenceLaneOf(host), /*only_idle=*/true) ||
           CXLPOOL_MUTANT("busy-fence-lane-stays");
  });
  call->retry = options_.recheck;
  lanes_.Submit(backend_->LaneOf(kDeviceLane), std::move(call));
}

// A backend that is what it is shows devices that are no part of the pool as well.
void FabricShell::KeepListed(std::vector<FabricDevice>& devices) {
  if (!listed_.has_value()) return;
  std::erase_if(devices, [listed = &*listed_](const FabricDevice& device) {
    return !listed->contains(device.id);
  });
}

}  // namespace cxlpool::fm
