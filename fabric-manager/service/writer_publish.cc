// What readers are shown: the Writer's half that publishes.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/service/writer.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

// What `change` makes of the Region, under the same name; null: it is gone from there.
const Region* NowOf(const Region& before, const Change& change) {
  for (const Item& item : change) {
    const auto* now = std::get_if<RegionPtr>(&item);
    if (now != nullptr && (*now)->key == before.key && (*now)->id == before.id) return now->get();
  }
  return nullptr;
}

// Whether all bytes are counted where they were.
bool SameNumbers(const Region& before, const Region& now) {
  return before.state == now.state && before.tenant == now.tenant &&
         before.extents == now.extents && before.bad == now.bad;
}

// Hosts whose slots an item concerns.
void AddHosts(const Item& item, std::vector<absl::string_view>& hosts) {
  if (const auto* region = std::get_if<RegionPtr>(&item)) {
    for (const Attachment& attachment : (*region)->attachments) hosts.push_back(attachment.host);
  } else if (const auto* host = std::get_if<Host>(&item)) {
    hosts.push_back(host->id);
  }
}

// Whether it is of what ReadInfos reads.
bool IsInfo(const Item& item) {
  return std::holds_alternative<Device>(item) || std::holds_alternative<Tenant>(item);
}

std::pair<std::string, RegionEnd> EndOf(const Tombstone& tombstone) {
  return {tombstone.region->id, {tombstone.gone_time, tombstone.region->state_reason}};
}

bool IsAccessRule(const Item& item) {
  return std::holds_alternative<Revocation>(item) || std::holds_alternative<RoleBinding>(item);
}

// Whether what the pool is made of may be another because of it.
bool IsLaidDown(const Item& item) {
  return std::holds_alternative<TopologyEntry>(item) || std::holds_alternative<Device>(item);
}

}  // namespace

// The group is durable: what it made of each Region is counted, and readers and watchers are shown
// what was prepared.
void Writer::PublishGroup(Group& group) {
  for (const auto& [before, after] : group.steps) {
    meters_.CountRungs(*before, after.get(), group.time);
  }
  Publish();
  watch_->Publish(std::move(group.events));
}

// As PrepareView; but what the records say is what there is.
void Writer::PublishLoaded(const Change& records) {
  stale_numbers_ = true;
  for (const Item& item : records) {
    if (const auto* host = std::get_if<Host>(&item)) {
      publication_.hosts.push_back(LookAtHost(*host));
    } else if (const auto* tombstone = std::get_if<Tombstone>(&item)) {
      publication_.ends.push_back(EndOf(*tombstone));
    }
  }
  std::sort(publication_.ends.begin(), publication_.ends.end(),
            [](const auto& a, const auto& b) { return a.second.time < b.second.time; });
  Prepare();
  Publish();
  publication_ = {};  // No commit needs as much room.
}

// What is known without a record, where state and revision are durable. Otherwise it is shown with
// the next group.
void Writer::PublishVolatile() {
  const bool is_stale = !stale_hosts_.empty() || stale_infos_ || stale_laid_down_;
  const bool is_durable = !committing_.has_value() &&
                          (group_.planned.empty() || CXLPOOL_MUTANT("shown-at-a-planned-revision"));
  if (!is_stale || !is_durable) return;
  Group none;
  PrepareView(none);
  Publish();
}

// Readers are not to see what was prepared: the state is another now.
void Writer::ForgetPrepared() {
  for (const auto& host : publication_.hosts) stale_hosts_.insert(host->host.id);
  publication_ = {};
  stale_laid_down_ = stale_access_rules_ = stale_infos_ = true;
}

