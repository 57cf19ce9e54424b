#include "fabric-manager/ports/fabric_shell.h"

#include <sys/eventfd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

absl::Status NotProven(const Binding& binding, absl::string_view why) {
  return Refuse(absl::StatusCode::kDeadlineExceeded, "UNBIND_NOT_PROVEN",
                absl::StrCat("host ", binding.key.host, " has not let go of slot ", binding.slot,
                             why.empty() ? "" : ": ", why),
                "wait for its agent to power the slot off, or fence the host");
}

uint64_t SmallestGranule(const std::vector<FabricDevice>& devices) {
  uint64_t granule = 0;
  for (const FabricDevice& device : devices) {
    granule = granule == 0 ? device.granule_bytes : std::min(granule, device.granule_bytes);
  }
  return granule;
}

FabricCapabilities CapabilitiesOf(const FabricBackend& backend, const FenceProgram& program) {
  FabricCapabilities capabilities = backend.capabilities();
  if (!program.path.empty()) capabilities.fence = FenceScope::kHost;
  capabilities.extent_granule_bytes = SmallestGranule(backend.devices());
  return capabilities;
}

}  // namespace

// Only a backend that shows such a device is asked.
absl::Status FabricBackend::Carve(const Slice& slice, absl::Duration) {
  return absl::UnimplementedError(absl::StrCat("device ", slice.device, " is not carved"));
}

absl::Status FabricBackend::Return(const Slice& slice, absl::Duration) {
  return absl::UnimplementedError(absl::StrCat("device ", slice.device, " is not carved"));
}

absl::StatusOr<std::unique_ptr<FabricScrub>> FabricBackend::BeginScrub(const Slice& slice) {
  return Refuse(absl::StatusCode::kUnimplemented, "NOT_SCRUBBABLE",
                absl::StrCat("this fabric cannot clear bytes of device ", slice.device),
                "have a host that is trusted clear them");
}

FabricShell::FabricShell(std::unique_ptr<FabricBackend> backend, Options options)
    : backend_(std::move(backend)),
      options_(options),
      capabilities_(CapabilitiesOf(*backend_, options.fence_program)),
      devices_(backend_->devices()),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      lanes_(backend_.get(), capabilities_.driver, options.max_waiting, options.idle) {}

FabricShell::~FabricShell() { ::eventfd_write(stop_.get(), 1); }

FabricCapabilities FabricShell::capabilities() const { return capabilities_; }

void FabricShell::SubmitFor(const std::string& host, FabricCallPtr call, bool first) {
  call->attempt = [this, host, attempt = std::move(call->attempt)](FabricCall& own) mutable {
    if (Has(host)) return attempt(own);
    own.refuse(UnknownHost(host));
    return true;
  };
  lanes_.Submit(backend_->LaneOf(host), std::move(call), first);
}

bool FabricShell::Has(const std::string& host) {
  MutexLock lock(mutex_);
  return hosts_.contains(host);
}

void FabricShell::Emit(FabricEvent event) {
  {
    MutexLock lock(mutex_);
    if (event.kind == FabricEvent::Kind::kHostReachable) silent_.erase(event.host);  // Ask again.
    if (event.kind == FabricEvent::Kind::kHostGone) gone_[event.host] = event.incarnation;
  }
  MutexLock lock(sink_mutex_);
  if (sink_) sink_(std::move(event));
}

// --- The checks that every fabric needs.

absl::Status FabricShell::UnknownHost(const std::string& host) const {
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                absl::StrCat("the ", capabilities_.driver, " fabric has no host ", host),
                absl::StrCat("add it: `cxlpool host add ", host, "`"));
}

