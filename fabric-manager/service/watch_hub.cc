#include "fabric-manager/service/watch_hub.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

void WatchHub::Reset(uint64_t revision) {
  MutexLock lock(mutex_);
  ring_.clear();
  floor_ = latest_ = revision;
}

void WatchHub::Advance(uint64_t revision) {
  MutexLock lock(mutex_);
  latest_ = std::max(latest_, revision);
}

void WatchHub::Publish(std::vector<WatchEvent> events) {
  {
    MutexLock lock(mutex_);
    for (WatchEvent& event : events) {
      latest_ = std::max(latest_, event.revision);
      ring_.push_back(std::move(event));
      if (ring_.size() > ring_events_) {
        floor_ = ring_.front().revision;
        ring_.pop_front();
      }
    }
  }
  MutexLock lock(wakes_mutex_);
  for (const auto& [subscription, wake] : wakes_) wake();
}

absl::StatusOr<std::vector<WatchEvent>> WatchHub::Read(uint64_t revision, size_t limit) const {
  MutexLock lock(mutex_);
  if (revision < floor_) {
    return Refusal{.code = absl::StatusCode::kOutOfRange,
                   .reason = "REVISION_COMPACTED",
                   .message = absl::StrCat("changes after revision ", revision,
                                           " are no longer kept; the oldest kept follows ", floor_),
                   .remedy = "watch from revision 0, or list and watch from its revision",
                   .metadata = {{"compact_revision", absl::StrCat(floor_)}}}
        .ToStatus();
  }
  if (revision > latest_) {
    return Refusal{
        .code = absl::StatusCode::kOutOfRange,
        .reason = "REVISION_UNKNOWN",
        .message = absl::StrCat("revision ", revision, " has not been reached; now ", latest_),
        .remedy = "watch from a revision that this manager has given out",
        .metadata = {{"revision", absl::StrCat(latest_)}}}
        .ToStatus();
  }
  const auto first = std::upper_bound(
      ring_.begin(), ring_.end(), revision,
      [](uint64_t want, const WatchEvent& event) { return want < event.revision; });
  const auto count = std::min<ptrdiff_t>(static_cast<ptrdiff_t>(limit), ring_.end() - first);
  return std::vector<WatchEvent>(first, first + count);
}

uint64_t WatchHub::Subscribe(std::function<void()> wake) {
  MutexLock lock(wakes_mutex_);
  wakes_[next_subscription_] = std::move(wake);
  return next_subscription_++;
}

void WatchHub::Unsubscribe(uint64_t subscription) {
  MutexLock lock(wakes_mutex_);
  wakes_.erase(subscription);
}

}  // namespace cxlpool::fm
