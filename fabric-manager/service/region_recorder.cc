#include "fabric-manager/service/region_recorder.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/service/region_log.h"
#include "fabric-manager/service/scrubs.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {

void RegionRecorder::Record(const Region& region, const Attachment& seen, const std::string& rung,
                            const std::string& reason,
                            std::function<void(Region&, Attachment&, PlanContext&)> edit,
                            std::function<void()> then) {
  Commit(
      region.key, FieldsOf(region, seen), rung, reason,
      [seen = seen, edit = std::move(edit)](Region& edited, PlanContext& context) {
        Attachment* attachment = edited.FindAttachment(seen.host);
        // A request came between: look again at what it made.
        if (attachment == nullptr) return false;
        if (!CXLPOOL_MUTANT("record-over-newer") && *attachment != seen) return false;
        edit(edited, *attachment, context);
        return true;
      },
      std::move(then));
}

void RegionRecorder::Submit(Key region, const std::string& rung, const std::string& reason,
                            std::function<bool(Region&, PlanContext&)> edit,
                            std::function<void()> then) {
  Commit(region, {}, rung, reason, std::move(edit), std::move(then));
}

// A shrink that gives away bad extents leaves them behind as quarantined Regions, in the same
// change.
void RegionRecorder::Commit(Key region, LogFields about, const std::string& rung,
                            const std::string& reason,
                            std::function<bool(Region&, PlanContext&)> edit,
                            std::function<void()> then) {
  committing_.insert(region);
  probe_->Pass("before-commit-", rung);
  writer_->Submit(
      Audit{{}, "manager", rung, reason},
      [region, edit = std::move(edit)](const PoolState& state,
                                       PlanContext& context) -> absl::StatusOr<Proposal> {
        const RegionPtr* now = state.FindRegion(region);
        if (now == nullptr) return Proposal{};
        auto edited = std::make_shared<Region>(**now);
        if (!edit(*edited, context)) return Proposal{};
        edited->revision = context.revision;
        Proposal proposal = Proposal::Of(RegionPtr(edited), edited);
        if (!(*now)->bad.empty() && edited->extents.size() < (*now)->extents.size()) {
          for (Item& kept : QuarantineBad(state, **now, edited->extents.size(), context)) {
            proposal.change.push_back(std::move(kept));
          }
        }
        return proposal;
      },
      [this, region, about = std::move(about), rung, reason,
       then = std::move(then)](absl::StatusOr<Committed> done) mutable {
        committing_.erase(region);
        active_->Touch(region);
        if (!done.ok()) return;
        if (done->region != nullptr) {
          LogRung(about.region.empty() ? FieldsOf(*done->region) : std::move(about), rung, reason);
          if (then) then();
        }
        probe_->Pass("after-commit-", rung);
      });
}

// The Region is judged as it is when its turn comes: one that a host has after all is left as it
// is. No byte becomes free before the record says how it ended, and bad ones do not become free at
// all.
void RegionRecorder::Bury(const Region& region, std::function<void()> then) {
  committing_.insert(region.key);
  probe_->Pass("before-commit-gone");
  writer_->Submit(
      Audit{{}, "manager", "gone", ReasonBeforeWait(region.state_reason)},
      [key = region.key](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
        const RegionPtr* now = state.FindRegion(key);
        if (now == nullptr || !(*now)->attachments.empty()) return Proposal{};
        auto last = std::make_shared<Region>(**now);
        last->revision = context.revision;
        last->state_reason = ReasonBeforeWait(last->state_reason);
        const std::string end = EndOfBytes(state, *last);
        last->state_reason =
            last->state_reason.empty() ? end : absl::StrCat(last->state_reason, "; ", end);
        Proposal proposal = Proposal::Of(Tombstone{last, context.now}, last);
        // Not free for a moment: in the same change.
        for (Item& kept : QuarantineBad(state, *last, 0, context)) {
          proposal.change.push_back(std::move(kept));
        }
        return proposal;
      },
      [this, key = region.key, then = std::move(then)](absl::StatusOr<Committed> done) {
        committing_.erase(key);
        if (!done.ok()) return;  // Stays active: the next tick tries again.
        if (done->region != nullptr) {
          LogRung(FieldsOf(*done->region), "gone", done->region->state_reason);
        }
        probe_->Pass("after-commit-gone");
        then();
      });
}

// What a host says of its segments is no rung.
void RegionRecorder::LogRung(LogFields about, const std::string& rung, const std::string& reason) {
  if (rung == "observed" || !LogsAt(LogLevel::kInfo)) return;
  const std::optional<uint64_t> others = limit_.Take(clock_->Elapsed());
  if (!others.has_value()) return;
  about.rung = rung;
  const std::string on = about.host.empty() ? "" : absl::StrCat(" on ", about.host);
  const std::string not_logged =
      *others == 0 ? "" : absl::StrCat(" (", *others, " rungs before it are not in the log)");
  const std::string what = absl::StrCat("regions/", about.region, on, ": ", rung);
  const LogScope scope(std::move(about));
  LogInfo("reconciler", what, reason.empty() ? "" : ": ", reason, not_logged);
}

}  // namespace cxlpool::fm
