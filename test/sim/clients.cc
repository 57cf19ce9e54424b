#include "test/sim/clients.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

constexpr int64_t kRetry_us = 30'000;
constexpr int kMaxAttempts = 4;

bool WorthTryingAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) ||
         (absl::IsResourceExhausted(status) && ReasonOf(status) == "QUEUE_FULL");
}

// The store's and the queue's refusals are of the moment, and so is what an application has open.
bool IsOfTheMoment(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return WorthTryingAgain(status) || reason == "STORE_FULL" || reason == "REGION_IN_USE";
}

absl::Status UnknownRegion() {
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION", "there is none", "list them");
}

// As request ids are scoped to.
struct Methods {
  Interned allocate = "AllocateRegion";
  Interned attach = "AttachRegion";
  Interned detach = "DetachRegion";
  Interned resize = "ResizeRegion";
  Interned rename = "RenameRegion";
  Interned renew = "RenewRegion";
  Interned release = "ReleaseRegion";
};
const Methods& AllMethods() {
  static const Methods methods;
  return methods;
}

}  // namespace

struct Clients::Call {
  explicit Call(Clients* clients) : clients(clients) {}

  Clients* const clients;
  Step step;
  uint32_t copies = 0;        // That may reach the manager.
  std::vector<ClientOp> ops;  // What is written down: of a batch an item each.
  uint64_t request = 0;
  std::string etag;  // Of every attempt; empty: it comes without.
  int attempts = 0;
  bool in_earnest = false;  // Some copy of it was more than a rehearsal.
  bool finished = false;
  int64_t invoked_us = 0;
  int client() const { return static_cast<int>(step.Get("client")); }
};

// The records, and what the manager has heard from the hosts. A plan that is made on the same
// grounds says the same.
struct Clients::Grounds {
  Grounds(ManagerProcess& manager, const fm::MemoryDisk& disk)
      : revision(manager.writer().revision()), rests(revision == disk.revision()) {
    for (int host = 0; host < kHosts; ++host) {
      runtimes[static_cast<size_t>(host)] = manager.writer().state().RuntimeOf(HostName(host));
    }
  }
  bool Are(const Grounds& others) const {
    return revision == others.revision && rests && others.rests && runtimes == others.runtimes;
  }

  uint64_t revision;
  bool rests;  // All of it is on the disk.
  std::array<fm::HostRuntimePtr, kHosts> runtimes;
};

// A step that asks for nothing by a name that is checked is sent all the same, and not written
// down.
void Clients::Do(const Step& step) {
  const CallPtr call = calls_.emplace_back(std::make_shared<Call>(this)).get();
  call->step = step;
  call->request = ++requests_;
  call->etag = EtagFor(step);
  call->invoked_us = world_.scheduler->now_us();
  ++under_way_;
  ++world_.coverage->operations;
  const auto items = std::max<int64_t>(1, step.Get("count"));
  call->ops.reserve(static_cast<size_t>(items));
  for (int64_t item = 0; item < items; ++item) {
    ClientOp& op = call->ops.emplace_back();
    op.request = call->request;
    op.invoke_us = call->invoked_us;
    if (FillOp(step, item, op)) continue;
    call->ops.pop_back();
    break;
  }
  Send(call);
}

std::vector<ClientOp> Clients::TakeHistory() {
  std::vector<ClientOp> history;
  history.reserve(calls_.size() + calls_.size() / 4);  // A batch has several.
  for (const auto& call : calls_) {
    for (ClientOp& op : call->ops) {
      op.sends = std::max<uint32_t>(1, call->copies);
      history.push_back(std::move(op));
    }
  }
  return history;
}

// One attempt: the network may double it or lose it. Without an answer by the deadline it is sent
// again under the same request_id, and given up after kMaxAttempts; a copy may still arrive later.
void Clients::Send(CallPtr call) {
  const int attempt = ++call->attempts;
  const Network::Copies copies = world_.network->OfClient(call->client());
  call->copies += static_cast<uint32_t>(copies.count);
  for (int i = 0; i < copies.count; ++i) {
    world_.scheduler->At(kWorld, copies.delay_us[static_cast<size_t>(i)],
                         [this, call] { Arrive(call); });
  }
  // No more than a task keeps in itself: there are many.
  world_.scheduler->At(kWorld, Scheduler::kDeadline_us, [call, attempt] {
    if (call->finished || call->attempts != attempt) return;
    if (attempt < kMaxAttempts) return call->clients->Send(call);
    call->clients->Finish(call, absl::DeadlineExceededError("no answer"), nullptr);
  });
}

