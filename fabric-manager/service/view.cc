#include "fabric-manager/service/view.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "proto/support/mutant.h"

namespace cxlpool::fm {

std::shared_ptr<PoolView> ViewHolder::MakeEmpty() {
  auto view = std::make_shared<PoolView>();
  view->devices = std::make_shared<const std::vector<DeviceView>>();
  view->tenants = std::make_shared<const std::vector<TenantView>>();
  return view;
}

uint64_t DeviceView::free_bytes() const {
  return device.capacity_bytes - std::min(use.taken_bytes(), device.capacity_bytes);
}

bool IsNearlyFull(const Capacity& capacity) {
  return capacity.free_bytes < capacity.total_bytes / 20;
}

// A pool that is nearly full is in pieces, too, and that is no news.
bool IsInPieces(const Capacity& capacity, uint64_t most_free_on_one_device) {
  return capacity.free_bytes > 2 * (capacity.total_bytes / 20) &&
         capacity.largest_free_bytes < most_free_on_one_device / 10;
}

bool IsNearlyFull(const Tenant& tenant, const TenantUse& use) {
  const uint64_t quota = tenant.quota_bytes;
  return quota != 0 && use.held_bytes >= quota - quota / 20;
}

bool IsOutOfLds(const Device& device, uint32_t max_lds, const DeviceUse& use) {
  return max_lds != 0 && use.lds >= max_lds && use.taken_bytes() < device.capacity_bytes;
}

bool IsDrained(const Device& device, const DeviceUse& use) {
  return device.service == DeviceService::kDraining && use.taken_bytes() == 0;
}

const DeviceView* FindDevice(const PoolView& view, absl::string_view id) {
  for (const DeviceView& device : *view.devices) {
    if (device.device.id == id) return &device;
  }
  return nullptr;
}

uint64_t MostFreeOnOneDevice(const PoolView& view) {
  uint64_t most = 0;
  for (const DeviceView& device : *view.devices) {
    if (device.largest_free_bytes > 0) most = std::max(most, device.free_bytes());
  }
  return most;
}

const Host* OwnHost(const PoolView& view, const Caller& caller) {
  const auto own = view.hosts.find(caller.host());
  return own == view.hosts.end() ? nullptr : &own->second->host;
}

PoolViewPtr ViewHolder::Get() const {
  MutexLock lock(mutex_);
  if (stale_) Merge();
  return view_;
}

std::shared_ptr<const AccessRules> ViewHolder::GetAccessRules() const {
  MutexLock lock(access_mutex_);
  return access_rules_;
}

std::string ViewHolder::IdOfTag(const Uuid& tag) const {
  MutexLock lock(mutex_);
  if (stale_) Merge();
  const auto it = by_tag_.find(tag);
  return it == by_tag_.end() ? std::string() : it->second->id;
}

std::optional<RegionEnd> ViewHolder::EndOf(absl::string_view region_id) const {
  MutexLock lock(mutex_);
  if (stale_) Merge();
  const auto it = ends_.find(region_id);
  return it == ends_.end() ? std::nullopt : std::optional(it->second);
}

std::vector<PastTrouble> ViewHolder::PastOf(absl::string_view name) const {
  std::vector<PastTrouble> past;
  MutexLock lock(mutex_);
  for (const auto& [of, trouble] : past_) {
    if (of == name) past.push_back(trouble);
  }
  return past;
}

// Nothing of a host that comes and goes all day takes the place of what others have had.
void ViewHolder::NotePast(const std::string& name, PastTrouble past) {
  MutexLock lock(mutex_);
  const auto is_of_it = [&](const auto& entry) { return entry.first == name; };
  const auto of_it = std::count_if(past_.begin(), past_.end(), is_of_it);
  const bool is_much = of_it >= static_cast<std::ptrdiff_t>(kMaxPastOfOne);
  if (is_much && !CXLPOOL_MUTANT("who-flaps-has-all-the-past")) {
    past_.erase(std::find_if(past_.begin(), past_.end(), is_of_it));
  } else if (past_.size() >= kMaxPast) {
    past_.pop_front();
  }
  past_.emplace_back(name, std::move(past));
}

std::string ViewHolder::HostOfIdentity(absl::string_view identity) const {
  MutexLock lock(mutex_);
  if (stale_) Merge();
  const auto it = by_identity_.find(identity);
  return it == by_identity_.end() ? std::string() : it->second;
}

// Keeps what a commit changed, for the first reader to put into the next view: the writer's thread
// does not build views. Where nobody reads for long it does so after all, so that what waits stays
// bounded. Access rules go first: who sees the view is judged by rules that are as late at least.
void ViewHolder::Publish(Publication& publication) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    from.clear();
  };
  if (publication.access_rules != nullptr) {
    MutexLock lock(access_mutex_);
    access_rules_.swap(publication.access_rules);
  }
  publication.access_rules = nullptr;
  MutexLock lock(mutex_);
  append(pending_.regions, publication.regions);
  append(pending_.tags, publication.tags);
  append(pending_.ends, publication.ends);
  append(pending_.hosts, publication.hosts);
  pending_.revision = publication.revision;
  pending_.topology = publication.topology;
  pending_.laid_down = publication.laid_down;
  if (std::exchange(publication.has_numbers, false)) {
    pending_.has_numbers = true;
    pending_.devices.swap(publication.devices);
    pending_.device_infos = publication.device_infos;
    pending_.tenants.swap(publication.tenants);
    pending_.tenant_infos = publication.tenant_infos;
    pending_.capacity = publication.capacity;
    pending_.scarce_since = publication.scarce_since;
    publication.devices.clear();
    publication.tenants.clear();
  }
  stale_ = true;
  if (Waiting() > kMaxPending) Merge();
}

