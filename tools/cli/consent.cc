#include "tools/cli/consent.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/byte_size.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "tools/cli/print.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/regions.h"
#include "tools/cli/render/words.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

// Also for each Region of a batch, one after the other.
absl::StatusOr<v1::Region> GetRegion(const std::string& name, Connection& connection) {
  v1::GetRegionRequest request;
  request.set_name(name);
  return connection.Send(request);
}

absl::StatusOr<v1::ListRegionsResponse> RegionsOnHost(const std::string& host,
                                                      Connection& connection) {
  v1::ListRegionsRequest request;
  request.set_host(host);
  return AllRegions(connection, request);
}

// Hosts that may still use the Region.
std::vector<std::string> HostsOf(const v1::Region& region) {
  std::vector<std::string> hosts;
  for (const v1::Attachment& attachment : region.attachments()) {
    if (attachment.state() != v1::Attachment::UNBOUND) hosts.push_back(attachment.host());
  }
  return hosts;
}

std::string ShortNames(const std::vector<std::string>& names) {
  return absl::StrJoin(names, ", ", [](std::string* out, const std::string& name) {
    absl::StrAppend(out, ShortName(name));
  });
}

std::string Text(const Along& along) {
  if (along.regions.regions().empty()) return along.what;
  return absl::StrCat(along.what, "\n", RegionTable(along.regions), "\n");
}

// What becomes of one Region. Adds it, and with `fence` all that its hosts have, to `along`.
absl::Status AddRelease(const v1::ReleaseRegionRequest& request, const v1::Region& region,
                        Connection& connection, Along& along) {
  const std::string name = ShortName(region.name());
  const std::vector<std::string> hosts = HostsOf(region);
  absl::StrAppend(&along.what, "Releasing ", name, " gives its ",
                  FormatByteSize(region.size_bytes()), " back: what is stored there is lost.\n");
  *along.regions.add_regions() = region;
  if (request.force()) {
    absl::StrAppend(&along.what,
                    "  By force: on your word that no host can reach these bytes any more.\n");
  }
  if (!hosts.empty() && !request.fence()) {
    absl::StrAppend(&along.what, "  It is detached first from ", ShortNames(hosts), ".\n");
  }
  if (hosts.empty() || !request.fence()) return absl::OkStatus();
  absl::StrAppend(&along.what, "  Fenced first, with all that they have: ", ShortNames(hosts),
                  ". What runs there with pool memory is destroyed.\n");
  std::set<std::string> listed = {region.name()};
  for (const std::string& host : hosts) {
    const auto there = RegionsOnHost(host, connection);
    if (!there.ok()) return there.status();
    for (const v1::Region& other : there->regions()) {
      if (listed.insert(other.name()).second) *along.regions.add_regions() = other;
    }
  }
  return absl::OkStatus();
}

// Whether the release takes the Region from hosts that may still use it: then a person is asked.
bool TakesHosts(const v1::ReleaseRegionRequest& request, const v1::Region& region) {
  return request.force() || (request.detach_all() && !HostsOf(region).empty());
}

}  // namespace

bool GoesBeyond(const v1::BatchReleaseRegionsRequest& request) {
  return std::any_of(request.requests().begin(), request.requests().end(),
                     [](const auto& one) { return GoesBeyond(one); });
}

// Lists what is attached now. What is attached between this and the fence is lost as well.
absl::StatusOr<Along> AlongOf(v1::FenceHostRequest& request, Connection& connection) {
  auto regions = RegionsOnHost(request.host(), connection);
  if (!regions.ok()) return regions.status();
  const std::string host = ShortName(request.host());
  Along along;
  along.what =
      absl::StrCat("Fencing ", host, " cuts it off from the fabric: its process or power ",
                   "ends. ", "Regions that are attached there now: ", regions->regions_size(),
                   regions->regions().empty() ? ".\n" : ". They lose it.\n");
  along.regions = *std::move(regions);
  return along;
}

// Only predicts that the manager will refuse; the call is made all the same if the person says yes.
absl::StatusOr<Along> AlongOf(v1::RetireHostRequest& request, Connection& connection) {
  auto regions = RegionsOnHost(request.host(), connection);
  if (!regions.ok()) return regions.status();
  Along along;
  along.what = absl::StrCat("Retiring ", ShortName(request.host()),
                            " ends its agent's session and refuses it from now on.\n");
  if (!regions->regions().empty()) {
    absl::StrAppend(&along.what, "It will be refused: Regions are attached there.\n");
  }
  along.regions = *std::move(regions);
  return along;
}

