#include "host-agent/service/tiering_keeper.h"

#include <utility>

#include "proto/support/log.h"

namespace cxlpool::agent {
namespace {

constexpr char kTieringSubject[] = "tiering";

}  // namespace

TieringKeeper::TieringKeeper(const TieringConfig& config, Executor* executor, HostPolicy* policy)
    : config_(config), executor_(executor), policy_(policy) {}

void TieringKeeper::Update(const TieringNodes& nodes) {
  if (latest_ == nodes) return;
  latest_ = nodes;
  executor_->Post([this, nodes, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired() || stopped_) return;
    nodes_ = nodes;
    Settle();
  });
}

void TieringKeeper::Stop() {
  executor_->Post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired() || stopped_) return;
    stopped_ = true;
    nodes_.pool.clear();
    Settle();
  });
}

void TieringKeeper::Settle() {
  if (!saved_.has_value()) saved_ = policy_->Saved();
  if (config_.empty() && saved_->empty()) return;
  const PolicyValues wanted = WantedPolicy(config_, nodes_, policy_->Read());
  // Once more: to see that it is so, and for weights of nodes that are gone, which the kernel takes
  // back by itself.
  const bool restored = Restore(wanted) && Restore(wanted);
  if (Set(wanted) && restored) return failed_.clear();
  if (stopped_ || std::exchange(retrying_, true)) return;
  executor_->PostAfter(kTieringRetry, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    retrying_ = false;
    if (!stopped_) Settle();
  });
}

// False: something is yet to be taken back.
bool TieringKeeper::Restore(const PolicyValues& wanted) {
  if (saved_->empty()) return true;
  const RestorePlan plan = PlanRestore(*saved_, wanted, policy_->Read());
  SavedPolicy saved = *saved_;
  bool done = true;
  for (const std::string& name : plan.settled) saved.erase(name);
  for (const std::string& name : plan.foreign) {
    LogWarning(kTieringSubject, name, " is not as the agent set it (", saved.at(name).ours,
               "): somebody changed it, and it stays so; before it was ", saved.at(name).before);
    saved.erase(name);
  }
  for (const auto& [name, value] : plan.writes) {
    switch (Write(name, value)) {
      case Outcome::kDone:
        LogInfo(kTieringSubject, name, " is ", value, " again");
        saved.erase(name);
        break;
      case Outcome::kNever:
        saved.erase(name);
        break;
      case Outcome::kFailed:
        done = false;
    }
  }
  return Save(saved) && done;
}

// False: something is not as it is wanted, and might be another time.
bool TieringKeeper::Set(const PolicyValues& wanted) {
  const SetPlan plan = PlanSet(*saved_, wanted, policy_->Read());
  for (const std::string& name : plan.unsupported) {
    if (!unsupported_.insert(name).second) continue;
    LogWarning(kTieringSubject, kTieringUnsupported, ": this kernel has no ", name,
               "; memory of the pool is used without it (remove it from [tiering], or use a kernel "
               "that has it)");
  }
  if (!Save(plan.saved)) return false;  // Otherwise it could not be taken back.
  bool done = true;
  for (const auto& [name, value] : plan.writes) {
    const Outcome outcome = Write(name, value);
    if (outcome == Outcome::kDone) {
      LogInfo(kTieringSubject, name, " is ", value, ", and was ", plan.saved.at(name).before);
    }
    done = done && outcome != Outcome::kFailed;
  }
  return done;
}

bool TieringKeeper::Save(const SavedPolicy& saved) {
  if (saved == *saved_) return true;
  if (absl::Status status = policy_->Save(saved); !status.ok()) {
    return Failed(std::string(status.message()));
  }
  saved_ = saved;
  return true;
}

TieringKeeper::Outcome TieringKeeper::Write(const std::string& name, const std::string& value) {
  const absl::Status status = policy_->Write(name, value);
  if (status.ok()) return Outcome::kDone;
  if (absl::IsUnimplemented(status)) {
    if (unsupported_.insert(name).second) {
      LogWarning(kTieringSubject, kTieringUnsupported, ": ", status.message());
    }
    return Outcome::kNever;
  }
  Failed(std::string(status.message()));
  return Outcome::kFailed;
}

bool TieringKeeper::Failed(const std::string& text) {
  if (failed_.insert(text).second) LogWarning(kTieringSubject, text);
  return false;
}

}  // namespace cxlpool::agent
