#include "fabric-manager/service/scrubs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "fabric-manager/model/space/bytes.h"
#include "fabric-manager/service/fabric_calls.h"
#include "fabric-manager/service/ld_names.h"
#include "fabric-manager/service/region_log.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr absl::string_view kBefore = "; before that: ";
// The longest wait for the next try, however long the last one took.
constexpr absl::Duration kLongestScrubRetry = absl::Minutes(2);

// Whether the Region waits for bytes to be cleared: all of its own, or those that it shrinks by.
bool IsCleared(const Region& region) {
  return region.state == RegionState::kScrubbing || region.state == RegionState::kFailed ||
         (region.state == RegionState::kAllocated && region.resizing());
}

// Keeps `left` up to date, which is `left_bytes` before the scrub, and writes a line to the log now
// and then while one that takes long goes on.
ScrubProgress TellsProgress(std::string name, LogFields about, uint64_t bytes, const Clock* clock,
                            std::shared_ptr<std::atomic<uint64_t>> left, uint64_t left_bytes) {
  static constexpr absl::Duration kEvery = absl::Seconds(10);
  return [name = std::move(name), about = std::move(about), bytes, clock, left = std::move(left),
          left_bytes, next = clock->Elapsed() + kEvery](uint64_t done) mutable {
    if (left != nullptr) *left = left_bytes - std::min(done, left_bytes);
    if (clock->Elapsed() < next) return;
    next = clock->Elapsed() + kEvery;
    const LogScope scope(about);
    LogInfo("reconciler", name, ": ", FormatBytes(done), " of ", FormatBytes(bytes),
            " are cleared");
  };
}

}  // namespace

std::string ReasonBeforeWait(const std::string& state_reason) {
  if (!absl::StartsWith(state_reason, kScrubWaits)) return state_reason;
  const size_t before = state_reason.find(kBefore.data(), 0, kBefore.size());
  if (before == std::string::npos || CXLPOOL_MUTANT("wait-forgets-the-reason")) return "";
  return state_reason.substr(before + kBefore.size());
}

// Bytes of a broken device are given to nobody: there is nothing to clear for. Once that is
// durable.
const absl::flat_hash_set<uint32_t>& Scrubs::Done(const Region& region) {
  OfRegion& own = regions_[region.key];
  const bool clears = IsCleared(region);
  if (!clears) SetLeft(region.key, own, 0);
  for (uint32_t i = 0; clears && i < region.extents.size(); ++i) {
    const Device* device = writer_->state().FindDevice(region.extents[i].device);
    if (device == nullptr || device->service != DeviceService::kFailed) continue;
    if (writer_->IsDurable(device->key)) own.done.insert(i);
  }
  return own.done;
}

// Nothing is cleared behind a device's name that cannot be reached under it, nor under an LD that
// no record has: in both cases the former bytes might stay, or somebody might still write there.
void Scrubs::Begin(const Region& region, const RegionMove& move) {
  OfRegion& own = regions_[region.key];
  uint64_t left_bytes = 0;
  for (const uint32_t extent : move.extents) left_bytes += region.extents[extent].length_bytes;
  SetLeft(region.key, own, left_bytes);
  if (own.under_way || move.extents.empty() || clock_->Elapsed() < own.not_before) return;
  const uint32_t index = move.extents.front();
  // What stands behind the device's name now may be another's: its zeroes would say nothing.
  const Device* device = writer_->state().FindDevice(region.extents[index].device);
  if (device == nullptr || !device->reachable) {
    own.not_before = clock_->Elapsed() + retry_;
    return Waits(region, absl::StrCat("device ", region.extents[index].device.str(),
                                      " has to be reached to clear its bytes: ",
                                      device == nullptr ? "" : device->unreachable_reason));
  }
  const BoundLd* ld = owners_->UnrecordedOn(SliceOf(region.extents[index]));
  if (!CXLPOOL_MUTANT("scrub-under-stray") && ld != nullptr) {
    own.not_before = clock_->Elapsed() + retry_;
    look_(ld->host);
    return Waits(region,
                 absl::StrCat("host ", ld->host, " slot ", ld->slot,
                              " reaches its bytes by no record; `cxlpool host fence ", ld->host,
                              " --reason WHY` ends that, or, where it is off for good, "
                              "`cxlpool host retire ",
                              ld->host, "`"));
  }
  // What it waited for is over; that a scrub fails is over when one has not failed.
  if (absl::StartsWith(region.state_reason, kScrubWaits) && own.error.empty()) {
    return Waits(region, "");
  }
  own.under_way = true;
  own.began = clock_->Elapsed();
  if (own.left != nullptr) *own.left = own.left_bytes;  // One that failed begins again.
  probe_->Pass("before-scrub");
  const Slice slice = SliceOf(region.extents[index]);
  driver_->Scrub(slice,
                 TellsProgress(NameOf(writer_->state(), region.key), FieldsOf(region),
                               slice.length_bytes, clock_, own.left, own.left_bytes),
                 [this, key = region.key, index,
                  round = own.round](const absl::StatusOr<ScrubResult>& result) {
                   executor_->Post([this, key, index, round, result] {
                     Ended(key, index, round, result);
                     active_->Step(key);
                   });
                 });
}

