#include "fabric-manager/service/host_fences.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// As a fence records it: nothing is left to do about it.
bool IsFenced(const Attachment& attachment) {
  return attachment.parts.size() == 1 && attachment.settled().detaching &&
         attachment.settled().state == AttachmentState::kUnbound;
}

}  // namespace

std::string HowToCutOff(const FabricCapabilities& fabric, const std::string& host) {
  if (!fabric.can_fence()) return "reboot it";
  return absl::StrCat("`cxlpool host fence ", host, " --reason WHY`");
}

// Refused before the host's session ends, where nothing could come of it.
void HostFences::Fence(const std::string& host, Audit audit, Done done) {
  if (!driver_->capabilities().can_fence()) {
    std::move(done)(Refuse(
        absl::StatusCode::kUnimplemented, "NO_FENCE",
        absl::StrCat("this fabric cannot cut host \"", host, "\" off"),
        "reboot it, or give the manager a program that cuts its power (fabric.fence_program)"));
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

// No call about the host begins any more. A bind that is under way could still take effect after
// the fence, so calls about the host are waited for first.
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
// Where there are more than the store takes in one commit, they go in several.
void HostFences::RecordFenced(const std::string& host, Audit audit, Done done) {
  const auto are_more = std::make_shared<bool>(false);
  Audit again = audit;
  again.target.clear();  // It goes down once.
  writer_->Submit(
      std::move(audit),
      [host, are_more](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
        Proposal proposal;
        std::set<Key> seen;
        *are_more = false;
        for (const OccupiedSlot& slot : state.Occupied(host)) {
          if (!seen.insert(slot.region).second) continue;
          const Region& region = **state.FindRegion(slot.region);
          if (IsFenced(*region.FindAttachment(absl::string_view(host)))) continue;
          *are_more = proposal.change.size() == context.max_items;
          if (*are_more) break;
          auto edited = std::make_shared<Region>(region);
          Attachment& attachment = *edited->FindAttachment(absl::string_view(host));
          attachment.TurnDown("FENCED: the host was cut off", Uuid());
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
      [this, host, are_more, again = std::move(again),
       done = std::move(done)](const absl::StatusOr<Committed>& committed) mutable {
        if (committed.ok() && *are_more)
          return RecordFenced(host, std::move(again), std::move(done));
        std::move(done)(committed.status());
      });
}

}  // namespace cxlpool::fm
