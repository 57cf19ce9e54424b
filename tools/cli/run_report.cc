#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tools/cli/print.h"
#include "tools/cli/render/pool_use.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

// One list after the other: what changes between two may be in one and not in the other.
absl::Status ReadFacts(Connection& connection, PoolFacts& facts) {
  auto devices = AllPages(connection, v1::ListDevicesRequest());
  if (!devices.ok()) return devices.status();
  auto hosts = AllPages(connection, v1::ListHostsRequest());
  if (!hosts.ok()) return hosts.status();
  auto regions = AllRegions(connection, v1::ListRegionsRequest());
  if (!regions.ok()) return regions.status();
  auto tenants = AllPages(connection, v1::ListTenantsRequest());
  if (!tenants.ok()) return tenants.status();
  facts.devices = *std::move(devices);
  facts.hosts = *std::move(hosts);
  facts.regions = *std::move(regions);
  facts.tenants = *std::move(tenants);
  return absl::OkStatus();
}

// Of the oldest Regions only: the API has a call for each Region. One that has gone meanwhile is
// left out, and a manager of a release without the call says of none. Any other error is the
// report's: without them it would say that it has found nothing.
absl::Status AskHolders(Connection& connection, Printer& printer, PoolFacts& facts) {
  const std::vector<const v1::Region*> asked = OldestRegions(facts.regions, kAskedRegions);
  Progress progress(printer);
  for (size_t i = 0; i < asked.size(); ++i) {
    v1::ListRegionHoldersRequest request;
    request.set_name(asked[i]->name());
    auto holders = connection.Send(request);
    if (absl::IsUnimplemented(holders.status())) break;
    if (holders.ok()) {
      facts.holders[request.name()] = *std::move(holders);
    } else if (!absl::IsNotFound(holders.status())) {
      return holders.status();
    }
    if (i + 1 < asked.size()) {
      progress.Tell(absl::StrCat("asked who has ", i + 1, " of ", asked.size(), " Regions open"));
    }
  }
  return absl::OkStatus();
}

absl::Status PrintSections(const std::vector<Section>& sections, size_t most, Printer& printer) {
  if (printer.for_programs()) return WriteJson(printer, SectionsJson(sections));
  return Write(printer, SectionsText(sections, most, printer.columns));
}

}  // namespace

absl::Status Run(ShowTop& command, Connection& connection, Printer& printer) {
  PoolFacts facts;
  if (absl::Status status = ReadFacts(connection, facts); !status.ok()) return status;
  return PrintSections(TopSections(facts), command.most, printer);
}

absl::Status Run(ShowReport&, Connection& connection, Printer& printer) {
  PoolFacts facts;
  if (absl::Status status = ReadFacts(connection, facts); !status.ok()) return status;
  auto topology = AllPages(connection, v1::GetTopologyRequest());
  if (!topology.ok()) return topology.status();
  facts.topology = *std::move(topology);
  if (absl::Status status = AskHolders(connection, printer, facts); !status.ok()) return status;
  return PrintSections(ReportSections(facts, absl::Now()), 0, printer);
}

}  // namespace cxlpool::cli
