#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/timestamps.h"
#include "fabric-manager/service/host_fences.h"
#include "fabric-manager/service/offers.h"
#include "fabric-manager/service/pool_service.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

// What the agent said of it, as it is: empty and 0 where it has not got so far.
void FillSegment(const Segment& segment, v1::Segment* out) {
  out->set_extent_index(segment.extent_index);
  out->set_slot(segment.slot);
  out->set_host_bridge(segment.host_bridge);
  out->set_serial(segment.serial);
  out->set_memdev(segment.memdev);
  out->set_host_region(segment.host_region);
  out->set_dax_device(segment.dax_device);
  if (segment.numa_node.has_value()) out->set_numa_node(*segment.numa_node);
  out->set_hpa_bytes(segment.hpa_bytes);
  out->set_online_blocks(CXLPOOL_MUTANT("all-blocks-are-online") ? segment.total_blocks
                                                                 : segment.online_blocks);
  out->set_total_blocks(segment.total_blocks);
}

// What the fabric does not enforce the agent does, for programs: nobody is to take one for the
// other.
v1::Enforcer EnforcerOf(const Attachment& attachment, const FabricCapabilities& fabric) {
  const bool may_write =
      attachment.access == Access::kReadWrite || CXLPOOL_MUTANT("read-only-is-taken-for-enforced");
  return fabric.isolates && (may_write || fabric.enforces_read_only) ? v1::FABRIC : v1::AGENT;
}

// As one, though it may have parts: their segments are one list, and it is in the state of the part
// that was there first. A part that joins or leaves shows by its reason only.
void FillAttachment(const Attachment& attachment, const FabricCapabilities& fabric,
                    v1::Attachment* out) {
  out->set_host(ResourceName("hosts", attachment.host));
  out->set_mode(static_cast<v1::AttachmentMode>(attachment.mode));
  if (attachment.mode == Mode::kSystemRam) {
    out->set_zone(static_cast<v1::MemoryZone>(attachment.zone));
  }
  out->set_access(static_cast<v1::Access>(attachment.access));
  out->set_coherence(fabric.hardware_coherent ? v1::HARDWARE : v1::SOFTWARE);
  out->set_enforced_by(EnforcerOf(attachment, fabric));
  out->set_state(static_cast<v1::Attachment::State>(attachment.settled().state));
  // Where something that is joining or leaving is stuck, a person has to know of that.
  for (const Part& part : attachment.parts) {
    if (!part.reason.empty()) out->set_state_reason(part.reason);
  }
  out->set_detaching(attachment.settled().detaching);
  FillKnown(attachment.settled().since, out, &v1::Attachment::mutable_state_time);
  out->set_generation(attachment.generation);
  out->mutable_segments()->Reserve(static_cast<int>(attachment.segments.size()));
  for (const Segment& segment : attachment.segments) FillSegment(segment, out->add_segments());
}

// The latency is the worst of the paths to its devices, the bandwidth their sum. Nothing is said of
// the whole unless it is known of every part.
void FillFigures(const Region& region, const Topology& topology, v1::PlacementPlan* out) {
  if (region.attachments.empty()) return;
  const std::string& host = region.attachments.front().host;
  std::set<absl::string_view> devices;
  for (const Extent& extent : region.extents) devices.insert(extent.device);
  uint32_t latency_ns = 0;
  uint64_t bandwidth = 0;
  bool latency_known = true;
  bool bandwidth_known = true;
  for (absl::string_view device : devices) {
    const Path* path = topology.connects_all() ? nullptr : topology.Find(host, device);
    if (path == nullptr) return;
    latency_known = latency_known && path->latency_ns != 0;
    bandwidth_known = bandwidth_known && path->bandwidth_mib_per_second != 0;
    latency_ns = std::max(latency_ns, path->latency_ns);
    bandwidth += path->bandwidth_mib_per_second;
  }
  if (latency_known) out->set_latency_ns(latency_ns);
  if (bandwidth_known) {
    out->set_bandwidth_mib_per_second(
        static_cast<uint32_t>(std::min<uint64_t>(bandwidth, std::numeric_limits<uint32_t>::max())));
  }
}

}  // namespace

