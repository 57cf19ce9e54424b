#include "host-agent/service/user_usage.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// Whether the manager may have allocated the Region although the call failed. With these codes the
// answer may have been lost on its way; all other codes are refusals.
bool MayHaveWorked(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return true;
    default:
      return false;
  }
}

}  // namespace

// Counts each Region once: by its Offer if that is here, else by the call that is under way. What
// this call may already have got is recognized by its tag, or by the name that it asks for.
UserUsage UserUsageTable::Of(const Call& call, const std::string& name,
                             const AttachmentTable& offers, absl::Duration now) const {
  const auto own = under_way_.find(call);
  UserUsage used;
  for (const auto& [key, attachment] : offers.all()) {
    const v1::Offer& offer = attachment.offer;
    const bool is_its = (own != under_way_.end() && own->second.tag == key.tag) ||
                        (!name.empty() && offer.region_name() == name);
    if (!offer.has_owner() || offer.owner().uid() != call.uid || is_its) continue;
    ++used.regions;
    for (const Segment& segment : attachment.segments) used.bytes += segment.desired.length_bytes;
  }
  for (auto it = under_way_.lower_bound({call.uid, ""});
       it != under_way_.end() && it->first.uid == call.uid; ++it) {
    const UnderWay& other = it->second;
    if (it == own || other.until <= now || other.offered) continue;
    if (!other.tag.empty() && offers.FindByTag(other.tag) != nullptr) continue;  // Counted there.
    ++used.regions;
    used.bytes += other.bytes;
  }
  return used;
}

// A call counts until its Offer is seen. Once the Offer is gone again the call is forgotten, so it
// does not count a second time.
void UserUsageTable::Saw(const AttachmentTable& offers) {
  for (auto it = under_way_.begin(); it != under_way_.end();) {
    UnderWay& call = it->second;
    const bool is_there = !call.tag.empty() && offers.FindByTag(call.tag) != nullptr;
    const bool is_gone = call.offered && !is_there;
    call.offered |= is_there;
    it = is_gone ? under_way_.erase(it) : std::next(it);
  }
}

// How many of the user's calls count against the share. Those that were offered do not: they are
// kept only for retries, and forgotten as far as a new call needs their place.
size_t UserUsageTable::MakeRoom(uint32_t uid) {
  size_t entries = 0;
  size_t counted = 0;
  const auto first = under_way_.lower_bound({uid, ""});
  auto end = first;
  for (; end != under_way_.end() && end->first.uid == uid; ++end) {
    ++entries;
    if (!end->second.offered) ++counted;
  }
  for (auto it = first; it != end && entries >= kMaxUnderWayOfUser;) {
    if (it->second.offered) {
      it = under_way_.erase(it);
      --entries;
    } else {
      ++it;
    }
  }
  return counted;
}

// Drops calls whose time is up first, so that they take no place from this one. A call that is made
// again keeps its place.
absl::Status UserUsageTable::Begin(const Call& call, uint64_t bytes, absl::Duration now) {
  std::erase_if(under_way_, [now](const auto& entry) { return entry.second.until <= now; });
  const auto known = under_way_.find(call);
  if (known != under_way_.end() && known->second.until == absl::InfiniteDuration() &&
      !CXLPOOL_MUTANT("a-second-call-takes-the-place-of-the-first")) {
    return Refuse(absl::StatusCode::kUnavailable, "REQUEST_UNDER_WAY",
                  "this allocation was asked for already, and the manager has not answered yet",
                  "call again in a moment");
  }
  if (known == under_way_.end()) {
    const size_t of_user = MakeRoom(call.uid);
    if (of_user >= kMaxUnderWayOfUser || under_way_.size() >= kMaxUnderWay) {
      return Refuse(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat(of_user, " allocations of user id ", call.uid, " and ",
                                 under_way_.size(), " in all are under way"),
                    "call again later");
    }
  }
  UnderWay& entry = under_way_[call];
  if (!entry.tag.empty()) entry.before = Granted{entry.bytes, entry.offered, entry.until};
  // What was granted counts also where the retry asks for less.
  entry.bytes = entry.before.has_value() ? std::max(bytes, entry.bytes) : bytes;
  entry.offered = false;
  entry.until = absl::InfiniteDuration();
  return absl::OkStatus();
}

// After a refusal the call no longer counts. If it was granted, it counts until its Offer comes,
// for kOfferComes at most; if the outcome is unknown, for kOutcomeUnknown. A retry of what was
// granted changes nothing of that, unless it is granted: else a retry with other arguments, which
// the manager refuses, would make room for one Region more as long as the Offer is not here.
void UserUsageTable::End(const Call& call,
                         const absl::StatusOr<v1::AllocateRegionResponse>& response,
                         absl::Duration now) {
  const auto it = under_way_.find(call);
  if (it == under_way_.end()) return;
  UnderWay& entry = it->second;
  const std::optional<Granted> before = std::exchange(entry.before, std::nullopt);
  if (response.ok()) {
    entry.tag = response->region().tag();
    // The manager may have rounded it up.
    if (response->region().size_bytes() != 0) entry.bytes = response->region().size_bytes();
    entry.until = now + kOfferComes;
  } else if (before.has_value() && !CXLPOOL_MUTANT("a-refused-retry-takes-back-the-grant")) {
    entry.bytes = before->bytes;
    entry.offered = entry.offered || before->offered;
    entry.until = before->until;
  } else if (MayHaveWorked(response.status())) {
    entry.until = now + kOutcomeUnknown;
  } else {
    under_way_.erase(it);
  }
}

}  // namespace cxlpool::agent
