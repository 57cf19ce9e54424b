#include "fabric-manager/service/agent_side.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/service/offers.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

HostSide ToHostSide(v1::SegmentState state) {
  switch (state) {
    case v1::SEGMENT_ABSENT:
      return HostSide::kAbsent;
    case v1::SEGMENT_PRESENT:
      return HostSide::kPresent;
    case v1::SEGMENT_REGION:
      return HostSide::kRegion;
    case v1::SEGMENT_ONLINE:
      return HostSide::kOnline;
    case v1::SEGMENT_STOPPING:
      return HostSide::kStopping;
    default:
      return HostSide::kUnknown;
  }
}

// What the agent read back, in the model's words; placement stays the manager's own.
Segment Observed(const Segment& planned, const v1::Segment& seen) {
  Segment segment = planned;
  segment.memdev = CutText(seen.memdev(), 64);
  segment.host_region = CutText(seen.host_region(), 64);
  segment.dax_device = CutText(seen.dax_device(), 64);
  segment.numa_node.reset();
  if (seen.has_numa_node()) segment.numa_node = seen.numa_node();
  segment.hpa_bytes = seen.hpa_bytes();
  segment.online_blocks = seen.online_blocks();
  segment.total_blocks = seen.total_blocks();
  return segment;
}

}  // namespace

// An agent keeps what was offered to it, but one that has restarted knows nothing.
void AgentSide::OfferAsRecorded(const Region& region, const Attachment& attachment, Track& track) {
  OfferedWants wants = {};
  for (size_t i = 0; i < attachment.parts.size(); ++i) {
    const Part& part = attachment.parts[i];
    // A stray is not offered: what no Offer names, the agent leaves as it is.
    if (attachment.held && !part.detaching) continue;
    wants[i] = RecordedWant(part.state, part.detaching);
  }
  track.wants = wants;
  if (CXLPOOL_MUTANT("restart-offers-nothing") || wants == OfferedWants{}) return;
  Send(region, attachment, track);
}

void AgentSide::Offer(const Region& region, const Attachment& attachment, size_t part, Track& track,
                      v1::Offer::Want want) {
  track.wants[part] = want;
  Send(region, attachment, track);
}

// A new name, or a part that has joined the others: what stands is sent anew.
void AgentSide::FollowCommitted(const Region& region, const Attachment& attachment, Track& track) {
  if (track.wants == OfferedWants{}) return;
  OfferedWants wants = track.wants;
  std::fill(wants.begin() + attachment.parts.size(), wants.end(), v1::Offer::WANT_UNSPECIFIED);
  // The part went down with the rest: the next step says what is wanted of all.
  if (wants != track.wants && attachment.settled().detaching) return;
  track.wants = wants;
  Send(region, attachment, track);
}

void AgentSide::Withdraw(const Region& region, uint64_t generation, Track& track) {
  sessions_->Withdraw(track.host, FormatUuid(region.tag.bytes()), generation);
  track.offered_revision = 0;
}

void AgentSide::Send(const Region& region, const Attachment& attachment, Track& track) {
  if (track.offered_revision == region.revision && track.offered_wants == track.wants) return;
  const bool stands = track.offered_revision != 0;
  track.offered_revision = region.revision;
  track.offered_wants = track.wants;
  OfferTerms terms = TermsOf(region, attachment, track.wants);
  if (stands && terms == track.offered) return;
  sessions_->SetOffer(attachment.host,
                      MakeOffer(region.tag, attachment.generation, terms, hardware_coherent_));
  track.offered = std::move(terms);
}

void AgentSide::OnSession(const std::string& host, bool online) {
  if (CXLPOOL_MUTANT("forget-incarnation") || online) return;
  // What it said is no longer known to hold.
  for (const auto& [generation, track] : tracks_->OfHost(host)) {
    for (SegmentKnown& known : track->known) {
      known.host = HostSide::kUnknown;
      if (CXLPOOL_MUTANT("session-end-is-absence")) known.host = HostSide::kAbsent;
      if (CXLPOOL_MUTANT("session-end-is-proof")) known.fabric = FabricSide::kUnbound;
    }
  }
}

// The Region that has a segment by this serial on the host. Where a change that is not durable has
// taken the serial from it, that is the Region as it was before: the change may still fail, and an
// agent says nothing twice.
RegionPtr AgentSide::FindBySerial(const std::string& host, uint64_t serial) const {
  if (const RegionPtr* planned = writer_->state().FindRegionBySerial(serial)) return *planned;
  for (const auto& [generation, track] : tracks_->OfSerial(host, serial)) {
    const RegionPtr durable = writer_->Durable(track->region);
    const Attachment* attachment =
        durable == nullptr ? nullptr : durable->FindAttachment(absl::string_view(host));
    if (attachment == nullptr) continue;
    const bool named = std::any_of(attachment->segments.begin(), attachment->segments.end(),
                                   [=](const Segment& s) { return s.serial == serial; });
    if (named) return durable;
  }
  return nullptr;
}

