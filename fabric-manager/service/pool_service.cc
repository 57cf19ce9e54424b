#include "fabric-manager/service/pool_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxBatchReason = 1024;

// Plans, and keeps nothing of it where only the plan is wanted.
template <typename PlanIt>
absl::StatusOr<Proposal> Propose(const PlanIt& plan, bool validate_only, PlanContext& context) {
  PlanContext dry;
  if (validate_only) {
    dry = context;
    // They must not cost a commit.
    dry.next_id = [next = kDryRunIds]() mutable { return next++; };
  }
  absl::StatusOr<Plan> made = plan(validate_only ? dry : context);
  if (!made.ok()) return made.status();
  const bool keep_nothing = validate_only && !CXLPOOL_MUTANT("dry-run-commits");
  return Proposal{keep_nothing ? Change{} : std::move(made->change), std::move(made->region),
                  std::move(made->bridges)};
}

// Wraps one of the planner's functions for the writer.
template <typename Spec>
PlanFn Planning(absl::StatusOr<Plan> (*plan)(const PoolState&, const Spec&, PlanContext&),
                Spec spec, bool validate_only) {
  return
      [plan, spec = std::move(spec), validate_only](const PoolState& state, PlanContext& context) {
        return Propose([&](PlanContext& own) { return plan(state, spec, own); }, validate_only,
                       context);
      };
}

template <typename Spec>
PlanItemFn PlanningBatch(absl::StatusOr<Plan> (*plan)(const PoolState&, const Spec&, PlanContext&),
                         std::vector<absl::StatusOr<Spec>> specs, bool validate_only) {
  return
      [plan, specs = std::move(specs), validate_only](
          size_t item, const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
        const absl::StatusOr<Spec>& spec = specs[item];
        if (!spec.ok()) return spec.status();
        if (item > 0 && CXLPOOL_MUTANT("batch-judges-its-first-item")) {
          Spec unjudged = *spec;
          unjudged.caller = Caller::Local(spec->caller.identity());
          return Propose([&](PlanContext& own) { return plan(state, unjudged, own); },
                         validate_only, context);
        }
        return Propose([&](PlanContext& own) { return plan(state, *spec, own); }, validate_only,
                       context);
      };
}

template <typename Spec>
Audit AuditOf(const Spec& spec) {
  return Audit{{}, spec.request.id.principal, spec.request.id.method, ""};
}
Audit AuditOf(const ReleaseSpec& spec) {
  const std::string why = CXLPOOL_MUTANT("audit-without-reason") ? "" : spec.reason;
  return Audit{{}, spec.request.id.principal, spec.request.id.method, why};
}

// In whose name a batch is made: that of its first sound item. Why: what its items say, each once.
template <typename Spec>
Audit AuditOfBatch(const std::vector<absl::StatusOr<Spec>>& specs) {
  std::optional<Audit> audit;
  std::set<std::string> reasons;
  for (const auto& spec : specs) {
    if (!spec.ok()) continue;
    Audit own = AuditOf(*spec);
    if (!own.reason.empty()) reasons.insert(own.reason);
    if (!audit.has_value()) audit = std::move(own);
  }
  if (!audit.has_value()) return {};
  audit->reason = CutText(absl::StrJoin(reasons, "; "), kMaxBatchReason);
  if (CXLPOOL_MUTANT("batch-without-reason")) audit->reason.clear();
  return *std::move(audit);
}

// The first that a release is refused for; empty: it is not, or for something else.
std::string HostToFence(const absl::Status& status) {
  if (ReasonOf(status) != "FENCE_REQUIRED") return "";
  const auto refusal = RefusalOf(status);
  for (const auto& [key, value] : refusal->metadata) {
    if (key == "hosts") return value.substr(0, value.find(','));
  }
  return "";
}

}  // namespace

PoolService::PoolService(Executor* executor, Writer* writer, Reconciler* reconciler,
                         HostSessions* sessions)
    : executor_(executor), writer_(writer), reconciler_(reconciler), sessions_(sessions) {}

void PoolService::Allocate(AllocateSpec spec, bool validate_only, DoneWith<Committed> done) {
  Audit audit = AuditOf(spec);
  writer_->Submit(std::move(audit), Planning(&PlanAllocate, std::move(spec), validate_only),
                  std::move(done));
}

void PoolService::Attach(AttachSpec spec, bool validate_only, DoneWith<Committed> done) {
  Audit audit = AuditOf(spec);
  writer_->Submit(std::move(audit), Planning(&PlanAttach, std::move(spec), validate_only),
                  std::move(done));
}

void PoolService::Detach(DetachSpec spec, DoneWith<Committed> done) {
  Audit audit = AuditOf(spec);
  writer_->Submit(std::move(audit), Planning(&PlanDetach, std::move(spec), false), std::move(done));
}