// Whole granules within the device; of a device that is carved, an LD number below its limit.
absl::Status FabricShell::CheckSlice(const Slice& slice) {
  std::vector<FabricDevice> devices;
  {
    MutexLock lock(mutex_);
    devices = devices_;
  }
  const auto device = std::find_if(devices.begin(), devices.end(),
                                   [&](const FabricDevice& d) { return d.id == slice.device; });
  if (device == devices.end()) {
    return Refuse(
        absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
        absl::StrCat("the ", capabilities_.driver, " fabric has no device ", slice.device),
        absl::StrCat("add it: `cxlpool device add ", slice.device, " --capacity SIZE`"));
  }
  uint64_t first = slice.dpa_bytes;  // Of the bytes that it may have.
  bool inside = slice.length_bytes != 0;
  if (device->max_lds != 0) {
    first = slice.dpa_bytes % device->capacity_bytes;
    inside &= first == 0 && slice.dpa_bytes / device->capacity_bytes < device->max_lds;
  }
  inside &= first <= device->capacity_bytes && slice.length_bytes <= device->capacity_bytes - first;
  if (inside && slice.dpa_bytes % device->granule_bytes == 0 &&
      slice.length_bytes % device->granule_bytes == 0) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SLICE",
                absl::StrCat("slice of ", slice.length_bytes, " bytes at ", slice.dpa_bytes,
                             " does not fit device ", device->id, " of ", device->capacity_bytes,
                             " bytes in granules of ", device->granule_bytes),
                "use whole granules within the device");
}

bool FabricShell::IsCarved(const std::string& device) {
  MutexLock lock(mutex_);
  return std::any_of(devices_.begin(), devices_.end(),
                     [&](const FabricDevice& d) { return d.id == device && d.max_lds != 0; });
}

