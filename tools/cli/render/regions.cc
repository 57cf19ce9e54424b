#include "tools/cli/render/regions.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/byte_size.h"
#include "proto/support/text.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/table.h"
#include "tools/cli/render/words.h"

namespace cxlpool::cli {
namespace {

using Event = v1::WatchRegionsResponse;

// Each device once, in the order of the Extents.
std::string Devices(const v1::Region& region) {
  std::vector<std::string> devices;
  for (const v1::Extent& extent : region.extents()) {
    std::string device = ShortName(extent.device());
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(std::move(device));
    }
  }
  return absl::StrJoin(devices, ", ");
}

std::string StateText(const v1::Region& region) {
  return absl::StrCat(v1::Region::State_Name(region.state()), region.resizing() ? " resizing" : "");
}

std::string InterleaveText(const v1::Region& region) {
  if (region.interleave_ways() <= 1) return "";
  return absl::StrCat(region.interleave_ways(), " ways, ",
                      FormatByteSize(region.interleave_granularity_bytes()), " a stripe");
}

// Short names, or "-".
std::string Names(const google::protobuf::RepeatedPtrField<std::string>& names) {
  return absl::StrJoin(names, ", ", [](std::string* out, const std::string& name) {
    absl::StrAppend(out, ShortName(name));
  });
}

// A line for each reason, so that no table cell has to hold a sentence.
std::string Reasons(const v1::Region& region) {
  const std::string name = ShortName(region.name());
  std::string out;
  if (!region.state_reason().empty()) {
    absl::StrAppend(&out, name, " is ", v1::Region::State_Name(region.state()), ": ",
                    Printable(region.state_reason()), "\n");
  }
  for (const v1::Attachment& attachment : region.attachments()) {
    if (attachment.state_reason().empty()) continue;
    absl::StrAppend(&out, name, " on ", ShortName(attachment.host()), " is ",
                    v1::Attachment::State_Name(attachment.state()), ": ",
                    Printable(attachment.state_reason()), "\n");
  }
  return out;
}

std::string SizeText(const v1::Region& region) {
  const std::string size = FormatByteSize(region.size_bytes());
  if (region.requested_bytes() == 0 || region.requested_bytes() == region.size_bytes()) return size;
  const std::string requested = FormatByteSize(region.requested_bytes());
  // Here what was asked for is given to the byte.
  return absl::StrCat(
      size, " (", requested[0] == '~' ? absl::StrCat(region.requested_bytes(), " B") : requested,
      " requested)");
}

// The process that the Region lives as long as.
std::string OwnerText(const v1::Region& region) {
  if (!region.has_owner()) return "";
  return absl::StrCat("uid ", region.owner().uid(), " pid ", region.owner().pid());
}

// The user who made the Region.
std::string MakerText(const v1::Region& region) {
  if (!region.has_maker()) return "";
  return absl::StrCat("uid ", region.maker().uid(), " on ", ShortName(region.maker().host()));
}

// Who else may open it, as --open-to takes it.
std::string OpenToText(const v1::OpenTo& open_to) {
  std::vector<std::string> whom;
  for (const uint32_t uid : open_to.uids()) whom.push_back(absl::StrCat("uid=", uid));
  for (const uint32_t gid : open_to.gids()) whom.push_back(absl::StrCat("gid=", gid));
  if (open_to.everybody()) whom.emplace_back("everybody");
  return absl::StrJoin(whom, ",");
}

std::string ExtentTable(const v1::Region& region) {
  Table table(
      {{"EXTENT", Align::kRight}, {"DEVICE"}, {"DPA", Align::kRight}, {"LENGTH", Align::kRight}});
  int index = 0;
  for (const v1::Extent& extent : region.extents()) {
    table.AddRow({absl::StrCat(index++), ShortName(extent.device()), Hex(extent.dpa_bytes()),
                  FormatByteSize(extent.length_bytes())});
  }
  std::string out = table.ToString(2);
  for (int i = 0; i < region.extents_size(); ++i) {
    const std::string& bad = region.extents(i).bad_reason();
    if (!bad.empty()) absl::StrAppend(&out, "  extent ", i, " is bad: ", Printable(bad), "\n");
  }
  return out;
}

std::string SegmentTable(const v1::Attachment& attachment) {
  Table table({{"EXTENT", Align::kRight},
               {"SLOT", Align::kRight},
               {"BRIDGE"},
               {"SERIAL"},
               {"MEMDEV"},
               {"HOST REGION"},
               {"DAX"},
               {"NUMA", Align::kRight},
               {"HPA", Align::kRight},
               {"BLOCKS", Align::kRight}});
  for (const v1::Segment& segment : attachment.segments()) {
    table.AddRow({absl::StrCat(segment.extent_index()), absl::StrCat(segment.slot()),
                  segment.host_bridge(), segment.serial() == 0 ? "" : Hex(segment.serial()),
                  segment.memdev(), segment.host_region(), segment.dax_device(),
                  segment.has_numa_node() ? absl::StrCat(segment.numa_node()) : "",
                  segment.hpa_bytes() == 0 ? "" : Hex(segment.hpa_bytes()),
                  segment.total_blocks() == 0
                      ? ""
                      : absl::StrCat(segment.online_blocks(), "/", segment.total_blocks())});
  }
  return table.ToString(2);
}

std::string AttachmentDetails(const v1::Attachment& attachment) {
  std::string out = absl::StrCat("\nAttachment: ", Printable(AttachmentText(attachment)));
  const std::string coherence = Word(attachment.coherence());
  if (!coherence.empty()) absl::StrAppend(&out, ", coherence by ", coherence);
  const std::string enforcer = Word(attachment.enforced_by());
  if (!enforcer.empty()) absl::StrAppend(&out, ", enforced by ", enforcer);
  if (attachment.generation() != 0) {
    absl::StrAppend(&out, ", generation ", attachment.generation());
  }
  const std::string since = TimeText(attachment.has_state_time(), attachment.state_time());
  if (!since.empty()) absl::StrAppend(&out, ", since ", since);
  absl::StrAppend(&out, "\n");
  if (!attachment.state_reason().empty()) {
    absl::StrAppend(&out, "  ", Printable(attachment.state_reason()), "\n");
  }
  if (!attachment.segments().empty()) absl::StrAppend(&out, SegmentTable(attachment));
  return out;
}

}  // namespace

