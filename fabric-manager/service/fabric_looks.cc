#include "fabric-manager/service/fabric_looks.h"

#include <utility>

#include "fabric-manager/model/plans/planner.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

bool IsFabricBusy(const absl::Status& status) { return ReasonOf(status) == "FABRIC_BUSY"; }

FabricLooks::FabricLooks(Options options, Executor* executor, Clock* clock, Writer* writer,
                         FabricDriver* driver, std::function<uint64_t()> epoch_now, Take take)
    : options_(options),
      executor_(executor),
      clock_(clock),
      writer_(writer),
      driver_(driver),
      claims_hosts_(driver->capabilities().claims_hosts),
      epoch_now_(std::move(epoch_now)),
      take_(std::move(take)) {}

void FabricLooks::LookFirst(Done done) { LookFirst(clock_->Elapsed(), std::move(done)); }

void FabricLooks::LookFirst(absl::Duration began, Done done) {
  Look("", [this, began, done = std::move(done)](absl::Status status) mutable {
    const absl::Duration patience = IsFabricBusy(status) ? options_.busy : options_.first_look;
    if (has_seen_all_ || clock_->Elapsed() - began >= patience) {
      std::move(done)(std::move(status));
      return;
    }
    executor_->PostAfter(options_.retry, [this, began, done = std::move(done)]() mutable {
      LookFirst(began, std::move(done));
    });
  });
}

// A look at one host is not taken where a look at everything began after it: that one knows more of
// the host. The host is looked at again instead.
void FabricLooks::Look(const std::string& host, Done done) {
  const bool covered = under_way_.contains("") && !CXLPOOL_MUTANT("older-look-wins");
  if (covered || under_way_.contains(host)) {
    if (!host.empty()) again_.insert(host);
    std::move(done)(absl::OkStatus());
    return;
  }
  under_way_.insert(host);
  if (host.empty()) ++full_looks_;
  auto end = [this, host, full_looks = full_looks_, epoch = epoch_now_(),
              done = std::move(done)](absl::StatusOr<FabricView> view) mutable {
    under_way_.erase(host);
    if (!view.ok()) {
      LogWarning("reconciler", "discovery: ", view.status().message());
    } else if (full_looks == full_looks_) {
      for (const FabricHost& seen : view->hosts) {
        if (seen.reachable) claims_[seen.id] = seen.claim;
      }
      has_seen_all_ |= host.empty();
      take_(host, *std::move(view), epoch);
    } else {
      again_.insert(host);
    }
    std::move(done)(view.status());
    LookAtThoseThatWaited();
  };
  auto take = [this, host, end = std::move(end)](absl::StatusOr<FabricView> view) mutable {
    executor_->Post([this, host, view = std::move(view), end = std::move(end)]() mutable {
      if (!view.ok()) return end(view.status());
      Confirm(host.empty(), *std::move(view), std::move(end));
    });
  };
  if (!host.empty()) return driver_->DiscoverHost(host, std::move(take));
  next_ = clock_->Elapsed() + options_.period;
  Configure([this, take = std::move(take)](absl::Status configured) mutable {
    if (!configured.ok()) {
      LogWarning("reconciler", "the fabric does not take its topology: ", configured.message());
    }
    // Later it goes on as it was; at the start it has nothing yet to show.
    if (!configured.ok() && !has_seen_all_) return take(std::move(configured));
    driver_->Discover(std::move(take));
  });
}

// What is new in the view is believed once this manager has committed after it was claimed: whoever
// has claimed it since had to own the store first, and this commit would have failed.
void FabricLooks::Confirm(bool of_all, FabricView view, DoneWith<FabricView> end) {
  bool news = of_all && std::exchange(configured_, false);
  for (const FabricHost& host : view.hosts) {
    news |= host.reachable && host.claim != ClaimOf(host.id);
  }
  if (!news || !claims_hosts_ || CXLPOOL_MUTANT("claim-without-commit")) {
    return std::move(end)(std::move(view));
  }
  writer_->Submit(
      Audit{{}, "manager", "claim-hosts", ""},
      [](const PoolState&, PlanContext&) -> absl::StatusOr<Proposal> {
        Proposal proposal;
        proposal.commits = true;
        return proposal;
      },
      [this, of_all, view = std::move(view),
       end = std::move(end)](const absl::StatusOr<Committed>& committed) mutable {
        if (committed.ok()) return std::move(end)(std::move(view));
        configured_ |= of_all;
        std::move(end)(committed.status());
      });
}

void FabricLooks::LookAtThoseThatWaited() {
  if (under_way_.contains("")) return;
  for (const std::string& host : std::exchange(again_, {})) {
    if (under_way_.contains(host)) {
      again_.insert(host);
    } else {
      Look(host);
    }
  }
}

void FabricLooks::Tick() {
  if (clock_->Elapsed() >= next_) Look("");
}

// Nothing but what is durable: the driver never knows a device that a restart would not know.
void FabricLooks::Configure(Done done) {
  if (!stale_topology_ || !IsImported(writer_->state())) {
    std::move(done)(absl::OkStatus());
    return;
  }
  stale_topology_ = false;
  configured_ = true;
  FabricParts parts{writer_->DurableTables(), {}};
  if (CXLPOOL_MUTANT("topology-before-commit")) parts.tables = writer_->state().GetTopologyTables();
  for (const auto& [id, host] : writer_->state().hosts()) {
    parts.known.hosts[id] = host.fabric_incarnation;
    const bool is_durable = writer_->IsDurable(host.key) || CXLPOOL_MUTANT("retired-before-commit");
    if (host.retired && is_durable) parts.retired.insert(id);
  }
  driver_->Configure(std::move(parts), [this, done = std::move(done)](absl::Status status) mutable {
    executor_->Post([this, status = std::move(status), done = std::move(done)]() mutable {
      if (!status.ok()) stale_topology_ = true;
      std::move(done)(std::move(status));
    });
  });
}

void FabricLooks::FollowTopology(Done done) {
  TopologyChanged();
  // A look that is under way may have passed by what is new.
  if (under_way_.contains("")) {
    executor_->PostAfter(options_.wait, [this, done = std::move(done)]() mutable {
      FollowTopology(std::move(done));
    });
    return;
  }
  Look("", std::move(done));
}

}  // namespace cxlpool::fm
