#include "fabric-manager/rpc/list_regions.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/list_inventory.h"
#include "fabric-manager/rpc/region_filter.h"
#include "fabric-manager/rpc/request_hash.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kListStep = 1000;  // Regions taken from the view at a time.

absl::Status BadList(std::string reason, std::string message, std::string remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, std::move(reason), std::move(message),
                std::move(remedy));
}

struct Order {
  enum class By { kName, kSizeBytes, kCreateTime, kRevision };
  By by = By::kName;
  bool descending = false;

  static absl::StatusOr<Order> Parse(absl::string_view text) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    Order order;
    if (words.empty()) return order;
    order.descending = words.size() == 2 && words[1] == "desc";
    const bool known = words[0] == "name" || words[0] == "size_bytes" ||
                       words[0] == "create_time" || words[0] == "revision";
    if (!known || words.size() > 2 || (words.size() == 2 && !order.descending)) {
      return BadList(
          "BAD_ORDER_BY", "field order_by is not understood",
          "use name, size_bytes, create_time or revision, with \" desc\" after it for the "
          "other way");
    }
    order.by = words[0] == "size_bytes"    ? By::kSizeBytes
               : words[0] == "create_time" ? By::kCreateTime
               : words[0] == "revision"    ? By::kRevision
                                           : By::kName;
    return order;
  }

  // As the tables are kept: no sorting.
  bool natural() const { return by == By::kName && !descending; }

  uint64_t KeyOf(const Region& region) const {
    switch (by) {
      case By::kName:
        return 0;  // The id decides.
      case By::kSizeBytes:
        return region.size_bytes();
      case By::kCreateTime:
        return static_cast<uint64_t>(absl::ToUnixMicros(region.create_time)) + (uint64_t{1} << 63);
      case By::kRevision:
        return region.revision;
    }
    return 0;
  }
};

// Where a Region stands in the order.
struct PageStart {
  uint64_t key = 0;
  absl::string_view id;

  bool Before(const PageStart& other, const Order& order) const {
    const auto a = std::make_pair(key, id);
    const auto b = std::make_pair(other.key, other.id);
    return order.descending ? b < a : a < b;
  }
};

// "<what it fits, hex>-<key, hex>-<id>"
std::string WriteToken(uint64_t fits, uint64_t key, absl::string_view id) {
  return absl::StrCat(absl::Hex(fits, absl::kZeroPad16), "-", absl::Hex(key, absl::kZeroPad16), "-",
                      id);
}

struct Token {
  uint64_t key = 0;
  std::string id;
};

absl::StatusOr<std::optional<Token>> ReadToken(const std::string& text, uint64_t fits) {
  if (text.empty()) return std::optional<Token>();
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('-', 2));
  uint64_t made_for = 0;
  Token token;
  if (parts.size() != 3 || parts[0].size() != 16 || parts[1].size() != 16 ||
      !absl::SimpleHexAtoi(parts[0], &made_for) || !absl::SimpleHexAtoi(parts[1], &token.key) ||
      !CheckRegionId(parts[2]).ok()) {
    return BadList("BAD_PAGE_TOKEN", "field page_token was not made by this call",
                   "start again without one");
  }
  if (made_for != fits && !CXLPOOL_MUTANT("any-page-token-will-do")) {
    return BadList("BAD_PAGE_TOKEN",
                   "field page_token was made for another filter, order_by or host",
                   "start again without one");
  }
  token.id = parts[2];
  return std::optional<Token>(std::move(token));
}

struct Query {
  RegionFilter filter;
  Order order;
  std::string host;
  std::optional<Token> after;
  uint64_t fits = 0;  // Of its tokens.
  size_t size = 0;
  Caller caller;
  const Host* own = nullptr;  // Of the caller; in the view.

