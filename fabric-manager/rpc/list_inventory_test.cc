#include "fabric-manager/rpc/list_inventory.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fabric-manager/topology_file.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMessageLimit = 4 << 20;  // Of gRPC.

// A view of `hosts` hosts, each with `slots` slots, bridges and a long name, and as many devices.
PoolView ViewOf(int hosts, uint32_t slots) {
  PoolView view;
  auto devices = std::make_shared<std::vector<DeviceView>>();
  for (int i = 0; i < hosts; ++i) {
    const std::string id = absl::StrFormat("h%04d-%s", i, std::string(50, 'x'));
    HostRuntime runtime;
    HostView host;
    for (uint32_t slot = 1; slot <= slots; ++slot) {
      runtime.fabric_slots.push_back(slot);
      host.occupied.emplace_back();
      host.occupied.back().slot = slot;
      host.occupied.back().region_id = std::string(63, 'r');
    }
    host.host.key = static_cast<Key>(i) + 1;
    host.host.id = id;
    host.host.identity = absl::StrCat("cxlpool://host/", id);
    host.runtime = std::make_shared<const HostRuntime>(runtime);
    view.hosts[id] = std::make_shared<const HostView>(host);
    DeviceView& device = devices->emplace_back();
    device.device.id = id;
    device.device.serial = std::string(1000, 's');
  }
  view.devices = devices;
  return view;
}

// The names on all pages; each is no larger than a client takes.
template <typename Request, typename Response, typename Names>
std::vector<std::string> AllNames(const PoolView& view, uint32_t page_size,
                                  absl::Status (*list)(const PoolView&, const Request&, Response*),
                                  Names names, int* pages = nullptr) {
  std::vector<std::string> all;
  Request request;
  request.set_page_size(page_size);
  do {
    Response page;
    const absl::Status status = list(view, request, &page);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_LT(page.ByteSizeLong(), kMessageLimit);
    const auto listed = names(page);
    EXPECT_LE(listed.size(), page_size == 0 ? size_t{1} << 20 : size_t{page_size});
    all.insert(all.end(), listed.begin(), listed.end());
    request.set_page_token(page.next_page_token());
    if (pages != nullptr) ++*pages;
    if (!status.ok() || listed.empty()) break;
  } while (!request.page_token().empty());
  return all;
}
std::vector<std::string> HostsOf(const v1::ListHostsResponse& page) {
  std::vector<std::string> names;
  for (const v1::Host& host : page.hosts()) names.push_back(host.name().substr(6));
  return names;
}
std::vector<std::string> DevicesOf(const v1::ListDevicesResponse& page) {
  std::vector<std::string> names;
  for (const v1::Device& device : page.devices()) names.push_back(device.name().substr(8));
  return names;
}

TEST(ListInventoryTest, PagesGiveEachOnceInOrderOfName) {
  const PoolView view = ViewOf(25, 1);
  std::vector<std::string> ids;
  for (const auto& [id, host] : view.hosts) ids.push_back(id);
  for (const uint32_t page_size : {0, 1, 10, 25, 1000}) {
    SCOPED_TRACE(page_size);
    EXPECT_EQ(AllNames(view, page_size, &ListHosts, HostsOf), ids);
    EXPECT_EQ(AllNames(view, page_size, &ListDevices, DevicesOf), ids);
  }
  int pages = 0;
  AllNames(view, 25, &ListHosts, HostsOf, &pages);
  EXPECT_EQ(pages, 1) << "a page that holds the last has no next one";
  EXPECT_TRUE(AllNames(ViewOf(0, 0), 10, &ListHosts, HostsOf).empty());
}

// By their number alone these would go into one message, of more than a client takes.
TEST(ListInventoryTest, APageEndsBeforeItIsTooLargeForAClient) {
  const PoolView hosts = ViewOf(100, 1000);
  for (const uint32_t page_size : {0, 100, 1000}) {
    int pages = 0;
    EXPECT_EQ(AllNames(hosts, page_size, &ListHosts, HostsOf, &pages).size(), 100u);
    EXPECT_GT(pages, 1);
  }
  const PoolView devices = ViewOf(5000, 0);
  int pages = 0;
  EXPECT_EQ(AllNames(devices, 0, &ListDevices, DevicesOf, &pages).size(), 5000u);
  EXPECT_GT(pages, 1);
}