absl::Status FabricShell::CheckRequest(const BindRequest& request) {
  if (absl::Status status = CheckSlice(request.slice); !status.ok()) return status;
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

// --- Looking.

HostLook FabricShell::ClaimAndLook(const std::string& host, absl::Duration deadline) {
  const absl::StatusOr<uint64_t> claim = backend_->Claim(host, deadline);
  {
    MutexLock lock(mutex_);
    claims_[host] = claim.value_or(0);
  }
  return Look(host, deadline);
}

// A host that is listed no more has only closed slots, and goes once nothing is bound in them.
HostLook FabricShell::Look(const std::string& host, absl::Duration deadline) {
  HostLook look = backend_->LookAt(host, deadline);
  uint64_t leaving = 0;
  {
    MutexLock lock(mutex_);
    look.host.claim = claims_[host];
    if (look.host.reachable && look.host.claim == 0) {
      look.host.reachable = false;
      look.host.unreachable_reason = absl::StrCat("host ", host, " is not claimed yet");
    }
    if (!look.host.reachable) look.bound.clear();
    if (const auto found = leaving_.find(host); found != leaving_.end()) leaving = found->second;
  }
  if (leaving != 0) {
    std::vector<uint32_t>& closed = look.host.closed_slots;
    closed.insert(closed.end(), look.host.slots.begin(), look.host.slots.end());
    look.host.slots.clear();
    if (look.host.reachable && look.bound.empty()) ForgetLater(host, leaving);
  }
  MutexLock lock(mutex_);
  const auto shown = hosts_.find(host);
  if (shown != hosts_.end()) shown->second = look.host;  // It may just have been forgotten.
  if (capabilities_.keeps_keys || !look.host.reachable) return look;
  std::set<std::pair<std::string, uint32_t>> still;
  for (BoundLd& ld : look.bound) {
    ld.unbinding = unbinding_.contains({host, ld.slot});
    if (ld.unbinding) still.emplace(host, ld.slot);
  }
  std::erase_if(unbinding_,
                [&](const auto& entry) { return entry.first == host && !still.contains(entry); });
  return look;
}

// What a Discover has so far. The last part answers.
struct FabricShell::Gathering {
  explicit Gathering(DoneWith<FabricView> done) : answer(std::move(done)) {}

  void Add(absl::AnyInvocable<void(FabricView&)> part, absl::Status why) {
    absl::StatusOr<FabricView> all = FabricView();
    {
      MutexLock lock(mutex);
      part(view);
      if (status.ok()) status = std::move(why);
      if (--missing != 0) return;
      std::sort(view.hosts.begin(), view.hosts.end(),
                [](const FabricHost& a, const FabricHost& b) { return a.id < b.id; });
      std::sort(view.bound.begin(), view.bound.end(), [](const BoundLd& a, const BoundLd& b) {
        return std::tie(a.host, a.slot) < std::tie(b.host, b.slot);
      });
      if (status.ok()) {
        all = std::move(view);
      } else {
        all = std::move(status);
      }
    }
    answer.Give(std::move(all));
  }

  Mutex mutex;
  size_t missing ABSL_GUARDED_BY(mutex) = 0;
  FabricView view ABSL_GUARDED_BY(mutex);
  absl::Status status ABSL_GUARDED_BY(mutex);
  Answer<absl::StatusOr<FabricView>> answer;
};

// One host's part of a Discover. DEADLINE_EXCEEDED: it did not answer in time; UNAVAILABLE: its
// lane is just being changed; every other error is the whole Discover's, unless the host was
// forgotten meanwhile.
void FabricShell::TakeLook(const std::string& host, const std::shared_ptr<Gathering>& all,
                           absl::StatusOr<HostLook> look) {
  absl::Status status = look.status();
  FabricHost silent;
  if (!look.ok()) {
    MutexLock lock(mutex_);
    const auto known = hosts_.find(host);
    if (known == hosts_.end()) {
      status = absl::OkStatus();
    } else if (absl::IsUnavailable(status) ||
               (absl::IsDeadlineExceeded(status) && !CXLPOOL_MUTANT("hung-host-hangs-all"))) {
      silent = known->second;
      silent.id = host;
      silent.reachable = false;
      silent.unreachable_reason = std::string(status.message());
      status = absl::OkStatus();
    }
  }
  all->Add(
      [&](FabricView& view) {
        if (look.ok()) {
          view.hosts.push_back(std::move(look->host));
          for (BoundLd& ld : look->bound) view.bound.push_back(std::move(ld));
        } else if (!silent.id.empty()) {
          view.hosts.push_back(std::move(silent));
        }
      },
      std::move(status));
}

// Asks for the devices and for each host at the same time, each in its lane and with its own
// deadline: a host that hangs is missing from the answer, and delays it by no more than that.
void FabricShell::Discover(DoneWith<FabricView> done) {
  const auto all = std::make_shared<Gathering>(std::move(done));
  std::vector<std::string> hosts;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, host] : hosts_) hosts.push_back(id);
    MutexLock own(all->mutex);
    all->missing = hosts.size() + 1;
  }

  const auto take_devices = std::make_shared<Answer<absl::StatusOr<DeviceLook>>>(
      [this, all](absl::StatusOr<DeviceLook> seen) {
        if (seen.ok()) {
          MutexLock lock(mutex_);
          KeepListed(seen->devices);
        }
        all->Add(
            [&](FabricView& view) {
              if (!seen.ok()) return;
              view.devices = std::move(seen->devices);
              view.missing_devices = std::move(seen->missing);
            },
            seen.status());
      });
  auto devices = MakeFabricCall(take_devices);
  devices->limit = options_.operation;
  devices->deadline = clock_.Elapsed() + options_.patience + options_.operation;
  devices->attempt = [this, take_devices](FabricCall& call) {
    take_devices->Give(backend_->LookAtDevices(call.end));
    return true;
  };
  devices->late = [](bool) {
    return Refuse(absl::StatusCode::kUnavailable, "FABRIC_TIMEOUT",
                  "the fabric does not say which devices it has", "try again");
  };
  lanes_.Submit(backend_->LaneOf(kDeviceLane), std::move(devices));

  for (const std::string& id : hosts) Ask(id, all);
}

void FabricShell::DiscoverHost(std::string host, DoneWith<FabricView> done) {
  if (!Has(host)) return std::move(done)(FabricView());
  const auto all = std::make_shared<Gathering>(std::move(done));
  {
    MutexLock own(all->mutex);
    all->missing = 1;
  }
  Ask(host, all);
}

