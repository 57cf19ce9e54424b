// What a list is asked for: a filter, an order, a page token. The first line is the order, the
// second the token.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/list_events.h"
#include "fabric-manager/rpc/list_inventory.h"
#include "fabric-manager/rpc/list_regions.h"
#include "fabric-manager/rpc/region_filter.h"
#include "fabric-manager/service/record_codec.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

const fm::PoolView& ThreeRegions() {
  static const fm::PoolView* const view = [] {
    auto* const made = new fm::PoolView;
    made->devices = std::make_shared<const std::vector<fm::DeviceView>>();
    made->tenants = std::make_shared<const std::vector<fm::TenantView>>();
    for (uint64_t i = 0; i < 3; ++i) {
      auto region = std::make_shared<fm::Region>();
      region->key = 17 + i;
      region->id = absl::StrCat("r-", i);
      region->tenant = "ml";
      region->extents = {{"cmm-0", i << 30, (i + 1) << 28}};
      region->create_time = absl::FromUnixSeconds(static_cast<int64_t>(i));
      made->regions.Change({{region}});
    }
    return made;
  }();
  return *view;
}

const fm::AuditTrail& ThreeEvents() {
  static const fm::AuditTrail* const trail = [] {
    auto* made = new fm::AuditTrail({});
    fm::AuditBounds bounds;
    fm::Change rows;
    for (const size_t entries : {1, 2}) {
      fm::AuditRow row;
      row.key = rows.size() + 1;
      row.bytes = fm::EncodeEntries(std::vector<fm::AuditEntry>(entries));
      bounds.head = row.head = fm::NextHead(bounds.head, row.bytes);
      rows.push_back(std::make_shared<const fm::AuditRow>(std::move(row)));
    }
    made->Load(bounds, rows);
    return made;
  }();
  return *trail;
}

// Lists from the first page on what the text asks for; then with what it says is a token.
CXLPOOL_FUZZ(region_list) {
  std::string filter = bytes;
  v1::ListRegionsRequest request;
  request.set_order_by(TakeLine(filter));
  const std::string token = TakeLine(filter);
  request.set_filter(filter);
  request.set_page_size(1);
  if (const auto parsed = fm::RegionFilter::Parse(filter); parsed.ok()) {
    for (const fm::RegionPtr& region : ThreeRegions().regions.List("", 10)) {
      (void)parsed->Matches(*region);
    }
    (void)parsed->Names();
  }
  int listed = 0;
  do {
    v1::ListRegionsResponse page;
    if (!fm::ListRegions(ThreeRegions(), fm::Caller(), request, {}, &page).ok()) break;
    listed += page.regions_size();
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  Require(listed <= 3);

  request.set_page_token(token);
  v1::ListRegionsResponse page;
  (void)fm::ListRegions(ThreeRegions(), fm::Caller(), request, {}, &page);
  v1::ListDevicesRequest devices;
  devices.set_page_token(token);
  v1::ListDevicesResponse device_page;
  (void)fm::ListDevices(ThreeRegions(), devices, &device_page);
  v1::ListEventsRequest events;
  events.set_page_token(token);
  v1::ListEventsResponse event_page;
  (void)fm::ListEvents(ThreeEvents(), ThreeRegions(), fm::Caller::Admin("a"), events, &event_page);
  Require(event_page.events_size() <= 3);
  v1::GetTopologyRequest topology;
  topology.set_page_token(token);
  v1::Topology topology_page;
  (void)fm::GetTopology(ThreeRegions(), "emulated", topology, &topology_page);
}

}  // namespace
}  // namespace cxlpool::fuzz
