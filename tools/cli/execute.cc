#include "tools/cli/execute.h"

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "tools/cli/print.h"
#include "tools/cli/region_follower.h"
#include "tools/cli/region_wait.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/render/json.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/regions.h"
#include "tools/cli/render/topology.h"
#include "tools/cli/render/words.h"
#include "tools/cli/sizes.h"

namespace cxlpool::cli {
namespace {

constexpr uint32_t kPageSize = 1000;
constexpr int kMaxPages = 100'000;

template <typename Request>
void FillRequestId(Request& request) {
  if constexpr (requires { request.set_request_id(std::string()); }) {
    if (request.request_id().empty()) request.set_request_id(FormatUuid(RandomUuid()));
  }
}

uint64_t AttachmentGeneration(const v1::Region& region, const std::string& host) {
  for (const v1::Attachment& attachment : region.attachments()) {
    if (attachment.host() == host) return attachment.generation();
  }
  return 0;
}

std::string Gone(const v1::Region& region) {
  return absl::StrCat(ShortName(region.name()), " is gone: ", FormatSize(region.size_bytes()),
                      " scrubbed and free\n");
}

class Executor {
 public:
  Executor(Connection& connection, Printer& printer) : connection_(connection), printer_(printer) {}

  absl::Status operator()(AllocateRegion& command);
  absl::Status operator()(ListRegions& command);
  absl::Status operator()(ShowRegion& command);
  absl::Status operator()(AttachRegion& command);
  absl::Status operator()(DetachRegion& command);
  absl::Status operator()(ReleaseRegion& command);
  absl::Status operator()(WatchRegions& command);
  absl::Status operator()(ListHosts& command);
  absl::Status operator()(EnrolHost& command);
  absl::Status operator()(RetireHost& command);
  absl::Status operator()(FenceHost& command);
  absl::Status operator()(ListDevices& command);
  absl::Status operator()(ShowCapacity& command);
  absl::Status operator()(ShowTopology& command);

 private:
  // All pages.
  absl::StatusOr<v1::ListRegionsResponse> AllRegions(v1::ListRegionsRequest request);

  // `region` at once, or as it is when the goal is reached.
  absl::StatusOr<v1::Region> Settle(const WaitOptions& wait, const WaitGoal& goal,
                                    const v1::Region& region, uint64_t revision);

  absl::Status PrintRegion(const v1::Region& region, bool dry_run = false);
  absl::Status PrintHost(const absl::StatusOr<v1::Host>& host);

