#include "test/sim/sim_host_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

constexpr int64_t kPowerOnPatienceUs = 300'000;
constexpr int64_t kPowerPollUs = 20'000;
constexpr int kFirstPid = 4000;

absl::Status MemdevTimeout() {
  return Refuse(absl::StatusCode::kDeadlineExceeded, "MEMDEV_TIMEOUT",
                "no memdev of that serial came in the slot", "see whether the Region is bound");
}
absl::Status CommitFailed() {
  return Refuse(absl::StatusCode::kInternal, "REGION_COMMIT", "the kernel refused",
                "see its log; attach again");
}
absl::Status BlocksBusy() {
  return Refuse(absl::StatusCode::kFailedPrecondition, "BLOCKS_BUSY", "blocks stay online",
                "try again later");
}
absl::Status KernelFailed() { return absl::InternalError("the kernel says EIO"); }
absl::Status HostIsDown() { return absl::UnavailableError("the host is down"); }
absl::Status NeverWorks() {
  return Refuse(absl::StatusCode::kUnimplemented, "INTERLEAVE_UNSUPPORTED",
                "this kernel will not make that host region", "attach it elsewhere");
}

// A descriptor of nothing: an application of the simulation loads and stores in Rack::Store.
UniqueFd OpenNothing(int access) {
  static const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  static const int null_read_only = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return UniqueFd(::fcntl(access == O_RDONLY ? null_read_only : null, F_DUPFD_CLOEXEC, 0));
}

}  // namespace

const char* NameOf(HostFault::Kind kind) {
  switch (kind) {
    case HostFault::Kind::kFails:
      return "rung-fails";
    case HostFault::Kind::kFailsDone:
      return "rung-fails-done";
    case HostFault::Kind::kTimesOut:
      return "rung-times-out";
    case HostFault::Kind::kNoEffect:
      return "rung-no-effect";
    case HostFault::Kind::kPermanent:
      return "rung-permanent";
  }
  return "";
}

// What is under way in a kernel knows nothing of the agent, which may be gone by then.
struct SimHostMemory::Rung {
  Scheduler* scheduler;
  Rack* rack;
  RackHost* host;
  HostFaults* faults;
  LifeId life;
  uint32_t boots;
  Effect effect;           // Empty: none.
  int64_t patience_until;  // As long as it may be tried again.
  int64_t answer_us;
  absl::Status instead;                              // The answer, where it is not OK.
  absl::AnyInvocable<void(absl::Status) &&> answer;  // Empty: was given before.
};

SimHostMemory::SimHostMemory(Scheduler* scheduler, LifeId life, Rack* rack, const std::string& host,
                             HostFaults* faults, Random random)
    : scheduler_(scheduler),
      life_(life),
      rack_(rack),
      host_(rack->FindHost(host)),
      faults_(faults),
      random_(random) {}

const agent::ObservedHostRegion* SimHostMemory::Find(uint64_t serial) const {
  for (const agent::ObservedHostRegion& region : host_->regions) {
    for (const uint64_t own : region.serials) {
      if (own == serial) return &region;
    }
  }
  return nullptr;
}

// --- Rungs.

std::optional<HostFault::Kind> SimHostMemory::NextFault(bool creates) {
  const auto fault = std::find_if(
      faults_->next.begin(), faults_->next.end(),
      [=](const HostFault& f) { return creates || f.kind != HostFault::Kind::kPermanent; });
  if (fault == faults_->next.end()) return std::nullopt;
  const HostFault::Kind kind = fault->kind;
  faults_->next.erase(fault);
  faults_->on_fault(NameOf(kind));
  return kind;
}