// All that any caller who may see the Region is shown of it. Fills in place: a list of thousands
// copies nothing.
void FillRegion(const Region& region, const FabricCapabilities& fabric, v1::Region* out) {
  out->set_name(ResourceName("regions", region.id));
  out->set_tag(FormatUuid(region.tag.bytes()));
  out->set_generation(region.generation);
  out->set_tenant(ResourceName("tenants", region.tenant));
  out->set_size_bytes(region.size_bytes());
  out->set_requested_bytes(CXLPOOL_MUTANT("size-for-requested") ? region.size_bytes()
                                                                : region.requested_bytes);
  out->set_sharing(static_cast<v1::Sharing>(region.sharing));
  out->set_state(static_cast<v1::Region::State>(region.state));
  out->set_state_reason(region.state_reason);
  FillKnown(region.state_since, out, &v1::Region::mutable_state_time);
  out->mutable_extents()->Reserve(static_cast<int>(region.extents.size()));
  for (const Extent& extent : region.extents) {
    v1::Extent& to = *out->add_extents();
    to.set_device(ResourceName("devices", extent.device));
    to.set_dpa_bytes(extent.dpa_bytes);
    to.set_length_bytes(extent.length_bytes);
  }
  for (const BadExtent& bad : region.bad) {
    out->mutable_extents(static_cast<int>(bad.extent_index))->set_bad_reason(bad.reason);
  }
  for (const Attachment& attachment : region.attachments) {
    FillAttachment(attachment, fabric, out->add_attachments());
  }
  FillTimestamp(region.create_time, out->mutable_create_time());
  out->set_etag(region.etag());
  out->set_revision(region.revision);
  out->set_policy(static_cast<v1::PlacementPolicy>(region.policy));
  out->set_interleave_ways(region.interleave_ways);
  out->set_interleave_granularity_bytes(region.interleave_granularity_bytes);
  if (!CXLPOOL_MUTANT("resizing-is-not-shown")) out->set_resizing(region.resizing());
  FillKnown(region.expire_time, out, &v1::Region::mutable_expire_time);
  if (region.owner.has_value()) *out->mutable_owner() = ToProto(*region.owner);
  if (region.maker.has_value()) {
    out->mutable_maker()->set_host(ResourceName("hosts", region.maker->host));
    out->mutable_maker()->set_uid(region.maker->uid);
  }
  if (!region.open_to.nobody() && !CXLPOOL_MUTANT("open-to-is-not-shown")) {
    *out->mutable_open_to() = ToProto(region.open_to);
  }
  if (region.fabric_isolation) out->set_isolation(v1::FABRIC);
}

// A dry run counts its ids from where no record is: they would mean nothing to anybody.
void ForgetMadeUp(bool is_new, bool named, v1::Region* region) {
  region->clear_etag();
  region->clear_revision();
  if (region->generation() >= kDryRunIds) region->clear_generation();
  if (is_new) region->clear_tag();
  if (is_new && !named) region->clear_name();
  for (v1::Attachment& attachment : *region->mutable_attachments()) {
    if (attachment.generation() >= kDryRunIds) attachment.clear_generation();
    for (v1::Segment& segment : *attachment.mutable_segments()) {
      if ((segment.serial() & ~kSerialBase) >= kDryRunIds) segment.clear_serial();
    }
  }
}

namespace {

// For whom an Attachment waits that is neither settled nor moved on by the manager itself.
std::string WaitsFor(const std::string& host, const HostView& view,
                     const FabricCapabilities& fabric) {
  std::vector<std::string> waits;
  const HostRuntime& runtime = *view.runtime;
  if (!runtime.online) {
    const std::string heard =
        runtime.last_heartbeat == absl::InfinitePast()
            ? "not heard of since the manager started"
            : absl::StrCat("last heard of at ", UtcText(runtime.last_heartbeat));
    waits.push_back(absl::StrCat("waits for the agent of host ", host, ", which is away (", heard,
                                 "): start it, or ", HowToCutOff(fabric, host)));
  }
  if (!runtime.fabric_reachable) {
    waits.push_back(
        absl::StrCat("the fabric cannot be asked about host ", host, ": ", runtime.fabric_reason));
  }
  return absl::StrJoin(waits, "; ");
}

}  // namespace

