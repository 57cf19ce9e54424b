#include "fabric-manager/service/meters.h"

#include <optional>

#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// Which rung a part has reached that was in `from`; `to` is UNBOUND where it is gone. Nothing: it
// was turned round, or lost, and no rung of the way.
std::optional<Rung> RungReached(const Part& from, AttachmentState to) {
  switch (to) {
    case AttachmentState::kBound:
      if (from.state == AttachmentState::kWanted) return Rung::kBind;
      break;
    case AttachmentState::kOnline:
      if (from.state == AttachmentState::kBound) return Rung::kOnline;
      break;
    case AttachmentState::kOffline:
      // Since when it is to go down. What goes by itself, nobody asked for.
      if (from.detaching) return Rung::kOffline;
      break;
    case AttachmentState::kEjecting:
      if (from.state == AttachmentState::kOffline) return Rung::kEject;
      break;
    case AttachmentState::kUnbound:
      if (from.state == AttachmentState::kEjecting) return Rung::kProve;
      break;
    case AttachmentState::kWanted:
    case AttachmentState::kReleaseBlocked:
      break;
  }
  return std::nullopt;
}

const Attachment* SameIn(const Region* region, const Attachment& attachment) {
  const Attachment* same = region == nullptr ? nullptr : region->FindAttachment(attachment.host);
  return same != nullptr && same->generation == attachment.generation ? same : nullptr;
}

}  // namespace

std::string ReasonOrCode(const absl::Status& status) {
  std::string reason = ReasonOf(status);
  if (reason.empty()) reason = absl::StatusCodeToString(status.code());
  const bool known = IsReason(reason) || reason == absl::StatusCodeToString(status.code());
  return reason.empty() || (!known && !CXLPOOL_MUTANT("any-text-is-a-label")) ? "other" : reason;
}

metrics::Histogram Meters::RungTimes() {
  return metrics::Histogram{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600};
}

void Meters::CountRungs(const Region& before, const Region* after, absl::Time now) {
  const auto count = [&](Rung rung, absl::Time since) {
    if (since != absl::InfinitePast()) rungs[static_cast<size_t>(rung)].Observe(now - since);
  };
  for (const Attachment& was : before.attachments) {
    const Attachment* is = SameIn(after, was);
    for (size_t i = 0; i < was.parts.size(); ++i) {
      const bool gone = is == nullptr || i >= is->parts.size();
      const AttachmentState to = gone ? AttachmentState::kUnbound : is->parts[i].state;
      if (to == was.parts[i].state) continue;
      if (const auto rung = RungReached(was.parts[i], to)) count(*rung, was.parts[i].since);
    }
  }
  if (after == nullptr && before.state == RegionState::kScrubbing) {
    count(Rung::kScrub, before.state_since);
  }
}

}  // namespace cxlpool::fm
