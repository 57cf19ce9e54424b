#include "fabric-manager/rpc/list_inventory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

}  // namespace
}  // namespace cxlpool::fm