// Prepares what readers are to see of the group: what its changes made of the view, in their order;
// of each one what it replaced first. The state has this group, and none that came later.
void Writer::PrepareView(Group& group) {
  Publication& publication = publication_;
  const std::set<std::string> stale_hosts = std::exchange(stale_hosts_, {});
  std::vector<absl::string_view> hosts(stale_hosts.begin(), stale_hosts.end());
  hosts.reserve(hosts.size() + group.changes.size());
  // Of both sides of a change: what is new replaces Erased, and what is taken back leaves it.
  const auto note = [this](const Item& item) {
    stale_infos_ |= IsInfo(item);
    stale_laid_down_ |= IsLaidDown(item);
    stale_access_rules_ |= IsAccessRule(item);
  };
  for (size_t i = 0; i < group.changes.size(); ++i) {
    for (const Item& item : group.inverses[i]) {
      AddHosts(item, hosts);
      note(item);
      const auto* before = std::get_if<RegionPtr>(&item);
      const Region* now = before == nullptr ? nullptr : NowOf(**before, group.changes[i]);
      stale_numbers_ |=
          now == nullptr ? !std::holds_alternative<Host>(item) : !SameNumbers(**before, *now);
      if (before == nullptr || now != nullptr) continue;
      publication.regions.push_back({*before, true});
      publication.tags.emplace_back((*before)->tag, nullptr);
    }
    for (const Item& item : group.changes[i]) {
      AddHosts(item, hosts);
      if (const auto* now = std::get_if<RegionPtr>(&item)) {
        publication.regions.push_back({*now});
        publication.tags.emplace_back((*now)->tag, *now);
      } else if (const auto* tombstone = std::get_if<Tombstone>(&item)) {
        if (!CXLPOOL_MUTANT("no-word-of-the-gone")) publication.ends.push_back(EndOf(*tombstone));
      } else {
        note(item);
      }
    }
  }
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  for (const absl::string_view id : hosts) {
    const Host* host = state_.FindHost(id);
    // Before another of this name is planned.
    if (host == nullptr && !CXLPOOL_MUTANT("next-host-has-the-former-agent")) {
      state_.ForgetAgent(id);
    }
    if (host != nullptr) {
      publication.hosts.push_back(LookAtHost(*host));
    } else if (!CXLPOOL_MUTANT("removed-host-stays-visible")) {
      // Removed; or some Region is attached where nobody is enrolled, and nothing goes.
      HostView gone;
      gone.host.id = std::string(id);
      gone.gone = true;
      publication.hosts.push_back(std::make_shared<const HostView>(std::move(gone)));
    }
  }
  for (const auto& [key, before] : group.undurable) {
    if (before == nullptr) continue;
    const RegionPtr* after = state_.FindRegion(key);
    group.steps.emplace_back(before, after == nullptr ? nullptr : *after);
  }
  Prepare();
}

// Adds what every publication has.
void Writer::Prepare() {
  publication_.revision = revision_;
  publication_.laid_down = laid_down_;
  if (std::exchange(stale_laid_down_, false)) {
    topology_ = std::make_shared<const Topology>(state_.topology());
    const TopologyTables tables = state_.GetTopologyTables();
    std::map<std::string, std::string> unseen_devices = unseen_devices_;
    std::erase_if(unseen_devices, [&](const auto& unseen) {
      return state_.FindDevice(unseen.first) != nullptr ||
             std::none_of(tables.devices.begin(), tables.devices.end(),
                          [&](const DeviceEntry& entry) { return entry.id == unseen.first; });
    });
    publication_.laid_down =
        std::make_shared<const LaidDown>(LaidDown{tables, std::move(unseen_devices)});
    stale_infos_ = true;  // Failure domains.
  }
  publication_.topology = topology_;
  if (std::exchange(stale_access_rules_, false)) {
    publication_.access_rules = std::make_shared<const AccessRules>(state_.access_rules());
  }
  stale_numbers_ |= stale_infos_;
  if (std::exchange(stale_infos_, false)) ReadInfos();
  if (std::exchange(stale_numbers_, false)) ReadNumbers();
}

void Writer::Publish() {
  for (const auto& [device, why] : laid_down_->unseen_devices) {
    if (!publication_.laid_down->unseen_devices.contains(device)) unseen_devices_.erase(device);
  }
  laid_down_ = publication_.laid_down;
  if (publication_.has_numbers) scarce_since_ = publication_.scarce_since;
  views_->Publish(publication_);
}

void Writer::ReadNumbers() {
  publication_.has_numbers = true;
  publication_.device_infos = device_infos_;
  for (const DeviceIndex index : device_order_) {
    const bool placeable = state_.placeable().Contains(index);
    publication_.devices.push_back(
        {state_.UseOf(index), placeable ? state_.space().largest_free_bytes(index) : 0});
  }
  publication_.tenant_infos = tenant_infos_;
  for (const Interned& tenant : tenant_order_) publication_.tenants.push_back(state_.UseOf(tenant));
  publication_.capacity = state_.GetCapacity();
  NoteScarce();
}