void SimHostMemory::TakeEffect(Rung rung) {
  Scheduler* const scheduler = rung.scheduler;
  const int64_t now_us = scheduler->now_us();
  if (rung.faults->paused_until_us > now_us) {
    const int64_t wait_us = rung.faults->paused_until_us - now_us;
    scheduler->At(kWorld, wait_us,
                  [rung = std::move(rung)]() mutable { TakeEffect(std::move(rung)); });
    return;
  }
  absl::Status status;
  if (!rung.host->powered || rung.host->boots != rung.boots) {
    status = HostIsDown();
  } else if (rung.effect) {
    status = rung.effect(*rung.rack, *rung.host);
    if (absl::IsDeadlineExceeded(status) && now_us < rung.patience_until) {
      scheduler->At(kWorld, kPowerPollUs,
                    [rung = std::move(rung)]() mutable { TakeEffect(std::move(rung)); });
      return;
    }
  }
  if (!rung.answer) return;
  if (!rung.instead.ok()) status = std::move(rung.instead);
  scheduler->At(rung.life, rung.answer_us,
                [status = std::move(status), answer = std::move(rung.answer)]() mutable {
                  std::move(answer)(std::move(status));
                });
}

void SimHostMemory::Take(Effect effect, absl::Status (*failed)(), Done done, uint64_t creates,
                         int64_t patience_us) {
  if (std::exchange(rung_under_way_, true)) {
    rack_->Breach(absl::StrCat("two rungs at a time on ", host_->id));
  }
  const std::optional<HostFault::Kind> fault = NextFault(creates != 0);
  if (fault == HostFault::Kind::kPermanent) host_->hopeless.insert(creates);
  Rung rung{.scheduler = scheduler_,
            .rack = rack_,
            .host = host_,
            .faults = faults_,
            .life = life_,
            .boots = host_->boots,
            .effect = std::move(effect),
            .patience_until = scheduler_->now_us() + patience_us,
            .answer_us = random_.Between(20, 200),
            .instead = absl::OkStatus(),
            .answer = [this, done = std::move(done)](absl::Status status) mutable {
              rung_under_way_ = false;
              std::move(done)(std::move(status));
            }};
  int64_t effect_us = random_.Between(200, 3000);
  if (fault == HostFault::Kind::kFails || fault == HostFault::Kind::kNoEffect)
    rung.effect = nullptr;
  if (fault == HostFault::Kind::kFails || fault == HostFault::Kind::kFailsDone)
    rung.instead = failed();
  if (fault == HostFault::Kind::kTimesOut) {
    effect_us = random_.Between(200'000, 3'000'000);
    const int64_t deadline_us = effect_us / 2;
    scheduler_->At(life_, deadline_us, [answer = std::move(rung.answer)]() mutable {
      std::move(answer)(absl::DeadlineExceededError("the kernel did not end in time"));
    });
    rung.answer = nullptr;
  }
  scheduler_->At(kWorld, effect_us,
                 [rung = std::move(rung)]() mutable { TakeEffect(std::move(rung)); });
}

void SimHostMemory::PowerOn(uint32_t slot, uint64_t serial, Done done) {
  Take(
      [slot, serial](Rack& rack, RackHost& host) {
        return rack.PowerOn(host, slot, serial) ? absl::OkStatus() : MemdevTimeout();
      },
      MemdevTimeout, std::move(done), /*creates=*/0, kPowerOnPatienceUs);
}

void SimHostMemory::CreateHostRegion(agent::HostRegionSpec spec, Done done) {
  const uint64_t first = spec.serials.empty() ? 0 : spec.serials.front();
  Take(
      [spec = std::move(spec), first](Rack& rack, RackHost& host) {
        if (host.hopeless.contains(first)) return NeverWorks();
        if (!host.prepared) {
          rack.Breach(absl::StrCat("host region of serial ", first, " made on ", host.id,
                                   " before Prepare: its kernel takes the DAX device"));
        }
        return rack.CreateHostRegion(host, spec);
      },
      CommitFailed, std::move(done), /*creates=*/first);
}

void SimHostMemory::BindDax(uint64_t serial, agent::DaxDriver driver, Done done) {
  Take([serial, driver](Rack& rack, RackHost& host) { return rack.BindDax(host, serial, driver); },
       KernelFailed, std::move(done));
}

void SimHostMemory::OnlineBlocks(uint64_t serial, agent::MemoryZone zone, Done done) {
  Take([serial, zone](Rack& rack, RackHost& host) { return rack.OnlineBlocks(host, serial, zone); },
       KernelFailed, std::move(done));
}

void SimHostMemory::OfflineBlocks(uint64_t serial, absl::Duration, Done done) {
  Take([serial](Rack& rack, RackHost& host) { return rack.OfflineBlocks(host, serial); },
       BlocksBusy, std::move(done));
}

void SimHostMemory::UnbindDax(uint64_t serial, Done done) {
  const agent::ObservedHostRegion* region = Find(serial);
  if (region != nullptr && region->dax_driver == agent::DaxDriver::kDeviceDax &&
      shown_free_ != region->serials.front() && host_->held.contains(region->serials.front())) {
    rack_->Breach(absl::StrCat("UnbindDax on ", host_->id, " serial ", serial,
                               ": a process has it open, as FindHolders says"));
  }
  shown_free_ = 0;
  Take([serial](Rack& rack, RackHost& host) { return rack.UnbindDax(host, serial); }, KernelFailed,
       std::move(done));
}

void SimHostMemory::DestroyHostRegion(uint64_t serial, Done done) {
  Take([serial](Rack& rack, RackHost& host) { return rack.DestroyHostRegion(host, serial); },
       KernelFailed, std::move(done));
}

void SimHostMemory::PowerOff(uint32_t slot, uint64_t serial, Done done) {
  Take([slot, serial](Rack& rack, RackHost& host) { return rack.PowerOff(host, slot, serial); },
       KernelFailed, std::move(done));
}

// --- What is not a rung.

void SimHostMemory::Prepare(Done done) {
  scheduler_->At(life_, random_.Between(200, 3000), [this, done = std::move(done)]() mutable {
    if (!host_->powered) return std::move(done)(HostIsDown());
    host_->prepared = true;
    std::move(done)(absl::OkStatus());
  });
}

// What it shows was so at its beginning, or at its end.
void SimHostMemory::Observe(DoneWith<agent::HostObservation> done) {
  const int64_t delay_us = random_.Between(20, 100);
  std::unique_ptr<agent::HostObservation> early;
  if (random_.OneIn(2)) early = std::make_unique<agent::HostObservation>(rack_->Observe(*host_));
  scheduler_->At(life_, delay_us,
                 [this, early = std::move(early), done = std::move(done)]() mutable {
                   if (!host_->powered) return std::move(done)(HostIsDown());
                   std::move(done)(early != nullptr ? std::move(*early) : rack_->Observe(*host_));
                 });
}

void SimHostMemory::FindHolders(uint64_t serial, DoneWith<std::vector<agent::ProcessId>> done) {
  scheduler_->At(life_, random_.Between(20, 100), [this, serial, done = std::move(done)]() mutable {
    std::vector<agent::ProcessId> holders;
    if (const agent::ObservedHostRegion* region = Find(serial)) {
      const uint64_t first = region->serials.front();
      if (host_->held.contains(first)) {
        holders.push_back({static_cast<uint32_t>(kFirstPid + static_cast<int>(first % 1000)), 1});
      } else {
        shown_free_ = first;
      }
    }
    std::move(done)(std::move(holders));
  });
}

absl::StatusOr<agent::OpenedDax> SimHostMemory::OpenDax(uint64_t serial, bool read_only) {
  const agent::ObservedHostRegion* region = Find(serial);
  if (region == nullptr || region->dax_driver != agent::DaxDriver::kDeviceDax) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_DEVDAX",
                  absl::StrCat("serial ", serial, " has no devdax device now"),
                  "wait until the Attachment is ONLINE");
  }
  for (const auto& [slot, plugged] : host_->slots) {
    if (plugged.ld.serial == serial && plugged.ld.read_only && !read_only) {
      return Refuse(absl::StatusCode::kPermissionDenied, "ATTACHMENT_READ_ONLY",
                    absl::StrCat("serial ", serial, " is bound read-only"), "open it READ_ONLY");
    }
  }
  return OpenNothing(read_only ? O_RDONLY : O_RDWR);
}

}  // namespace cxlpool::sim