  // Whether the Region is there for the caller. One that is not leaves no trace: not in the page's
  // length, nor in where the next one begins.
  bool Sees(const Region& region) const {
    return CXLPOOL_MUTANT("list-shows-the-whole-pool") || MaySee(caller, own, region);
  }
  bool Wanted(const Region& region) const {
    if (CXLPOOL_MUTANT("list-ignores-host")) return filter.Matches(region);
    return (host.empty() || region.FindAttachment(absl::string_view(host)) != nullptr) &&
           (CXLPOOL_MUTANT("list-ignores-filter") || filter.Matches(region));
  }
};

// The request, checked. A page token is good only for the question that it was given with: `fits`
// says so.
absl::StatusOr<Query> ReadQuery(const PoolView& view, const Caller& caller,
                                const v1::ListRegionsRequest& request) {
  Query query;
  query.caller = caller;
  query.own = OwnHost(view, caller);
  auto filter = RegionFilter::Parse(request.filter());
  if (!filter.ok()) return filter.status();
  query.filter = *std::move(filter);
  // Where its bytes lie is not a tenant's to know, nor to find out by asking for each device.
  if (caller.for_tenants() && query.filter.NamesDevice() &&
      !CXLPOOL_MUTANT("tenants-filter-by-device")) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_FILTER",
                  "field filter names a device, which a role for tenants may not ask for",
                  "leave the device out, or let an operator ask", {{"field", "filter"}});
  }
  auto order = Order::Parse(request.order_by());
  if (!order.ok()) return order.status();
  query.order = *order;
  if (!request.host().empty()) {
    auto id = ParseResourceName("hosts", request.host());
    if (!id.ok()) return id.status();
    query.host = *std::move(id);
  }
  query.fits = HashBytes(absl::StrCat(request.filter().size(), ":", request.filter(),
                                      static_cast<int>(query.order.by),
                                      query.order.descending ? "d" : "a", query.host));
  auto after = ReadToken(request.page_token(), query.fits);
  if (!after.ok()) return after.status();
  query.after = *std::move(after);
  query.size = std::min(request.page_size() == 0 ? kDefaultPage : request.page_size(), kMaxPage);
  return query;
}

// A page in order of name, which is the view's own order: it begins behind the token's Region and
// ends as soon as it is full, or as so many were looked at that a caller would wait too long for
// it.
void ListByName(const PoolView& view, const Query& query, const FabricCapabilities& fabric,
                v1::ListRegionsResponse* response) {
  std::string after = query.after.has_value() ? query.after->id : std::string();
  std::string looked_at = after;
  size_t examined = 0;
  size_t bytes = 0;
  while (true) {
    const std::vector<RegionPtr> step = view.regions.List(looked_at, kListStep);
    for (const RegionPtr& region : step) {
      if (!query.Sees(*region)) continue;
      if (static_cast<size_t>(response->regions_size()) == query.size || examined == kMaxExamined ||
          bytes >= kPageBytes) {
        response->set_next_page_token(WriteToken(query.fits, 0, after));
        return;
      }
      ++examined;
      after = region->id;
      if (!query.Wanted(*region)) continue;
      v1::Region* const added = response->add_regions();
      FillRegion(*region, fabric, view, added);
      bytes += added->ByteSizeLong();
    }
    if (step.size() < kListStep) return;
    looked_at = step.back()->id;
  }
}

