#include "fabric-manager/model/placement.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/bytes.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using FreeRuns = std::set<std::pair<uint64_t, uint64_t>>;

// A device that may be used, with what extents on it are multiples of.
struct Candidate {
  const Device* device;
  const FreeRuns* runs;  // (length, dpa)
  uint64_t unit_bytes;
  FreeRuns::const_reverse_iterator longest;  // Of those not used yet.

  // Of the longest run not used yet, in whole units.
  uint64_t longest_bytes() const {
    return longest == runs->rend() ? 0 : longest->first - longest->first % unit_bytes;
  }
};

struct Totals {
  uint64_t free_bytes = 0;     // In whole units.
  uint64_t largest_bytes = 0;  // In one extent.
  std::string largest_device;
};

Totals Sum(const std::vector<Candidate>& candidates) {
  Totals totals;
  for (const Candidate& candidate : candidates) {
    for (const auto& [length, dpa] : *candidate.runs) {
      totals.free_bytes += length - length % candidate.unit_bytes;
    }
    if (candidate.longest_bytes() > totals.largest_bytes) {
      totals.largest_bytes = candidate.longest_bytes();
      totals.largest_device = candidate.device->id;
    }
  }
  return totals;
}

absl::StatusOr<std::vector<Candidate>> FindCandidates(const PoolState& state,
                                                      const ExtentRequest& request) {
  if (!request.device.empty() && state.FindDevice(request.device) == nullptr) {
    return Refusal{
        .code = absl::StatusCode::kNotFound,
        .reason = "UNKNOWN_DEVICE",
        .message = absl::StrCat(request.label, ": the pool has no device \"", request.device, "\""),
        .remedy = "see `cxlpool device list`",
        .metadata = {{"device", request.device}}}
        .ToStatus();
  }
  std::vector<Candidate> candidates;
  bool unreachable = false;
  for (const auto& [id, device] : state.devices()) {
    if (!request.device.empty() && id != request.device) continue;
    if (!device.reachable) {
      unreachable = true;
      continue;
    }
    const auto unit = CommonUnit(device.granule_bytes, request.unit_bytes);
    if (!unit.has_value()) continue;  // Larger than any device.
    const FreeRuns& runs = state.FindExtents(id)->free_by_length();
    candidates.push_back({&device, &runs, *unit, runs.rbegin()});
  }
  if (!candidates.empty() || !unreachable) return candidates;
  const std::string which = request.device.empty()
                                ? "none of the pool's devices is"
                                : absl::StrCat("device \"", request.device, "\" is not");
  return Refusal{.code = absl::StatusCode::kFailedPrecondition,
                 .reason = "DEVICE_UNREACHABLE",
                 .message = absl::StrCat(request.label, ": ", which, " seen by the fabric now"),
                 .remedy = "mend the fabric, or name another device",
                 .metadata = {{"device", request.device}}}
      .ToStatus();
}

// One extent for all, in the smallest run that holds it.
std::optional<Extent> PlaceWhole(const std::vector<Candidate>& candidates, uint64_t size_bytes) {
  std::optional<Extent> best;
  uint64_t best_run = UINT64_MAX;
  for (const Candidate& candidate : candidates) {
    const auto size = RoundUp(size_bytes, candidate.unit_bytes);
    if (!size.has_value()) continue;
    const auto run = candidate.runs->lower_bound({*size, 0});
    if (run == candidate.runs->end() || (best.has_value() && run->first >= best_run)) continue;
    best = Extent{candidate.device->id, run->second, *size};
    best_run = run->first;
  }
  return best;
}

// The smallest unused run that holds `rest`. Used runs are the longest of their device.
std::optional<Extent> PlaceRest(const std::vector<Candidate>& candidates, uint64_t rest_bytes) {
  std::optional<Extent> best;
  uint64_t best_run = UINT64_MAX;
  for (const Candidate& candidate : candidates) {
    const auto size = RoundUp(rest_bytes, candidate.unit_bytes);
    if (!size.has_value() || candidate.longest_bytes() < *size) continue;
    const auto run = candidate.runs->lower_bound({*size, 0});
    if (best.has_value() && run->first >= best_run) continue;
    best = Extent{candidate.device->id, run->second, *size};
    best_run = run->first;
  }
  return best;
}

