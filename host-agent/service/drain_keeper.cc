#include "host-agent/service/drain_keeper.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "host-agent/service/backoff.h"
#include "proto/support/log.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

bool SaysHeld(const v1::SegmentError& error) {
  return error.reason() == "HOLDERS" || error.reason() == "BLOCKS_BUSY";
}

}  // namespace

bool DrainKeeper::MustWait(const AttachmentKey& key, const Segment& segment,
                           uint64_t region_serial) {
  // An orphan has no users, and a segment that is to stay online is only changing its mode.
  if (hook_ == nullptr || key == kOrphans || segment.desired.want == Want::kOnline) return false;
  if (running_.contains({key, segment.desired.first_serial()})) return true;
  const absl::Duration now = clock_->Elapsed();
  const bool due = segment.drains == 0 || (segment.drain_again && segment.drain_at <= now);
  if (!due || segment.retry_at > now) return false;
  Run(key, segment, region_serial);
  return true;
}

absl::Duration DrainKeeper::NextRun(const Segment& segment) const {
  const bool later = hook_ != nullptr && segment.drain_at > clock_->Elapsed();
  return later ? segment.drain_at : absl::InfiniteDuration();
}

// Looks for the holders first, since the hook is given all processes that are known to use the
// segment: those that opened it through the agent, and those that the kernel shows. A search that
// fails is no reason not to run the hook.
void DrainKeeper::Run(const AttachmentKey& key, const Segment& segment, uint64_t region_serial) {
  const uint64_t serial = segment.desired.first_serial();
  running_.insert({key, serial});
  DrainRequest request = RequestFor(key, segment);
  {
    const LogScope scope(attachments_->FieldsOf(key, "drain"));
    LogInfo(kSubject, "drain hook: Region ", request.region, " serial 0x", absl::Hex(serial), ": ",
            request.reason);
  }
  auto run = [this, key, serial, request = std::move(request)](
                 const absl::StatusOr<std::vector<ProcessId>>& holders) mutable {
    if (hook_ == nullptr) {  // The configuration was read again meanwhile, and has none.
      running_.erase({key, serial});
      return on_drained_();
    }
    std::vector<ProcessId>& all = request.processes;
    if (holders.ok()) all.insert(all.end(), holders->begin(), holders->end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    const absl::Duration began = clock_->Elapsed();
    hook_->Run(std::move(request), OnCore([this, key, serial, began](const absl::Status& status) {
                 meters_->drain_duration.Observe(clock_->Elapsed() - began);
                 if (!status.ok()) meters_->drain_failures.Add();
                 OnDrained(key, serial, status);
               }));
  };
  memory_->FindHolders(region_serial, OnCore(std::move(run)));
}

DrainRequest DrainKeeper::RequestFor(const AttachmentKey& key, const Segment& segment) const {
  const v1::Offer& offer = attachments_->all().at(key).offer;
  DrainRequest request;
  request.region = std::string(absl::StripPrefix(offer.region_name(), "regions/"));
  request.tag = offer.region_tag();
  request.mode = segment.desired.mode == Mode::kSystemRam ? "system-ram" : "devdax";
  if (const ObservedHostRegion* region = HostRegionOf(segment.desired, *observation_)) {
    request.numa_node = region->numa_node;
    request.dax_device = region->dax_device;
  }
  request.processes = opens_->UsersOf(key, segment.desired.first_serial());
  const bool held = segment.error.has_value() && SaysHeld(*segment.error);
  request.reason = held ? segment.error->reason() : "RELEASE";
  // FindHolders shows which processes have the device open now. Those that use pages of busy blocks
  // are named only in the error.
  if (request.reason == "BLOCKS_BUSY") {
    const v1::SegmentError& error = *segment.error;
    for (int i = 0; i < std::min(error.holder_pids_size(), error.holder_starts_size()); ++i) {
      request.processes.push_back({error.holder_pids(i), error.holder_starts(i)});
    }
  }
  return request;
}

void DrainKeeper::OnDrained(const AttachmentKey& key, uint64_t first_serial,
                            const absl::Status& status) {
  running_.erase({key, first_serial});
  if (!status.ok()) {
    const LogScope scope(attachments_->FieldsOf(key, "drain"));
    LogWarning(kSubject, status.message());
  }
  // The Offer may have been replaced or withdrawn meanwhile.
  Segment* segment = attachments_->FindSegment(key, first_serial);
  if (segment != nullptr && segment->desired.want != Want::kOnline) {
    segment->drain_at =
        clock_->Elapsed() + BackoffAfter(++segment->drains, kFirstBackoff, kMaxBackoff);
    segment->drain_again = false;
    segment->drain_error =
        status.ok() ? "" : absl::StrCat(ReasonOf(status), ": ", status.message());
  }
  on_drained_();
}

v1::SegmentError DrainKeeper::NoteError(Segment& segment, v1::SegmentError error) {
  if (!SaysHeld(error)) return error;
  segment.drain_again = true;
  if (!segment.drain_error.empty()) {
    error.set_message(absl::StrCat(error.message(), "; ", segment.drain_error));
  }
  return error;
}

}  // namespace cxlpool::agent
