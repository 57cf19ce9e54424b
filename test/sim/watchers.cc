#include "test/sim/watchers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

constexpr size_t kAll = 1'000'000;

}  // namespace

void Watchers::Begin(const Step& step) {
  Watcher& watcher = watchers_.emplace_back();
  watcher.every_us = std::max<int64_t>(step.Get("every"), 1000);
  watcher.limit = static_cast<size_t>(std::max<int64_t>(step.Get("limit"), 1));
  ++world_.coverage->operations;
  ComeBack(watcher);
}

void Watchers::ComeBack(Watcher& watcher) {
  Look(watcher);
  // Now and then it is away for long.
  const int64_t most_us = watcher.every_us * (random_.OneIn(20) ? 20 : 2);
  world_.scheduler->At(kWorld, random_.Between(500, most_us),
                       [this, &watcher] { ComeBack(watcher); });
}

void Watchers::CatchUp() {
  for (Watcher& watcher : watchers_) {
    while (Look(watcher)) {
    }
  }
}

// In one revision after the other, from the one that it has; what it hears of a revision that it
// has heard of before would undo what came after.
bool Watchers::Look(Watcher& watcher) {
  ManagerProcess* manager = world_.manager();
  if (manager == nullptr || !manager->serving()) return false;
  if (watcher.life == kWorld) {
    List(watcher, *manager);
    return true;
  }
  const bool new_manager = std::exchange(watcher.life, manager->life()) != manager->life();
  if (!new_manager && manager->watch().newest() <= watcher.revision) return false;
  const auto entries = manager->watch().Take(watcher.revision, watcher.limit);
  if (!entries.ok()) {
    if (ReasonOf(entries.status()) != "REVISION_COMPACTED") {
      world_.violate(absl::StrCat("who watched up to revision ", watcher.revision,
                                  " hears: ", entries.status().message()));
      return false;
    }
    world_.coverage->Met(Meeting::kWatchToldOfGap);
    List(watcher, *manager);
    return true;
  }
  if (new_manager) world_.coverage->Met(Meeting::kWatchResumed);
  uint64_t revision = watcher.revision;
  for (const fm::WatchEntryPtr& entry : *entries) {
    const fm::WatchEvent& event = entry->event();
    if (event.revision <= watcher.revision || event.revision < revision) {
      world_.violate(absl::StrCat("who watched up to revision ", watcher.revision,
                                  " hears of revision ", event.revision, " of regions/",
                                  event.region->id, " after ", revision));
    }
    revision = event.revision;
    if (event.removed) {
      watcher.regions.erase(event.region->key);
    } else {
      watcher.regions[event.region->key] = event.region;
    }
  }
  watcher.revision = revision;
  if (manager->watch().newest() > revision) return true;
  Compare(watcher);
  return false;
}

void Watchers::List(Watcher& watcher, ManagerProcess& manager) {
  const fm::PoolViewPtr view = manager.views().Get();
  watcher.life = manager.life();
  watcher.revision = view->revision;
  watcher.regions.clear();
  for (const fm::RegionPtr& region : view->regions.List("", kAll)) {
    watcher.regions[region->key] = region;
  }
  Compare(watcher);
}

// With the records: as the reference knows them, for it heard of every commit.
void Watchers::Compare(const Watcher& watcher) {
  const auto breach = [&](const fm::Region& region, absl::string_view what) {
    world_.violate(absl::StrCat("who watches has heard of all up to revision ", watcher.revision,
                                ", and ", what, " regions/", region.id, " (key ", region.key,
                                ", revision ", region.revision, ")"));
  };
  world_.coverage->Met(Meeting::kWatchCompared);
  const auto& records = world_.reference->regions();
  for (const auto& [key, region] : records) {
    const auto seen = watcher.regions.find(key);
    if (seen == watcher.regions.end()) return breach(*region, "not of");
    if (seen->second->revision != region->revision || seen->second->id != region->id ||
        seen->second->state != region->state) {
      return breach(*region, absl::StrCat("knows revision ", seen->second->revision, " of"));
    }
  }
  if (watcher.regions.size() == records.size()) return;
  for (const auto& [key, region] : watcher.regions) {
    if (!records.contains(key)) return breach(*region, "not of the end of");
  }
}

}  // namespace cxlpool::sim
