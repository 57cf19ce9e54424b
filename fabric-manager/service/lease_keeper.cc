#include "fabric-manager/service/lease_keeper.h"

#include <algorithm>
#include <variant>

#include "proto/support/log.h"

namespace cxlpool::fm {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
constexpr size_t kReleasesPerTick = 256;

// On its way down already, or never.
bool HasLease(const Region& region) {
  return region.expire_time != absl::InfiniteFuture() && !region.compensating &&
         (region.state == RegionState::kReserved || region.state == RegionState::kAllocated);
}

}  // namespace

LeaseKeeper::LeaseKeeper(Executor* executor, Clock* clock, Writer* writer)
    : executor_(executor), clock_(clock), writer_(writer) {}

void LeaseKeeper::Start() {
  for (const auto& [key, region] : writer_->state().regions()) {
    if (HasLease(*region)) Keep(*region, region->ttl);
  }
  executor_->PostAfter(kTick, [this] { Tick(); });
}

void LeaseKeeper::OnCommitted(const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    for (const Item& item : change) {
      if (const auto* region = std::get_if<RegionPtr>(&item)) {
        if (!HasLease(**region)) {
          if (!leases_.empty()) Forget((*region)->key);
          continue;
        }
        const auto known = leases_.find((*region)->key);
        if (known != leases_.end() && known->second.expire_time == (*region)->expire_time) continue;
        Keep(**region, std::min((*region)->expire_time - clock_->Now(), (*region)->ttl));
      } else if (!leases_.empty()) {
        Forget(KeyOf(item));
      }
    }
  }
}

void LeaseKeeper::Keep(const Region& region, absl::Duration term) {
  Forget(region.key);
  const Lease lease{region.expire_time, clock_->Elapsed() + term};
  leases_[region.key] = lease;
  by_deadline_.insert({lease.deadline, region.key});
}

void LeaseKeeper::Forget(Key region) {
  const auto it = leases_.find(region);
  if (it == leases_.end()) return;
  by_deadline_.erase({it->second.deadline, region});
  leases_.erase(it);
}

void LeaseKeeper::Tick() {
  const absl::Duration now = clock_->Elapsed();
  size_t released = 0;
  for (auto it = by_deadline_.begin();
       it != by_deadline_.end() && it->first <= now && released < kReleasesPerTick; ++it) {
    ++released;
    const Key key = it->second;
    if (const RegionPtr* region = writer_->state().FindRegion(key)) {
      const LogScope scope({.region = (*region)->id, .tenant = (*region)->tenant.str()});
      LogInfo("leases", "the lease of regions/", (*region)->id, " has run out");
    }
    // Stays in the table until the release is committed: a failed commit is tried again.
    writer_->Submit(
        Audit{{}, "manager", "lease-expired", "nobody renewed it in time"},
        [key, expire_time = leases_.at(key).expire_time](
            const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
          return Proposal{PlanExpiry(state, key, expire_time, context), nullptr};
        },
        [this](const absl::StatusOr<Committed>& done) {
          if (done.ok()) writer_->meters().leases_expired.Add();
        });
  }
  executor_->PostAfter(kTick, [this] { Tick(); });
}

}  // namespace cxlpool::fm
