#include "fabric-manager/service/lease_keeper.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "proto/support/log.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
constexpr size_t kReleasesPerTick = 256;

// Whether the Region ends by itself: it has a term, and is not being released already.
bool HasLease(const Region& region) {
  return region.expire_time != absl::InfiniteFuture() && !region.compensating &&
         (region.state == RegionState::kReserved || region.state == RegionState::kAllocated);
}

}  // namespace

LeaseKeeper::LeaseKeeper(Executor* executor, Clock* clock, Writer* writer)
    : executor_(executor), clock_(clock), writer_(writer) {}

// Nobody knows how much of a term was over when the manager before ended: each gets all of it.
void LeaseKeeper::Start() {
  for (const auto& [key, region] : writer_->state().regions()) {
    if (HasLease(*region)) Keep(*region, region->ttl);
  }
  executor_->PostAfter(kTick, [this] { Tick(); });
}

// The table is as the records are from then on: new leases, renewed ones, and those that are over.
// Most commits have to do with no lease, so what would only search an empty table is left out.
void LeaseKeeper::OnCommitted(const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    for (const Item& item : change) {
      if (const auto* region = std::get_if<RegionPtr>(&item)) {
        if (!HasLease(**region)) {
          if (!leases_.empty()) Forget((*region)->key);
          continue;
        }
        const auto known = leases_.find((*region)->key);
        // The same term as before: some other field of the Region was changed.
        if (known != leases_.end() && known->second.expire_time == (*region)->expire_time) continue;
        // What is recorded is wall time, which may have jumped: no term is longer than was granted.
        Keep(**region, std::min((*region)->expire_time - clock_->Now(), (*region)->ttl));
      } else if (!leases_.empty()) {
        Forget(KeyOf(item));
      }
    }
  }
}

// In place of the term that the Region had before.
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

// Releases what has run out, at most so many each time, so that calls have their turn between them.
// A lease stays in the table until its release is committed, so that a commit that fails is tried
// again; but not while one is under way, however long the store takes.
void LeaseKeeper::Tick() {
  const absl::Duration now = clock_->Elapsed();
  size_t released = 0;
  for (auto it = by_deadline_.begin();
       it != by_deadline_.end() && it->first <= now && released < kReleasesPerTick; ++it) {
    const Key key = it->second;
    Lease& lease = leases_.at(key);
    if (lease.ending && !CXLPOOL_MUTANT("leases-end-again-and-again")) continue;
    lease.ending = true;
    ++released;
    if (const RegionPtr* region = writer_->state().FindRegion(key)) {
      const LogScope scope({.region = (*region)->id, .tenant = (*region)->tenant.str()});
      LogInfo("leases", "the lease of regions/", (*region)->id, " has run out");
    }
    // Set where there was something to release: one that was renewed in the meantime has not ended,
    // though the commit of nothing is OK as well.
    const auto ended = std::make_shared<bool>(false);
    writer_->Submit(
        Audit{{}, "manager", "lease-expired", "nobody renewed it in time"},
        [key, ended, expire_time = lease.expire_time](
            const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
          Change change = PlanExpiry(state, key, expire_time, context);
          *ended = !change.empty() || CXLPOOL_MUTANT("leases-end-again-and-again");
          return Proposal{std::move(change), nullptr};
        },
        [this, key, ended](const absl::StatusOr<Committed>& done) {
          if (const auto still = leases_.find(key); still != leases_.end()) {
            still->second.ending = false;
          }
          if (done.ok() && *ended) writer_->meters().leases_expired.Add();
        });
  }
  executor_->PostAfter(kTick, [this] { Tick(); });
}

}  // namespace cxlpool::fm
