#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/byte_size.h"
#include "proto/support/refusal.h"
#include "tools/cli/print.h"
#include "tools/cli/region_follower.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/regions.h"
#include "tools/cli/render/words.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

constexpr uint32_t kPageSize = 1000;
constexpr int kMaxPages = 100'000;
constexpr char kDryRun[] = "Dry run: nothing is changed.\n";

uint64_t AttachmentGeneration(const v1::Region& region, const std::string& host) {
  for (const v1::Attachment& attachment : region.attachments()) {
    if (attachment.host() == host) return attachment.generation();
  }
  return 0;
}

WaitGoal GoalOn(WaitGoal::Kind kind, const std::string& host, const v1::Region& region) {
  return {.kind = kind,
          .host = host,
          .attachment_generation = AttachmentGeneration(region, host),
          .size_bytes = 0};
}
WaitGoal GoalOf(WaitGoal::Kind kind) {
  return {.kind = kind, .host = "", .attachment_generation = 0, .size_bytes = 0};
}

absl::Status PrintRegion(Printer& printer, const v1::Region& region, bool dry_run = false) {
  return Print(printer, region, absl::StrCat(dry_run ? kDryRun : "", RegionDetails(region)));
}

// Calls, waits where asked to, and prints the Region. `goal(region)`: what to wait for.
template <typename Command, typename Request, typename Response, typename Goal>
absl::Status Change(Command& command, Connection& connection, Printer& printer,
                    absl::StatusOr<Response> (ManagerStub::*method)(const Request&, absl::Duration),
                    Goal goal) {
  const auto response = connection.Call(method, command.request);
  if (!response.ok()) return response.status();
  const v1::Region& now = response->region();
  auto region = Settle(connection, printer, command.wait, goal(now), now, response->revision());
  if (!region.ok()) return region.status();
  bool dry_run = false;
  if constexpr (requires { command.request.validate_only(); }) {
    dry_run = command.request.validate_only();
  }
  return PrintRegion(printer, *region, dry_run);
}

// The size once the last Extents have come or gone.
uint64_t SizeToCome(const v1::Region& region, uint64_t asked) {
  if (!region.resizing() || asked <= region.size_bytes()) return region.size_bytes();
  uint64_t all = 0;
  for (const v1::Extent& extent : region.extents()) all += extent.length_bytes();
  return all;
}

}  // namespace

absl::StatusOr<v1::ListRegionsResponse> AllRegions(Connection& connection,
                                                   v1::ListRegionsRequest request) {
  request.set_page_size(kPageSize);
  v1::ListRegionsResponse all;
  for (int page = 0; page < kMaxPages; ++page) {
    auto response = connection.Call(&ManagerStub::ListRegions, request);
    if (!response.ok()) return response.status();
    // Watching from the first page's revision misses nothing.
    if (page == 0) all.set_revision(response->revision());
    all.mutable_regions()->MergeFrom(response->regions());
    if (response->next_page_token().empty()) return all;
    request.set_page_token(response->next_page_token());
  }
  return absl::InternalError(
      absl::StrCat("the manager's list did not end in ", kMaxPages, " pages"));
}

absl::StatusOr<v1::Region> Settle(Connection& connection, Printer& printer, const WaitOptions& wait,
                                  const WaitGoal& goal, const v1::Region& region,
                                  uint64_t revision) {
  if (!wait.wait) return region;
  return WaitForRegion(connection, goal, region, revision, wait.limit, [&](const v1::Region& now) {
    if (!printer.progress) return;
    printer.err << "cxlpool: " << Printable(DescribeProgress(goal, now)) << std::endl;
  });
}

std::string Gone(const v1::Region& region) {
  // Only the manager knows what became of the bytes.
  const std::string& end = region.state_reason();
  return absl::StrCat(ShortName(region.name()), " is gone", end.empty() ? "" : ": ", Printable(end),
                      "\n");
}

// Warns about the zone before the memory is used: it would be too late when it is wanted back.
void SayOfZone(v1::MemoryZone zone, Printer& printer) {
  if (zone != v1::KERNEL) return;
  printer.err << "cxlpool: the host's kernel may put memory of its own there: what it keeps can "
                 "not be released before that host is rebooted or fenced"
              << std::endl;
}

absl::Status Run(AllocateRegion& command, Connection& connection, Printer& printer) {
  SayOfZone(command.request.zone(), printer);
  if (command.request.validate_only()) {
    const auto response = connection.Call(&ManagerStub::AllocateRegion, command.request);
    if (!response.ok()) return response.status();
    return Print(
        printer, *response,
        absl::StrCat(kDryRun, RegionDetails(response->region()), PlanText(response->plan())));
  }
  const std::string& host = command.request.host();
  return Change(command, connection, printer, &ManagerStub::AllocateRegion,
                [&](const v1::Region& region) {
                  return host.empty() ? GoalOf(WaitGoal::Kind::kAllocated)
                                      : GoalOn(WaitGoal::Kind::kOnline, host, region);
                });
}

absl::Status Run(ListRegions& command, Connection& connection, Printer& printer) {
  const auto regions = AllRegions(connection, command.request);
  if (!regions.ok()) return regions.status();
  return PrintTable(printer, *regions, RegionTable(*regions));
}

absl::Status PrintAnswer(Printer& printer, const v1::Region& region) {
  return PrintRegion(printer, region);
}

absl::Status PrintAnswer(Printer& printer, const v1::RenameRegionResponse& renamed) {
  return PrintRegion(printer, renamed.region());
}

absl::Status PrintAnswer(Printer& printer, const v1::RenewRegionResponse& renewed) {
  return PrintRegion(printer, renewed.region());
}

