#include "fabric-manager/rpc/list_inventory.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/topology_file.h"
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
v1::Revocation ToProto(const std::pair<const std::string, Revocation>& revocation) {
  return fm::ToProto(revocation.second);
}
v1::RoleBinding ToProto(const std::pair<const std::string, RoleBinding>& binding) {
  return fm::ToProto(binding.second);
}

template <typename Item>
const std::string& IdOf(const std::pair<const std::string, Item>& item) {
  return item.first;
}
const std::string& IdOf(const TenantView& tenant) { return tenant.tenant.id; }

absl::Status BadPageToken() {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_PAGE_TOKEN",
                "field page_token was not made by this call", "start again without one");
}

// One page while it is filled. It ends at the number of items that was asked for, or before it
// passes kPageBytes. At least one item is on it, so that the next page is another.
class Page {
 public:
  // Clients of the release before ask for no size and know of no pages: they get what there is
  // room for.
  Page(uint32_t size, std::string* next_page_token)
      : size_(size == 0 ? std::numeric_limits<uint32_t>::max() : std::min(size, kMaxItems)),
        next_page_token_(next_page_token) {}

  // False: the page has ended before `item`, and the next one begins after the last `token`.
  template <typename Message, typename List>
  bool Add(Message item, std::string token, List* list) {
    bytes_ += item.ByteSizeLong();
    const bool full =
        items_ > 0 && bytes_ > kPageBytes && !CXLPOOL_MUTANT("page-ends-by-count-alone");
    if (items_ == size_ || full) {
      *next_page_token_ = std::move(last_);
      return false;
    }
    ++items_;
    *list->Add() = std::move(item);
    last_ = std::move(token);
    return true;
  }

 private:
  const uint32_t size_;
  std::string* const next_page_token_;
  uint32_t items_ = 0;
  size_t bytes_ = 0;
  std::string last_;
};

// Lists what comes after the token, in the order of `items`, which is that of their ids.
template <typename Request, typename Items, typename List>
absl::Status FillPage(const Request& request, const Items& items, List* list,
                      std::string* next_page_token) {
  Page page(request.page_size(), next_page_token);
  for (const auto& item : items) {
    if (!request.page_token().empty() && IdOf(item) <= request.page_token()) continue;
    if (!page.Add(ToProto(item), IdOf(item), list)) break;
  }
  return absl::OkStatus();
}

bool IsIdOrNone(const std::string& page_token) {
  return page_token.empty() || CheckResourceId(page_token).ok();
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
  if (!IsIdOrNone(request.page_token())) return BadPageToken();
  return FillPage(request, AllDevices(view), response->mutable_devices(),
                  response->mutable_next_page_token());
}

absl::Status ListHosts(const PoolView& view, const v1::ListHostsRequest& request,
                       v1::ListHostsResponse* response) {
  if (!IsIdOrNone(request.page_token())) return BadPageToken();
  return FillPage(request, view.hosts, response->mutable_hosts(),
                  response->mutable_next_page_token());
}

absl::Status ListTenants(const PoolView& view, const Caller& caller,
                         const v1::ListTenantsRequest& request, v1::ListTenantsResponse* response) {
  if (!IsIdOrNone(request.page_token())) return BadPageToken();
  if (caller.for_tenants()) {
    std::vector<TenantView> own;
    std::copy_if(view.tenants->begin(), view.tenants->end(), std::back_inserter(own),
                 [&](const TenantView& one) { return caller.HasTenant(one.tenant.id); });
    return FillPage(request, own, response->mutable_tenants(), response->mutable_next_page_token());
  }
  return FillPage(request, *view.tenants, response->mutable_tenants(),
                  response->mutable_next_page_token());
}

absl::Status ListRevocations(const Revocations& revocations,
                             const v1::ListRevocationsRequest& request,
                             v1::ListRevocationsResponse* response) {
  return FillPage(request, revocations, response->mutable_revocations(),
                  response->mutable_next_page_token());
}