// Asks for a look at one host, and puts it, or why there is none, into `all`, exactly once. One
// host that hangs holds up the others' looks no longer than `patience`: its look is then
// DEADLINE_EXCEEDED, and from that moment the host counts as silent. A silent host still owes its
// look, which occupies its lane. So no other call waits for it again: each later question is
// answered at once, until that look comes after all, and the host is reported as reachable.
void FabricShell::Ask(const std::string& id, const std::shared_ptr<Gathering>& all) {
  const auto not_answered = [this, id](bool) {
    return absl::DeadlineExceededError(absl::StrCat("the fabric's side of host ", id,
                                                    " has not answered for ",
                                                    absl::FormatDuration(options_.patience)));
  };
  bool silent = false;
  {
    MutexLock lock(mutex_);
    silent = silent_.contains(id);
  }
  if (silent) return TakeLook(id, all, not_answered(true));
  const auto answer = std::make_shared<Answer<absl::StatusOr<HostLook>>>(
      [this, id, all](absl::StatusOr<HostLook> look) { TakeLook(id, all, std::move(look)); });
  auto call = MakeFabricCall(answer);
  call->deadline = clock_.Elapsed() + options_.patience;
  call->always = true;
  call->attempt = [this, id, answer](FabricCall&) {
    HostLook look = ClaimAndLook(id, clock_.Elapsed() + options_.operation);
    const bool reachable = look.host.reachable;
    if (answer->Give(std::move(look))) return true;
    // No call waits for this look any more. But it shows that the host answers again.
    bool was_silent = false;
    {
      MutexLock lock(mutex_);
      was_silent = silent_.erase(id) != 0;
    }
    if (was_silent && reachable) {
      Emit({.kind = FabricEvent::Kind::kHostReachable, .host = id});
    }
    return true;
  };
  call->refuse = [this, id, answer](absl::Status why) {
    const bool late = absl::IsDeadlineExceeded(why);
    if (late) {
      MutexLock lock(mutex_);
      silent_.insert(id);
    }
    if (answer->Give(std::move(why)) || !late || CXLPOOL_MUTANT("silent-after-its-answer")) return;
    // The look came in this very moment: none is owed, and no other would end the silence.
    MutexLock lock(mutex_);
    silent_.erase(id);
  };
  call->late = not_answered;
  SubmitFor(id, std::move(call));
}

// --- Binding.

// Looks first, so that what every fabric refuses is refused here and nothing has been done.
absl::StatusOr<BoundLd> FabricShell::BindNow(const BindRequest& request, absl::Duration deadline) {
  const std::string& host = request.key.host;
  const HostLook look = Look(host, deadline);
  if (!look.host.reachable) {
    return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE", look.host.unreachable_reason,
                  absl::StrCat("see `cxlpool host show ", host, "`"));
  }
  if (request.incarnation != look.host.fabric_incarnation && !CXLPOOL_MUTANT("bind-in-any-life")) {
    return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                  absl::StrCat("host ", host, " lives in ", look.host.fabric_incarnation,
                               " now, and the records know it in ", request.incarnation),
                  "read the fabric and try again");
  }
  // It was decided before the claim that holds now, perhaps by a manager that is none any more.
  if (request.claim != look.host.claim && !CXLPOOL_MUTANT("bind-under-any-claim")) {
    return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                  absl::StrCat("host ", host, " had to be claimed anew since this was decided"),
                  "read the fabric and try again");
  }
  const std::vector<uint32_t>& slots = look.host.slots;
  if (std::find(slots.begin(), slots.end(), request.slot) == slots.end()) {
    return Refuse(
        absl::StatusCode::kNotFound, "UNKNOWN_SLOT",
        absl::StrCat("host ", host, " has no slot ", request.slot, " where something may be bound"),
        "use one of the slots that the fabric shows of it");
  }
  for (const BoundLd& ld : look.bound) {
    const bool here = ld.slot == request.slot && ld.slice == request.slice;
    const bool same = capabilities_.keeps_keys ? ld.key == request.key : ld.slice == request.slice;
    if (!same) continue;
    const bool as_asked = !capabilities_.keeps_keys ||
                          (ld.read_only == request.read_only && ld.serial == request.serial);
    if (here && as_asked) return ld;
    return Refuse(
        absl::StatusCode::kAlreadyExists, "LD_CONFLICT",
        absl::StrCat("this LD is bound to host ", host, " slot ", ld.slot, " with other arguments"),
        "unbind it first");
  }
  std::string occupant;
  for (const BoundLd& ld : look.bound) {
    if (ld.slot == request.slot) occupant = "another LD";
  }
  if (const auto foreign = look.foreign.find(request.slot); foreign != look.foreign.end()) {
    occupant = foreign->second;
  }
  if (!occupant.empty() && !CXLPOOL_MUTANT("bind-over-bound")) {
    return Refuse(absl::StatusCode::kResourceExhausted, "NO_FREE_PORT",
                  absl::StrCat("slot ", request.slot, " of host ", host, " holds ", occupant),
                  "choose a free slot, or unbind what it holds");
  }
  if (IsCarved(request.slice.device)) {
    if (absl::Status carved = backend_->Carve(request.slice, deadline); !carved.ok()) return carved;
  }
  return backend_->Bind(request, deadline);
}

