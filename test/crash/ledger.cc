#include "test/crash/ledger.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::crash {
namespace {

absl::Status Broken(const Call& call, const std::string& what) {
  return absl::InternalError(
      absl::StrCat(NameOf(call), call.sent > 1 ? " sent again" : "", ": ", what));
}

absl::Status OfOutcome(const v1::BatchResult& result) {
  return Refuse(static_cast<absl::StatusCode>(result.code()), result.error().reason(),
                result.message(), "");
}

bool Contains(std::initializer_list<absl::string_view> words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool NoRoom(const std::string& reason) {
  return Contains({"POOL_FULL", "POOL_FRAGMENTED", "QUOTA_EXCEEDED"}, reason);
}

bool NoWayIn(const std::string& reason) {
  return Contains({"HOST_NOT_ONLINE", "NO_FREE_PORT", "BRIDGE_BLOCKED", "BRIDGE_FULL",
                   "WINDOW_FULL", "PAGE_STRUCT_SPACE"},
                  reason);
}

bool OnItsWay(const std::string& reason) {
  return Contains({"RESIZE_IN_PROGRESS", "REGION_NOT_READY"}, reason);
}

}  // namespace

bool Call::allocates() const {
  return std::holds_alternative<v1::AllocateRegionRequest>(request) ||
         std::holds_alternative<v1::BatchAllocateRegionsRequest>(request);
}

bool Call::releases() const {
  return std::holds_alternative<v1::ReleaseRegionRequest>(request) ||
         std::holds_alternative<v1::BatchReleaseRegionsRequest>(request);
}

bool Call::About(const std::string& tag) const {
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

std::string NameOf(const Call& call) {
  return std::visit(
      [](const auto& request) {
        std::string name = std::decay_t<decltype(request)>::descriptor()->name();
        return name.substr(0, name.size() - std::string("Request").size());
      },
      call.request);
}

bool SameExtent(const v1::Extent& a, const v1::Extent& b) {
  return a.device() == b.device() && a.dpa_bytes() == b.dpa_bytes() &&
         a.length_bytes() == b.length_bytes();
}

int ExtentsFor(const v1::Region& region, uint64_t bytes) {
  uint64_t sum = 0;
  int count = 0;
  while (count < region.extents_size() && sum < bytes) {
    sum += region.extents(count++).length_bytes();
  }
  return count;
}

absl::Status Ledger::TakeAllocated(const v1::AllocateRegionRequest& request,
                                   const v1::Region& region, uint64_t revision) {
  const std::string what = absl::StrCat(region.name(), " (", region.tag(), ")");
  if (regions.count(region.tag()) > 0) {
    return absl::InternalError(absl::StrCat("one request answers with another's Region: ", what));
  }
  const std::string tenant = request.tenant().empty() ? "tenants/default" : request.tenant();
  if (region.tenant() != tenant || region.size_bytes() < request.size_bytes() ||
      region.requested_bytes() != request.size_bytes()) {
    return absl::InternalError(absl::StrCat("not what was asked for: ", region.ShortDebugString()));
  }
  if (!request.region_id().empty() && region.name() != "regions/" + request.region_id()) {
    return absl::InternalError(absl::StrCat("another name than ", request.region_id(), ": ", what));
  }
  Known& known = regions[region.tag()];
  known.region = region;
  known.made_revision = revision;
  if (!request.host().empty()) known.hosts[request.host()] = true;
  return absl::OkStatus();
}

absl::Status Ledger::Take(const Call& call, const v1::AllocateRegionResponse& answer) {
  return TakeAllocated(std::get<v1::AllocateRegionRequest>(call.request), answer.region(),
                       answer.revision());
}

absl::Status Ledger::Take(const Call& call, const v1::BatchAllocateRegionsResponse& answer) {
  const auto& batch = std::get<v1::BatchAllocateRegionsRequest>(call.request);
  if (answer.results_size() != batch.requests_size()) return Broken(call, "outcomes are missing");
  for (int i = 0; i < answer.results_size(); ++i) {
    const v1::BatchResult& result = answer.results(i);
    const Call item{batch.requests(i), {}, call.sent};
    absl::Status status = result.code() == 0
                              ? TakeAllocated(batch.requests(i), result.region(), result.revision())
                              : TakeRefusal(item, OfOutcome(result));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Ledger::TakeReleased(const std::string& tag, const v1::Region& region,
                                  uint64_t revision) {
  Known& known = regions[tag];
  if (region.tag() != tag) {
    return absl::InternalError(
        absl::StrCat("released ", known.region.name(), ", answered ", region.ShortDebugString()));
  }
  known.released_revision = std::max<uint64_t>(revision, 1);
  return absl::OkStatus();
}

absl::Status Ledger::Take(const Call& call, const v1::ReleaseRegionResponse& answer) {
  return TakeReleased(call.tags[0], answer.region(), answer.revision());
}

absl::Status Ledger::Take(const Call& call, const v1::BatchReleaseRegionsResponse& answer) {
  const auto& batch = std::get<v1::BatchReleaseRegionsRequest>(call.request);
  if (answer.results_size() != batch.requests_size()) return Broken(call, "outcomes are missing");
  for (int i = 0; i < answer.results_size(); ++i) {
    const v1::BatchResult& result = answer.results(i);
    const Call item{batch.requests(i), {call.tags[static_cast<size_t>(i)]}, call.sent};
    absl::Status status = result.code() == 0
                              ? TakeReleased(item.tags[0], result.region(), result.revision())
                              : TakeRefusal(item, OfOutcome(result));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Ledger::Take(const Call& call, const v1::ResizeRegionResponse& answer) {
  const auto& request = std::get<v1::ResizeRegionRequest>(call.request);
  Known& known = regions[call.tags[0]];
  v1::Region end = answer.region();
  if (end.tag() != call.tags[0]) return Broken(call, "it answered another Region");
  const int keep = ExtentsFor(known.region, request.size_bytes());
  const bool shrinks = keep < known.region.extents_size();
  const int common = shrinks ? keep : known.region.extents_size();
  if (end.extents_size() < common)
    return Broken(call, "extents are gone: " + end.ShortDebugString());
  for (int i = 0; i < common; ++i) {
    if (!SameExtent(end.extents(i), known.region.extents(i))) {
      return Broken(call, "an extent moved: " + end.ShortDebugString());
    }
  }
  if (shrinks) {
    end.mutable_extents()->DeleteSubrange(keep, end.extents_size() - keep);
    known.written.erase(known.written.lower_bound(keep), known.written.end());
  } else if (ExtentsFor(end, request.size_bytes()) != end.extents_size()) {
    return Broken(call, "more extents than it needs: " + end.ShortDebugString());
  }
  known.region = end;
  return absl::OkStatus();
}

absl::Status Ledger::Take(const Call& call, const v1::RenameRegionResponse& answer) {
  const auto& request = std::get<v1::RenameRegionRequest>(call.request);
  Known& known = regions[call.tags[0]];
  if (answer.region().tag() != call.tags[0] ||
      answer.region().name() != "regions/" + request.new_region_id()) {
    return Broken(call, "it answered " + answer.region().ShortDebugString());
  }
  known.region.set_name(answer.region().name());
  known.region.set_generation(answer.region().generation());
  return absl::OkStatus();
}

absl::Status Ledger::Take(const Call& call, const v1::AttachRegionResponse& answer) {
  if (answer.region().tag() != call.tags[0]) return Broken(call, "it answered another Region");
  regions[call.tags[0]].hosts[std::get<v1::AttachRegionRequest>(call.request).host()] = true;
  return absl::OkStatus();
}

absl::Status Ledger::Take(const Call& call, const v1::DetachRegionResponse& answer) {
  if (answer.region().tag() != call.tags[0]) return Broken(call, "it answered another Region");
  regions[call.tags[0]].hosts[std::get<v1::DetachRegionRequest>(call.request).host()] = false;
  return absl::OkStatus();
}

absl::Status Ledger::Take(const Call& call, const v1::Tenant& answer) {
  const auto& wanted = std::get<v1::SetTenantRequest>(call.request).tenant();
  if (answer.name() != wanted.name() || answer.quota_bytes() != wanted.quota_bytes()) {
    return Broken(call, "it answered " + answer.ShortDebugString());
  }
  quota[wanted.name()] = wanted.quota_bytes();
  return absl::OkStatus();
}

absl::Status Ledger::TakeRefusal(const Call& call, const absl::Status& refusal) const {
  const std::string reason = ReasonOf(refusal);
  const auto may = [&](const auto& request) {
    using Request = std::decay_t<decltype(request)>;
    if (reason == "QUEUE_FULL") return true;
    if constexpr (std::is_same_v<Request, v1::AllocateRegionRequest>) {
      return NoRoom(reason) || NoWayIn(reason);
    } else if constexpr (std::is_same_v<Request, v1::ResizeRegionRequest>) {
      return NoRoom(reason) || NoWayIn(reason) || OnItsWay(reason) ||
             Contains({"NOT_RESIZABLE", "TOO_MANY_EXTENTS", "RESIZE_INSIDE_EXTENT"}, reason);
    } else if constexpr (std::is_same_v<Request, v1::AttachRegionRequest>) {
      return NoWayIn(reason) || OnItsWay(reason) ||
             Contains({"DETACH_IN_PROGRESS", "SHARING_CONFLICT"}, reason);
    } else {
      return false;
    }
  };
  if (std::visit(may, call.request)) return absl::OkStatus();
  return Broken(call, absl::StrCat("refused: ", refusal.ToString(), "; ",
                                   std::visit([](const auto& r) { return r.ShortDebugString(); },
                                              call.request)));
}

}  // namespace cxlpool::crash