absl::Status ListRoleBindings(const RoleBindings& bindings,
                              const v1::ListRoleBindingsRequest& request,
                              v1::ListRoleBindingsResponse* response) {
  return FillPage(request, bindings, response->mutable_role_bindings(),
                  response->mutable_next_page_token());
}

// A token says what was listed last: devices/D, hosts/H, for a path hosts/H/devices/D, and
// tables/N/SUM for the Nth row of tables of that sum. Rows are counted, for links have no names. So
// tables that have changed since the page before are refused: a row would be left out, and whoever
// applies what was read would remove it.
absl::Status GetTopology(const PoolView& view, const std::string& fabric,
                         const v1::GetTopologyRequest& request, v1::Topology* response) {
  const std::string& token = request.page_token();
  const std::vector<std::string> after = absl::StrSplit(token, '/');
  const bool after_device = after.size() == 2 && after[0] == "devices";
  const bool after_host = after.size() == 2 && after[0] == "hosts";
  const bool after_path = after.size() == 4 && after[0] == "hosts" && after[2] == "devices";
  size_t rows_listed = 0, sum_listed = 0;
  const bool after_row = after.size() == 3 && after[0] == "tables" &&
                         absl::SimpleAtoi(after[1], &rows_listed) &&
                         absl::SimpleAtoi(after[2], &sum_listed);
  if (!token.empty() && !after_device && !after_host && !after_path && !after_row) {
    return BadPageToken();
  }

  Page page(0, response->mutable_next_page_token());
  response->set_fabric(fabric);
  if (token.empty() || after_device) {
    for (const auto& [id, device] : AllDevices(view)) {
      if (after_device && id <= after[1]) continue;
      if (!page.Add(device, absl::StrCat("devices/", id), response->mutable_devices())) return {};
    }
  }
  if (token.empty() || after_device || after_host) {
    for (const auto& [id, host] : view.hosts) {
      if (after_host && id <= after[1]) continue;
      if (!page.Add(ToProto(*host), absl::StrCat("hosts/", id), response->mutable_hosts())) {
        return {};
      }
    }
  }
  if (!after_row) {
    for (const auto& [ends, path] : view.topology->paths()) {
      if (after_path && std::tie(ends.first, ends.second) <= std::tie(after[1], after[3])) continue;
      if (!page.Add(ToProto(ends, path),
                    absl::StrCat("hosts/", ends.first, "/devices/", ends.second),
                    response->mutable_paths())) {
        return {};
      }
    }
  }
  const v1::TopologyTables tables = ToProto(view.laid_down->tables);
  const size_t sum = std::hash<std::string>()(tables.SerializeAsString());
  if (after_row && sum != sum_listed && !CXLPOOL_MUTANT("pages-of-two-topologies")) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_PAGE_TOKEN",
                  "field page_token is of a topology that has changed since",
                  "start again without one");
  }
  v1::TopologyTables& listed = *response->mutable_tables();
  size_t row = 0;
  const auto add = [&](const auto& rows, auto* list) {
    for (const auto& entry : rows) {
      if (++row <= rows_listed) continue;
      if (!page.Add(entry, absl::StrCat("tables/", row, "/", sum), list)) return false;
    }
    return true;
  };
  std::ignore = add(tables.devices(), listed.mutable_devices()) &&
                add(tables.hosts(), listed.mutable_hosts()) &&
                add(tables.switches(), listed.mutable_switches()) &&
                add(tables.links(), listed.mutable_links());
  return absl::OkStatus();
}

