#include "host-agent/service/user_usage.h"

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

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

UserUsage UserUsageTable::Of(uint32_t uid, const std::string& request_id, const std::string& name,
                             const AttachmentTable& offers, absl::Duration now) const {
  const auto own = under_way_.find(request_id);
  UserUsage used;
  for (const auto& [key, attachment] : offers.all()) {
    const v1::Offer& offer = attachment.offer;
    const bool is_its = (own != under_way_.end() && own->second.tag == key.tag) ||
                        (!name.empty() && offer.region_name() == name);
    if (!offer.has_owner() || offer.owner().uid() != uid || is_its) continue;
    ++used.regions;
    for (const Segment& segment : attachment.segments) used.bytes += segment.desired.length_bytes;
  }
  for (auto it = under_way_.begin(); it != under_way_.end(); ++it) {
    const UnderWay& call = it->second;
    if (it == own || call.uid != uid || call.until <= now || call.offered) continue;
    if (!call.tag.empty() && offers.FindByTag(call.tag) != nullptr) continue;  // Counted there.
    ++used.regions;
    used.bytes += call.bytes;
  }
  return used;
}

void UserUsageTable::Saw(const AttachmentTable& offers) {
  for (auto& [id, call] : under_way_) {
    if (!call.tag.empty() && offers.FindByTag(call.tag) != nullptr) call.offered = true;
  }
}

absl::Status UserUsageTable::Begin(const std::string& request_id, uint32_t uid, uint64_t bytes,
                                   absl::Duration now) {
  std::erase_if(under_way_, [now](const auto& call) { return call.second.until <= now; });
  if (under_way_.size() >= kMaxUnderWay && !under_way_.contains(request_id)) {
    return Refusal{absl::StatusCode::kResourceExhausted,
                   "QUEUE_FULL",
                   absl::StrCat(kMaxUnderWay, " allocations of users with limits are under way"),
                   "call again later",
                   {}}
        .ToStatus();
  }
  UnderWay& call = under_way_[request_id];
  call.uid = uid;
  call.bytes = bytes;
  call.offered = false;
  call.until = absl::InfiniteDuration();
  return absl::OkStatus();
}

void UserUsageTable::End(const std::string& request_id,
                         const absl::StatusOr<v1::AllocateRegionResponse>& response,
                         absl::Duration now) {
  const auto it = under_way_.find(request_id);
  if (it == under_way_.end()) return;
  if (response.ok()) {
    it->second.tag = response->region().tag();
    if (response->region().size_bytes() != 0) it->second.bytes = response->region().size_bytes();
    it->second.until = now + kOfferComes;
  } else if (MayHaveWorked(response.status())) {
    it->second.until = now + kOutcomeUnknown;
  } else {
    under_way_.erase(it);
  }
}

}  // namespace cxlpool::agent
