#include "fabric-manager/service/watch_hub.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/check.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

void WatchHub::Reset(uint64_t revision) {
  MutexLock lock(mutex_);
  ring_.clear();
  last_.clear();
  oldest_ = floor_ = latest_ = revision;
}

void WatchHub::Advance(uint64_t revision) {
  MutexLock lock(mutex_);
  latest_ = std::max(latest_, revision);
}

// Appends an event, and lets the oldest go where the ring is full. The event before it of the same
// Region is superseded from now on.
void WatchHub::Push(WatchEvent event) {
  CXLPOOL_CHECK(ring_.empty() || ring_.back().entry->event().revision <= event.revision,
                "a change of revision ", event.revision, " comes after one of revision ",
                ring_.back().entry->event().revision, ": watchers would pass it by");
  latest_ = std::max(latest_, event.revision);
  if (event.region != nullptr) {
    uint64_t& last = last_.try_emplace(event.region->key, UINT64_MAX).first->second;
    CXLPOOL_CHECK(last == UINT64_MAX || last >= popped_,
                  "a change that has left the ring is remembered: ending before it does harm");
    if (last != UINT64_MAX) ring_[last - popped_].superseded = true;
    last = popped_ + ring_.size();
  }
  ring_.push_back({std::make_shared<const WatchEntry>(std::move(event))});
  if (ring_.size() <= ring_events_) return;
  const Slot& oldest = ring_.front();
  oldest_ = floor_ = oldest.entry->event().revision;
  if (!oldest.superseded && oldest.entry->event().region != nullptr &&
      !CXLPOOL_MUTANT("left-ring-is-remembered")) {
    last_.erase(oldest.entry->event().region->key);
  }
  ring_.pop_front();
  ++popped_;
}

void WatchHub::Publish(std::vector<WatchEvent> events) {
  {
    MutexLock lock(mutex_);
    for (WatchEvent& event : events) Push(std::move(event));
    if (!ring_.empty()) newest_ = ring_.back().entry->event().revision;
  }
  MutexLock lock(wakes_mutex_);
  for (const auto& [subscription, wake] : wakes_) wake();
}

// A reader that asks for what has left the ring, or for what was never given out, must not be shown
// a stream with a gap: it is refused, and lists again.
absl::StatusOr<WatchHub::Ring::const_iterator> WatchHub::Find(uint64_t revision) const {
  if (revision < floor_ && !CXLPOOL_MUTANT("watch-gap-is-silent")) {
    return Refuse(absl::StatusCode::kOutOfRange, "REVISION_COMPACTED",
                  absl::StrCat("changes after revision ", revision,
                               " are no longer kept; the oldest kept follows ", floor_),
                  "watch from revision 0, or list and watch from its revision",
                  {{"compact_revision", absl::StrCat(floor_)}});
  }
  if (revision > latest_) {
    return Refuse(absl::StatusCode::kOutOfRange, "REVISION_UNKNOWN",
                  absl::StrCat("revision ", revision, " has not been reached; now ", latest_),
                  "watch from a revision that this manager has given out",
                  {{"revision", absl::StrCat(latest_)}});
  }
  return std::upper_bound(
      ring_.begin(), ring_.end(), revision,
      [](uint64_t want, const Slot& slot) { return want < slot.entry->event().revision; });
}

absl::StatusOr<std::vector<WatchEvent>> WatchHub::Read(uint64_t revision, size_t limit) const {
  MutexLock lock(mutex_);
  const auto first = Find(revision);
  if (!first.ok()) return first.status();
  std::vector<WatchEvent> events;
  for (auto slot = *first; slot != ring_.end(); ++slot) {
    const WatchEvent& event = slot->entry->event();
    if (events.size() >= limit && event.revision != events.back().revision) break;
    events.push_back(event);
  }
  return events;
}

// The events of one revision are one change: they are taken together, beyond `limit` if need be.
absl::StatusOr<std::vector<WatchEntryPtr>> WatchHub::Take(uint64_t revision, size_t limit) const {
  MutexLock lock(mutex_);
  const auto first = Find(revision);
  if (!first.ok()) return first.status();
  std::vector<WatchEntryPtr> entries;
  const bool far = static_cast<size_t>(ring_.end() - *first) > far_behind_;
  for (auto slot = *first; slot != ring_.end(); ++slot) {
    if (far && slot->superseded) continue;
    if (entries.size() >= limit &&
        (slot->entry->event().revision != entries.back()->event().revision ||
         CXLPOOL_MUTANT("watch-parts-a-revision"))) {
      break;
    }
    entries.push_back(slot->entry);
  }
  return entries;
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