void PoolService::Release(ReleaseSpec spec, DoneWith<Committed> done) {
  const bool validate_only = spec.validate_only && !CXLPOOL_MUTANT("dry-run-releases");
  if (spec.fence && spec.force && !validate_only) {
    return ReleaseWithFence(std::move(spec), {}, std::move(done));
  }
  Audit audit = AuditOf(spec);
  writer_->Submit(std::move(audit), Planning(&PlanRelease, std::move(spec), validate_only),
                  std::move(done));
}

void PoolService::ReleaseWithFence(ReleaseSpec spec, std::vector<std::string> fenced,
                                   DoneWith<Committed> done) {
  Audit audit = AuditOf(spec);
  writer_->Submit(
      std::move(audit), Planning(&PlanRelease, spec, false),
      [this, spec, fenced = std::move(fenced),
       done = std::move(done)](const absl::StatusOr<Committed>& answer) mutable {
        std::string host = HostToFence(answer.status());
        if (host.empty() || std::find(fenced.begin(), fenced.end(), host) != fenced.end()) {
          std::move(done)(answer);
          return;
        }
        fenced.push_back(host);
        Fence(spec.caller, host, spec.reason,
              [this, spec, fenced = std::move(fenced),
               done = std::move(done)](const absl::Status& status) mutable {
                if (!status.ok()) return std::move(done)(status);
                // It was current when the fence was found to be needed. The fence has changed it.
                if (!CXLPOOL_MUTANT("fence-spoils-etag")) spec.etag.clear();
                ReleaseWithFence(std::move(spec), std::move(fenced), std::move(done));
              });
      });
}

void PoolService::Resize(ResizeSpec spec, bool validate_only, DoneWith<Committed> done) {
  Audit audit = AuditOf(spec);
  writer_->Submit(
      std::move(audit),
      [this, spec = std::move(spec), validate_only](const PoolState& state, PlanContext& context) {
        const InUseFn in_use = [this](const Region& region, size_t keep_extents) {
          return reconciler_->HostsUsing(region, keep_extents);
        };
        return Propose([&](PlanContext& own) { return PlanResize(state, spec, in_use, own); },
                       validate_only, context);
      },
      std::move(done));
}

void PoolService::Rename(RenameSpec spec, DoneWith<Committed> done) {
  Audit audit = AuditOf(spec);
  writer_->Submit(std::move(audit), Planning(&PlanRename, std::move(spec), false), std::move(done));
}

void PoolService::Renew(RenewSpec spec, DoneWith<Committed> done) {
  Audit audit = AuditOf(spec);
  writer_->Submit(std::move(audit), Planning(&PlanRenew, std::move(spec), false), std::move(done));
}

void PoolService::AllocateBatch(std::vector<absl::StatusOr<AllocateSpec>> specs, bool validate_only,
                                OutcomesDone done) {
  Audit audit = AuditOfBatch(specs);
  const size_t count = specs.size();
  writer_->SubmitBatch(std::move(audit), count,
                       PlanningBatch(&PlanAllocate, std::move(specs), validate_only),
                       std::move(done));
}

void PoolService::ReleaseBatch(std::vector<absl::StatusOr<ReleaseSpec>> specs, OutcomesDone done) {
  Audit audit = AuditOfBatch(specs);
  const size_t count = specs.size();
  for (absl::StatusOr<ReleaseSpec>& spec : specs) {
    if (!spec.ok() || !spec->fence) continue;
    spec = Refuse(absl::StatusCode::kInvalidArgument, "BAD_FENCE", "a batch fences no hosts",
                  "release this Region by itself, or fence the hosts first", {{"field", "fence"}});
  }
  const bool validate_only = std::any_of(specs.begin(), specs.end(), [](const auto& spec) {
    return spec.ok() && spec->validate_only;
  });
  writer_->SubmitBatch(std::move(audit), count,
                       PlanningBatch(&PlanRelease, std::move(specs), validate_only),
                       std::move(done));
}

// The one way to a change that no Region asks for: without a caller who runs the pool there is no
// plan.
void PoolService::SubmitChange(const Caller& caller, const std::string& method,
                               const std::string& reason, PlanChange plan, Done done) {
  writer_->Submit(
      Audit{{}, caller.identity(), method, reason},
      [caller, plan = std::move(plan)](const PoolState& state,
                                       PlanContext& context) -> absl::StatusOr<Proposal> {
        const absl::Status status = CheckCaller(state, caller, Right::kRunPool);
        if (!status.ok() && !CXLPOOL_MUTANT("anybody-runs-the-pool")) return status;
        absl::StatusOr<Change> change = plan(state, context);
        if (!change.ok()) return change.status();
        return Proposal{*std::move(change), nullptr};
      },
      [done = std::move(done)](const absl::StatusOr<Committed>& committed) mutable {
        std::move(done)(committed.status());
      });
}