void ViewHolder::CatchUp() {
  MutexLock lock(mutex_);
  if (Waiting() >= kManyPending) Merge();
}

// What is published and not merged yet goes into this view as into the one before.
void ViewHolder::SetFabric(FabricCapabilities fabric) {
  MutexLock lock(mutex_);
  auto view = std::make_shared<PoolView>(*view_);
  view->fabric = std::move(fabric);
  view_ = std::move(view);
}

// Replaces the host in `view`. The index holds identities of hosts in service only, each under the
// host that has it now: an identity that a retired host left behind may be another host's already.
void ViewHolder::MergeHost(PoolView& view, std::shared_ptr<const HostView> host) const {
  std::shared_ptr<const HostView>& place = view.hosts[host->host.id];
  if (place != nullptr) {
    const auto old = by_identity_.find(place->host.identity);
    if (old != by_identity_.end() && old->second == place->host.id) by_identity_.erase(old);
  }
  if (host->gone) {
    view.hosts.erase(host->host.id);
    return;
  }
  if (!host->host.retired || CXLPOOL_MUTANT("retired-hosts-act")) {
    by_identity_[host->host.identity] = host->host.id;
  }
  place = std::move(host);
}

void ViewHolder::MergeNumbers(PoolView& view) const {
  view.capacity = pending_.capacity;
  if (pending_.scarce_since != nullptr) view.scarce_since = pending_.scarce_since;
  auto devices = std::make_shared<std::vector<DeviceView>>(*pending_.device_infos);
  for (size_t i = 0; i < devices->size(); ++i) {
    (*devices)[i].use = pending_.devices[i].use;
    (*devices)[i].largest_free_bytes = pending_.devices[i].largest_free_bytes;
  }
  view.devices = std::move(devices);
  auto tenants = std::make_shared<std::vector<TenantView>>(*pending_.tenant_infos);
  for (size_t i = 0; i < tenants->size(); ++i) (*tenants)[i].use = pending_.tenants[i];
  view.tenants = std::move(tenants);
}

// A name may be given again, and its Region go again: the older end makes room without taking the
// newer one with it.
void ViewHolder::MergeEnds() const {
  for (auto& [id, end] : pending_.ends) {
    ends_in_order_.emplace_back(id, end.time);
    ends_[std::move(id)] = std::move(end);
  }
  for (; ends_in_order_.size() > kMaxEnds; ends_in_order_.pop_front()) {
    const auto& [id, time] = ends_in_order_.front();
    const auto oldest = ends_.find(id);
    if (oldest != ends_.end() && oldest->second.time == time) ends_.erase(oldest);
  }
}

// A reader that keeps a view sees it as of its revision for as long as it likes: what others keep
// is copied, and shares with the copy all that does not change. What nobody keeps is changed in
// place.
void ViewHolder::Merge() const {
  // Nobody gets at it meanwhile. It is counted once more, and so what its last reader read of it
  // comes before what is changed now.
  const bool is_kept = view_.use_count() > 1;
  std::shared_ptr<PoolView> view = view_;
  if (is_kept && !CXLPOOL_MUTANT("view-changes-under-its-reader")) {
    view = std::make_shared<PoolView>(*view);
  }
  view->revision = pending_.revision;
  view->topology = pending_.topology;
  if (pending_.laid_down != nullptr) view->laid_down = pending_.laid_down;
  // In order of id, so that neighbours share the cost; of equal ids the last counts.
  auto& edits = pending_.regions;
  const auto before = [](const auto& a, const auto& b) { return a.ComesBefore(b); };
  // A load comes in order.
  if (!std::is_sorted(edits.begin(), edits.end(), before)) {
    std::stable_sort(edits.begin(), edits.end(), before);
  }
  // The first view of a load: the table is made at once, not by a million edits.
  const bool fresh =
      view->regions.size() == 0 &&
      std::all_of(edits.begin(), edits.end(), [](const auto& e) { return !e.taken_away; }) &&
      std::adjacent_find(edits.begin(), edits.end(),
                         [](const auto& a, const auto& b) { return a.HasIdOf(b); }) == edits.end();
  if (fresh) {
    std::vector<RegionPtr> regions;
    regions.reserve(edits.size());
    for (auto& edit : edits) regions.push_back(std::move(edit.region));
    view->regions = RegionTable::Of(std::move(regions));
  } else {
    view->regions.Change(edits);
  }
  for (auto& host : pending_.hosts) MergeHost(*view, std::move(host));

  if (std::exchange(pending_.has_numbers, false)) MergeNumbers(*view);
  MergeEnds();

  by_tag_.reserve(by_tag_.size() + pending_.tags.size());
  for (auto& [tag, region] : pending_.tags) {
    if (region == nullptr) {
      by_tag_.erase(tag);
    } else {
      by_tag_[tag] = std::move(region);
    }
  }
  // Not cleared: what a load of a million took is given back.
  const auto empty = [](auto& list) { std::exchange(list, std::decay_t<decltype(list)>()); };
  empty(pending_.regions);
  empty(pending_.tags);
  empty(pending_.ends);
  empty(pending_.hosts);
  view_ = std::move(view);
  stale_ = false;
}

}  // namespace cxlpool::fm