absl::StatusOr<Along> AlongOf(v1::RemoveHostRequest& request, Connection& connection) {
  auto regions = RegionsOnHost(request.host(), connection);
  if (!regions.ok()) return regions.status();
  Along along;
  along.what = absl::StrCat("Removing ", ShortName(request.host()),
                            " ends its agent's session and forgets its identity.\n");
  if (!regions->regions().empty()) {
    absl::StrAppend(&along.what, "It will be refused: Regions are attached there.\n");
  }
  along.regions = *std::move(regions);
  return along;
}

// A device that does not exist is an error before anybody is asked.
absl::StatusOr<Along> AlongOf(v1::RemoveDeviceRequest& request, Connection& connection) {
  const auto device = FindDevice(connection, request.device());
  if (!device.ok()) return device.status();
  auto regions = AllRegions(connection, RegionsOn(*device));
  if (!regions.ok()) return regions.status();
  Along along;
  along.what = absl::StrCat("Removing ", ShortName(request.device()), " takes ",
                            FormatByteSize(device->capacity_bytes()), " out of the pool.\n");
  if (!regions->regions().empty()) {
    absl::StrAppend(&along.what, "It will be refused: Regions have bytes there.\n");
  }
  along.regions = *std::move(regions);
  return along;
}

// Says how many Regions it costs, because this cannot be taken back.
absl::StatusOr<Along> AlongOf(v1::FailDeviceRequest& request, Connection& connection) {
  const auto device = FindDevice(connection, request.device());
  if (!device.ok()) return device.status();
  auto regions = AllRegions(connection, RegionsOn(*device));
  if (!regions.ok()) return regions.status();
  Along along;
  along.what = absl::StrCat(
      "Failing ", ShortName(request.device()), " is for good: its ",
      FormatByteSize(device->capacity_bytes()),
      " are never given out again. Regions with bytes there: ", regions->regions_size(),
      regions->regions().empty() ? ".\n" : ". They are QUARANTINED.\n");
  along.regions = *std::move(regions);
  return along;
}

// Nobody is asked unless it is by force, or takes the Region from a host: otherwise just the Region
// goes that was named, or the manager refuses.
absl::StatusOr<Along> AlongOf(v1::ReleaseRegionRequest& request, Connection& connection) {
  const auto region = GetRegion(request.name(), connection);
  if (!region.ok()) return region.status();
  Along along;
  along.worth_asking = TakesHosts(request, *region);
  if (absl::Status status = AddRelease(request, *region, connection, along); !status.ok()) {
    return status;
  }
  // What is released is what the person was shown: a change in between is refused (ETAG_MISMATCH).
  if (request.etag().empty() && along.worth_asking) request.set_etag(region->etag());
  return along;
}

// A Region that is not there does not keep the others from being released. Of each that is shown
// the etag is set, as of one alone.
absl::StatusOr<Along> AlongOf(v1::BatchReleaseRegionsRequest& request, Connection& connection) {
  Along along;
  along.worth_asking = false;
  std::vector<std::pair<v1::ReleaseRegionRequest*, std::string>> shown;
  for (v1::ReleaseRegionRequest& one : *request.mutable_requests()) {
    const auto region = GetRegion(one.name(), connection);
    if (absl::IsNotFound(region.status())) continue;  // The batch reports that for this one.
    if (!region.ok()) return region.status();
    along.worth_asking |= TakesHosts(one, *region);
    if (absl::Status status = AddRelease(one, *region, connection, along); !status.ok()) {
      return status;
    }
    shown.emplace_back(&one, region->etag());
  }
  if (!along.worth_asking) return along;
  for (auto& [one, etag] : shown) {
    if (one->etag().empty() && !CXLPOOL_MUTANT("batch-releases-unseen")) one->set_etag(etag);
  }
  return along;
}

absl::Status ConfirmRequired() {
  return Refuse(absl::StatusCode::kInvalidArgument, "CONFIRM_REQUIRED",
                "this may destroy more than it names, and there is no terminal to ask at",
                "look with --dry-run what goes along, then give --yes");
}

// Only y and yes count as yes. The end of the input counts as no.
absl::Status Ask(const Along& along, Printer& printer) {
  if (!along.worth_asking) return absl::OkStatus();
  printer.err << Text(along) << "Go on? [y/N] " << std::flush;
  std::string line;
  std::getline(*printer.answers, line);
  const std::string answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(line));
  if (answer == "y" || answer == "yes") return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_CONFIRMED", "nothing was changed",
                "answer y to go on, or give --yes");
}

absl::Status PrintAlong(const Along& along, Printer& printer) {
  return Print(printer, along.regions, absl::StrCat("Dry run: nothing is changed.\n", Text(along)));
}

}  // namespace cxlpool::cli