void PoolService::Act(const Caller& caller, Done done, absl::AnyInvocable<void(Done) &&> act) {
  executor_->Post([this, caller, done = std::move(done), act = std::move(act)]() mutable {
    absl::Status status = CheckCaller(writer_->state(), caller, Right::kRunPool);
    if (!status.ok()) return std::move(done)(std::move(status));
    std::move(act)(std::move(done));
  });
}

Done PoolService::Following(Done done) {
  return [this, done = std::move(done)](absl::Status status) mutable {
    if (!status.ok()) return std::move(done)(std::move(status));
    reconciler_->FollowTopology([done = std::move(done)](const absl::Status&) mutable {
      std::move(done)(absl::OkStatus());
    });
  };
}

void PoolService::PutDevice(const Caller& caller, DeviceEntry device, Done done) {
  SubmitChange(
      caller, "AddDevice", "",
      [device = std::move(device)](const PoolState& state, PlanContext& context) {
        return PlanPutDevice(state, device, context);
      },
      Following(std::move(done)));
}

void PoolService::PutHost(const Caller& caller, HostEntry host, Done done) {
  SubmitChange(
      caller, "AddHost", "",
      [host = std::move(host)](const PoolState& state, PlanContext& context) {
        return PlanPutHost(state, host, context);
      },
      Following(std::move(done)));
}

void PoolService::ApplyTopology(const Caller& caller, TopologyTables wanted, bool validate_only,
                                DoneWith<std::vector<TopologyStep>> done) {
  auto steps = std::make_shared<std::vector<TopologyStep>>();
  const auto answer = [steps](DoneWith<std::vector<TopologyStep>> to) -> Done {
    return [steps, to = std::move(to)](const absl::Status& status) mutable {
      if (!status.ok()) return std::move(to)(status);
      std::move(to)(std::move(*steps));
    };
  };
  SubmitChange(
      caller, "ApplyTopology", "",
      [wanted = std::move(wanted), validate_only, steps](
          const PoolState& state, PlanContext& context) -> absl::StatusOr<Change> {
        PlanContext own = context;
        uint64_t next_id = kDryRunIds;
        if (validate_only) own.next_id = [&next_id] { return next_id++; };
        absl::StatusOr<TopologyPlan> plan = PlanTopology(state, wanted, own);
        if (!plan.ok()) return plan.status();
        *steps = std::move(plan->steps);
        return validate_only && !CXLPOOL_MUTANT("dry-run-applies") ? Change{}
                                                                   : std::move(plan->change);
      },
      validate_only ? answer(std::move(done)) : Following(answer(std::move(done))));
}

void PoolService::DiscoverDevices(const Caller& caller, const std::string& host,
                                  DoneWith<SeenDevices> done) {
  executor_->Post([this, caller, host, done = std::move(done)]() mutable {
    absl::Status status = CheckCaller(writer_->state(), caller, Right::kRunPool);
    if (!status.ok()) return std::move(done)(std::move(status));
    reconciler_->ShowDevices(host, [done =
                                        std::move(done)](absl::StatusOr<SeenDevices> seen) mutable {
      if (!seen.ok() && ReasonOf(seen.status()).empty() && absl::IsUnimplemented(seen.status())) {
        seen = Refuse(absl::StatusCode::kUnimplemented, "NOT_DISCOVERABLE",
                      "this pool's fabric has no devices that every host sees whole",
                      "name its devices yourself: `cxlpool device add DEVICE --capacity SIZE`");
      }
      std::move(done)(std::move(seen));
    });
  });
}

void PoolService::AddDevice(const Caller& caller, const std::string& device, Done done) {
  SubmitChange(
      caller, "AddDevice", "",
      [device](const PoolState& state, PlanContext&) { return PlanAddDevice(state, device); },
      Following(std::move(done)));
}

void PoolService::DrainDevice(const Caller& caller, const std::string& device, Done done) {
  SubmitChange(
      caller, "DrainDevice", "",
      [device](const PoolState& state, PlanContext&) { return PlanDrainDevice(state, device); },
      std::move(done));
}

void PoolService::RemoveDevice(const Caller& caller, const std::string& device, Done done) {
  SubmitChange(
      caller, "RemoveDevice", "",
      [device](const PoolState& state, PlanContext&) { return PlanRemoveDevice(state, device); },
      Following(std::move(done)));
}

