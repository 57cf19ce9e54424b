#include "fabric-manager/service/region_log.h"

#include <algorithm>
#include <string>

namespace cxlpool::fm {
namespace {

// Empty: a lease that ran out, for example, is nobody's request.
Uuid WayOf(const Region& region) {
  static const Interned kAllocate("AllocateRegion");
  static const Interned kResize("ResizeRegion");
  static const Interned kRelease("ReleaseRegion");
  const auto& requests = region.requests;
  const auto by = [](Interned method) {
    return [method](const Request& request) { return request.id.method == method; };
  };
  const bool goes = !region.compensating && (region.state == RegionState::kReleasing ||
                                             region.state == RegionState::kScrubbing);
  if (goes) {
    // Later ones found it on its way.
    const auto first = std::find_if(requests.begin(), requests.end(), by(kRelease));
    return first == requests.end() ? Uuid() : first->id.id;
  }
  if (region.state == RegionState::kAllocated) {
    const auto last = std::find_if(requests.rbegin(), requests.rend(), by(kResize));
    if (last != requests.rend()) return last->id.id;
  }
  const bool is_known = !requests.empty() && requests.front().id.method == kAllocate;
  return is_known ? requests.front().id.id : Uuid();
}

}  // namespace

LogFields FieldsOf(const Region& region) {
  return {.region = region.id, .request_id = WayOf(region), .tenant = region.tenant.str()};
}

LogFields FieldsOf(const Region& region, const Attachment& attachment) {
  return {.region = region.id,
          .request_id = attachment.request_id,
          .host = attachment.host,
          .tenant = region.tenant.str()};
}

LogFields FieldsOf(const PoolState& state, Key region, absl::string_view host) {
  const RegionPtr* const known = state.FindRegion(region);
  if (known == nullptr) return {.host = std::string(host)};
  if (host.empty()) return FieldsOf(**known);
  const Attachment* const attachment = (*known)->FindAttachment(host);
  if (attachment != nullptr) return FieldsOf(**known, *attachment);
  return {.region = (*known)->id, .host = std::string(host), .tenant = (*known)->tenant.str()};
}

}  // namespace cxlpool::fm