std::string RegionTable(const v1::ListRegionsResponse& regions) {
  Table table({{"NAME"},
               {"SIZE", Align::kRight},
               {"STATE"},
               {"SHARING"},
               {"TENANT"},
               {"OWNER"},
               {"DEVICES"},
               {"ATTACHMENTS"}});
  std::string reasons;
  for (const v1::Region& region : regions.regions()) {
    table.AddRow({ShortName(region.name()), FormatByteSize(region.size_bytes()), StateText(region),
                  Word(region.sharing()), ShortName(region.tenant()), OwnerText(region),
                  Devices(region), AttachmentsText(region)});
    absl::StrAppend(&reasons, Reasons(region));
  }
  return absl::StrCat(table.ToString(), reasons.empty() ? "" : "\n", reasons);
}

// Sheet leaves out lines without a value: those that do not apply, or that a dry run does not have.
std::string RegionDetails(const v1::Region& region) {
  Sheet sheet;
  sheet.Add("Region", region.name().empty() ? "(named when it is made)" : ShortName(region.name()));
  sheet.Add("State", StateText(region));
  sheet.Add("Since", TimeText(region.has_state_time(), region.state_time()));
  sheet.Add("Reason", region.state_reason());
  sheet.Add("Size", SizeText(region));
  sheet.Add("Sharing", Word(region.sharing()));
  sheet.Add("Policy", Word(region.policy()));
  sheet.Add("Interleave", InterleaveText(region));
  sheet.Add("Tenant", ShortName(region.tenant()));
  sheet.Add("Owner", OwnerText(region));
  sheet.Add("Made by", MakerText(region));
  sheet.Add("Open to", OpenToText(region.open_to()));
  sheet.Add("Isolation", region.isolation() == v1::FABRIC ? "by fabric, or refused" : "");
  sheet.Add("Tag", region.tag());
  sheet.Add("Generation", region.generation() == 0 ? "" : absl::StrCat(region.generation()));
  sheet.Add("Created", TimeText(region.has_create_time(), region.create_time()));
  sheet.Add("Expires", TimeText(region.has_expire_time(), region.expire_time()));
  sheet.Add("Etag", region.etag());
  sheet.Add("Revision", region.revision() == 0 ? "" : absl::StrCat(region.revision()));
  std::string out = sheet.ToString();
  if (!region.extents().empty()) absl::StrAppend(&out, "\n", ExtentTable(region));
  for (const v1::Attachment& attachment : region.attachments()) {
    absl::StrAppend(&out, AttachmentDetails(attachment));
  }
  return out;
}

std::string PlanText(const v1::PlacementPlan& plan) {
  const std::string figures = FiguresText(plan.latency_ns(), plan.bandwidth_mib_per_second());
  std::string out;
  if (!figures.empty()) out = absl::StrCat("\nPaths from the host: ", figures, "\n");
  if (plan.bridges().empty()) return out;
  Table table({{"BRIDGE"}, {"DECODERS", Align::kRight}, {"LIES ON"}, {"ITS RELEASE UNBLOCKS"}});
  for (const v1::PlannedBridge& bridge : plan.bridges()) {
    table.AddRow({bridge.host_bridge(), absl::StrCat(bridge.stack_depth()), Names(bridge.above()),
                  Names(bridge.unblocks())});
  }
  return absl::StrCat(out, "\n", table.ToString(2));
}