// Comes to whichever manager serves now. One that stands still takes it when it goes on.
void Clients::Arrive(CallPtr call) {
  ManagerProcess* manager = world_.manager();
  if (manager != nullptr && manager->serving() && world_.scheduler->IsPaused(manager->life())) {
    // It comes to it when it goes on, and can be sure then of what it says.
    world_.scheduler->At(manager->life(), 0, [this, manager, call] {
      if (manager->MayAnswer()) Serve(*manager, call);
    });
    return;
  }
  if (manager != nullptr && manager->serving()) return Serve(*manager, call);
  // The connection is refused.
  if (call->finished) return;
  Answer(kWorld, call, absl::UnavailableError("nobody answers"));
}

void Clients::Serve(ManagerProcess& manager, CallPtr call) {
  if (call->step.Get("dry") != 0) return Rehearse(manager, call);
  Ask(manager, call, false,
      [this, life = manager.life(), call](const auto& answer) { Answer(life, call, answer); });
}

void Clients::Rehearse(ManagerProcess& manager, CallPtr call) {
  const Grounds grounds(manager, *world_.disk);
  Ask(manager, call, true, [this, &manager, call, grounds](const auto& answer) {
    if (call->step.Get("dry") == 2) {
      world_.coverage->Met(Meeting::kDryRunAlone);
      if (!answer.ok()) return Reply(call, answer, nullptr);
      return Reply(call, fm::Committed{}, nullptr);
    }
    // Not in the answer: the manager is in the midst of answering.
    manager.executor().Post(
        [this, &manager, call, grounds, answer] { InEarnest(manager, call, grounds, answer); });
  });
}

// The real call must answer what the dry run did, if both rest on the same grounds: nothing changed
// in between, all of it is durable, and neither was refused for a reason of the moment.
void Clients::InEarnest(ManagerProcess& manager, CallPtr call, const Grounds& grounds,
                        const absl::StatusOr<fm::Committed>& rehearsed) {
  const bool first = !std::exchange(call->in_earnest, true);  // Of a later copy it is a retry.
  const Grounds now(manager, *world_.disk);
  const bool holds = first && now.Are(grounds);
  Ask(manager, call, false, [=, this, &manager](const absl::StatusOr<fm::Committed>& answer) {
    // A change says itself on which revision it was planned.
    const bool same = answer.ok() ? answer->revision == now.revision + 1
                                  : Grounds(manager, *world_.disk).Are(now);
    const bool lasting = (answer.ok() || !IsOfTheMoment(answer.status())) &&
                         (rehearsed.ok() || !IsOfTheMoment(rehearsed.status()));
    if (holds && same && lasting) {
      world_.coverage->Met(answer.ok() ? Meeting::kRehearsedDone : Meeting::kRehearsedRefused);
      if (!SaysTheSame(rehearsed, answer)) {
        const auto text = [](const auto& a) {
          return a.ok() ? absl::StrCat("OK, ", a->region->id, " at revision ", a->region->revision)
                        : std::string(a.status().message());
        };
        world_.violate(absl::StrCat("a dry run of \"", ToText(call->step), "\" answered \"",
                                    text(rehearsed), "\", and the call right after it \"",
                                    text(answer), "\""));
      }
    }
    Answer(manager.life(), call, answer);
  });
}

// etag=1: the newest that was answered for the name; etag=2: the one before, which is stale. Empty:
// none is known, or none is asked for.
std::string Clients::EtagFor(const Step& step) const {
  const int64_t which = step.Get("etag");
  if (which == 0) return "";
  const int64_t region = step.Get("region");
  const auto known = etags_.find(step.verb == Verb::kRename ? Renamed(region) : RegionName(region));
  return known == etags_.end() ? "" : known->second[which == 1 ? 0 : 1];
}

