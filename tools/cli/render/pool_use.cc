#include "tools/cli/render/pool_use.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/cli/render/error_text.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/render/words.h"

namespace cxlpool::cli {
namespace {

// A lease that ended just now is being released; one that ended so long ago is not.
constexpr absl::Duration kLeaseGrace = absl::Minutes(1);

double ShareOf(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

bool InPool(const v1::Device& device) {
  return device.state() != v1::Device::FAILED && device.state() != v1::Device::REMOVED;
}

uint64_t PoolBytes(const v1::ListDevicesResponse& devices) {
  uint64_t bytes = 0;
  for (const v1::Device& device : devices.devices()) {
    if (InPool(device)) bytes += device.capacity_bytes();
  }
  return bytes;
}

// The largest first; of equals, in the order in which they came.
template <typename Thing, typename Key>
std::vector<const Thing*> Largest(const google::protobuf::RepeatedPtrField<Thing>& things,
                                  Key key) {
  std::vector<const Thing*> sorted;
  for (const Thing& thing : things) sorted.push_back(&thing);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Thing* a, const Thing* b) { return key(*a) > key(*b); });
  return sorted;
}

// "3d4h" or "12m5s": the two largest units.
std::string AgeText(absl::Duration age) {
  if (age < absl::ZeroDuration()) return "";  // The clocks of the two machines disagree.
  const int64_t hours = absl::ToInt64Hours(age);
  if (hours >= 24) return absl::StrCat(hours / 24, "d", hours % 24, "h");
  if (age < absl::Seconds(1)) return "0s";
  return absl::FormatDuration(absl::Trunc(age, hours > 0 ? absl::Minutes(1) : absl::Seconds(1)));
}

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds());
}

Section DevicesByUse(const PoolFacts& facts) {
  Section section{.key = "devices",
                  .title = "",
                  .nobody = "The pool has no device.",
                  .fields = {{"name", "DEVICE"},
                             {"state", "STATE"},
                             {"held_bytes", "HELD", Align::kRight},
                             {"free_bytes", "FREE", Align::kRight},
                             {"capacity_bytes", "CAPACITY", Align::kRight},
                             {"share", "USED", Align::kRight}}};
  for (const v1::Device* device : Largest(facts.devices.devices(), [](const v1::Device& one) {
         return ShareOf(one.allocated_bytes(), one.capacity_bytes());
       })) {
    section.rows.push_back(
        {{TextCell(ShortName(device->name())), TextCell(v1::Device::State_Name(device->state())),
          BytesCell(device->allocated_bytes()), BytesCell(FreeBytes(*device)),
          BytesCell(device->capacity_bytes()),
          ShareCell(device->allocated_bytes(), device->capacity_bytes())},
         ShareOf(device->allocated_bytes(), device->capacity_bytes())});
  }
  return section;
}