  Connection& connection_;
  Printer& printer_;
};

absl::StatusOr<v1::ListRegionsResponse> Executor::AllRegions(v1::ListRegionsRequest request) {
  request.set_page_size(kPageSize);
  v1::ListRegionsResponse all;
  for (int page = 0; page < kMaxPages; ++page) {
    auto response = connection_.Call(&ManagerStub::ListRegions, request);
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

absl::StatusOr<v1::Region> Executor::Settle(const WaitOptions& wait, const WaitGoal& goal,
                                            const v1::Region& region, uint64_t revision) {
  if (!wait.wait) return region;
  return WaitForRegion(connection_, goal, region, revision, wait.limit, [&](const v1::Region& now) {
    if (!printer_.progress) return;
    printer_.err << "cxlpool: " << Printable(DescribeProgress(goal, now)) << std::endl;
  });
}

absl::Status Executor::PrintRegion(const v1::Region& region, bool dry_run) {
  return Print(
      printer_, region,
      absl::StrCat(dry_run ? "Dry run: nothing is changed.\n" : "", RegionDetails(region)));
}

absl::Status Executor::PrintHost(const absl::StatusOr<v1::Host>& host) {
  if (!host.ok()) return host.status();
  v1::ListHostsResponse one;
  *one.add_hosts() = *host;
  return Print(printer_, *host, HostTable(one));
}

absl::Status Executor::operator()(AllocateRegion& command) {
  const auto response = connection_.Call(&ManagerStub::AllocateRegion, command.request);
  if (!response.ok()) return response.status();
  const std::string& host = command.request.host();
  const WaitGoal goal{.kind = host.empty() ? WaitGoal::Kind::kAllocated : WaitGoal::Kind::kOnline,
                      .host = host,
                      .attachment_generation = AttachmentGeneration(response->region(), host)};
  const auto region = Settle(command.wait, goal, response->region(), response->revision());
  if (!region.ok()) return region.status();
  return PrintRegion(*region, command.request.validate_only());
}

absl::Status Executor::operator()(ListRegions& command) {
  const auto regions = AllRegions(command.request);
  if (!regions.ok()) return regions.status();
  return Print(printer_, *regions, RegionTable(*regions));
}

absl::Status Executor::operator()(ShowRegion& command) {
  const auto region = connection_.Call(&ManagerStub::GetRegion, command.request);
  if (!region.ok()) return region.status();
  return PrintRegion(*region);
}

absl::Status Executor::operator()(AttachRegion& command) {
  const auto response = connection_.Call(&ManagerStub::AttachRegion, command.request);
  if (!response.ok()) return response.status();
  const std::string& host = command.request.host();
  const WaitGoal goal{.kind = WaitGoal::Kind::kOnline,
                      .host = host,
                      .attachment_generation = AttachmentGeneration(response->region(), host)};
  const auto region = Settle(command.wait, goal, response->region(), response->revision());
  if (!region.ok()) return region.status();
  return PrintRegion(*region, command.request.validate_only());
}

absl::Status Executor::operator()(DetachRegion& command) {
  const auto response = connection_.Call(&ManagerStub::DetachRegion, command.request);
  if (!response.ok()) return response.status();
  const std::string& host = command.request.host();
  const WaitGoal goal{.kind = WaitGoal::Kind::kDetached,
                      .host = host,
                      .attachment_generation = AttachmentGeneration(response->region(), host)};
  const auto region = Settle(command.wait, goal, response->region(), response->revision());
  if (!region.ok()) return region.status();
  return PrintRegion(*region);
}

absl::Status Executor::operator()(ReleaseRegion& command) {
  const auto response = connection_.Call(&ManagerStub::ReleaseRegion, command.request);
  if (!response.ok()) return response.status();
  const WaitGoal goal{.kind = WaitGoal::Kind::kGone, .host = "", .attachment_generation = 0};
  const auto region = Settle(command.wait, goal, response->region(), response->revision());
  if (!region.ok()) return region.status();
  return Print(printer_, *region, command.wait.wait ? Gone(*region) : RegionDetails(*region));
}

absl::Status Executor::operator()(WatchRegions& command) {
  RegionFollower follower(connection_, {.name = command.request.name(),
                                        .start_revision = command.request.start_revision(),
                                        .limit = command.limit,
                                        .patience = connection_.timeout()});
  const bool json = printer_.format == OutputFormat::kJson;
  absl::Status written = json ? absl::OkStatus() : Write(printer_, WatchHeader());
  if (!written.ok()) return written;
  const auto end = follower.Follow([&](const v1::WatchRegionsResponse& event) {
    absl::StatusOr<std::string> line =
        json ? ToJson(event, JsonLayout::kOneLine) : WatchLine(event);
    written = line.ok() ? Write(printer_, *line) : line.status();
    return written.ok();
  });
  return end.ok() ? written : end.status();
}

absl::Status Executor::operator()(ListHosts&) {
  const auto hosts = connection_.Call(&ManagerStub::ListHosts, v1::ListHostsRequest());
  if (!hosts.ok()) return hosts.status();
  return Print(printer_, *hosts, HostTable(*hosts));
}

absl::Status Executor::operator()(EnrolHost& command) {
  return PrintHost(connection_.Call(&ManagerStub::EnrolHost, command.request));
}

absl::Status Executor::operator()(RetireHost& command) {
  return PrintHost(connection_.Call(&ManagerStub::RetireHost, command.request));
}

absl::Status Executor::operator()(FenceHost& command) {
  return PrintHost(connection_.Call(&ManagerStub::FenceHost, command.request));
}

absl::Status Executor::operator()(ListDevices&) {
  const auto devices = connection_.Call(&ManagerStub::ListDevices, v1::ListDevicesRequest());
  if (!devices.ok()) return devices.status();
  return Print(printer_, *devices, DeviceTable(*devices));
}

absl::Status Executor::operator()(ShowCapacity&) {
  const auto capacity = connection_.Call(&ManagerStub::GetCapacity, v1::GetCapacityRequest());
  if (!capacity.ok()) return capacity.status();
  return Print(printer_, *capacity, CapacityTable(*capacity));
}

absl::Status Executor::operator()(ShowTopology&) {
  const auto topology = connection_.Call(&ManagerStub::GetTopology, v1::GetTopologyRequest());
  if (!topology.ok()) return topology.status();
  if (printer_.format == OutputFormat::kJson) return Print(printer_, *topology, "");
  const auto regions = AllRegions(v1::ListRegionsRequest());
  if (!regions.ok()) return regions.status();
  return Write(printer_, TopologyTree(*topology, *regions));
}

}  // namespace

absl::Status Execute(PoolCommand command, Connection& connection, Printer& printer) {
  std::visit(
      [](auto& chosen) {
        if constexpr (requires { chosen.request; }) FillRequestId(chosen.request);
      },
      command);
  return std::visit(Executor(connection, printer), command);
}

}  // namespace cxlpool::cli
