#include "proto/support/manager_rotation.h"

#include <algorithm>
#include <utility>

#include "proto/support/check.h"
#include "proto/support/refusal.h"

namespace cxlpool {

ManagerRotation::ManagerRotation(std::vector<std::string> addresses)
    : addresses_(std::move(addresses)), tried_(addresses_.size(), false) {
  CXLPOOL_CHECK(!addresses_.empty(), "there is no manager to call");
}

bool ManagerRotation::MayAnswerElsewhere(const absl::Status& why) {
  const std::string reason = ReasonOf(why);
  if (absl::IsUnavailable(why)) {
    // Another reason is the word of a manager that leads: HOST_UNREACHABLE, for instance.
    return reason.empty() || reason == "NOT_LEADER" || reason == "MANAGER_UNREACHABLE" ||
           reason == "LOWER_EPOCH";
  }
  return reason == "NO_ANSWER" || reason == "MANAGER_NOT_TRUSTED" ||
         reason == "CERTIFICATE_REFUSED";
}

void ManagerRotation::Reached() {
  std::fill(tried_.begin(), tried_.end(), false);
  first_.reset();
  said_ = absl::OkStatus();
}

bool ManagerRotation::Turn(absl::Status& why) {
  tried_[current_] = true;
  if (said_.ok() || ReasonOf(said_) == "NOT_LEADER") said_ = why;
  if (const std::optional<size_t> hint = HintOf(why); hint.has_value() && *hint != current_) {
    if (!tried_[*hint]) {
      current_ = *hint;
      return true;
    }
    first_ = hint;
  }
  const size_t count = addresses_.size();
  for (size_t step = 1; step < count; ++step) {
    const size_t next = (current_ + step) % count;
    if (tried_[next]) continue;
    current_ = next;
    return true;
  }
  current_ = first_.value_or((current_ + 1) % count);
  why = said_;
  Reached();
  return false;
}

std::optional<size_t> ManagerRotation::HintOf(const absl::Status& why) const {
  const std::optional<Refusal> refusal = RefusalOf(why);
  if (!refusal.has_value() || refusal->reason != "NOT_LEADER") return std::nullopt;
  for (const auto& [key, value] : refusal->metadata) {
    if (key != "leader") continue;
    const auto found = std::find(addresses_.begin(), addresses_.end(), value);
    if (found != addresses_.end()) return static_cast<size_t>(found - addresses_.begin());
  }
  return std::nullopt;
}

}  // namespace cxlpool