// As the RPCs would: once, in the words of the service. `dry`: nothing is to come of it.
void Clients::Ask(ManagerProcess& manager, CallPtr call, bool dry, const AnswerFn& answered) {
  const Step& step = call->step;
  const LifeId life = manager.life();
  fm::PoolService& pool = manager.pool();
  static const fm::Caller& caller = *new fm::Caller(CallerOf(0));
  const int64_t region = step.Get("region");
  const Methods& methods = AllMethods();
  const auto request = [&](Interned method) {
    const fm::Request made =
        RequestOf(method, call->request, dry ? kItemOfDryRun : 0, step.Get("by"));
    if (dry || !call->etag.empty()) world_.reference->Asked(made.id, call->etag, dry);
    return made;
  };
  const auto one = [this, life, answered](const absl::StatusOr<fm::Committed>& answer) {
    if (world_.scheduler->Alive(life)) answered(answer);
  };
  const auto plain = [this, life, call](const absl::Status& status) {
    if (status.ok()) return Answer(life, call, fm::Committed{});
    Answer(life, call, status);
  };
  const auto many = [this, life, call](const fm::Outcomes& outcomes) {
    AnswerAll(life, call, outcomes);
  };
  const auto host = [&] { return HostName(static_cast<int>(step.Get("host"))); };
  const auto device = [&] { return DeviceName(step.Get("device")); };
  const auto change = [&](const char* method, fm::PoolPlan plan) {
    const bool fabric_follows = step.verb == Verb::kAddDevice;
    pool.ChangePool(caller, {.method = method, .fabric_follows = fabric_follows}, std::move(plan),
                    plain);
  };
  switch (step.verb) {
    case Verb::kAllocate:
      return pool.Allocate(AllocateSpecOf(step, request(methods.allocate), region), dry, one);
    case Verb::kAllocateBatch: {
      std::vector<absl::StatusOr<fm::AllocateSpec>> specs;
      for (int64_t i = 0; i < step.Get("count"); ++i) {
        specs.emplace_back(AllocateSpecOf(
            step, RequestOf(methods.allocate, call->request, static_cast<uint64_t>(i)),
            (region + i) % kRegionNames));
      }
      return pool.AllocateBatch(std::move(specs), false, many);
    }
    case Verb::kAttach:
      return pool.Attach(
          {.request = request(methods.attach),
           .caller = CallerOf(0),
           .region_id = RegionName(region),
           .host = host(),
           .mode = step.Get("mode") == 1 ? fm::Mode::kSystemRam : fm::Mode::kDevdax,
           .access = step.Get("mode") == 2 ? fm::Access::kReadOnly : fm::Access::kReadWrite,
           .etag = call->etag},
          dry, one);
    case Verb::kDetach:
      return pool.Detach({.request = request(methods.detach),
                          .caller = CallerOf(0),
                          .region_id = RegionName(region),
                          .host = host(),
                          .etag = call->etag},
                         one);
    case Verb::kResize:
      return pool.Resize({.request = request(methods.resize),
                          .caller = CallerOf(0),
                          .region_id = RegionName(region),
                          .size_bytes = static_cast<uint64_t>(step.Get("granules")) * kGranule,
                          .max_extents = static_cast<uint32_t>(step.Get("extents")),
                          .etag = call->etag},
                         dry, one);
    case Verb::kRename:
      return pool.Rename({.request = request(methods.rename),
                          .caller = CallerOf(0),
                          .region_id = Renamed(region),
                          .new_region_id = NewName(step),
                          .etag = call->etag},
                         one);
    case Verb::kRenew:
      return pool.Renew({.request = request(methods.renew),
                         .caller = CallerOf(step.Get("by")),
                         .region_id = RegionName(region),
                         .ttl = absl::Seconds(12),
                         .etag = call->etag},
                        one);
    case Verb::kForceRelease:
      // With a fence nothing rests on his word.
      if (step.Get("fence") == 0 && !MaySwear(manager, RegionName(region)))
        return one(absl::CancelledError("not on one's word"));
      [[fallthrough]];
    case Verb::kRelease: {
      fm::ReleaseSpec spec = ReleaseSpecOf(step, request(methods.release), region);
      spec.etag = call->etag;
      spec.validate_only = dry;
      return pool.Release(std::move(spec), one);
    }
    case Verb::kReleaseBatch: {
      std::vector<absl::StatusOr<fm::ReleaseSpec>> specs;
      for (int64_t i = 0; i < step.Get("count"); ++i) {
        specs.emplace_back(
            ReleaseSpecOf(step, RequestOf(methods.release, call->request, static_cast<uint64_t>(i)),
                          (region + i) % kRegionNames));
      }
      return pool.ReleaseBatch(std::move(specs), many);
    }
    case Verb::kGet: {
      const auto view = manager.views().Get();
      const fm::RegionPtr found = view->regions.Find(RegionName(region));
      if (found == nullptr) return one(UnknownRegion());
      return one(fm::Committed{found, view->revision});
    }
    case Verb::kSetTenant: {
      fm::Tenant tenant;
      tenant.id = TenantName(step.Get("tenant"));
      tenant.quota_bytes = static_cast<uint64_t>(step.Get("quota")) * kGranule;
      tenant.reserved_bytes = static_cast<uint64_t>(step.Get("reserved")) * kGranule;
      return change("SetTenant", fm::PlanFor(&fm::PlanSetTenant, tenant));
    }
    case Verb::kDrainDevice:
      return change("DrainDevice", fm::PlanFor(&fm::PlanDrainDevice, device()));
    case Verb::kAddDevice:
      return change("AddDevice", fm::PlanFor(&fm::PlanAddDevice, device()));
    case Verb::kFailDevice:
      return pool.FailDevice(caller, device(), "it broke", plain);
    case Verb::kFenceHost:
      return pool.Fence(caller, host(), "the simulation says so", plain);
    case Verb::kRetireHost:
      return change("RetireHost", fm::PlanFor(&fm::PlanRetire, host()));
    case Verb::kEnrolHost: {
      fm::EnrolSpec spec{.host = host()};
      for (int64_t tenant = 0; tenant < kTenants; ++tenant) {
        if ((step.Get("serves") >> tenant & 1) != 0) spec.tenants.push_back(TenantName(tenant));
      }
      return change("EnrolHost", fm::PlanFor(&fm::PlanEnrol, std::move(spec)));
    }
    default:
      return;  // Not a client's.
  }
}

