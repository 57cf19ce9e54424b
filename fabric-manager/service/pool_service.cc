#include "fabric-manager/service/pool_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
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

// The same for a batch. An item that could not be read is refused in its place, and each is in the
// audit trail under its own request id.
template <typename Spec>
PlanItemFn PlanningBatch(absl::StatusOr<Plan> (*plan)(const PoolState&, const Spec&, PlanContext&),
                         std::vector<absl::StatusOr<Spec>> specs, bool validate_only) {
  return [plan, specs = std::move(specs), validate_only](
             size_t item, const PoolState& state,
             PlanContext& context) -> absl::StatusOr<Proposal> {
    const absl::StatusOr<Spec>& spec = specs[item];
    if (!spec.ok()) return spec.status();
    if (item > 0 && CXLPOOL_MUTANT("batch-judges-its-first-item")) {
      Spec unjudged = *spec;
      unjudged.caller = Caller::Local(spec->caller.identity());
      return Propose([&](PlanContext& own) { return plan(state, unjudged, own); }, validate_only,
                     context);
    }
    absl::StatusOr<Proposal> proposal =
        Propose([&](PlanContext& own) { return plan(state, *spec, own); }, validate_only, context);
    if (proposal.ok()) proposal->request_id = spec->request.id.id;
    return proposal;
  };
}

// Who asked for what, and why. The writer fills in the time.
Audit AuditOf(const Caller& caller, std::string method, std::string reason) {
  return Audit{.time = {},
               .principal = caller.identity(),
               .action = std::move(method),
               .reason = std::move(reason),
               .role = caller.RoleText(),
               .origin = caller.origin()};
}

template <typename Spec>
Audit AuditOf(const Spec& spec, const std::string& reason = "") {
  Audit audit = AuditOf(spec.caller, spec.request.id.method.str(), reason);
  audit.principal = spec.request.id.principal.str();
  audit.origin.request_id = spec.request.id.id;
  return audit;
}
Audit AuditOf(const ReleaseSpec& spec) {
  return AuditOf<ReleaseSpec>(spec, CXLPOOL_MUTANT("audit-without-reason") ? "" : spec.reason);
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

// With force and fences it may take several commits; then each fence is one of its own.
void PoolService::Release(ReleaseSpec spec, DoneWith<Committed> done) {
  const bool validate_only = spec.validate_only && !CXLPOOL_MUTANT("dry-run-releases");
  if (spec.fence && spec.force && !validate_only) {
    return ReleaseWithFence(std::move(spec), {}, std::move(done));
  }
  Audit audit = AuditOf(spec);
  writer_->Submit(std::move(audit), Planning(&PlanRelease, std::move(spec), validate_only),
                  std::move(done));
}

// Releases; where that is refused because a host has to be fenced first, fences it and tries again.
// A host that is named again although it was fenced ends it, so that it never goes round in
// circles.
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

// Whether a host still uses what would be cut off is asked when the plan is made, not when it was
// asked for.
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

// Dry runs and releases are not mixed: where one item is a dry run, all are.
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

// Plans on the writer's thread for the caller whom the audit names. Once the change is durable,
// ends the sessions that it makes unwelcome, and has the driver go by it where the call says so.
void PoolService::ChangePool(const Caller& caller, PoolCall call, PoolPlan plan, Done done) {
  Audit audit = AuditOf(caller, std::move(call.method), std::move(call.reason));
  if (CXLPOOL_MUTANT("audit-names-the-manager")) audit.principal = "manager";
  writer_->Submit(
      std::move(audit),
      [caller, plan = std::move(plan)](const PoolState& state,
                                       PlanContext& context) -> absl::StatusOr<Proposal> {
        absl::StatusOr<Change> change = plan(state, caller, context);
        if (!change.ok()) return change.status();
        return Proposal{*std::move(change), nullptr};
      },
      [this, fabric_follows = call.fabric_follows,
       done = std::move(done)](const absl::StatusOr<Committed>& committed) mutable {
        if (!committed.ok()) return std::move(done)(committed.status());
        sessions_->EndUnwelcome();
        if (!fabric_follows) return std::move(done)(absl::OkStatus());
        reconciler_->FollowTopology([done = std::move(done)](const absl::Status&) mutable {
          std::move(done)(absl::OkStatus());
        });
      });
}

// `steps` is filled in on the writer's thread, and is the answer only once the change is durable.
void PoolService::ApplyTopology(const Caller& caller, TopologyTables wanted, bool validate_only,
                                DoneWith<std::vector<TopologyStep>> done) {
  auto steps = std::make_shared<std::vector<TopologyStep>>();
  ChangePool(
      caller, {.method = "ApplyTopology", .fabric_follows = !validate_only},
      [wanted = std::move(wanted), validate_only, steps](
          const PoolState& state, const Caller& asking,
          PlanContext& context) -> absl::StatusOr<Change> {
        PlanContext own = context;
        uint64_t next_id = kDryRunIds;
        if (validate_only) own.next_id = [&next_id] { return next_id++; };
        absl::StatusOr<TopologyPlan> plan = PlanTopology(state, asking, wanted, own);
        if (!plan.ok()) return plan.status();
        *steps = std::move(plan->steps);
        return validate_only && !CXLPOOL_MUTANT("dry-run-applies") ? Change{}
                                                                   : std::move(plan->change);
      },
      [steps, done = std::move(done)](const absl::Status& status) mutable {
        if (!status.ok()) return std::move(done)(status);
        std::move(done)(std::move(*steps));
      });
}

// What changes the world before the records: the caller is judged on the writer's thread, by the
// state as it is then, and only then is anything done.
template <typename DoneT>
void PoolService::Act(const Caller& caller, Right right, DoneT done,
                      absl::AnyInvocable<void(DoneT) &&> act) {
  executor_->Post([this, caller, right, done = std::move(done), act = std::move(act)]() mutable {
    absl::Status status = CheckCaller(writer_->state(), caller, right);
    if (!status.ok()) return std::move(done)(std::move(status));
    std::move(act)(std::move(done));
  });
}

// The trail names the host even if it had no memory, so that nobody is cut off unseen.
void PoolService::Fence(const Caller& caller, const std::string& host, const std::string& reason,
                        Done done) {
  const std::string why = CXLPOOL_MUTANT("fence-without-reason") ? "" : reason;
  Act<Done>(caller, Right::kAdminister, std::move(done),
            [this, audit = AuditOf(caller, "FenceHost", why), host](Done act) mutable {
              if (writer_->state().FindHost(host) == nullptr) {
                std::move(act)(Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                                      absl::StrCat("host \"", host, "\" is not enrolled"),
                                      "see `cxlpool host list`", {{"host", host}}));
                return;
              }
              if (!CXLPOOL_MUTANT("a-fence-of-nothing-is-not-told")) {
                audit.target = ResourceName("hosts", host);
              }
              reconciler_->Fence(host, std::move(audit), std::move(act));
            });
}

