#include "host-agent/service/reports.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::agent {
namespace {

// What is reported of the host region; null: nothing.
void FillFrom(const ObservedHostRegion* region, SegmentStatus& status) {
  static const ObservedHostRegion kNone;
  const ObservedHostRegion& seen = region != nullptr ? *region : kNone;
  // A DAX device has a target node as devdax, too, but its bytes are not that node's memory.
  const bool has_blocks = seen.dax_driver == DaxDriver::kKmem;
  status.host_region = seen.name;
  status.dax_device = seen.dax_device;
  status.hpa_bytes = seen.hpa_bytes;
  status.numa_node = has_blocks ? seen.numa_node : std::nullopt;
  status.online_blocks = has_blocks ? seen.online_blocks : 0;
  status.total_blocks = has_blocks ? seen.total_blocks : 0;
}

void FillFrom(const ObservedMemdev& memdev, SegmentStatus& status) {
  status.slot = memdev.slot;
  status.host_bridge = memdev.host_bridge;
  status.memdev = memdev.name;
}

// An offered segment, all but its key, its error and who has it open.
void FillFrom(const Segment& segment, const HostObservation& host, SegmentStatus& status) {
  const DesiredSegment& desired = segment.desired;
  status.serial = desired.first_serial();
  status.others.clear();
  for (size_t i = 1; i < desired.targets.size(); ++i) {
    if (CXLPOOL_MUTANT("other-set-is-no-news")) break;
    status.others.push_back(desired.targets[i].serial);
  }
  status.state = SegmentStateOf(segment, host);
  status.extent_index = segment.extent_index;
  if (const ObservedMemdev* memdev = FindMemdev(host, status.serial)) {
    FillFrom(*memdev, status);
  } else {
    status.slot = desired.targets.front().slot;
    status.host_bridge = desired.host_bridge;
    status.memdev.clear();
  }
  FillFrom(FindHostRegion(host, status.serial), status);
}

void FillMessage(const SegmentStatus& status, v1::Segment& message) {
  message.set_extent_index(status.extent_index);
  message.set_slot(status.slot);
  message.set_host_bridge(status.host_bridge);
  message.set_serial(status.serial);
  message.set_memdev(status.memdev);
  message.set_host_region(status.host_region);
  message.set_dax_device(status.dax_device);
  if (status.numa_node.has_value()) message.set_numa_node(*status.numa_node);
  message.set_hpa_bytes(status.hpa_bytes);
  message.set_online_blocks(status.online_blocks);
  if (!CXLPOOL_MUTANT("blocks-are-not-reported")) message.set_total_blocks(status.total_blocks);
}

// For a memdev that no Offer names: how far up the ladder somebody brought it.
v1::SegmentState FoundState(const ObservedHostRegion* region) {
  if (region == nullptr || !region->committed) return v1::SEGMENT_PRESENT;
  if (region->dax_driver == DaxDriver::kDeviceDax) return v1::SEGMENT_ONLINE;
  const bool all_online = region->dax_driver == DaxDriver::kKmem && region->total_blocks > 0 &&
                          region->online_blocks == region->total_blocks;
  return all_online ? v1::SEGMENT_ONLINE : v1::SEGMENT_REGION;
}

// What a BLOCKS_BUSY carries besides its message.
void AddDetail(const std::string& name, const std::string& value, v1::SegmentError& error) {
  if (name == "cause") error.set_cause(value);
  if (name == "zone") error.set_zone(value);
  if (name == "pids") {
    for (const absl::string_view word : absl::StrSplit(value, ',', absl::SkipEmpty())) {
      uint32_t pid = 0;
      if (error.holder_pids_size() < static_cast<int>(kMaxReportedHolders) &&
          absl::SimpleAtoi(word, &pid)) {
        error.add_holder_pids(pid);
      }
    }
  }
  if (name == "starts") {
    for (const absl::string_view word : absl::StrSplit(value, ',', absl::SkipEmpty())) {
      uint64_t start = 0;
      if (error.holder_starts_size() < static_cast<int>(kMaxReportedHolders) &&
          absl::SimpleAtoi(word, &start)) {
        error.add_holder_starts(start);
      }
    }
  }
  if (name != "blocks") return;
  for (const absl::string_view block : absl::StrSplit(value, ',', absl::SkipEmpty())) {
    uint64_t index = 0;
    if (error.blocks_size() < kMaxReportedBlocks && absl::SimpleAtoi(block, &index)) {
      error.add_blocks(index);
    }
  }
}

}  // namespace

// An unfit host reports its bridges as well, beside the reason. reports_test fails until a new
// field is set here.
v1::HostInventory InventoryOf(const HostObservation& host, const absl::Status& prepared) {
  v1::HostInventory inventory;
  if (!prepared.ok()) {
    inventory.set_unfit_reason(CutText(prepared.message(), kMaxUnfitReason));
  }
  inventory.set_memory_block_bytes(host.memory_block_bytes);
  inventory.set_region_granule_bytes(host.region_granule_bytes);
  if (!CXLPOOL_MUTANT("spare-is-not-reported")) {
    inventory.set_page_struct_spare_bytes(host.page_struct_spare_bytes);
  }
  for (const ObservedBridge& seen : host.bridges) {
    v1::BridgeInventory& bridge = *inventory.add_bridges();
    bridge.set_name(seen.name);
    for (uint32_t slot : seen.slots) bridge.add_slots(slot);
    bridge.set_max_regions(seen.max_regions);
    bridge.set_depth_unknown(seen.depth_unknown);
    bridge.set_any_order(seen.any_order);
    bridge.set_live_regions(seen.live_regions);
    bridge.set_blocked(seen.blocked);
    if (!CXLPOOL_MUTANT("blocker-is-not-reported"))
      bridge.set_blocking_serial(seen.blocking_serial);
    bridge.set_window_bytes(seen.window_bytes);
    bridge.set_free_window_bytes(seen.free_window_bytes);
  }
  return inventory;
}

