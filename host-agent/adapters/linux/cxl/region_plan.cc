#include "host-agent/adapters/linux/cxl/region_plan.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "host-agent/adapters/linux/cxl/bridge_view.h"
#include "host-agent/model/online_plan.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// What can be judged without looking at the host. The core's own specs always pass: no remedy.
absl::Status CheckSpec(const HostRegionSpec& spec) {
  const auto bad = [](std::string message) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_REGION_SPEC", std::move(message), "");
  };
  const size_t ways = spec.serials.size();
  // CXL 3.1, 8.2.4.20.7: what Interleave Ways can say.
  constexpr size_t kWays[] = {1, 2, 3, 4, 6, 8, 12, 16};
  if (std::find(std::begin(kWays), std::end(kWays), ways) == std::end(kWays)) {
    return bad(absl::StrCat("a host region has 1, 2, 3, 4, 6, 8, 12 or 16 targets, not ", ways));
  }
  const uint32_t granularity = spec.interleave_granularity_bytes;
  if (granularity != 0 && !IsInterleaveGranularity(granularity)) {
    return bad(absl::StrCat("an interleave granularity is a power of two from ",
                            kMinInterleaveGranularityBytes, " to ", kMaxInterleaveGranularityBytes,
                            " bytes, not ", granularity));
  }
  const std::set<uint64_t> distinct(spec.serials.begin(), spec.serials.end());
  if (distinct.size() != spec.serials.size() || distinct.contains(0)) {
    return bad("the serials of a host region's targets are distinct and not zero");
  }
  const uint64_t granule = kRegionGranuleBytes * spec.serials.size();
  if (spec.size_bytes == 0 || spec.size_bytes % granule != 0) {
    return bad(absl::StrCat("a host region of ", spec.serials.size(), " targets is a multiple of ",
                            granule, " bytes, which ", spec.size_bytes, " is not"));
  }
  return absl::OkStatus();
}

// The host bridges of the targets, in the order in which they first occur.
absl::StatusOr<std::vector<std::string>> BridgesOf(const CxlSnapshot& snapshot,
                                                   const HostRegionSpec& spec) {
  std::vector<std::string> bridges;
  for (const uint64_t serial : spec.serials) {
    const CxlMemdev* const memdev = FindMemdev(snapshot, serial);
    if (memdev == nullptr || !memdev->ready) {
      return Refuse(absl::StatusCode::kNotFound, "NO_MEMDEV",
                    absl::StrFormat("the memdev with serial %#x is %s", serial,
                                    memdev == nullptr ? "not there" : "not ready"),
                    memdev == nullptr
                        ? "power its slot on first"
                        : "look at the kernel's log for cxl_mem and cxl_port; it is tried again");
    }
    if (memdev->size_bytes < spec.size_bytes / spec.serials.size()) {
      return Refuse(
          absl::StatusCode::kInvalidArgument, "BAD_REGION_SPEC",
          absl::StrFormat("the memdev with serial %#x has %d bytes, the host region wants "
                          "%d of it",
                          serial, memdev->size_bytes, spec.size_bytes / spec.serials.size()),
          "");
    }
    if (std::find(bridges.begin(), bridges.end(), memdev->pci_bridge) == bridges.end()) {
      bridges.push_back(memdev->pci_bridge);
    }
  }
  if (AcpiNameOf(snapshot, bridges.front()) != spec.host_bridge) {
    return Refuse(absl::StatusCode::kNotFound, "NO_HOST_BRIDGE",
                  absl::StrFormat("the memdev with serial %#x is behind host bridge %s, not %s",
                                  spec.serials.front(), AcpiNameOf(snapshot, bridges.front()),
                                  spec.host_bridge),
                  "ask for the host bridge that the memdev is behind");
  }
  return bridges;
}

}  // namespace

// Checks all that the kernel would refuse only after some writes, with an errno that explains
// nothing.
absl::StatusOr<RegionPlan> PlanHostRegion(const CxlSnapshot& snapshot, const HostRegionSpec& spec) {
  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
  absl::StatusOr<std::vector<std::string>> bridges = BridgesOf(snapshot, spec);
  if (!bridges.ok()) return bridges.status();

  std::vector<std::string> names;
  for (const ObservedBridge& bridge : ViewBridges(snapshot, {})) {
    const bool wanted = std::any_of(bridges->begin(), bridges->end(), [&](const std::string& name) {
      return AcpiNameOf(snapshot, name) == bridge.name;
    });
    if (!wanted) continue;
    // Decoders only: the window that counts is the one that all bridges share, below.
    if (auto refusal = WhyBridgeTakesNoMore(bridge, 0)) return refusal->ToStatus();
    names.push_back(bridge.name);
  }

  const CxlWindow* const window = WindowOf(snapshot, *bridges);
  if (window == nullptr) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NO_WINDOW",
                  absl::StrCat("no fixed memory window for volatile memory targets exactly ",
                               absl::StrJoin(names, ", ")),
                  "enable one in the firmware, or use memdevs behind other host bridges");
  }
  // A region's target i is reached by way of the window's target i mod ways.
  for (size_t i = 0; i < spec.serials.size(); ++i) {
    if (FindMemdev(snapshot, spec.serials[i])->pci_bridge !=
        window->bridges[i % window->bridges.size()]) {
      return Refuse(
          absl::StatusCode::kInvalidArgument, "BAD_REGION_SPEC",
          absl::StrFormat("target %d (serial %#x) is behind the wrong host bridge for its "
                          "position in window %s",
                          i, spec.serials[i], window->name),
          "order the targets as the window interleaves its host bridges");
    }
  }
  // Linux stripes by the window's granularity wherever the window stripes at all.
  const uint32_t granularity = spec.interleave_granularity_bytes;
  if (window->bridges.size() > 1 && granularity != 0 &&
      granularity != window->interleave_granularity_bytes) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_REGION_SPEC",
                  absl::StrFormat("window %s interleaves its host bridges every %d bytes, so no "
                                  "region in it can every %d",
                                  window->name, window->interleave_granularity_bytes, granularity),
                  "ask for the window's granularity, or for memdevs behind one host bridge");
  }
  if (window->largest_free_bytes < spec.size_bytes) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "WINDOW_FULL",
        absl::StrFormat("window %s of host bridge %s has %d bytes free in one run, %d are "
                        "wanted",
                        window->name, absl::StrJoin(names, ", "), window->largest_free_bytes,
                        spec.size_bytes),
        "release Regions on this host bridge, or use another");
  }
  return RegionPlan{window->name,
                    granularity != 0 ? granularity : window->interleave_granularity_bytes,
                    spec.size_bytes, spec.serials};
}

}  // namespace cxlpool::agent