// Of the numbers that stand in the publication, so that it is noted at the commit that made it so,
// whether somebody looks or not.
void Writer::NoteScarce() {
  ScarceSince scarce;
  const auto add = [&](std::string what) {
    const auto known = scarce_since_->find(what);
    const absl::Time since = known == scarce_since_->end() ? clock_->Now() : known->second;
    scarce.emplace(std::move(what), since);
  };
  uint64_t most_free = 0;
  for (size_t i = 0; i < publication_.devices.size(); ++i) {
    const DeviceView& info = (*device_infos_)[i];
    const Publication::DeviceNumbers& numbers = publication_.devices[i];
    const uint64_t capacity = info.device.capacity_bytes;
    if (numbers.largest_free_bytes > 0) {
      most_free = std::max(most_free, capacity - std::min(numbers.use.taken_bytes(), capacity));
    }
    if (IsOutOfLds(info.device, info.max_lds, numbers.use)) {
      add(absl::StrCat("LDS_TAKEN ", info.device.id));
    }
    if (IsDrained(info.device, numbers.use)) add(absl::StrCat("DRAINED ", info.device.id));
  }
  for (size_t i = 0; i < publication_.tenants.size(); ++i) {
    const Tenant& tenant = (*tenant_infos_)[i].tenant;
    if (IsNearlyFull(tenant, publication_.tenants[i])) {
      add(absl::StrCat("TENANT_FULL ", tenant.id));
    }
  }
  if (IsNearlyFull(publication_.capacity)) add("POOL_FULL");
  if (IsInPieces(publication_.capacity, most_free)) add("POOL_FRAGMENTED");
  publication_.scarce_since = scarce == *scarce_since_
                                  ? scarce_since_
                                  : std::make_shared<const ScarceSince>(std::move(scarce));
}

std::shared_ptr<const HostView> Writer::LookAtHost(const Host& host) const {
  return std::make_shared<const HostView>(
      HostView{host, state_.RuntimeOf(host.id), state_.Occupied(host.id)});
}

// What devices and tenants are, apart from their numbers: read anew where it may have changed.
void Writer::ReadInfos() {
  auto devices = std::make_shared<std::vector<DeviceView>>();
  device_order_.clear();
  for (const auto& [id, device] : state_.devices()) {
    const DeviceIndex index = *state_.IndexOf(Interned(id));
    const uint32_t most = state_.MaxLds(index);
    device_order_.push_back(index);
    devices->push_back(
        {device, {}, 0, state_.topology().DomainOf(id), most == UINT32_MAX ? 0 : most});
  }
  device_infos_ = std::move(devices);

  auto tenants = std::make_shared<std::vector<TenantView>>();
  if (state_.FindTenant(kDefaultTenant) == nullptr) {
    tenants->push_back({Tenant{.key = 0, .id = kDefaultTenant}, {}});
  }
  for (const auto& [id, tenant] : state_.tenants()) tenants->push_back({tenant, {}});
  std::sort(tenants->begin(), tenants->end(),
            [](const TenantView& a, const TenantView& b) { return a.tenant.id < b.tenant.id; });
  tenant_order_.clear();
  for (const TenantView& tenant : *tenants) tenant_order_.emplace_back(tenant.tenant.id);
  tenant_infos_ = std::move(tenants);
}

void Writer::SetRuntime(const std::string& host, HostRuntime runtime) {
  std::vector<std::pair<std::string, HostRuntime>> of_hosts;
  of_hosts.emplace_back(host, std::move(runtime));
  SetRuntimes(std::move(of_hosts));
}

void Writer::SetRuntimes(std::vector<std::pair<std::string, HostRuntime>> of_hosts) {
  for (auto& [host, runtime] : of_hosts) {
    const HostRuntime& before = state_.Runtime(host);
    runtime.wrong_since = WrongSince(before, runtime, clock_->Now());
    for (const auto& [what, since] : before.wrong_since) {
      if (runtime.wrong_since.contains(what) || CXLPOOL_MUTANT("what-is-over-never-was")) continue;
      views_->NotePast(ResourceName("hosts", host), {what, since, clock_->Now()});
    }
    state_.SetRuntime(host, std::move(runtime));
    stale_hosts_.insert(host);
  }
  if (CXLPOOL_MUTANT("show-uncommitted")) {
    Group none;
    PrepareView(none);
    Publish();
  }
  PublishVolatile();
}

void Writer::SetReachable(const std::map<std::string, std::string>& why_not) {
  if (why_not.empty()) return;
  for (const auto& [device, why] : why_not) {
    if (const Device* known = state_.FindDevice(device); known != nullptr) {
      if (why.empty() && known->unreachable_since != absl::InfinitePast()) {
        views_->NotePast(ResourceName("devices", device),
                         {"DEVICE_UNREACHABLE", known->unreachable_since, clock_->Now()});
      }
      state_.SetReachable(device, why, clock_->Now());
    } else {
      unseen_devices_[device] = why;
      stale_laid_down_ = true;
    }
  }
  stale_infos_ = true;
  PublishVolatile();
}

}  // namespace cxlpool::fm