// Zero or unreadable: the bytes may be anybody's again. That they read as zero is the rule, and
// only the exception is in the log. Any error but NOT_SCRUBBABLE is tried again until it succeeds.
// Where the extent was given away meanwhile, for its device had failed, nothing is taken from the
// answer: another extent may have its index by now, and nobody has cleared that one.
void Scrubs::Ended(Key region, uint32_t extent, uint64_t round,
                   const absl::StatusOr<ScrubResult>& result) {
  const auto found = regions_.find(region);
  if (found == regions_.end()) return;  // The Region is gone.
  OfRegion& own = found->second;
  const absl::Status& status = result.status();
  own.under_way = false;
  if (round != own.round && !CXLPOOL_MUTANT("late-scrub-is-of-what-came-after")) return;
  const bool never = ReasonOf(status) == "NOT_SCRUBBABLE";
  if (CXLPOOL_MUTANT("failed-scrub-is-done") || status.ok() ||
      (never && CXLPOOL_MUTANT("not-scrubbable-is-clear"))) {
    probe_->Pass("after-scrub");
    if (const RegionPtr durable = writer_->Durable(region);
        durable != nullptr && extent < durable->extents.size()) {
      const uint64_t cleared = durable->extents[extent].length_bytes;
      writer_->meters().scrubbed_bytes.Add(cleared);
      SetLeft(region, own, own.left_bytes - std::min(own.left_bytes, cleared));
    }
    if (result.ok() && *result == ScrubResult::kUnreadable) {
      const LogScope scope(FieldsOf(writer_->state(), region, ""));
      LogInfo("reconciler", NameOf(writer_->state(), region), ": the former bytes of extent ",
              extent, " cannot be read any more; what can be read there is not zero for certain");
    }
    own.done.insert(extent);
    own.error.clear();
    return;
  }
  const absl::Duration now = clock_->Elapsed();
  absl::Duration wait = std::min(now - own.began, kLongestScrubRetry);
  if (CXLPOOL_MUTANT("failed-scrubs-take-all-turns")) wait = retry_;
  own.not_before = now + std::max(wait, retry_);
  writer_->meters().CountFailure(Rung::kScrub, status);
  if (never) {
    const std::string why = absl::StrCat("NOT_SCRUBBABLE: ", FabricErrorText(status.message()));
    {
      const LogScope scope(FieldsOf(writer_->state(), region, ""));
      LogWarning("reconciler", NameOf(writer_->state(), region), ": ", why,
                 "; its bytes are kept from everybody");
    }
    recorder_->Submit(region, "not-scrubbable", why, [extent, why](Region& edited, PlanContext&) {
      return MarkBad(edited, extent, why);
    });
    return;
  }
  own.error = FabricErrorText(status.message());
  const RegionPtr durable = writer_->Durable(region);
  if (durable == nullptr) return;
  // Its device has failed meanwhile, as a rule: QUARANTINED says what is to be done, and nothing is
  // tried again.
  if (!IsCleared(*durable) && !CXLPOOL_MUTANT("quarantine-waits-for-its-scrub")) return;
  Waits(*durable,
        absl::StrCat("its bytes cannot be cleared, which is tried again and again: ", own.error));
}

void Scrubs::ForgetDone(Key region) {
  OfRegion& own = regions_[region];
  SetLeft(region, own, 0);
  own.done.clear();
  ++own.round;
}

void Scrubs::Forget(Key region) {
  const auto found = regions_.find(region);
  if (found == regions_.end()) return;
  SetLeft(region, found->second, 0);
  regions_.erase(found);
}

uint64_t Scrubs::LeftBytes(Key region) const {
  MutexLock lock(left_mutex_);
  const auto left = left_.find(region);
  return left == left_.end() ? 0 : left->second->load();
}

// To the meter comes the difference, as unsigned numbers go round: nothing but Scrubs changes it.
// What a scrub under way has cleared is not lost where nothing else has changed.
void Scrubs::SetLeft(Key region, OfRegion& own, uint64_t bytes) {
  if (bytes == own.left_bytes) return;
  writer_->meters().scrub_backlog_bytes += bytes - own.left_bytes;
  own.left_bytes = bytes;
  own.left = bytes == 0 ? nullptr : std::make_shared<std::atomic<uint64_t>>(bytes);
  MutexLock lock(left_mutex_);
  if (own.left == nullptr) {
    left_.erase(region);
  } else {
    left_[region] = own.left;
  }
}

// Says in the Region for what its release waits; empty: for nothing any more. What it had to say
// before comes back then: why it failed is asked for when it is gone.
void Scrubs::Waits(const Region& region, const std::string& what) {
  const std::string before = ReasonBeforeWait(region.state_reason);
  std::string reason = before;
  if (!what.empty()) {
    reason = absl::StrCat(kScrubWaits, what, before.empty() ? "" : kBefore, before);
  }
  if (region.state_reason == reason) return;
  if (!what.empty()) {
    const LogScope scope(FieldsOf(region));
    LogWarning("reconciler", "regions/", region.id, " waits: ", what);
  }
  recorder_->Submit(region.key, "waits", reason,
                    [from = region.state_reason, reason](Region& edited, PlanContext&) {
                      if (edited.state_reason != from) return false;
                      edited.state_reason = reason;
                      return true;
                    });
}

}  // namespace cxlpool::fm