// A page in another order. Looks at every Region of the view, and keeps no more of them than one
// page has.
void ListSorted(const PoolView& view, const Query& query, const FabricCapabilities& fabric,
                v1::ListRegionsResponse* response) {
  const Order& order = query.order;
  // The first of those after the token: the last of them on top of a heap, which a better one
  // replaces.
  using Entry = std::pair<uint64_t, RegionPtr>;
  const auto place = [](const Entry& entry) { return PageStart{entry.first, entry.second->id}; };
  const auto before = [&](const Entry& a, const Entry& b) {
    return place(a).Before(place(b), order);
  };
  std::vector<Entry> heap;
  bool more = false;
  std::string after;
  while (true) {
    const std::vector<RegionPtr> step = view.regions.List(after, kListStep);
    for (const RegionPtr& region : step) {
      if (!query.Sees(*region)) continue;
      Entry entry(order.KeyOf(*region), region);
      if (query.after.has_value() &&
          !PageStart{query.after->key, query.after->id}.Before(place(entry), order)) {
        continue;
      }
      if (heap.size() == query.size && !before(entry, heap.front())) {
        // No need to look whether it is wanted where another page follows anyway.
        more = more || query.Wanted(*region);
        continue;
      }
      if (!query.Wanted(*region)) continue;
      if (heap.size() == query.size) {
        more = true;
        std::pop_heap(heap.begin(), heap.end(), before);
        heap.pop_back();
      }
      heap.push_back(std::move(entry));
      std::push_heap(heap.begin(), heap.end(), before);
    }
    if (step.size() < kListStep) break;
    after = step.back()->id;
  }
  std::sort_heap(heap.begin(), heap.end(), before);
  size_t filled = 0;
  for (size_t bytes = 0; filled < heap.size() && bytes < kPageBytes; ++filled) {
    v1::Region* const added = response->add_regions();
    FillRegion(*heap[filled].second, fabric, view, added);
    bytes += added->ByteSizeLong();
  }
  if (more || filled < heap.size()) {
    const Entry& last = heap[filled - 1];
    response->set_next_page_token(WriteToken(query.fits, last.first, last.second->id));
  }
}

// Whether some Region is attached there, though nobody enrolled the host: the fabric may know it.
bool IsUsed(const PoolView& view, const std::string& host) {
  bool used = false;
  view.regions.ForEach([&](const Region& region) {
    used = region.FindAttachment(absl::string_view(host)) != nullptr;
    return !used;
  });
  return used;
}

// A name that nothing has would give an empty list, which looks like an answer.
absl::Status CheckNames(const PoolView& view, const Query& query) {
  using Field = RegionFilter::Field;
  std::vector<std::pair<Field, std::string>> names = query.filter.Names();
  if (!query.host.empty()) names.emplace_back(Field::kHost, query.host);
  for (const auto& [field, id] : names) {
    const auto unknown = [&, id = id](const char* what, const char* reason) {
      return Refuse(absl::StatusCode::kNotFound, reason,
                    absl::StrCat("there is no ", what, " \"", id.substr(0, 80), "\""),
                    absl::StrCat("see `cxlpool ", what, " list`"), {{what, id.substr(0, 80)}});
    };
    const auto has = [id = id](const auto& list, auto id_of) {
      return list == nullptr || std::any_of(list->begin(), list->end(),
                                            [&](const auto& one) { return id_of(one) == id; });
    };
    if (field == Field::kHost && !view.hosts.contains(id) && !IsUsed(view, id)) {
      return unknown("host", "UNKNOWN_HOST");
    }
    if (field == Field::kDevice &&
        !has(view.devices, [](const DeviceView& one) { return one.device.id; })) {
      return unknown("device", "UNKNOWN_DEVICE");
    }
    if (field == Field::kTenant &&
        !has(view.tenants, [](const TenantView& one) { return one.tenant.id; })) {
      return unknown("tenant", "UNKNOWN_TENANT");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ListRegions(const PoolView& view, const Caller& caller,
                         const v1::ListRegionsRequest& request, const FabricCapabilities& fabric,
                         v1::ListRegionsResponse* response) {
  const auto query = ReadQuery(view, caller, request);
  if (!query.ok()) return query.status();
  // To a host that would say which names others have.
  if (!query->after.has_value() && caller.for_pool()) {
    if (absl::Status status = CheckNames(view, *query); !status.ok()) return status;
  }
  if (query->order.natural()) {
    ListByName(view, *query, fabric, response);
  } else {
    ListSorted(view, *query, fabric, response);
  }
  response->set_revision(view.revision);
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
