#include "fabric-manager/rpc/list_inventory.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "fabric-manager/rpc/convert.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint32_t kMaxItems = 1000;

v1::Host ToProto(const std::pair<const std::string, std::shared_ptr<const HostView>>& host) {
  return fm::ToProto(*host.second);
}

v1::Device ToProto(const std::pair<const std::string, v1::Device>& device) { return device.second; }

// Lists what comes after the token, in the order of `items`, which is that of their ids. The page
// ends at the number of items that was asked for, or before it passes kPageBytes. At least one item
// is on it, so that the next page is another.
template <typename Request, typename Items, typename IdOf, typename List>
absl::Status FillPage(const Request& request, const Items& items, IdOf id_of, List* listed,
                      std::string* next_page_token) {
  const std::string& after = request.page_token();
  if (!after.empty() && !CheckResourceId(after).ok()) {
    return Refusal{absl::StatusCode::kInvalidArgument,
                   "BAD_PAGE_TOKEN",
                   "field page_token was not made by this call",
                   "start again without one",
                   {}}
        .ToStatus();
  }
  // Clients of the release before ask for no size and know of no pages: they get what there is room
  // for.
  const uint32_t size = request.page_size() == 0 ? std::numeric_limits<uint32_t>::max()
                                                 : std::min(request.page_size(), kMaxItems);
  size_t bytes = 0;
  std::string last;
  for (const auto& item : items) {
    const std::string& id = id_of(item);
    if (!after.empty() && id <= after) continue;
    if (static_cast<uint32_t>(listed->size()) == size) {
      *next_page_token = last;
      return absl::OkStatus();
    }
    auto encoded = ToProto(item);
    bytes += encoded.ByteSizeLong();
    if (!listed->empty() && bytes > kPageBytes && !CXLPOOL_MUTANT("page-ends-by-count-alone")) {
      *next_page_token = last;
      return absl::OkStatus();
    }
    *listed->Add() = std::move(encoded);
    last = id;
  }
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, v1::Device> AllDevices(const PoolView& view) {
  std::map<std::string, v1::Device> all;
  for (const DeviceView& device : *view.devices) all[device.device.id] = ToProto(device);
  for (const DeviceEntry& entry : view.laid_down->tables.devices) {
    if (all.contains(entry.id)) continue;
    const auto why = view.laid_down->unseen_devices.find(entry.id);
    all[entry.id] = ToProto(entry, why == view.laid_down->unseen_devices.end() ? "" : why->second);
  }
  return all;
}

absl::Status ListDevices(const PoolView& view, const v1::ListDevicesRequest& request,
                         v1::ListDevicesResponse* response) {
  return FillPage(
      request, AllDevices(view),
      [](const auto& device) -> const std::string& { return device.first; },
      response->mutable_devices(), response->mutable_next_page_token());
}

absl::Status ListHosts(const PoolView& view, const v1::ListHostsRequest& request,
                       v1::ListHostsResponse* response) {
  return FillPage(
      request, view.hosts, [](const auto& host) -> const std::string& { return host.first; },
      response->mutable_hosts(), response->mutable_next_page_token());
}

}  // namespace cxlpool::fm