// Memdevs and host regions are not compared: segments report them.
bool InventoryChanged(const HostObservation& reported, const HostObservation& now) {
  const uint64_t before = reported.page_struct_spare_bytes;
  const uint64_t after = now.page_struct_spare_bytes;
  if ((before > after ? before - after : after - before) > before / 8) return true;
  return reported.memory_block_bytes != now.memory_block_bytes ||
         reported.region_granule_bytes != now.region_granule_bytes ||
         reported.bridges != now.bridges;
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

v1::Segment SegmentMessage(const Segment& segment, const HostObservation& host) {
  SegmentStatus status;
  FillFrom(segment, host, status);
  v1::Segment message;
  FillMessage(status, message);
  return message;
}

// A segment that has failed blocks a release only as long as something of the Region is still up.
v1::Attachment::State AttachmentStateOf(const Attachment& attachment, const HostObservation& host) {
  bool any_memdev = false;
  bool stopped = true;
  bool failed = false;
  for (const Segment& segment : attachment.segments) {
    const v1::SegmentState state = SegmentStateOf(segment, host);
    any_memdev |= state != v1::SEGMENT_ABSENT;
    stopped &= state == v1::SEGMENT_ABSENT || state == v1::SEGMENT_PRESENT;
    failed |= segment.error.has_value();
  }
  switch (attachment.offer.want()) {
    case v1::Offer::WANT_EJECTED:
      return v1::Attachment::EJECTING;
    case v1::Offer::WANT_OFFLINE:
      if (stopped) return v1::Attachment::OFFLINE;
      return failed ? v1::Attachment::RELEASE_BLOCKED : v1::Attachment::ONLINE;
    default:
      break;
  }
  if (UsableSegments(attachment, host) > 0) return v1::Attachment::ONLINE;
  return any_memdev ? v1::Attachment::BOUND : v1::Attachment::WANTED;
}

// `report` must copy what it keeps: `status` is filled anew for the next segment. A memdev that no
// Offer names is reported with an empty key, and the manager decides what becomes of it.
void ForEachStatus(const AttachmentTable& attachments, const OpensTable& opens,
                   const HostObservation& host,
                   absl::FunctionRef<void(const SegmentStatus& status, uint32_t opens)> report) {
  SegmentStatus status;  // One for all: its strings keep their room.
  for (const auto& [key, attachment] : attachments.all()) {
    status.key = key;
    for (const Segment& segment : attachment.segments) {
      FillFrom(segment, host, status);
      status.error.reset();
      if (segment.error.has_value()) status.error = SegmentStatus::Error{*segment.error};
      const uint32_t users = opens.CountOf(key, status.serial);
      status.is_open = users != 0;
      if (status.serial != 0) report(status, users);  // Orphans without a name are the host's own.
    }
  }
  for (const ObservedMemdev& memdev : host.memdevs) {
    if (attachments.NamesSerial(memdev.serial)) continue;
    const ObservedHostRegion* region = FindHostRegion(host, memdev.serial);
    SegmentStatus found;
    found.serial = memdev.serial;
    found.state = FoundState(region);
    FillFrom(memdev, found);
    FillFrom(region, found);
    report(found, 0);
  }
}

// reports_test fails until a new field is set here or in FillMessage.
void FillReport(const SegmentStatus& status, uint32_t opens, v1::SegmentReport& report) {
  report.set_region_tag(status.key.tag);
  report.set_attachment_generation(status.key.generation);
  report.set_serial(status.serial);
  report.set_state(status.state);
  FillMessage(status, *report.mutable_segment());
  if (status.error.has_value()) {
    *report.mutable_error() = status.error->message;
    report.mutable_error()->set_message(CutText(status.error->message.message(), kMaxErrorText));
  }
  if (!CXLPOOL_MUTANT("opens-are-not-reported")) report.set_opens(opens);
}

// The message, which is for people, has the first of those that are left out all the same.
void AddReport(const SegmentStatus& status, uint32_t opens,
               google::protobuf::RepeatedPtrField<v1::SegmentReport>* reports) {
  v1::SegmentReport& report = *reports->Add();
  FillReport(status, opens, report);
  if (!report.has_error() || CXLPOOL_MUTANT("each-holder-of-each-segment")) return;
  if (reports->size() <= kMaxDetailedReports) return;
  report.mutable_error()->clear_holder_pids();
  report.mutable_error()->clear_holder_starts();
  report.mutable_error()->clear_blocks();
}

// An error without a reason of its own gets the name of its status code as reason. The metadata of
// a refusal goes into separate fields (AddDetail).
v1::SegmentError ErrorOf(const absl::Status& status) {
  v1::SegmentError error;
  std::string reason = ReasonOf(status);
  if (reason.empty()) reason = absl::StatusCodeToString(status.code());
  error.set_reason(reason);
  error.set_message(std::string(status.message()));
  error.set_permanent(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status));
  if (const std::optional<Refusal> refusal = RefusalOf(status)) {
    for (const auto& [name, value] : refusal->metadata) AddDetail(name, value, error);
  }
  return error;
}

}  // namespace cxlpool::agent