// Nobody may vouch falsely: what happens then is on him. Nor of what he has not seen.
bool Clients::MaySwear(ManagerProcess& manager, const std::string& id) const {
  const fm::RegionPtr* region = manager.writer().state().FindRegionById(id);
  if (region == nullptr) return false;
  const bool stands = (*region)->state == fm::RegionState::kQuarantined;
  return (stands || !(*region)->attachments.empty()) && world_.may_vouch(**region);
}

// --- Answers.

// A manager that has ended answers nothing. What it says is held against the disk now, not when the
// answer arrives: a crash meanwhile changes nothing of what was promised.
void Clients::Answer(LifeId manager, CallPtr call, const absl::StatusOr<fm::Committed>& answer,
                     const std::shared_ptr<const fm::Outcomes>& items) {
  if (!world_.scheduler->Alive(manager)) return;
  if (answer.ok()) {
    world_.reference->Acknowledged(answer->region, answer->revision, world_.disk->revision());
  }
  Reply(call, answer, items);
}

// The answer on its way back: it may be lost. One that is worth trying again is, after a while.
void Clients::Reply(CallPtr call, const absl::StatusOr<fm::Committed>& answer,
                    const std::shared_ptr<const fm::Outcomes>& items) {
  const Network::Copies copies = world_.network->OfClient(call->client());
  if (copies.count == 0) return;
  world_.scheduler->At(kWorld, copies.delay_us[0], [this, call, answer, items] {
    if (call->finished) return;
    if (!answer.ok() && WorthTryingAgain(answer.status()) && call->attempts < kMaxAttempts) {
      // Unless another attempt is under way already.
      world_.scheduler->At(kWorld, kRetry_us, [this, call, attempt = call->attempts] {
        if (!call->finished && call->attempts == attempt) Send(call);
      });
      return;
    }
    Finish(call, answer, items.get());
  });
}

// A batch's items are held against the disk one by one; the call itself is answered as a whole.
void Clients::AnswerAll(LifeId manager, CallPtr call, const fm::Outcomes& outcomes) {
  if (!world_.scheduler->Alive(manager)) return;
  for (const auto& outcome : outcomes) {
    world_.coverage->Answer(outcome.ok() ? "OK" : ReasonOf(outcome.status()));
    if (!outcome.ok()) continue;
    world_.reference->Acknowledged(outcome->region, outcome->revision, world_.disk->revision());
  }
  Answer(manager, call, fm::Committed{}, std::make_shared<const fm::Outcomes>(outcomes));
}

