#include "tools/cli/region_follower.h"

#include <algorithm>

namespace cxlpool::cli {
namespace {

using Event = v1::WatchRegionsResponse;

// The stream is worth resuming. ABORTED and CANCELLED: the manager is stopping.
bool MayResume(const absl::Status& status) {
  return status.ok() || IsTransient(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsAborted(status) || absl::IsCancelled(status);
}

}  // namespace

// One stream after the other, each for kStreamLife, so that a dead connection is found in time. A
// stream resumes after the last revision seen; where the manager no longer has the changes since
// then, all Regions are listed again and only the differences reported.
absl::StatusOr<RegionFollower::End> RegionFollower::Follow(OnEvent on_event) {
  Pacer& pacer = connection_.pacer();
  const absl::Duration end = pacer.Elapsed() + options_.limit;
  absl::Duration reached = pacer.Elapsed();  // When the manager last answered.
  Backoff backoff;
  revision_ = options_.start_revision;
  listing_ = revision_ == 0;

  while (true) {
    const absl::Duration begin = pacer.Elapsed();
    if (begin >= end) return End::kTimeUp;
    const absl::Duration life = std::min(kStreamLife, end - begin);
    v1::WatchRegionsRequest request;
    request.set_start_revision(listing_ ? 0 : revision_);
    request.set_name(options_.name);
    listed_.clear();
    absl::Duration opened = absl::InfiniteDuration();
    absl::Status status = connection_.stub().WatchRegions(
        request, life, [&] { opened = pacer.Elapsed(); },
        [&](const Event& event) {
          reached = pacer.Elapsed();
          backoff.Reset();
          last_error_ = absl::OkStatus();
          return Take(event, on_event);
        });
    if (stopped_) return End::kStopped;

    const absl::Duration now = pacer.Elapsed();
    // It served, also where there was nothing to tell. One that is refused is over at once.
    if (now - opened > kServes) {
      reached = now;
      backoff.Reset();
    }
    if (absl::IsDeadlineExceeded(status) && now - begin >= life) {
      reached = now;  // A quiet stream that lived its life.
      continue;
    }
    if (absl::IsOutOfRange(status) && request.start_revision() != 0) {
      // A follower that knows no Region could not find out what in a listing is new.
      const bool asked_for = request.start_revision() == options_.start_revision;
      if (asked_for && known_.empty()) return status;
      if (on_gap_) on_gap_(status);
      ListAgain();
      continue;
    }
    if (!status.ok() && connection_.stub().Turn(status)) {
      last_error_ = status;
      continue;
    }
    if (!MayResume(status)) return status;
    last_error_ = status.ok() ? absl::UnavailableError("the manager ended the stream") : status;
    const absl::Duration pause = std::min(backoff.Next(), end - now);
    if (now + pause - reached > options_.patience) return last_error_;
    connection_.listener().OnRetry(last_error_, std::min(end - now, options_.patience));
    pacer.Sleep(pause);
  }
}

void RegionFollower::ListAgain() {
  listing_ = true;
  revision_ = 0;
}

bool RegionFollower::Take(const Event& event, OnEvent on_event) {
  bool more = true;
  switch (event.event()) {
    case Event::CHANGED:
      more = TakeChanged(event, on_event);
      break;
    case Event::REMOVED:
      more = TakeRemoved(event, on_event);
      break;
    case Event::SYNCED:
      more = TakeSynced(event, on_event);
      break;
    default:
      break;  // Of a newer manager.
  }
  // Within a listing a revision says nothing yet about the Regions still to come.
  if (!listing_) revision_ = std::max(revision_, event.revision());
  stopped_ = !more;
  return more;
}

bool RegionFollower::TakeChanged(const Event& event, OnEvent on_event) {
  const v1::Region& region = event.region();
  listed_.insert(region.tag());
  const auto it = known_.find(region.tag());
  const bool passed_on =
      it != known_.end() && it->second.revision() == region.revision() && region.revision() != 0;
  if (passed_on) return true;
  known_[region.tag()] = region;
  return on_event(event);
}

bool RegionFollower::TakeRemoved(const Event& event, OnEvent on_event) {
  known_.erase(event.region().tag());
  return on_event(event);
}

bool RegionFollower::TakeSynced(const Event& event, OnEvent on_event) {
  if (listing_) {
    listing_ = false;
    for (auto it = known_.begin(); it != known_.end();) {
      if (listed_.contains(it->first)) {
        ++it;
        continue;
      }
      Event gone;
      gone.set_event(Event::REMOVED);
      *gone.mutable_region() = it->second;
      gone.set_revision(event.revision());
      it = known_.erase(it);
      if (!on_event(gone)) return false;
    }
  }
  if (synced_reported_) return true;
  synced_reported_ = true;
  return on_event(event);
}

}  // namespace cxlpool::cli