// A topology of many paths: each Device, host, path and row is on one page, and none is too large.
TEST(ListInventoryTest, ATopologyOfAnySizeGoesIntoPages) {
  PoolView view = ViewOf(300, 100);
  TopologySpec spec;
  TopologyTables tables;
  for (const auto& [id, host] : view.hosts) {
    spec.hosts.push_back(id);
    spec.devices.push_back({.id = absl::StrCat("d", id)});
    spec.links.push_back({.a = id, .b = "sw0"});
    spec.links.push_back({.a = "sw0", .b = absl::StrCat("d", id)});
    tables.hosts.push_back({.id = id, .qmp_socket = std::string(100, 'q')});
  }
  spec.switches = {{.id = "sw0"}};
  tables.links = spec.links;
  tables.links.resize(50'000, {.a = std::string(63, 'a'), .b = std::string(63, 'b')});
  auto topology = Topology::Create(spec);
  ASSERT_TRUE(topology.ok()) << topology.status();
  view.topology = std::make_shared<const Topology>(*std::move(topology));
  view.laid_down = std::make_shared<const LaidDown>(LaidDown{tables, {}});
  v1::Topology all;
  v1::GetTopologyRequest request;
  int pages = 0;
  do {
    v1::Topology page;
    const absl::Status status = GetTopology(view, "emulated", request, &page);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_LT(page.ByteSizeLong(), kMessageLimit);
    EXPECT_EQ(page.fabric(), "emulated");
    request.set_page_token(page.next_page_token());
    all.MergeFrom(page);
    ASSERT_LT(++pages, 100);
  } while (!request.page_token().empty());
  EXPECT_GT(pages, 3);
  EXPECT_EQ(all.devices_size(), 300);
  EXPECT_EQ(all.hosts_size(), 300);
  EXPECT_EQ(all.paths_size(), 300 * 300);
  std::set<std::string> paths;
  for (const v1::Path& path : all.paths()) paths.insert(path.host() + path.device());
  EXPECT_EQ(paths.size(), 300u * 300u);
  EXPECT_EQ(all.tables().DebugString(), ToProto(tables).DebugString());
  request.set_page_token("switches/sw0");
  EXPECT_EQ(ReasonOf(GetTopology(view, "emulated", request, &all)), "BAD_PAGE_TOKEN");
}

// Half of each would lack a row, which an apply would remove.
TEST(ListInventoryTest, PagesAreOfOneTopology) {
  PoolView view = ViewOf(0, 0);
  TopologyTables tables;
  tables.links.resize(50'000, {.a = std::string(63, 'a'), .b = std::string(63, 'b')});
  view.topology = std::make_shared<const Topology>();
  view.laid_down = std::make_shared<const LaidDown>(LaidDown{tables, {}});
  v1::GetTopologyRequest request;
  v1::Topology first, second, third;
  ASSERT_TRUE(GetTopology(view, "emulated", request, &first).ok());
  ASSERT_NE(first.next_page_token(), "");
  request.set_page_token(first.next_page_token());
  EXPECT_TRUE(GetTopology(view, "emulated", request, &second).ok());
  tables.links.erase(tables.links.begin());
  view.laid_down = std::make_shared<const LaidDown>(LaidDown{tables, {}});
  EXPECT_EQ(ReasonOf(GetTopology(view, "emulated", request, &third)), "BAD_PAGE_TOKEN");
}

TEST(ListInventoryTest, PagesGoOnWhereTheLastOneIsGone) {
  PoolView view = ViewOf(10, 1);
  v1::ListHostsRequest request;
  request.set_page_size(4);
  v1::ListHostsResponse first, second;
  ASSERT_TRUE(ListHosts(view, request, &first).ok());
  view.hosts.erase(first.next_page_token());
  request.set_page_token(first.next_page_token());
  ASSERT_TRUE(ListHosts(view, request, &second).ok());
  EXPECT_EQ(HostsOf(second).front().substr(0, 5), "h0004");
  request.set_page_token("No Such Thing");
  EXPECT_EQ(ReasonOf(ListHosts(view, request, &second)), "BAD_PAGE_TOKEN");
}

// --- What the hosts see.

SeenDevice Seen(const std::string& host, const std::string& name, const std::string& serial) {
  SeenDevice device;
  device.host = host;
  device.name = name;
  device.serial = serial;
  device.size_bytes = uint64_t{64} << 30;
  return device;
}
std::vector<uint32_t> GroupsOf(const SeenDevices& seen) {
  v1::DiscoverDevicesResponse response;
  FillDiscovered(ViewOf(0, 0), seen, &response);
  std::vector<uint32_t> groups;
  for (const auto& device : response.devices()) groups.push_back(device.group());
  return groups;
}

TEST(FillDiscoveredTest, DevicesAreGuessedToBeOneByMarkElseBySerialAndSize) {
  SeenDevices seen;
  seen.devices = {Seen("a", "dax0", "s1"), Seen("a", "dax1", "s2"), Seen("b", "dax0", "s2"),
                  Seen("b", "dax1", "s1"), Seen("b", "dax2", ""),   Seen("c", "dax0", "")};
  EXPECT_EQ(GroupsOf(seen), (std::vector<uint32_t>{1, 2, 2, 1, 3, 4}));
  seen.devices[2].size_bytes /= 2;
  EXPECT_EQ(GroupsOf(seen), (std::vector<uint32_t>{1, 2, 3, 1, 4, 5}));
  // A switch may show one device under two serial numbers: the mark tells.
  seen.devices = {Seen("a", "dax0", "s1"), Seen("b", "dax0", "s9")};
  for (SeenDevice& device : seen.devices) device.mark_id = "m";
  EXPECT_EQ(GroupsOf(seen), (std::vector<uint32_t>{1, 1}));
}

TEST(FillDiscoveredTest, TwoOnOneHostThatCouldBeItAreNotGuessed) {
  SeenDevices seen;
  seen.devices = {Seen("a", "dax0", "s1"), Seen("a", "dax1", "s1"), Seen("b", "dax0", "s1")};
  EXPECT_EQ(GroupsOf(seen), (std::vector<uint32_t>{1, 2, 3}));
}

TEST(FillDiscoveredTest, SuggestsWhatAddDeviceWouldTake) {
  SeenDevices seen;
  seen.devices.assign(6, Seen("a", "dax", "s"));
  seen.devices[1].size_bytes = uint64_t{2304} << 20;
  seen.devices[2].align_bytes = uint64_t{1} << 30;
  seen.devices[3].unfit_reason = "somebody uses it";
  seen.devices[4].mark = SeenDevice::Mark::kOtherPool;
  seen.devices[5].mark = SeenDevice::Mark::kThisPool;
  seen.devices[5].reserved_bytes = uint64_t{2} << 30;
  v1::DiscoverDevicesResponse response;
  FillDiscovered(ViewOf(0, 0), seen, &response);
  const auto mib = [&](int i) {
    const v1::DiscoveredDevice& device = response.devices(i);
    return std::pair(device.suggested_capacity_bytes() >> 20,
                     device.suggested_granule_bytes() >> 20);
  };
  using Pair = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(mib(0), Pair(65536 - 256, 256));
  EXPECT_EQ(mib(1), Pair(2304 - 128, 128)) << "16 granules at least";
  EXPECT_EQ(mib(2), Pair(65536 - 1024, 1024));
  EXPECT_EQ(mib(3), Pair(0, 0));
  EXPECT_EQ(mib(4), Pair(0, 0));
  EXPECT_EQ(mib(5), Pair(65536 - 2048, 2048));
}

TEST(FillDiscoveredTest, IsCutOffBeforeItIsTooLong) {
  SeenDevices seen;
  seen.devices.assign(5000, Seen("a", std::string(1000, 'x'), "s"));
  seen.silent["b"] = "its agent has no session";
  v1::DiscoverDevicesResponse response;
  FillDiscovered(ViewOf(0, 0), seen, &response);
  EXPECT_TRUE(response.cut_off());
  EXPECT_LT(response.ByteSizeLong(), kMessageLimit);
}

}  // namespace
}  // namespace cxlpool::fm