namespace {

// A granule of a new device: what every use of it can be cut in, system-ram of this host too, and
// small enough that a small device has some.
constexpr uint64_t kUsualGranule = 256 << 20;
constexpr uint64_t kLeastGranules = 16;

uint64_t GranuleFor(uint64_t size_bytes, uint64_t align_bytes, uint64_t memory_block_bytes) {
  const uint64_t least = std::bit_ceil(
      std::clamp<uint64_t>(std::max(align_bytes, memory_block_bytes), 2 << 20, 1ull << 40));
  uint64_t granule = std::max(kUsualGranule, least);
  while (granule > least && size_bytes / granule < kLeastGranules) granule /= 2;
  return granule;
}

// The first granule is kept for the mark. Nothing is suggested of what AddDevice would refuse.
void Suggest(const SeenDevice& device, uint64_t memory_block_bytes, v1::DiscoveredDevice& out) {
  if (!device.unfit_reason.empty() || device.mark == SeenDevice::Mark::kOtherPool) return;
  const uint64_t granule =
      device.mark == SeenDevice::Mark::kThisPool
          ? device.reserved_bytes
          : GranuleFor(device.size_bytes, device.align_bytes, memory_block_bytes);
  if (granule == 0 || device.size_bytes / granule < 2) return;
  out.set_suggested_granule_bytes(granule);
  out.set_suggested_capacity_bytes((device.size_bytes / granule - 1) * granule);
}

// What two hosts' devices have in common if they are guessed to be one; empty: nothing.
std::string GuessKey(const SeenDevice& device) {
  if (!device.mark_id.empty()) return absl::StrCat("mark ", device.mark_id);
  if (device.serial.empty() || !device.unfit_reason.empty()) return "";
  return absl::StrCat("serial ", device.size_bytes, " ", device.serial);
}

}  // namespace

// A host that shows two devices which could be the same one makes both of no use for guessing: the
// two have one serial number or are copies, and which of them another host means nobody can tell.
void FillDiscovered(const PoolView& view, const SeenDevices& seen,
                    v1::DiscoverDevicesResponse* response) {
  std::map<std::pair<std::string, std::string>, int> on_host;
  for (const SeenDevice& device : seen.devices) ++on_host[{GuessKey(device), device.host}];
  std::set<std::string> ambiguous;
  for (const auto& [key, count] : on_host) {
    if (count > 1 && !CXLPOOL_MUTANT("twins-are-one")) ambiguous.insert(key.first);
  }
  std::map<std::string, uint32_t> groups;
  uint32_t last_group = 0;
  size_t bytes = 0;
  for (const SeenDevice& device : seen.devices) {
    v1::DiscoveredDevice out;
    out.set_host(ResourceName("hosts", device.host));
    out.set_name(device.name);
    out.set_serial(device.serial);
    out.set_size_bytes(device.size_bytes);
    out.set_align_bytes(device.align_bytes);
    out.set_mark(device.mark == SeenDevice::Mark::kNone       ? v1::DiscoveredDevice::NO_MARK
                 : device.mark == SeenDevice::Mark::kThisPool ? v1::DiscoveredDevice::THIS_POOL
                                                              : v1::DiscoveredDevice::OTHER_POOL);
    out.set_mark_id(device.mark_id);
    out.set_marked_device(device.marked_device);
    out.set_marked_pool(device.marked_pool);
    out.set_unfit_reason(device.unfit_reason);
    const std::string key = GuessKey(device);
    if (key.empty() || ambiguous.contains(key)) {
      out.set_group(++last_group);
    } else {
      const auto [group, is_new] = groups.emplace(key, last_group + 1);
      if (is_new) ++last_group;
      out.set_group(group->second);
    }
    const auto host = view.hosts.find(device.host);
    Suggest(device, host == view.hosts.end() ? 0 : host->second->runtime->memory_block_bytes, out);
    bytes += out.ByteSizeLong();
    if (bytes > kPageBytes) {
      response->set_cut_off(true);
      break;
    }
    *response->add_devices() = std::move(out);
  }
  for (const auto& [host, reason] : seen.silent) {
    v1::SilentHost out;
    out.set_host(ResourceName("hosts", host));
    out.set_reason(reason);
    bytes += out.ByteSizeLong();
    if (bytes > kPageBytes) {
      response->set_cut_off(true);
      break;
    }
    *response->add_silent_hosts() = std::move(out);
  }
}

}  // namespace cxlpool::fm