// The operation is over for its client, which remembers the etag; both of the last two are kept, so
// that an older one can be sent on purpose.
void Clients::Finish(CallPtr call, const absl::StatusOr<fm::Committed>& answer,
                     const fm::Outcomes* items) {
  call->finished = true;
  --under_way_;
  const std::string reason = answer.ok() ? "OK" : ReasonOf(answer.status());
  world_.coverage->Answer(reason.empty() ? absl::StatusCodeToString(answer.status().code())
                                         : reason);
  if (call->step.Get("by") != 0) world_.coverage->HostIsTold(reason);
  if (answer.ok() && answer->region != nullptr) {
    auto& [newest, before] = etags_[answer->region->id];
    std::string etag = answer->region->etag();
    if (newest != etag) before = std::exchange(newest, std::move(etag));
  }
  if (trace_) {
    trace_(absl::StrCat("client ", call->client(), " ", InfoOf(call->step.verb).name,
                        " region=", call->step.Get("region"), ": ",
                        answer.ok() ? "OK" : std::string(answer.status().message())));
  }
  for (size_t i = 0; i < call->ops.size(); ++i) {
    WriteDown(items == nullptr ? answer : (*items)[i], call->ops[i]);
    call->ops[i].return_us = world_.scheduler->now_us();
  }
}

void Clients::Enrol(int host) {
  ManagerProcess* manager = world_.manager();
  if (manager == nullptr || !manager->serving()) return;
  manager->pool().ChangePool(fm::Caller::Admin("cxlpool://operator/sim"), {.method = "EnrolHost"},
                             fm::PlanFor(&fm::PlanEnrol, {.host = HostName(host)}),
                             [](const absl::Status&) {});
}

// Asks for the end of every Region. A QUARANTINED one has to be detached everywhere first, then it
// goes by force; so it takes several rounds.
void Clients::ReleaseAll() {
  ManagerProcess* manager = world_.manager();
  if (manager == nullptr || !manager->serving()) return;
  for (const auto& [key, region] : world_.reference->regions()) {
    const bool quarantined = region->state == fm::RegionState::kQuarantined;
    if (quarantined && !region->attachments.empty()) {
      // Force asks for a fence where a host still has it.
      for (const fm::Attachment& attachment : region->attachments) {
        if (attachment.settled().detaching) continue;
        const CallPtr call = BeginAtOnce(*region, ClientOp::kDetach);
        call->ops.front().host = attachment.host;
        manager->pool().Detach({.request = RequestOf(AllMethods().detach, requests_, 0),
                                .caller = CallerOf(0),
                                .region_id = region->id,
                                .host = attachment.host},
                               EndAtOnce(*manager, call));
      }
      continue;
    }
    fm::ReleaseSpec spec;
    spec.caller = fm::Caller::Admin("cxlpool://operator/sim");
    spec.request = RequestOf(AllMethods().release, requests_ + 1, 0);
    spec.region_id = region->id;
    spec.detach_all = true;
    spec.force = quarantined;
    if (spec.force) spec.reason = "the end of the simulation";
    const CallPtr call = BeginAtOnce(*region, ClientOp::kRelease);
    call->ops.front().detach_all = true;
    call->ops.front().force = spec.force;
    manager->pool().Release(std::move(spec), EndAtOnce(*manager, call));
  }
}

// Writes the call down as any other: the history has to know of everything that changed a Region.
Clients::CallPtr Clients::BeginAtOnce(const fm::Region& region, ClientOp::Kind kind) {
  const CallPtr call = calls_.emplace_back(std::make_shared<Call>(this)).get();
  ClientOp& op = call->ops.emplace_back();
  op.kind = kind;
  // What the manager named itself has no history.
  if (absl::ascii_isdigit(static_cast<unsigned char>(region.id[1]))) op.region_id = region.id;
  op.request = ++requests_;
  op.invoke_us = world_.scheduler->now_us();
  return call;
}

std::function<void(const absl::StatusOr<fm::Committed>&)> Clients::EndAtOnce(
    ManagerProcess& manager, CallPtr call) {
  return [this, call, life = manager.life()](const absl::StatusOr<fm::Committed>& answer) {
    if (!world_.scheduler->Alive(life)) return;
    WriteDown(answer, call->ops.front());
    call->ops.front().return_us = world_.scheduler->now_us();
  };
}

}  // namespace cxlpool::sim