// `asked`: the names of the requests, in order, for those that were refused and have no Region.
std::string BatchTable(const google::protobuf::RepeatedPtrField<v1::BatchResult>& results,
                       const std::vector<std::string>& asked) {
  Table table({{"#", Align::kRight},
               {"NAME"},
               {"SIZE", Align::kRight},
               {"STATE"},
               {"DEVICES"},
               {"RESULT"}});
  std::string refusals;
  size_t number = 0;
  for (const v1::BatchResult& result : results) {
    const std::string name = number < asked.size() ? ShortName(asked[number]) : "";
    ++number;
    const v1::Region& region = result.region();
    if (result.code() == 0) {
      table.AddRow({absl::StrCat(number), ShortName(region.name()),
                    FormatByteSize(region.size_bytes()), StateText(region), Devices(region), "OK"});
      continue;
    }
    table.AddRow({absl::StrCat(number), name, "", "", "", result.error().reason()});
    absl::StrAppend(&refusals, number, ": ", Printable(result.message()), "\n");
  }
  return absl::StrCat(table.ToString(), refusals.empty() ? "" : "\n", refusals);
}

// Below the table: how many holders are not listed, and of which hosts nothing is known.
std::string HolderTable(const v1::ListRegionHoldersResponse& response) {
  Table table({{"HOST"},
               {"PID", Align::kRight},
               {"PROGRAM"},
               {"USER", Align::kRight},
               {"OPEN", Align::kRight},
               {"MAPPED", Align::kRight},
               {"LIVE", Align::kRight},
               {"SLACK", Align::kRight},
               {"PINS", Align::kRight}});
  std::string notes;
  for (const v1::HostHolders& of : response.hosts()) {
    const std::string host = ShortName(of.host());
    for (const v1::RegionHolder& holder : of.holders()) {
      // For a process that does not count, nothing is shown: 0 would be a claim.
      const bool counts_usage = holder.mapped_bytes() != 0 || holder.live_bytes() != 0 ||
                                holder.slack_bytes() != 0 || holder.pins() != 0;
      const auto size = [&](uint64_t bytes) { return counts_usage ? FormatByteSize(bytes) : ""; };
      table.AddRow({host, absl::StrCat(holder.pid()), holder.program(), absl::StrCat(holder.uid()),
                    FormatByteSize(holder.open_bytes()), size(holder.mapped_bytes()),
                    size(holder.live_bytes()), size(holder.slack_bytes()),
                    counts_usage ? absl::StrCat(holder.pins()) : ""});
    }
    if (of.more() != 0) absl::StrAppend(&notes, of.more(), " more on ", Printable(host), "\n");
    if (!of.has_report_time()) {
      absl::StrAppend(&notes, Printable(host),
                      ": not known, since its agent does not report it: it is away, has only just "
                      "connected, or is of an older release (`cxlpool host show ",
                      Printable(host), "`)\n");
    }
  }
  return absl::StrCat(table.ToString(), notes.empty() ? "" : "\n", notes);
}

// Lines come one by one, so the columns are wide enough for most rather than for all.
std::string WatchHeader() {
  return absl::StrFormat("%-20s  %-10s  %-8s  %-20s  %-18s  %10s  %s\n", "TIME", "REVISION",
                         "EVENT", "REGION", "STATE", "SIZE", "ATTACHMENTS");
}

std::string WatchText(const Event& event) {
  if (event.event() == Event::SYNCED) return "SYNCED\n";
  const v1::Region& region = event.region();
  const std::string attachments = AttachmentsText(region);
  return absl::StrFormat("%-8s  %-20s  %-18s  %10s  %s\n", Event::Event_Name(event.event()),
                         Printable(ShortName(region.name())), StateText(region),
                         FormatByteSize(region.size_bytes()),
                         attachments.empty() ? "-" : Printable(attachments));
}

std::string WatchLine(const Event& event, absl::Time now) {
  return absl::StrFormat("%s  %-10d  %s", UtcText(now), event.revision(), WatchText(event));
}

std::string WatchGapLine(absl::Time now) {
  return absl::StrFormat("%s  %-10s  GAP\n", UtcText(now), "-");
}

std::string CapacityTable(const v1::Capacity& capacity) {
  Table table({{"TOTAL", Align::kRight},
               {"FREE", Align::kRight},
               {"ALLOCATED", Align::kRight},
               {"SCRUBBING", Align::kRight},
               {"QUARANTINED", Align::kRight},
               {"LARGEST EXTENT", Align::kRight},
               {"REGIONS", Align::kRight},
               {"REVISION", Align::kRight}});
  table.AddRow(
      {FormatByteSize(capacity.total_bytes()), FormatByteSize(capacity.free_bytes()),
       FormatByteSize(capacity.allocated_bytes()), FormatByteSize(capacity.scrubbing_bytes()),
       FormatByteSize(capacity.quarantined_bytes()), FormatByteSize(capacity.largest_free_bytes()),
       absl::StrCat(capacity.regions()), absl::StrCat(capacity.revision())});
  return table.ToString();
}

}  // namespace cxlpool::cli