// What a host has that is no Attachment of its own is in the log as one line, however much it is:
// an agent may dial as often as it likes.
void AgentSide::OnSegments(const std::string& host, const SegmentReports& reports, bool complete) {
  if (!CXLPOOL_MUTANT("forget-incarnation") && complete) {
    for (const auto& [generation, track] : tracks_->OfHost(host)) {
      track->opens = 0;
      for (SegmentKnown& known : track->known) {
        known.host = HostSide::kAbsent;
        known.host_error.clear();
        known.host_error_permanent = false;
      }
    }
  }
  const v1::SegmentReport* nobodys = nullptr;  // The first of those that nobody has.
  uint64_t more = 0;
  for (const v1::SegmentReport& report : reports) {
    const RegionPtr region = FindBySerial(host, report.serial());
    const Attachment* attachment =
        region == nullptr ? nullptr : region->FindAttachment(absl::string_view(host));
    if (attachment != nullptr) {
      Take(*region, *attachment, report);
    } else if (complete && nobodys == nullptr) {
      nobodys = &report;
    } else if (complete) {
      ++more;
    }
  }
  if (nobodys == nullptr) return;
  LogWarning("reconciler", "host ", host, " holds serial ", absl::Hex(nobodys->serial()), " (",
             CutText(nobodys->segment().host_region(), 64), "), which is no Attachment of its own",
             more == 0 ? "" : absl::StrCat(", and ", more, " more"));
}

// A stripe set is one host region: what is reported by the serial of its first target is said of
// every segment of the set.
void AgentSide::Take(const Region& region, const Attachment& attachment,
                     const v1::SegmentReport& report) {
  Track& track = tracks_->Of(region, attachment);
  const auto named =
      std::find_if(attachment.segments.begin(), attachment.segments.end(),
                   [&](const Segment& segment) { return segment.serial == report.serial(); });
  if (named == attachment.segments.end()) return;
  const uint32_t ways = region.interleave_ways;
  track.observed_revision = 0;
  for (size_t i = 0; i < attachment.segments.size(); ++i) {
    if (attachment.segments[i].extent_index / ways != named->extent_index / ways) continue;
    SegmentKnown& known = track.known[i];
    known.host = ToHostSide(report.state());
    known.host_error.clear();
    known.host_error_permanent = false;
    if (report.has_error()) {
      known.host_error =
          CutText(absl::StrCat(report.error().reason(), ": ", report.error().message()), 1024);
      known.host_error_permanent = report.error().permanent();
    }
    track.observed[i] = Observed(attachment.segments[i], report.segment());
    if (i < 32) {
      track.opens &= ~(1u << i);
      if (report.opens() > 0) track.opens |= 1u << i;
    }
  }
  probe_->Pass("report-", v1::SegmentState_Name(report.state()));
  active_->Touch(region.key);
}

void AgentSide::ForgetSerials(Key key, uint64_t generation, const std::vector<uint64_t>& before) {
  Track* const track = tracks_->Find(generation);
  const RegionPtr region = writer_->Durable(key);
  if (track == nullptr || region == nullptr) return;
  const Attachment* now = region->FindAttachment(absl::string_view(track->host));
  if (now == nullptr || now->generation != generation) return;
  std::vector<SegmentKnown>& known = track->known;
  for (size_t i = 0; i < std::min({known.size(), before.size(), now->segments.size()}); ++i) {
    if (now->segments[i].serial == before[i]) continue;
    SegmentKnown fresh;
    fresh.fabric = known[i].fabric;
    fresh.fabric_error = std::move(known[i].fabric_error);  // Why it may have to be given up.
    known[i] = std::move(fresh);
  }
}

std::vector<std::string> AgentSide::HostsUsing(const Region& region, size_t keep_extents) const {
  std::vector<std::string> hosts;
  for (const Attachment& attachment : region.attachments) {
    const Track* const track = tracks_->Find(attachment.generation);
    if (track == nullptr) continue;
    for (size_t i = 0; i < attachment.segments.size() && i < 32; ++i) {
      if (attachment.segments[i].extent_index < keep_extents) continue;
      if ((track->opens >> i & 1) == 0) continue;
      hosts.push_back(attachment.host);
      break;
    }
  }
  return hosts;
}

}  // namespace cxlpool::fm