absl::Status PrintAnswer(Printer& printer, const v1::Capacity& capacity) {
  return PrintTable(printer, capacity, CapacityTable(capacity));
}

absl::Status PrintAnswer(Printer& printer, const v1::ListRegionHoldersResponse& holders) {
  return PrintTable(printer, holders, HolderTable(holders));
}

v1::ListRegionsRequest RegionsOn(const v1::Device& device) {
  v1::ListRegionsRequest request;
  request.set_filter(absl::StrCat("device = ", ShortName(device.name())));
  return request;
}

absl::Status Run(AttachRegion& command, Connection& connection, Printer& printer) {
  SayOfZone(command.request.zone(), printer);
  return Change(command, connection, printer, &ManagerStub::AttachRegion,
                [&](const v1::Region& region) {
                  return GoalOn(WaitGoal::Kind::kOnline, command.request.host(), region);
                });
}

absl::Status Run(DetachRegion& command, Connection& connection, Printer& printer) {
  const std::string& host = command.request.host();
  const auto response = connection.Send(command.request);
  if (!response.ok()) return response.status();
  const v1::Region& now = response->region();
  const bool attached =
      std::any_of(now.attachments().begin(), now.attachments().end(),
                  [&](const v1::Attachment& attachment) { return attachment.host() == host; });
  // OK for a script that wants it gone from there; but nothing was done.
  if (!attached && printer.format == OutputFormat::kTable) {
    return Write(printer, absl::StrCat(ShortName(now.name()), " is not attached to ",
                                       ShortName(host), ": nothing was changed\n"));
  }
  const auto region =
      Settle(connection, printer, command.wait, GoalOn(WaitGoal::Kind::kDetached, host, now), now,
             response->revision());
  if (!region.ok()) return region.status();
  return PrintRegion(printer, *region);
}

// Whether the manager would refuse the release. That hosts have to be fenced is no refusal where
// they would be.
absl::Status WouldBeReleased(v1::ReleaseRegionRequest request, Connection& connection) {
  request.set_validate_only(true);
  const absl::Status status = connection.Send(request).status();
  return request.fence() && ReasonOf(status) == "FENCE_REQUIRED" ? absl::OkStatus() : status;
}

absl::Status Run(ReleaseRegion& command, Connection& connection, Printer& printer) {
  const auto decision = Decide(command.consent, command.request, connection, printer);
  if (!decision.ok()) return decision.status();
  if (*decision == Decision::kDryRun) return WouldBeReleased(command.request, connection);
  const auto response = connection.Call(&ManagerStub::ReleaseRegion, command.request);
  if (!response.ok()) return response.status();
  const auto region = Settle(connection, printer, command.wait, GoalOf(WaitGoal::Kind::kGone),
                             response->region(), response->revision());
  if (!region.ok()) return region.status();
  return Print(printer, *region, command.wait.wait ? Gone(*region) : RegionDetails(*region));
}

absl::Status Run(ResizeRegion& command, Connection& connection, Printer& printer) {
  return Change(command, connection, printer, &ManagerStub::ResizeRegion,
                [&](const v1::Region& region) {
                  WaitGoal goal = GoalOf(WaitGoal::Kind::kResized);
                  goal.size_bytes = SizeToCome(region, command.request.size_bytes());
                  return goal;
                });
}

// Prints events until `command.limit` is over, the output is closed, or the manager stays away.
//
// The table shows each Region's state once, however often its record changes under it; JSON shows
// every event. Changes that were missed (the manager no longer knows them) are reported on stderr
// and, in the table, by a line GAP; where they were asked for by --from-revision that is an error.
absl::Status Run(WatchRegions& command, Connection& connection, Printer& printer) {
  const std::string& name = command.request.name();
  if (!name.empty() && command.request.start_revision() == 0) {
    // One that is not there would be waited for in silence.
    v1::GetRegionRequest which;
    which.set_name(name);
    const auto there = connection.Send(which);
    if (!there.ok()) return there.status();
  }
  RegionFollower follower(connection, {.name = name,
                                       .start_revision = command.request.start_revision(),
                                       .limit = command.limit,
                                       .patience = connection.fail_fast() ? absl::ZeroDuration()
                                                                          : connection.timeout()});
  const bool programs = printer.for_programs();
  printer.one_of_many = true;
  absl::Status written =
      programs || !printer.headers ? absl::OkStatus() : Write(printer, WatchHeader());
  if (!written.ok()) return written;
  follower.ListenForGaps([&](const absl::Status& why) {
    const auto refusal = RefusalOf(why);
    printer.err << "cxlpool: changes were missed: "
                << Printable(refusal.has_value() ? refusal->message : why.message())
                << "; what is different now follows" << std::endl;
    if (!programs) written.Update(Write(printer, WatchGapLine(absl::Now())));
  });
  std::map<std::string, std::string> shown;  // By tag: the last line, without time and revision.
  const auto end = follower.Follow([&](const v1::WatchRegionsResponse& event) {
    if (programs) {
      written = Print(printer, event, "");
      return written.ok();
    }
    const std::string text = WatchText(event);
    std::string& before = shown[event.region().tag()];
    if (before == text) return true;
    before = text;
    written = Write(printer, WatchLine(event, absl::Now()));
    // A watch may go on for weeks, and most Regions do not live so long.
    if (event.event() == v1::WatchRegionsResponse::REMOVED) shown.erase(event.region().tag());
    return written.ok();
  });
  return end.ok() ? written : end.status();
}

}  // namespace cxlpool::cli
