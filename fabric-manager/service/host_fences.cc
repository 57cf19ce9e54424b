#include "fabric-manager/service/host_fences.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

// Refused before the host's session ends, where nothing could come of it.
void HostFences::Fence(const std::string& host, Audit audit, Done done) {
  if (driver_->capabilities().fence == FenceScope::kNone) {
    std::move(done)(Refuse(
        absl::StatusCode::kUnimplemented, "NO_FENCE",
        absl::StrCat("this fabric cannot cut host \"", host, "\" off"),
        "give the manager a program that can (fabric.fence_program), or cut its power by hand"));
    return;
  }
  if (!fencing_.insert(host).second) {
    std::move(done)(Refuse(absl::StatusCode::kFailedPrecondition, "FENCE_FAILED",
                           absl::StrCat("host \"", host, "\" is being fenced already"),
                           "see `cxlpool host list` in a moment"));
    return;
  }
  sessions_->End(host, absl::AbortedError("the host is being fenced"));
  FenceWhenQuiet(host, std::move(audit), clock_->Elapsed() + options_.wait,
                 [this, host, done = std::move(done)](absl::Status status) mutable {
                   fencing_.erase(host);
                   active_->TouchHost(host);
                   std::move(done)(std::move(status));
                 });
}

// No bind begins on the host any more. One that is under way could still take effect after the
// fence, so calls about the host are waited for first.
void HostFences::FenceWhenQuiet(const std::string& host, Audit audit, absl::Duration deadline,
                                Done done) {
  const TrackTable::Tracks& own = tracks_->OfHost(host);
  const bool busy = std::any_of(own.begin(), own.end(), [&](const auto& entry) {
    return entry.second->driver_calls > 0 && !CXLPOOL_MUTANT("fence-beside-calls");
  });
  if (busy && clock_->Elapsed() >= deadline) {
    std::move(done)(Refuse(absl::StatusCode::kFailedPrecondition, "FENCE_FAILED",
                           absl::StrCat("calls to the fabric about host \"", host, "\" do not end"),
                           "try again"));
    return;
  }
  if (busy) {
    executor_->PostAfter(options_.look_every, [this, host, audit = std::move(audit), deadline,
                                               done = std::move(done)]() mutable {
      FenceWhenQuiet(host, std::move(audit), deadline, std::move(done));
    });
    return;
  }
  driver_->Fence(host, [this, host, audit = std::move(audit),
                        done = std::move(done)](absl::Status status) mutable {
    executor_->Post([this, host, audit = std::move(audit), done = std::move(done),
                     status = std::move(status)]() mutable {
      if (!CXLPOOL_MUTANT("failed-fence-is-done") && !status.ok()) {
        std::move(done)(std::move(status));
        return;
      }
      const bool others = CXLPOOL_MUTANT("fence-unbinds-others");
      for (const auto& [generation, track] : others ? tracks_->All() : tracks_->OfHost(host)) {
        calls_->MarkUnbound(*track);
      }
      RecordFenced(host, std::move(audit), std::move(done));
    });
  });
}

// Each Attachment of the host is UNBOUND and goes; a Region that was still coming up goes with it.
void HostFences::RecordFenced(const std::string& host, Audit audit, Done done) {
  writer_->Submit(
      std::move(audit),
      [host](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
        Proposal proposal;
        std::set<Key> seen;
        for (const OccupiedSlot& slot : state.Occupied(host)) {
          if (!seen.insert(slot.region).second) continue;
          auto edited = std::make_shared<Region>(**state.FindRegion(slot.region));
          Attachment& attachment = *edited->FindAttachment(absl::string_view(host));
          attachment.TurnDown("FENCED: the host was cut off");
          attachment.settled().state = AttachmentState::kUnbound;
          if (edited->state == RegionState::kReserved) {
            edited->compensating = true;
            edited->state_reason = attachment.settled().reason;
          }
          edited->revision = context.revision;
          proposal.change.push_back(RegionPtr(edited));
        }
        return proposal;
      },
      [done = std::move(done)](const absl::StatusOr<Committed>& committed) mutable {
        std::move(done)(committed.status());
      });
}

}  // namespace cxlpool::fm