void FabricShell::Bind(BindRequest request, DoneWith<BoundLd> done) {
  const std::string host = request.key.host;
  absl::Status refused = Has(host) ? CheckRequest(request) : UnknownHost(host);
  if (!refused.ok()) return std::move(done)(std::move(refused));
  const auto answer = std::make_shared<Answer<absl::StatusOr<BoundLd>>>(std::move(done));
  auto call = MakeFabricCall(answer);
  call->limit = options_.operation;
  call->deadline = clock_.Elapsed() + options_.operation;
  call->attempt = [this, answer, request = std::move(request)](FabricCall& own) {
    answer->Give(BindNow(request, own.end));
    return true;
  };
  call->late = [host](bool begun) {
    if (begun) {
      return Refuse(absl::StatusCode::kUnknown, "OUTCOME_UNKNOWN",
                    absl::StrCat("the fabric's side of host ", host, " does not answer to a bind"),
                    "read back what is bound");
    }
    return Refuse(
        absl::StatusCode::kUnavailable, "FABRIC_TIMEOUT",
        absl::StrCat("the fabric's side of host ", host, " was too slow; nothing was done"),
        "try again");
  };
  SubmitFor(host, std::move(call));
}

// --- Unbinding.

// Asks again while the host is busy. What was begun is noted where the backend keeps no keys.
void FabricShell::BeginUnbind(Binding binding, Done done) {
  if (!Has(binding.key.host)) return std::move(done)(UnknownHost(binding.key.host));
  const auto answer = std::make_shared<Answer<absl::Status>>(std::move(done));
  auto call = MakeFabricCall(answer);
  call->limit = options_.operation;
  call->deadline = clock_.Elapsed() + options_.operation;
  call->retry = options_.busy_retry;
  call->attempt = [this, answer, binding](FabricCall& own) {
    // The last try, too, has the time that it takes to ask.
    absl::StatusOr<bool> begun =
        backend_->BeginUnbind(binding, std::max(own.end, clock_.Elapsed() + kGrace));
    if (begun.ok() && !*begun && clock_.Elapsed() < own.end) return false;
    if (begun.ok() && *begun && !capabilities_.keeps_keys) {
      MutexLock lock(mutex_);
      unbinding_.emplace(binding.key.host, binding.slot);
    }
    const bool busy = begun.ok() && !*begun;
    absl::Status status = std::move(begun).status();
    if (busy) {
      status =
          Refuse(absl::StatusCode::kDeadlineExceeded, "GUEST_BUSY",
                 absl::StrCat("host ", binding.key.host, " was busy with an earlier plugging for ",
                              absl::FormatDuration(options_.operation)),
                 "try again, or fence the host");
    }
    answer->Give(std::move(status));
    return true;
  };
  call->late = [host = binding.key.host](bool begun) {
    return Refuse(begun ? absl::StatusCode::kUnknown : absl::StatusCode::kUnavailable,
                  begun ? "OUTCOME_UNKNOWN" : "FABRIC_TIMEOUT",
                  absl::StrCat("the fabric's side of host ", host, " does not answer to an unbind"),
                  "try again");
  };
  SubmitFor(binding.key.host, std::move(call));
}