void PoolService::FailDevice(const Caller& caller, const std::string& device,
                             const std::string& reason, Done done) {
  Act(caller, std::move(done),
      [this, audit = Audit{{}, caller.identity(), "FailDevice", reason}, device](Done act) mutable {
        reconciler_->FailDevice(std::move(audit), device, std::move(act));
      });
}

void PoolService::SetTenant(const Caller& caller, const Tenant& tenant, Done done) {
  SubmitChange(
      CXLPOOL_MUTANT("audit-names-the-manager") ? Caller::Operator("manager") : caller, "SetTenant",
      "",
      [tenant](const PoolState& state, PlanContext& context) {
        return PlanSetTenant(state, tenant, context);
      },
      std::move(done));
}

void PoolService::RemoveTenant(const Caller& caller, const std::string& tenant, Done done) {
  SubmitChange(
      caller, "RemoveTenant", "",
      [tenant](const PoolState& state, PlanContext&) { return PlanRemoveTenant(state, tenant); },
      std::move(done));
}

void PoolService::Revoke(const Caller& caller, Revocation revocation, Done done) {
  SubmitChange(
      caller, "RevokeCertificate", revocation.reason,
      [revocation](const PoolState& state, PlanContext& context) {
        return PlanRevoke(state, revocation, context);
      },
      [this, done = std::move(done)](const absl::Status& status) mutable {
        if (status.ok()) sessions_->EndRevoked();
        std::move(done)(status);
      });
}

void PoolService::Restore(const Caller& caller, const std::string& subject, Done done) {
  SubmitChange(
      caller, "RestoreCertificate", subject,
      [subject](const PoolState& state, PlanContext&) { return PlanRestore(state, subject); },
      std::move(done));
}

void PoolService::Enrol(const Caller& caller, EnrolSpec spec, Done done) {
  auto replaced = std::make_shared<bool>(false);
  const std::string host = spec.host;
  const std::string reason =
      absl::StrCat(spec.identity, spec.tenants.empty() ? "" : " for tenants ",
                   absl::StrJoin(spec.tenants, ", "));
  SubmitChange(
      caller, "EnrolHost", reason,
      [spec = std::move(spec), replaced](const PoolState& state, PlanContext& context) {
        const Host* before = state.FindHost(spec.host);
        absl::StatusOr<Change> change = PlanEnrol(state, spec, context);
        if (change.ok() && before != nullptr && !before->retired && !change->empty()) {
          *replaced = std::get<Host>(change->front()).identity != before->identity;
        }
        return change;
      },
      [this, host, replaced, done = std::move(done)](const absl::Status& status) mutable {
        if (status.ok() && *replaced) {
          sessions_->End(host, Refuse(absl::StatusCode::kPermissionDenied, "WRONG_IDENTITY",
                                      absl::StrCat("host \"", host,
                                                   "\" was enrolled with another certificate"),
                                      "give the agent the new certificate"));
        }
        std::move(done)(status);
      });
}

void PoolService::Retire(const Caller& caller, const std::string& host, Done done) {
  SubmitChange(
      caller, "RetireHost", "",
      [host](const PoolState& state, PlanContext& context) {
        return PlanRetire(state, host, context);
      },
      [this, host, done = std::move(done)](const absl::Status& status) mutable {
        if (status.ok()) {
          sessions_->End(host,
                         Refuse(absl::StatusCode::kFailedPrecondition, "HOST_RETIRED",
                                absl::StrCat("host \"", host, "\" was retired"),
                                absl::StrCat("`cxlpool host enrol ", host, "` brings it back")));
        }
        std::move(done)(status);
      });
}

void PoolService::RemoveHost(const Caller& caller, const std::string& host, Done done) {
  SubmitChange(
      caller, "RemoveHost", "",
      [host](const PoolState& state, PlanContext&) { return PlanRemoveHost(state, host); },
      [this, host, done = Following(std::move(done))](const absl::Status& status) mutable {
        if (status.ok()) {
          sessions_->End(host, Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                                      absl::StrCat("host \"", host, "\" was removed"),
                                      absl::StrCat("run `cxlpool host enrol ", host, "`")));
        }
        std::move(done)(status);
      });
}

void PoolService::Fence(const Caller& caller, const std::string& host, const std::string& reason,
                        Done done) {
  const std::string why = CXLPOOL_MUTANT("fence-without-reason") ? "" : reason;
  Act(caller, std::move(done),
      [this, audit = Audit{{}, caller.identity(), "FenceHost", why}, host](Done act) mutable {
        if (writer_->state().FindHost(host) == nullptr) {
          std::move(act)(Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                                absl::StrCat("host \"", host, "\" is not enrolled"),
                                "see `cxlpool host list`", {{"host", host}}));
          return;
        }
        reconciler_->Fence(host, std::move(audit), std::move(act));
      });
}

}  // namespace cxlpool::fm