// The longest runs until the rest fits one. Stops at kMaxExtentsPerRegion.
std::optional<std::vector<Extent>> PlaceParts(std::vector<Candidate> candidates,
                                              uint64_t size_bytes) {
  std::vector<Extent> extents;
  uint64_t rest = size_bytes;
  while (extents.size() < kMaxExtentsPerRegion) {
    if (auto last = PlaceRest(candidates, rest); last.has_value()) {
      extents.push_back(*std::move(last));
      return extents;
    }
    const auto longest = std::max_element(candidates.begin(), candidates.end(),
                                          [](const Candidate& a, const Candidate& b) {
                                            return a.longest_bytes() < b.longest_bytes();
                                          });
    if (longest == candidates.end() || longest->longest_bytes() == 0) return std::nullopt;
    extents.push_back({longest->device->id, longest->longest->second, longest->longest_bytes()});
    // Less than the rest, or PlaceRest would have taken it.
    rest -= longest->longest_bytes();
    ++longest->longest;
  }
  return std::nullopt;
}

std::string Where(const ExtentRequest& request) {
  return request.device.empty() ? "in the pool"
                                : absl::StrCat("on device \"", request.device, "\"");
}

absl::Status Full(const ExtentRequest& request, const Totals& totals) {
  return Refusal{
      .code = absl::StatusCode::kResourceExhausted,
      .reason = "POOL_FULL",
      .message = absl::StrCat(request.label, " needs ", FormatBytes(request.size_bytes), "; free ",
                              Where(request), ": ", FormatBytes(totals.free_bytes),
                              request.unit_bytes == 0
                                  ? ""
                                  : absl::StrCat(" in units of ", FormatBytes(request.unit_bytes))),
      .remedy = "release a Region, or ask for less",
      .metadata = {{"requested_bytes", absl::StrCat(request.size_bytes)},
                   {"free_bytes", absl::StrCat(totals.free_bytes)},
                   {"largest_free_bytes", absl::StrCat(totals.largest_bytes)}}}
      .ToStatus();
}

absl::Status Fragmented(const ExtentRequest& request, const Totals& totals, size_t would_do) {
  const bool one = request.max_extents <= 1;
  Refusal refusal{
      .code = absl::StatusCode::kResourceExhausted,
      .reason = "POOL_FRAGMENTED",
      .message = absl::StrCat(
          request.label, " needs ", FormatBytes(request.size_bytes), " in ",
          one ? "one extent" : absl::StrCat("at most ", request.max_extents, " extents"),
          "; largest free is ", FormatBytes(totals.largest_bytes), " on ", totals.largest_device),
      .remedy = "release a Region, or ask for less",
      .metadata = {{"requested_bytes", absl::StrCat(request.size_bytes)},
                   {"free_bytes", absl::StrCat(totals.free_bytes)},
                   {"largest_free_bytes", absl::StrCat(totals.largest_bytes)}}};
  if (would_do != 0) {
    refusal.remedy = absl::StrCat("use --max-extents ", would_do);
    refusal.metadata.emplace_back("extents", absl::StrCat(would_do));
  }
  return refusal.ToStatus();
}

}  // namespace

absl::StatusOr<std::vector<Extent>> PlaceExtents(const PoolState& state,
                                                 const ExtentRequest& request) {
  const auto candidates = FindCandidates(state, request);
  if (!candidates.ok()) return candidates.status();
  if (auto whole = PlaceWhole(*candidates, request.size_bytes); whole.has_value()) {
    return std::vector<Extent>{*std::move(whole)};
  }
  const Totals totals = Sum(*candidates);
  if (totals.free_bytes < request.size_bytes) return Full(request, totals);
  auto parts = PlaceParts(*candidates, request.size_bytes);
  if (!parts.has_value()) return Fragmented(request, totals, 0);
  if (parts->size() > request.max_extents) return Fragmented(request, totals, parts->size());
  return *std::move(parts);
}

}  // namespace cxlpool::fm
