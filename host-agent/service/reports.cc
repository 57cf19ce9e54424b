#include "host-agent/service/reports.h"

#include <string>

#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

void FillFrom(const ObservedMemdev* memdev, const ObservedHostRegion* region,
              v1::Segment& segment) {
  if (memdev != nullptr) {
    segment.set_slot(memdev->slot);
    segment.set_host_bridge(memdev->host_bridge);
    segment.set_memdev(memdev->name);
  }
  if (region == nullptr) return;
  segment.set_host_region(region->name);
  segment.set_dax_device(region->dax_device);
  segment.set_hpa_bytes(region->hpa_bytes);
  if (region->dax_driver != DaxDriver::kKmem) return;
  if (region->numa_node.has_value()) segment.set_numa_node(*region->numa_node);
  segment.set_online_blocks(region->online_blocks);
  segment.set_total_blocks(region->total_blocks);
}

// A memdev that nobody asked for: how far up the ladder somebody brought it.
v1::SegmentState FoundState(const ObservedHostRegion* region) {
  if (region == nullptr || !region->committed) return v1::SEGMENT_PRESENT;
  if (region->dax_driver == DaxDriver::kDeviceDax) return v1::SEGMENT_ONLINE;
  const bool all_online = region->dax_driver == DaxDriver::kKmem && region->total_blocks > 0 &&
                          region->online_blocks == region->total_blocks;
  return all_online ? v1::SEGMENT_ONLINE : v1::SEGMENT_REGION;
}

}  // namespace

v1::HostInventory InventoryOf(const HostObservation& host) {
  v1::HostInventory inventory;
  inventory.set_memory_block_bytes(host.memory_block_bytes);
  inventory.set_region_granule_bytes(host.region_granule_bytes);
  inventory.set_page_struct_spare_bytes(host.page_struct_spare_bytes);
  for (const ObservedBridge& seen : host.bridges) {
    v1::BridgeInventory& bridge = *inventory.add_bridges();
    bridge.set_name(seen.name);
    for (uint32_t slot : seen.slots) bridge.add_slots(slot);
    bridge.set_max_regions(seen.max_regions);
    bridge.set_live_regions(seen.live_regions);
    bridge.set_blocked(seen.blocked);
    bridge.set_blocking_serial(seen.blocking_serial);
    bridge.set_window_bytes(seen.window_bytes);
    bridge.set_free_window_bytes(seen.free_window_bytes);
  }
  return inventory;
}

bool InventoryChanged(const HostObservation& told, const HostObservation& now) {
  const uint64_t before = told.page_struct_spare_bytes;
  const uint64_t after = now.page_struct_spare_bytes;
  if ((before > after ? before - after : after - before) > before / 8) return true;
  return told.memory_block_bytes != now.memory_block_bytes ||
         told.region_granule_bytes != now.region_granule_bytes || told.bridges != now.bridges;
}

v1::SegmentState SegmentStateOf(const Segment& segment, const HostObservation& host) {
  switch (StateOf(segment.desired, host)) {
    case LadderState::kAbsent:
      return v1::SEGMENT_ABSENT;
    case LadderState::kPresent:
      return v1::SEGMENT_PRESENT;
    case LadderState::kRegion:
      return v1::SEGMENT_REGION;
    case LadderState::kOnline:
      return v1::SEGMENT_ONLINE;
    case LadderState::kStopping:
      return v1::SEGMENT_STOPPING;
  }
  return v1::SEGMENT_STATE_UNSPECIFIED;
}

void FillSegment(const Segment& segment, const HostObservation& host, v1::Segment& message) {
  const DesiredSegment& desired = segment.desired;
  message.set_extent_index(segment.extent_index);
  message.set_slot(desired.targets.front().slot);
  message.set_host_bridge(desired.host_bridge);
  message.set_serial(desired.first_serial());
  FillFrom(FindMemdev(host, desired.first_serial()), FindHostRegion(host, desired.first_serial()),
           message);
}

v1::Segment SegmentMessage(const Segment& segment, const HostObservation& host) {
  v1::Segment message;
  FillSegment(segment, host, message);
  return message;
}

void ReportAll(const AttachmentTable& attachments, const OpensTable& opens,
               const HostObservation& host, const std::function<void(v1::SegmentReport&)>& tell) {
  v1::SegmentReport report;
  for (const auto& [key, attachment] : attachments.all()) {
    for (const Segment& segment : attachment.segments) {
      const uint64_t serial = segment.desired.first_serial();
      report.set_region_tag(key.tag);
      report.set_attachment_generation(key.generation);
      report.set_serial(serial);
      report.set_state(SegmentStateOf(segment, host));
      report.mutable_segment()->Clear();
      FillSegment(segment, host, *report.mutable_segment());
      report.clear_error();
      if (segment.error.has_value()) *report.mutable_error() = *segment.error;
      report.set_opens(static_cast<uint32_t>(opens.UsersOf(key, serial).size()));
      tell(report);
    }
  }
  for (const ObservedMemdev& memdev : host.memdevs) {
    if (attachments.NamesSerial(memdev.serial)) continue;
    const ObservedHostRegion* region = FindHostRegion(host, memdev.serial);
    report.Clear();
    report.set_serial(memdev.serial);
    report.set_state(FoundState(region));
    report.mutable_segment()->set_serial(memdev.serial);
    FillFrom(&memdev, region, *report.mutable_segment());
    tell(report);
  }
}

void NewsIn(v1::SegmentReport& report, std::string& bytes) {
  const uint32_t opens = report.opens();
  report.set_opens(opens != 0 ? 1 : 0);
  report.SerializeToString(&bytes);
  report.set_opens(opens);
}

v1::SegmentError ErrorOf(const absl::Status& status) {
  v1::SegmentError error;
  std::string reason = ReasonOf(status);
  if (reason.empty()) reason = absl::StatusCodeToString(status.code());
  error.set_reason(reason);
  error.set_message(std::string(status.message()));
  error.set_permanent(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status));
  return error;
}

}  // namespace cxlpool::agent
