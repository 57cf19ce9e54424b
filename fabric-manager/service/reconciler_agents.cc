// The reconciler's dealings with host agents: what they are told, what they say of segments.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/service/offers.h"
#include "fabric-manager/service/reconciler.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
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

// Agents forget nothing that a session tells them, but a restarted one knows nothing.
void Reconciler::OfferAsRecorded(const Region& region, const Attachment& attachment, Track& track) {
  OfferedWants wants = {};
  for (size_t i = 0; i < attachment.parts.size(); ++i) {
    const Part& part = attachment.parts[i];
    // Of a stray the agent hears nothing: what no Offer names, it leaves alone.
    if (attachment.held && !part.detaching) continue;
    wants[i] = RecordedWant(part.state, part.detaching);
  }
  track.wants = wants;
  if (CXLPOOL_MUTANT("restart-offers-nothing") || wants == OfferedWants{}) return;
  SendOffer(region, attachment, track);
}

void Reconciler::SendOffer(const Region& region, const Attachment& attachment, Track& track) {
  if (track.offered_revision == region.revision && track.offered_wants == track.wants) return;
  const bool stands = track.offered_revision != 0;
  track.offered_revision = region.revision;
  track.offered_wants = track.wants;
  OfferTerms terms = TermsOf(region, attachment, track.wants);
  if (stands && terms == track.offered) return;
  sessions_->SetOffer(attachment.host, MakeOffer(region.tag, attachment.generation, terms,
                                                 driver_->capabilities().hardware_coherent));
  track.offered = std::move(terms);
}

void Reconciler::Offer(const Region& region, const Attachment& attachment, size_t part,
                       Track& track, v1::Offer::Want want) {
  track.wants[part] = want;
  SendOffer(region, attachment, track);
}

std::vector<std::string> Reconciler::HostsUsing(const Region& region, size_t keep_extents) const {
  std::vector<std::string> hosts;
  for (const Attachment& attachment : region.attachments) {
    const Track* const track = tracks_.Find(attachment.generation);
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

void Reconciler::OnSession(const std::string& host, bool online) {
  if (!CXLPOOL_MUTANT("forget-incarnation") && !online) {
    // What it said is no longer known to hold.
    for (const auto& [generation, track] : tracks_.OfHost(host)) {
      for (SegmentKnown& known : track->known) {
        known.host = HostSide::kUnknown;
        if (CXLPOOL_MUTANT("session-end-is-absence")) known.host = HostSide::kAbsent;
        if (CXLPOOL_MUTANT("session-end-is-proof")) known.fabric = FabricSide::kUnbound;
      }
    }
  }
  TouchHost(host);
  media_.OnSession(host);
}

void Reconciler::OnEvents(const std::string& host, const HostEvents& events) {
  media_.OnEvents(host, events);
}

// The Region that has a segment by this serial on the host. Where a change that is not durable has
// taken the serial from it, that is the Region as it was before: the change may still fail, and an
// agent says nothing twice.
RegionPtr Reconciler::FindBySerial(const std::string& host, uint64_t serial) const {
  if (const RegionPtr* planned = writer_->state().FindRegionBySerial(serial)) return *planned;
  for (const auto& [generation, track] : tracks_.OfSerial(host, serial)) {
    const RegionPtr durable = Durable(track->region);
    const Attachment* attachment =
        durable == nullptr ? nullptr : durable->FindAttachment(absl::string_view(host));
    if (attachment == nullptr) continue;
    const bool named = std::any_of(attachment->segments.begin(), attachment->segments.end(),
                                   [=](const Segment& s) { return s.serial == serial; });
    if (named) return durable;
  }
  return nullptr;
}

void Reconciler::OnSegments(const std::string& host, const SegmentReports& reports, bool complete) {
  if (!CXLPOOL_MUTANT("forget-incarnation") && complete) {
    for (const auto& [generation, track] : tracks_.OfHost(host)) {
      track->opens = 0;
      for (SegmentKnown& known : track->known) {
        known.host = HostSide::kAbsent;
        known.host_error.clear();
        known.host_error_permanent = false;
      }
    }
  }
  for (const v1::SegmentReport& report : reports) {
    const RegionPtr region = FindBySerial(host, report.serial());
    const Attachment* attachment =
        region == nullptr ? nullptr : region->FindAttachment(absl::string_view(host));
    if (attachment == nullptr) {
      if (complete) {
        LogWarning("reconciler", "host ", host, " holds serial ", absl::Hex(report.serial()), " (",
                   report.segment().host_region(), "), which is no Attachment of its own");
      }
      continue;
    }
    Track& track = tracks_.Of(*region, *attachment);
    const auto named =
        std::find_if(attachment->segments.begin(), attachment->segments.end(),
                     [&](const Segment& segment) { return segment.serial == report.serial(); });
    if (named == attachment->segments.end()) continue;
    // A stripe set is one host region, and goes by the serial of its first target.
    const uint32_t ways = region->interleave_ways;
    track.observed_revision = 0;
    for (size_t i = 0; i < attachment->segments.size(); ++i) {
      if (attachment->segments[i].extent_index / ways != named->extent_index / ways) continue;
      SegmentKnown& known = track.known[i];
      known.host = ToHostSide(report.state());
      known.host_error.clear();
      known.host_error_permanent = false;
      if (report.has_error()) {
        known.host_error =
            CutText(absl::StrCat(report.error().reason(), ": ", report.error().message()), 1024);
        known.host_error_permanent = report.error().permanent();
      }
      track.observed[i] = Observed(attachment->segments[i], report.segment());
      if (i < 32) {
        track.opens &= ~(1u << i);
        if (report.opens() > 0) track.opens |= 1u << i;
      }
    }
    Pass("report-", v1::SegmentState_Name(report.state()));
    Touch(region->key);
  }
  if (complete) TouchHost(host);
  PostStep();
}

}  // namespace cxlpool::fm