void PoolService::FailDevice(const Caller& caller, const std::string& device,
                             const std::string& reason, Done done) {
  Act<Done>(caller, Right::kAdminister, std::move(done),
            [this, audit = AuditOf(caller, "FailDevice", reason), device](Done act) mutable {
              reconciler_->FailDevice(std::move(audit), device, std::move(act));
            });
}

// Nobody waits for these: that they could not be kept is said in the log.
void PoolService::RecordRefusals(std::vector<AuditEntry> refusals) {
  writer_->Submit(
      Audit{},
      [refusals = std::move(refusals)](const PoolState&, PlanContext&) mutable {
        Proposal proposal;
        proposal.refusals = std::move(refusals);
        return proposal;
      },
      [](const absl::StatusOr<Committed>& recorded) {
        if (recorded.ok()) return;
        LogWarning("audit", "refused calls are not in the trail: ", recorded.status().message());
      });
}

// Nobody waits for the answer: the Writer's listener hears of the space by itself.
void PoolService::TryStore() {
  writer_->Submit(
      Audit{{}, "manager", "try-store", ""},
      [](const PoolState&, PlanContext&) -> absl::StatusOr<Proposal> {
        Proposal proposal;
        proposal.commits = true;
        return proposal;
      },
      [](const absl::StatusOr<Committed>&) {});
}

// Fabrics that cannot look have one answer for every driver: its remedy is the operator's.
void PoolService::DiscoverDevices(const Caller& caller, const std::string& host,
                                  DoneWith<SeenDevices> done) {
  using ShownDone = DoneWith<SeenDevices>;
  Act<ShownDone>(caller, Right::kRunPool, std::move(done), [this, host](ShownDone shown) {
    reconciler_->ShowDevices(host, [shown = std::move(shown)](
                                       absl::StatusOr<SeenDevices> seen) mutable {
      if (!seen.ok() && ReasonOf(seen.status()).empty() && absl::IsUnimplemented(seen.status())) {
        seen = Refuse(absl::StatusCode::kUnimplemented, "NOT_DISCOVERABLE",
                      "this pool's fabric has no devices that every host sees whole",
                      "name its devices yourself: `cxlpool device add DEVICE --capacity SIZE`");
      }
      std::move(shown)(std::move(seen));
    });
  });
}

}  // namespace cxlpool::fm