void FabricShell::AwaitUnbound(Binding binding, absl::Duration timeout, Done done) {
  if (!Has(binding.key.host)) return std::move(done)(UnknownHost(binding.key.host));
  const auto answer = std::make_shared<Answer<absl::Status>>(std::move(done));
  const absl::Duration end = clock_.Elapsed() + timeout;
  auto call = MakeFabricCall(answer);
  call->deadline = end + kGrace;
  call->attempt = [this, answer, binding, end](FabricCall& own) {
    const absl::Duration now = clock_.Elapsed();
    const absl::StatusOr<bool> unbound =
        backend_->IsUnbound(binding, std::max(end, now + options_.recheck));
    if (unbound.ok() && *unbound) {
      answer->Give(absl::OkStatus());
      return true;
    }
    own.retry = std::min(options_.recheck, std::max(end - clock_.Elapsed(), absl::ZeroDuration()));
    if (own.retry > absl::ZeroDuration()) return false;
    answer->Give(NotProven(binding, unbound.status().message()));
    return true;
  };
  call->late = [binding](bool) {
    return NotProven(binding, "the fabric's side of the host does not answer");
  };
  SubmitFor(binding.key.host, std::move(call));
}

// --- Fencing and clearing.

// In turns with other scrubs on one lane, a piece at a time, so that a large one holds up no other.
// One that hangs does: what does not begin for that is answered for, and its Region says so.
void FabricShell::Scrub(Slice slice, ScrubProgress progress, DoneWith<ScrubResult> done) {
  if (absl::Status status = CheckSlice(slice); !status.ok()) {
    return std::move(done)(std::move(status));
  }
  struct Job {
    std::unique_ptr<FabricScrub> scrub;
    ScrubProgress progress;
    bool carved = false;  // By the device.
  };
  auto job = std::make_shared<Job>();
  job->carved = IsCarved(slice.device);
  job->progress = std::move(progress);
  const auto answer = std::make_shared<Answer<absl::StatusOr<ScrubResult>>>(std::move(done));
  auto call = MakeFabricCall(answer);
  call->in_turns = true;
  const bool may_wait = CXLPOOL_MUTANT("scrub-waits-behind-what-hangs");
  if (!may_wait) {
    call->patience = options_.scrub_begins;
    call->deadline = clock_.Elapsed() + call->patience;
  }
  call->limit =
      options_.scrub_least +
      absl::Seconds(slice.length_bytes / std::max<uint64_t>(options_.scrub_bytes_per_second, 1));
  call->attempt = [this, answer, job, slice](FabricCall& own) {
    if (job->scrub == nullptr) {
      // It may not be there any more, or never have been: then what is there in its place is clear.
      absl::Status carved;
      if (job->carved) carved = backend_->Carve(slice, own.end);
      auto begun = carved.ok() ? backend_->BeginScrub(slice) : carved;
      if (!begun.ok()) {
        answer->Give(std::move(begun).status());
        return true;
      }
      job->scrub = *std::move(begun);
    }
    absl::StatusOr<bool> finished = job->scrub->Step(own.end);
    // Not before: what the device has back it may give to any other LD.
    const bool over = finished.ok() && (*finished || CXLPOOL_MUTANT("return-before-clear"));
    if (job->carved && over) {
      if (absl::Status back = backend_->Return(slice, own.end); !back.ok()) finished = back;
    }
    if (!finished.ok()) {
      answer->Give(std::move(finished).status());
    } else if (*finished) {
      answer->Give(job->scrub->result());
    } else if (clock_.Elapsed() >= own.end) {
      answer->Give(own.late(true));
    } else {
      if (job->progress) job->progress(job->scrub->done_bytes());
      return false;
    }
    return true;
  };
  call->late = [slice, limit = call->limit, wait = options_.scrub_begins](bool begun) {
    const std::string what =
        absl::StrCat("clearing ", slice.length_bytes, " bytes of device ", slice.device);
    return Refuse(absl::StatusCode::kDeadlineExceeded, "SCRUB_TIMEOUT",
                  begun ? absl::StrCat(what, " took longer than ", absl::FormatDuration(limit))
                        : absl::StrCat(what,
                                       " did not begin: what is cleared before it has not gone "
                                       "on for ",
                                       absl::FormatDuration(wait)),
                  "look at the device; it is tried again");
  };
  lanes_.Submit(backend_->LaneOf(kScrubLane), std::move(call));
}

}  // namespace cxlpool::fm
