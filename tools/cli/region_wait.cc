#include "tools/cli/region_wait.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/byte_size.h"
#include "proto/support/refusal.h"
#include "tools/cli/region_follower.h"

namespace cxlpool::cli {
namespace {

using Kind = WaitGoal::Kind;
using Event = v1::WatchRegionsResponse;

absl::Status Failed(std::string reason, const v1::Region& region, absl::string_view what,
                    absl::string_view why, std::string remedy) {
  return Refuse(absl::StatusCode::kAborted, std::move(reason),
                absl::StrCat(region.name(), " ", what, why.empty() ? "" : ": ", why),
                std::move(remedy), {{"region", region.name()}});
}

// The Attachment that the goal means.
const v1::Attachment* Find(const WaitGoal& goal, const v1::Region& region) {
  for (const v1::Attachment& attachment : region.attachments()) {
    if (attachment.host() != goal.host) continue;
    const bool meant =
        goal.attachment_generation == 0 || attachment.generation() == goal.attachment_generation;
    return meant ? &attachment : nullptr;
  }
  return nullptr;
}

std::string ShowCommand(const v1::Region& region) {
  const absl::string_view name = absl::StripPrefix(region.name(), "regions/");
  return absl::StrCat("`cxlpool region show ", name, "`");
}

absl::Status AttachmentFailed(const WaitGoal& goal, const v1::Region& region,
                              absl::string_view why) {
  return Failed("ATTACHMENT_FAILED", region, absl::StrCat("could not be attached to ", goal.host),
                why, absl::StrCat("fix that and attach it again; see ", ShowCommand(region)));
}

absl::StatusOr<bool> IsOnline(const WaitGoal& goal, const v1::Region& region) {
  const v1::Attachment* attachment = Find(goal, region);
  if (attachment == nullptr) {
    if (goal.attachment_generation == 0) return false;
    return AttachmentFailed(goal, region, "its Attachment was undone");
  }
  if (attachment->detaching()) {
    // It was the first Attachment of a Region that is being made: the Region goes with it.
    if (region.state() == v1::Region::RESERVED) {
      return Failed("REGION_FAILED", region, "could not be made and is undone",
                    attachment->state_reason(), "fix that and allocate it again: nothing is kept");
    }
    return AttachmentFailed(goal, region, attachment->state_reason());
  }
  return region.state() == v1::Region::ALLOCATED && attachment->state() == v1::Attachment::ONLINE;
}

bool IsDetached(const WaitGoal& goal, const v1::Region& region) {
  const v1::Attachment* attachment = Find(goal, region);
  return attachment == nullptr || attachment->state() == v1::Attachment::UNBOUND;
}

absl::StatusOr<bool> IsResized(const WaitGoal& goal, const v1::Region& region) {
  if (region.resizing()) return false;
  if (region.size_bytes() == goal.size_bytes) return true;
  return Failed("RESIZE_UNDONE", region,
                absl::StrCat("has ", FormatByteSize(region.size_bytes()), ", not ",
                             FormatByteSize(goal.size_bytes)),
                region.state_reason(), "fix that and resize it again");
}

// Whether the Region has to live on for it.
bool ComesUp(Kind kind) {
  return kind == Kind::kAllocated || kind == Kind::kOnline || kind == Kind::kResized;
}

}  // namespace

absl::StatusOr<bool> Reached(const WaitGoal& goal, const v1::Region& region) {
  if (goal.kind == Kind::kDetached && IsDetached(goal, region)) return true;
  // A quarantine keeps no host from letting go.
  if (goal.kind != Kind::kDetached && region.state() == v1::Region::QUARANTINED) {
    return Failed("REGION_QUARANTINED", region, "is quarantined", region.state_reason(),
                  absl::StrCat("see ", ShowCommand(region)));
  }
  if (!ComesUp(goal.kind)) return false;
  switch (region.state()) {
    case v1::Region::FAILED:
      return Failed("REGION_FAILED", region, "could not be made and is undone",
                    region.state_reason(), "fix that and allocate it again: nothing is kept");
    case v1::Region::RELEASING:
    case v1::Region::SCRUBBING:
      return Failed("REGION_RELEASING", region, "is being released", region.state_reason(),
                    "allocate another");
    default:
      break;
  }
  if (goal.kind == Kind::kOnline) return IsOnline(goal, region);
  if (goal.kind == Kind::kResized) return IsResized(goal, region);
  return region.state() == v1::Region::ALLOCATED;
}

absl::Status ReachedByRemoval(const WaitGoal& goal, const v1::Region& last) {
  if (!ComesUp(goal.kind)) return absl::OkStatus();
  return Failed("REGION_FAILED", last, "is gone: it was undone or released meanwhile",
                last.state_reason(), "allocate again");
}

std::string DescribeProgress(const WaitGoal& goal, const v1::Region& region) {
  std::string out = absl::StrCat(region.name(), " is ", v1::Region::State_Name(region.state()));
  if (region.resizing()) absl::StrAppend(&out, ", resizing");
  if (!region.state_reason().empty()) absl::StrAppend(&out, ": ", region.state_reason());
  for (const v1::Attachment& attachment : region.attachments()) {
    if (!goal.host.empty() && attachment.host() != goal.host) continue;
    absl::StrAppend(&out, "; ", attachment.host(), " is ",
                    v1::Attachment::State_Name(attachment.state()));
    if (!attachment.state_reason().empty()) absl::StrAppend(&out, ": ", attachment.state_reason());
  }
  return out;
}

// Follows the Region by its tag. Its name may change meanwhile, or be used again for another
// Region: then this one is gone.
absl::StatusOr<v1::Region> WaitForRegion(Connection& connection, const WaitGoal& goal,
                                         const v1::Region& region, uint64_t revision,
                                         absl::Duration limit,
                                         absl::FunctionRef<void(const v1::Region&)> on_change) {
  absl::StatusOr<bool> reached = Reached(goal, region);
  if (!reached.ok()) return reached.status();
  if (*reached) return region;

  v1::Region last = region;
  absl::Status removal;
  const auto on_event = [&](const Event& event) {
    // It may get another name meanwhile.
    const bool same = event.region().tag() == region.tag();
    if (event.event() == Event::SYNCED || (!same && event.region().name() != region.name())) {
      return true;
    }
    const bool removed = event.event() == Event::REMOVED;
    if (removed && !same) return true;  // Of an earlier Region of that name.
    if (removed) last = event.region();
    if (removed || !same) {
      removal = ReachedByRemoval(goal, last);
      reached = true;
      return false;
    }
    last = event.region();
    on_change(last);
    reached = Reached(goal, last);
    return reached.ok() && !*reached;
  };

  RegionFollower follower(connection, {.name = region.name(),
                                       .start_revision = revision,
                                       .limit = limit,
                                       .patience = absl::InfiniteDuration()});
  follower.Know(region);
  const absl::StatusOr<RegionFollower::End> end = follower.Follow(on_event);
  if (absl::IsNotFound(end.status())) {  // The manager knows no Region of that name any more.
    removal = ReachedByRemoval(goal, last);
  } else if (!end.ok()) {
    return end.status();
  } else if (*end == RegionFollower::End::kTimeUp) {
    std::string message =
        absl::StrCat("after ", absl::FormatDuration(limit), " ", DescribeProgress(goal, last));
    if (!follower.last_error().ok()) {
      absl::StrAppend(&message,
                      "; the manager was out of reach: ", follower.last_error().message());
    }
    return Refuse(absl::StatusCode::kDeadlineExceeded, "WAIT_TIMEOUT", std::move(message),
                  absl::StrCat("it goes on without you: see ", ShowCommand(region),
                               ", or give a longer --wait-timeout"),
                  {{"region", region.name()}});
  }
  if (!removal.ok()) return removal;
  if (!reached.ok()) return reached.status();
  return last;
}

}  // namespace cxlpool::cli