// A shared Region counts on each of its hosts, so that the shares of all may be more than the pool.
Section HostsByUse(const PoolFacts& facts) {
  struct Use {
    uint64_t bytes = 0;
    uint64_t regions = 0;
  };
  std::map<std::string, Use> uses;
  for (const v1::Region& region : facts.regions.regions()) {
    for (const v1::Attachment& attachment : region.attachments()) {
      uses[attachment.host()].bytes += region.size_bytes();
      ++uses[attachment.host()].regions;
    }
  }
  std::vector<std::pair<std::string, Use>> sorted(uses.begin(), uses.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  Section section{.key = "hosts",
                  .title = "",
                  .nobody = "Nothing is attached to a host.",
                  .fields = {{"name", "HOST"},
                             {"attached_bytes", "ATTACHED", Align::kRight},
                             {"regions", "REGIONS", Align::kRight},
                             {"share", "OF POOL", Align::kRight}}};
  const uint64_t pool = PoolBytes(facts.devices);
  for (const auto& [name, use] : sorted) {
    section.rows.push_back({{TextCell(ShortName(name)), BytesCell(use.bytes),
                             CountCell(use.regions), ShareCell(use.bytes, pool)},
                            ShareOf(use.bytes, pool)});
  }
  return section;
}

// Of a quota 0 there is none: "-".
Cell LimitCell(uint64_t bytes) { return {LimitText(bytes), BytesCell(bytes).json}; }

Section TenantsByUse(const PoolFacts& facts) {
  Section section{.key = "tenants",
                  .title = "",
                  .nobody = "",
                  .fields = {{"name", "TENANT"},
                             {"held_bytes", "HELD", Align::kRight},
                             {"quota_bytes", "QUOTA", Align::kRight},
                             {"regions", "REGIONS", Align::kRight},
                             {"share", "OF POOL", Align::kRight}}};
  const uint64_t pool = PoolBytes(facts.devices);
  for (const v1::Tenant* tenant :
       Largest(facts.tenants.tenants(), [](const v1::Tenant& one) { return one.used_bytes(); })) {
    section.rows.push_back({{TextCell(ShortName(tenant->name())), BytesCell(tenant->used_bytes()),
                             LimitCell(tenant->quota_bytes()), CountCell(tenant->regions()),
                             ShareCell(tenant->used_bytes(), pool)},
                            ShareOf(tenant->used_bytes(), pool)});
  }
  return section;
}

// Names of the devices that no host reaches which may have Regions: none is led there, or those
// that are were found not to reach it. A host that has not looked yet may. None in a pool without
// hosts.
std::set<std::string> OutOfReach(const PoolFacts& facts) {
  std::map<std::string, const v1::Host*> hosts;
  for (const v1::Host& host : facts.hosts.hosts()) {
    if (host.state() != v1::Host::RETIRED) hosts[host.name()] = &host;
  }
  std::set<std::string> devices;
  if (hosts.empty()) return devices;
  for (const v1::Device& device : facts.devices.devices()) devices.insert(device.name());
  const auto reaches = [](const v1::Host& host, const std::string& device) {
    return !host.unreached_devices().contains(ShortName(device));
  };
  if (facts.topology.tables().links().empty()) {
    for (const auto& named : hosts) {
      const v1::Host& host = *named.second;
      std::erase_if(devices, [&](const std::string& device) { return reaches(host, device); });
    }
    return devices;
  }
  for (const v1::Path& path : facts.topology.paths()) {
    const auto host = hosts.find(path.host());
    if (host == hosts.end() || !reaches(*host->second, path.device())) continue;
    devices.erase(path.device());
  }
  return devices;
}

// Why none of the free bytes there can be given out; empty: they can.
std::string WhyStranded(const v1::Device& device, const std::set<std::string>& out_of_reach) {
  const std::string state = v1::Device::State_Name(device.state());
  if (device.state() != v1::Device::READY) {
    return absl::StrCat(state, device.state_reason().empty() ? "" : ": ", device.state_reason());
  }
  if (device.max_lds() != 0 && device.lds() >= device.max_lds()) {
    return absl::StrCat("all ", device.max_lds(), " of its LDs are taken");
  }
  return out_of_reach.contains(device.name()) ? "no host reaches it" : "";
}

// Bytes that nobody uses and nobody can be given, by where they are.
Section Stranded(const PoolFacts& facts) {
  Section section{
      .key = "stranded",
      .title = "STRANDED: nobody has it, and nobody can be given it",
      .nobody = "nothing",
      .fields = {{"where", "WHERE"}, {"bytes", "BYTES", Align::kRight}, {"why", "WHY"}}};
  std::vector<std::pair<uint64_t, std::vector<Cell>>> rows;
  const auto add = [&](const std::string& where, uint64_t bytes, const std::string& why) {
    if (bytes == 0) return;
    rows.push_back({bytes, {TextCell(where), BytesCell(bytes), TextCell(why)}});
  };
  const std::set<std::string> out_of_reach = OutOfReach(facts);
  for (const v1::Device& device : facts.devices.devices()) {
    const std::string where = absl::StrCat("device ", ShortName(device.name()));
    if (device.state() == v1::Device::FAILED) {
      add(where,
          device.capacity_bytes() - std::min(device.allocated_bytes(), device.capacity_bytes()),
          WhyStranded(device, out_of_reach));
      continue;
    }
    add(where, device.quarantined_bytes(), "quarantined (`cxlpool doctor`)");
    add(where, device.scrubbing_bytes(), "being scrubbed, for the next owner");
    const std::string why = WhyStranded(device, out_of_reach);
    if (!why.empty()) add(where, FreeBytes(device), why);
  }
  for (const v1::Tenant& tenant : facts.tenants.tenants()) {
    if (tenant.reserved_bytes() <= tenant.used_bytes()) continue;
    add(absl::StrCat("tenant ", ShortName(tenant.name())),
        tenant.reserved_bytes() - tenant.used_bytes(), "kept free for it (--reserved)");
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [bytes, cells] : rows) section.rows.push_back({.cells = std::move(cells)});
  return section;
}

// Devices whose free bytes are in several pieces.
Section Fragmented(const PoolFacts& facts) {
  Section section{.key = "fragmented",
                  .title = "FRAGMENTED: free memory that is not in one piece",
                  .nobody = "nothing",
                  .fields = {{"name", "DEVICE"},
                             {"free_bytes", "FREE", Align::kRight},
                             {"largest_free_bytes", "LARGEST PIECE", Align::kRight},
                             {"share", "BEYOND IT", Align::kRight}}};
  for (const v1::Device* device : Largest(facts.devices.devices(), [](const v1::Device& one) {
         return FreeBytes(one) - std::min(FreeBytes(one), one.largest_free_bytes());
       })) {
    const uint64_t free = FreeBytes(*device);
    // Of a device on which nothing is placed the largest piece is not told.
    if (device->state() != v1::Device::READY || device->largest_free_bytes() >= free) continue;
    const uint64_t beyond = free - device->largest_free_bytes();
    section.rows.push_back({{TextCell(ShortName(device->name())), BytesCell(free),
                             BytesCell(device->largest_free_bytes()), ShareCell(beyond, free)},
                            ShareOf(beyond, free)});
  }
  return section;
}

// Why a Region is there although it should be gone; empty: nothing says so. A process is gone for
// certain once its host has booted again.
std::string WhyLeaked(const v1::Region& region, const std::map<std::string, const v1::Host*>& hosts,
                      absl::Time now) {
  std::vector<std::string> why;
  if (region.has_expire_time() && now - TimeOf(region.expire_time()) > kLeaseGrace) {
    why.push_back(
        absl::StrCat("its lease ended ", AgeText(now - TimeOf(region.expire_time())), " ago"));
  }
  if (region.has_maker()) {
    const std::string host = ShortName(region.maker().host());
    const auto found = hosts.find(region.maker().host());
    if (found == hosts.end()) {
      why.push_back(
          absl::StrCat("host ", host, ", where it was made, is not of the pool any more"));
    } else if (found->second->state() == v1::Host::RETIRED) {
      why.push_back(absl::StrCat("host ", host, ", where it was made, is retired"));
    } else if (region.has_owner() && !found->second->incarnation().empty() &&
               found->second->incarnation() != region.owner().incarnation()) {
      why.push_back(absl::StrCat("host ", host, " has booted since its owner ran"));
    }
  }
  return absl::StrJoin(why, "; ");
}

// Whose a Region is: of which user of which host, where it was not an operator who made it, and of
// which process, where it lives as long as one.
struct LeakOwner {
  std::string host = {};
  std::optional<uint32_t> uid = {};
  std::optional<uint32_t> pid = {};

  std::pair<std::string, std::optional<uint32_t>> user() const { return {host, uid}; }
};

LeakOwner OwnerOf(const v1::Region& region) {
  LeakOwner owner;
  if (region.has_maker()) {
    owner.host = ShortName(region.maker().host());
    owner.uid = region.maker().uid();
  }
  if (region.has_owner()) {
    owner.uid = region.owner().uid();
    owner.pid = region.owner().pid();
  }
  return owner;
}

// Those of one user together, the user with the most bytes first.
Section Leaked(const PoolFacts& facts, absl::Time now) {
  std::map<std::string, const v1::Host*> hosts;
  for (const v1::Host& host : facts.hosts.hosts()) hosts[host.name()] = &host;
  Section section{.key = "leaked",
                  .title = "LEAKED: its owner is gone or its lease is over, and it is still there",
                  .nobody = "nothing",
                  .fields = {{"name", "REGION"},
                             {"size_bytes", "SIZE", Align::kRight},
                             {"state", "STATE"},
                             {"tenant", "TENANT"},
                             {"host", "HOST"},
                             {"uid", "USER", Align::kRight},
                             {"pid", "PID", Align::kRight},
                             {"why", "WHY"}}};
  struct Leak {
    const v1::Region* region;
    LeakOwner owner;
    std::string why;
  };
  std::vector<Leak> leaks;
  std::map<std::pair<std::string, std::optional<uint32_t>>, uint64_t> bytes_of;
  for (const v1::Region* region :
       Largest(facts.regions.regions(), [](const v1::Region& one) { return one.size_bytes(); })) {
    const std::string why = WhyLeaked(*region, hosts, now);
    if (why.empty()) continue;
    leaks.push_back({region, OwnerOf(*region), why});
    bytes_of[leaks.back().owner.user()] += region->size_bytes();
  }
  std::stable_sort(leaks.begin(), leaks.end(), [&](const Leak& a, const Leak& b) {
    const uint64_t of_a = bytes_of[a.owner.user()], of_b = bytes_of[b.owner.user()];
    return of_a != of_b ? of_a > of_b : a.owner.user() < b.owner.user();
  });
  for (const auto& [region, owner, why] : leaks) {
    section.rows.push_back(
        {{TextCell(ShortName(region->name())), BytesCell(region->size_bytes()),
          TextCell(v1::Region::State_Name(region->state())), TextCell(ShortName(region->tenant())),
          TextCell(owner.host), NumberCell(owner.uid), NumberCell(owner.pid), TextCell(why)}});
  }
  return section;
}

// How many processes have it open, where each of its hosts has reported; a Region that is a NUMA
// node is opened by none.
std::optional<uint64_t> OpenBy(const v1::Region& region, const PoolFacts& facts) {
  const auto found = facts.holders.find(region.name());
  if (found == facts.holders.end()) return std::nullopt;
  for (const v1::Attachment& attachment : region.attachments()) {
    if (attachment.mode() == v1::SYSTEM_RAM) return std::nullopt;
  }
  uint64_t processes = 0;
  for (const v1::HostHolders& host : found->second.hosts()) {
    if (!host.has_report_time()) return std::nullopt;
    processes += static_cast<uint64_t>(host.holders_size()) + host.more();
  }
  return processes;
}

Section Oldest(const PoolFacts& facts, absl::Time now) {
  Section section{.key = "oldest",
                  .title = "OLDEST Regions; OPEN: processes that have it open now",
                  .nobody = "",
                  .fields = {{"name", "REGION"},
                             {"create_time", "AGE", Align::kRight},
                             {"size_bytes", "SIZE", Align::kRight},
                             {"tenant", "TENANT"},
                             {"expire_time", "LEASE ENDS"},
                             {"attachments", "HOSTS", Align::kRight},
                             {"open", "OPEN", Align::kRight}}};
  for (const v1::Region* region : OldestRegions(facts.regions, kOldestRegions)) {
    const auto open = OpenBy(*region, facts);
    section.rows.push_back({{TextCell(ShortName(region->name())),
                             {AgeText(now - TimeOf(region->create_time())),
                              Quoted(TimeText(region->has_create_time(), region->create_time()))},
                             BytesCell(region->size_bytes()),
                             TextCell(ShortName(region->tenant())),
                             TextCell(TimeText(region->has_expire_time(), region->expire_time())),
                             CountCell(static_cast<uint64_t>(region->attachments_size())),
                             NumberCell(open)}});
  }
  return section;
}

// Since when nobody has opened it, on any of its hosts: the latest that one of them says. Nothing
// where somebody has, or one does not say.
std::optional<absl::Time> UnopenedSince(const v1::Region& region, const PoolFacts& facts) {
  const auto found = facts.holders.find(region.name());
  if (found == facts.holders.end() || found->second.hosts().empty()) return std::nullopt;
  absl::Time latest = absl::InfinitePast();
  for (const v1::HostHolders& host : found->second.hosts()) {
    if (!host.has_unopened_since()) return std::nullopt;
    latest = std::max(latest, TimeOf(host.unopened_since()));
  }
  return latest;
}

Section NeverOpened(const PoolFacts& facts) {
  const auto asked = OldestRegions(facts.regions, kAskedRegions);
  const std::string of =
      asked.size() < kAskedRegions ? "" : absl::StrCat("of the ", kAskedRegions, " oldest, ");
  Section section{
      .key = "never_opened",
      .title = absl::StrCat("NEVER OPENED: ", of, "those that no program has opened since then"),
      .nobody = "",
      .fields = {{"name", "REGION"},
                 {"size_bytes", "SIZE", Align::kRight},
                 {"tenant", "TENANT"},
                 {"attachments", "HOSTS", Align::kRight},
                 {"unopened_since", "SINCE"}}};
  for (const v1::Region* region : asked) {
    const auto since = UnopenedSince(*region, facts);
    if (!since.has_value()) continue;
    google::protobuf::Timestamp time;
    time.set_seconds(absl::ToUnixSeconds(*since));
    section.rows.push_back({{TextCell(ShortName(region->name())), BytesCell(region->size_bytes()),
                             TextCell(ShortName(region->tenant())),
                             CountCell(static_cast<uint64_t>(region->attachments_size())),
                             TextCell(TimeText(true, time))}});
  }
  return section;
}

// UNATTACHED: of Regions that no host has.
Section Tenants(const PoolFacts& facts) {
  std::map<std::string, uint64_t> unattached;
  for (const v1::Region& region : facts.regions.regions()) {
    if (region.attachments().empty()) unattached[region.tenant()] += region.size_bytes();
  }
  Section section{.key = "tenants",
                  .title = "TENANTS; UNATTACHED: of Regions that no host has",
                  .nobody = "",
                  .fields = {{"name", "TENANT"},
                             {"held_bytes", "HELD", Align::kRight},
                             {"unattached_bytes", "UNATTACHED", Align::kRight},
                             {"quota_bytes", "QUOTA", Align::kRight},
                             {"reserved_bytes", "RESERVED", Align::kRight},
                             {"regions", "REGIONS", Align::kRight}}};
  for (const v1::Tenant* tenant :
       Largest(facts.tenants.tenants(), [](const v1::Tenant& one) { return one.used_bytes(); })) {
    section.rows.push_back(
        {{TextCell(ShortName(tenant->name())), BytesCell(tenant->used_bytes()),
          BytesCell(unattached[tenant->name()]), LimitCell(tenant->quota_bytes()),
          LimitCell(tenant->reserved_bytes()), CountCell(tenant->regions())}});
  }
  return section;
}

}  // namespace

std::vector<Section> TopSections(const PoolFacts& facts) {
  return {DevicesByUse(facts), HostsByUse(facts), TenantsByUse(facts)};
}

std::vector<const v1::Region*> OldestRegions(const v1::ListRegionsResponse& regions, size_t most) {
  std::vector<const v1::Region*> oldest;
  for (const v1::Region& region : regions.regions()) {
    if (region.state() == v1::Region::ALLOCATED && region.has_create_time()) {
      oldest.push_back(&region);
    }
  }
  std::stable_sort(oldest.begin(), oldest.end(), [](const v1::Region* a, const v1::Region* b) {
    return a->create_time().seconds() < b->create_time().seconds();
  });
  oldest.resize(std::min(oldest.size(), most));
  return oldest;
}

std::vector<Section> ReportSections(const PoolFacts& facts, absl::Time now) {
  return {Stranded(facts),    Fragmented(facts),  Leaked(facts, now),
          Oldest(facts, now), NeverOpened(facts), Tenants(facts)};
}

}  // namespace cxlpool::cli