// What an Attachment waits for is added to its reason; one that is up waits for nothing.
void FillRegion(const Region& region, const FabricCapabilities& fabric, const PoolView& view,
                v1::Region* out) {
  FillRegion(region, fabric, out);
  for (size_t i = 0; i < region.attachments.size(); ++i) {
    const Attachment& attachment = region.attachments[i];
    if (attachment.settled().is_up()) continue;
    const auto host = view.hosts.find(attachment.host);
    if (host == view.hosts.end()) continue;
    const std::string waits = WaitsFor(attachment.host, *host->second, fabric);
    if (waits.empty()) continue;
    std::string* reason = out->mutable_attachments(static_cast<int>(i))->mutable_state_reason();
    absl::StrAppend(reason, reason->empty() ? "" : "; ", waits);
  }
}

namespace {

void FillHolder(const Holder& holder, v1::RegionHolder* out) {
  out->set_pid(holder.pid);
  out->set_start_ticks(holder.start_ticks);
  out->set_uid(holder.uid);
  out->set_program(holder.program);
  out->set_open_bytes(holder.open_bytes);
  out->set_mapped_bytes(holder.mapped_bytes);
  out->set_live_bytes(holder.live_bytes);
  out->set_slack_bytes(holder.slack_bytes);
  out->set_pins(holder.pins);
}

// Whether `caller` may know who uses a Region on `host`: that a host may see the Region says
// nothing of the programs of the others that have it.
bool MaySeeHoldersOn(const Caller& caller, absl::string_view host) {
  if (caller.for_pool() || caller.for_tenants()) return true;
  return (caller.is_host() && caller.host() == host) ||
         CXLPOOL_MUTANT("host-sees-anothers-holders");
}

}  // namespace

// Beyond what an answer may name, holders are counted, on whichever host they are. A host that has
// reported and names nobody is in the answer, so that it differs from one that has not.
void FillHolders(const Region& region, const Caller& caller, const PoolView& view,
                 v1::ListRegionHoldersResponse* out) {
  int free = kMaxHoldersOfAnswer;
  for (const Attachment& attachment : region.attachments) {
    if (!MaySeeHoldersOn(caller, attachment.host)) continue;
    v1::HostHolders& to = *out->add_hosts();
    to.set_host(ResourceName("hosts", attachment.host));
    const auto host = view.hosts.find(attachment.host);
    if (host == view.hosts.end() || host->second->runtime->holders == nullptr) continue;
    const HolderReport& report = *host->second->runtime->holders;
    FillTimestamp(report.time, to.mutable_report_time());
    const auto of = report.by_generation.find(attachment.generation);
    if (of == report.by_generation.end()) continue;
    uint32_t more = of->second.more;
    for (const Holder& holder : of->second.holders) {
      if (free > 0) {
        --free;
        FillHolder(holder, to.add_holders());
      } else if (more < std::numeric_limits<uint32_t>::max()) {
        ++more;
      }
    }
    to.set_more(more);
    if (of->second.unopened_since.has_value()) {
      FillTimestamp(*of->second.unopened_since, to.mutable_unopened_since());
    }
  }
}

v1::Region ToProto(const Region& region, const FabricCapabilities& fabric) {
  v1::Region out;
  FillRegion(region, fabric, &out);
  return out;
}

v1::PlacementPlan PlanToProto(const Committed& planned, const Topology& topology) {
  v1::PlacementPlan out;
  const Region& region = *planned.region;
  out.set_policy(static_cast<v1::PlacementPolicy>(region.policy));
  out.set_interleave_ways(region.interleave_ways);
  FillFigures(region, topology, &out);
  for (const HostPlacement::OnBridge& bridge : planned.bridges) {
    v1::PlannedBridge& to = *out.add_bridges();
    to.set_host_bridge(bridge.host_bridge);
    to.set_stack_depth(bridge.stack_depth);
    for (const std::string& id : bridge.above) to.add_above(ResourceName("regions", id));
    for (const std::string& id : bridge.unblocks) to.add_unblocks(ResourceName("regions", id));
  }
  return out;
}

}  // namespace cxlpool::fm
