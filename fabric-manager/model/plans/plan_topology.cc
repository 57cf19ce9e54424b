// PlanTopology, PlanPutDevice, PlanPutHost and PlanImport: what the pool is made of, changed while
// it runs.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/model/space/bytes.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kRegionsNamed = 16;

// A refusal that names what is in the way.
absl::Status InTheWay(const std::string& reason, const std::string& entry, const std::string& why,
                      const std::set<std::string>& regions, const std::string& remedy) {
  const size_t shown = std::min(regions.size(), kRegionsNamed);
  const std::string names = absl::StrJoin(regions.begin(), std::next(regions.begin(), shown), ",");
  const size_t space = entry.find(' ');
  return Refuse(absl::StatusCode::kFailedPrecondition, reason,
                absl::StrCat(entry, " ", why, " ", names, shown < regions.size() ? ",..." : ""),
                remedy, {{entry.substr(0, space), entry.substr(space + 1)}, {"regions", names}});
}

// A device that the pool has had is the same device for ever, and what it holds stays within it.
absl::Status CheckDeviceChange(const PoolState& state, const DeviceEntry& wanted,
                               const DeviceEntry* before) {
  const Device* known = state.FindDevice(wanted.id);
  if (known == nullptr) return absl::OkStatus();  // The fabric has never shown it.
  std::string what;
  if (known->serial != wanted.serial) {
    what = absl::StrCat("serial number ", known->serial, ", not ", wanted.serial);
  } else if (known->granule_bytes != wanted.granule_bytes) {
    what = absl::StrCat("a granule of ", FormatBytes(known->granule_bytes), ", not ",
                        FormatBytes(wanted.granule_bytes));
  } else if (known->capacity_bytes > wanted.capacity_bytes && !CXLPOOL_MUTANT("device-shrinks")) {
    what = absl::StrCat("a capacity of ", FormatBytes(known->capacity_bytes),
                        ", and can grow but not shrink to ", FormatBytes(wanted.capacity_bytes));
  } else if (known->max_lds != 0 && known->capacity_bytes != wanted.capacity_bytes) {
    // Its capacity is what its LDs are counted by.
    what = absl::StrCat("a capacity of ", FormatBytes(known->capacity_bytes),
                        ", and a device that is carved into LDs does not change it");
  }
  if (!what.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "DEVICE_DIFFERS",
                  absl::StrCat("the pool knows device \"", wanted.id, "\" with ", what),
                  "describe the device as it is, or give another device an id of its own",
                  {{"device", wanted.id}});
  }
  if (before == nullptr || before->path == wanted.path) return absl::OkStatus();
  std::set<std::string> regions;
  for (const RegionPtr& region : state.RegionsOn(wanted.id)) regions.insert(region->id);
  if (regions.empty()) return absl::OkStatus();
  return InTheWay("DEVICE_NOT_EMPTY", absl::StrCat("device ", wanted.id),
                  "cannot move to another path while it holds bytes of", regions,
                  "drain it, and release them");
}

// What is attached to a host stays where it is and reachable.
absl::Status CheckHostChange(const PoolState& state, const HostEntry& before,
                             const HostEntry* wanted) {
  std::set<std::string> regions;
  const bool elsewhere = wanted == nullptr || wanted->qmp_socket != before.qmp_socket ||
                         wanted->agent_uid != before.agent_uid;
  for (const OccupiedSlot& slot : state.Occupied(before.id)) {
    const bool keeps_slot =
        wanted != nullptr &&
        (wanted->slots.empty() ||
         std::find(wanted->slots.begin(), wanted->slots.end(), slot.slot) != wanted->slots.end());
    if (elsewhere || !keeps_slot) regions.insert(slot.region_id);
  }
  if (regions.empty() || CXLPOOL_MUTANT("entry-of-attached-host-goes")) return absl::OkStatus();
  return InTheWay(
      "HOST_HAS_ATTACHMENTS", absl::StrCat("host ", before.id),
      wanted == nullptr ? "has attached" : "would lose the slots, or the way to them, of attached",
      regions, "detach or release them first, or fence the host");
}

// The difference between the entries on record and the tables that are wanted, gathered one entry
// at a time.
class Difference {
 public:
  Difference(const PoolState& state, const Caller& caller, PlanContext& context)
      : state_(state), caller_(caller), context_(context) {
    for (const auto& [key, entry] : state.topology_entries()) {
      if (std::holds_alternative<TopologyImport>(entry.what)) continue;
      (std::holds_alternative<LinkEntry>(entry.what) ? links_ : nodes_)[NameOf(entry)].push_back(
          &entry);
    }
  }

  absl::Status Want(const DeviceEntry& device) {
    const TopologyEntry* before = Take(nodes_, absl::StrCat("device ", device.id));
    const auto* was = before == nullptr ? nullptr : &std::get<DeviceEntry>(before->what);
    absl::Status status = CheckDeviceChange(state_, device, was);
    if (!status.ok()) return status;
    const bool removed = state_.IsRemoved(device.id);
    if (removed) {
      auto back = PutInService(state_, device.id);
      if (!back.ok()) return back.status();
      back_.push_back(state_.FindDevice(device.id));
      for (Item& item : *back) plan_.change.push_back(std::move(item));
    }
    Put(before, device, removed);
    return absl::OkStatus();
  }

  absl::Status Want(const HostEntry& host) {
    const TopologyEntry* before = Take(nodes_, absl::StrCat("host ", host.id));
    if (before != nullptr) {
      absl::Status status = CheckHostChange(state_, std::get<HostEntry>(before->what), &host);
      if (!status.ok()) return status;
    }
    Put(before, host, false);
    return absl::OkStatus();
  }

  absl::Status Want(const SwitchEntry& node) {
    Put(Take(nodes_, absl::StrCat("switch ", node.id)), node, false);
    return absl::OkStatus();
  }

  // Links have no identity but what they say: one that is wanted takes the place of one that is
  // the same, else of any other between the same two nodes.
  absl::Status Want(const LinkEntry& link) {
    std::vector<const TopologyEntry*>& same = links_[absl::StrCat("link ", link.a, " - ", link.b)];
    auto it = std::find_if(same.begin(), same.end(), [&](const TopologyEntry* entry) {
      return std::get<LinkEntry>(entry->what) == link;
    });
    if (it == same.end() && !same.empty()) it = same.begin();
    const TopologyEntry* before = it == same.end() ? nullptr : *it;
    if (before != nullptr) same.erase(it);
    Put(before, link, false);
    wants_links_ = true;
    return absl::OkStatus();
  }

  // What it takes, where all else stays.
  absl::StatusOr<Change> Taken() && {
    if (absl::Status status = CheckBack({}); !status.ok()) return status;
    return std::move(plan_.change);
  }

  // What nobody wants goes, where nothing is in its way. A topology is changed as a whole or not at
  // all, so what the store does not take at once is refused.
  absl::StatusOr<TopologyPlan> Finish() && {
    std::set<std::string> leaving;
    for (const auto& [name, entries] : nodes_) {
      const auto* device = std::get_if<DeviceEntry>(&entries.front()->what);
      if (device != nullptr) leaving.insert(device->id);
    }
    if (absl::Status status = CheckBack(leaving); !status.ok()) return status;
    for (auto* table : {&links_, &nodes_}) {
      for (const auto& [name, entries] : *table) {
        for (const TopologyEntry* entry : entries) {
          if (absl::Status status = Remove(*entry); !status.ok()) return status;
        }
      }
    }
    if (absl::Status status = CheckStaying(); !status.ok()) return status;
    if (plan_.change.size() > context_.max_items) {
      return Refuse(absl::StatusCode::kResourceExhausted, "CHANGE_TOO_LARGE",
                    absl::StrCat("it would change ", plan_.change.size(),
                                 " records at once, and the pool's "
                                 "store takes at most ",
                                 context_.max_items),
                    absl::StrCat("apply it in parts: first tables that differ from the pool's "
                                 "(`cxlpool topology show`) in at most ",
                                 context_.max_items, " entries, then the next ones"),
                    {{"records", absl::StrCat(plan_.change.size())},
                     {"max", absl::StrCat(context_.max_items)}});
    }
    return std::move(plan_);
  }

 private:
  using Table = std::map<std::string, std::vector<const TopologyEntry*>>;

  static const TopologyEntry* Take(Table& table, const std::string& name) {
    const auto it = table.find(name);
    if (it == table.end()) return nullptr;
    const TopologyEntry* entry = it->second.front();
    table.erase(it);
    return entry;
  }

  template <typename Entry>
  void Put(const TopologyEntry* before, const Entry& wanted, bool comes_back) {
    TopologyEntry entry{before == nullptr ? 0 : before->key, wanted};
    const bool same = before != nullptr && *before == entry;
    if (same && !comes_back) return;
    if (before == nullptr) entry.key = context_.next_id();
    plan_.steps.push_back(
        {before == nullptr || comes_back ? TopologyStep::Verb::kAdd : TopologyStep::Verb::kChange,
         NameOf(entry)});
    if (!same) plan_.change.push_back(entry);
  }

  // Devices that were removed and are wanted again, beside those that do not leave with this.
  absl::Status CheckBack(const std::set<std::string>& leaving) const {
    for (const Device* device : back_) {
      if (absl::Status status = CheckComesBack(state_, *device, leaving); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  // Whether what is wanted goes together with what stays besides: the entries of devices that the
  // pool has had, which are no part of the tables that were checked.
  absl::Status CheckStaying() const {
    const bool any = std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
      const auto* device = std::get_if<DeviceEntry>(&node.second.front()->what);
      return device != nullptr && state_.FindDevice(device->id) != nullptr;
    });
    if (!any || CXLPOOL_MUTANT("ids-of-removed-devices-are-free")) return absl::OkStatus();
    std::map<Key, TopologyEntry> entries = state_.topology_entries();
    for (const Item& item : plan_.change) {
      if (const auto* entry = std::get_if<TopologyEntry>(&item)) entries[entry->key] = *entry;
      if (const auto* erased = std::get_if<Erased>(&item)) entries.erase(erased->key);
    }
    TopologyTables tables;
    for (const auto& [key, entry] : entries) AddTo(tables, entry);
    const absl::Status status = Topology::Create(SpecOf(tables)).status();
    std::optional<Refusal> refusal = RefusalOf(status);
    if (!refusal.has_value()) return status;
    absl::StrAppend(&refusal->message, ", for devices that were removed keep their places in it");
    return refusal->ToStatus();
  }

  // Whether the link is one of a device that was removed before, and is not wanted now either. It
  // stays with the device's entry for as long as its other end is there. Where it would be the only
  // link it goes: hosts reach everything where there is none.
  bool StaysWithDevice(const LinkEntry& link) const {
    const auto removed = [&](const std::string& id) {
      return state_.IsRemoved(id) && nodes_.contains(absl::StrCat("device ", id));
    };
    const auto leaves = [&](const std::string& id) {
      return nodes_.contains(absl::StrCat("host ", id)) ||
             nodes_.contains(absl::StrCat("switch ", id));
    };
    return wants_links_ && (removed(link.a) || removed(link.b)) && !leaves(link.a) &&
           !leaves(link.b);
  }

  absl::Status Remove(const TopologyEntry& entry) {
    if (const auto* link = std::get_if<LinkEntry>(&entry.what);
        link != nullptr && StaysWithDevice(*link)) {
      return absl::OkStatus();
    }
    if (const auto* device = std::get_if<DeviceEntry>(&entry.what)) {
      // Its entry stays, so that `device add` brings it back as it was.
      if (state_.IsRemoved(device->id)) return absl::OkStatus();
      const Device* known = state_.FindDevice(device->id);
      plan_.steps.push_back({TopologyStep::Verb::kRemove, NameOf(entry)});
      if (known == nullptr) {
        plan_.change.push_back(Erased{entry.key});
        return absl::OkStatus();
      }
      auto removed = PlanRemoveDevice(state_, caller_, device->id, context_);
      if (!removed.ok()) return removed.status();
      for (Item& item : *removed) plan_.change.push_back(std::move(item));
      return absl::OkStatus();
    }
    if (const auto* host = std::get_if<HostEntry>(&entry.what)) {
      absl::Status status = CheckHostChange(state_, *host, nullptr);
      if (!status.ok()) return status;
    }
    plan_.steps.push_back({TopologyStep::Verb::kRemove, NameOf(entry)});
    plan_.change.push_back(Erased{entry.key});
    return absl::OkStatus();
  }

  const PoolState& state_;
  const Caller& caller_;
  PlanContext& context_;
  Table nodes_, links_;  // Not wanted yet.
  bool wants_links_ = false;
  std::vector<const Device*> back_;
  TopologyPlan plan_;
};

// Every entry, those of removed devices with them.
TopologyTables EverythingIn(const PoolState& state) {
  TopologyTables tables;
  for (const auto& [key, entry] : state.topology_entries()) AddTo(tables, entry);
  return tables;
}

// Whether they go together. The devices that were removed are out of sight, but for `wanted`: what
// they were may be another device by now. Their entries stay in the topology all the same, and have
// to fit there.
absl::Status CheckEverything(const PoolState& state, const TopologyTables& all,
                             const std::string& wanted, const FabricRules& fabric) {
  std::set<std::string> removed = state.RemovedDevices();
  removed.erase(wanted);
  if (removed.empty() || CXLPOOL_MUTANT("removed-devices-keep-their-paths")) {
    return CheckTables(all, fabric);
  }
  TopologyTables used = all;
  EraseDevices(used, removed);
  if (absl::Status status = CheckTables(used, fabric); !status.ok()) return status;
  return Topology::Create(SpecOf(all)).status();
}

// `wanted` instead of the entry of its id, or beside the others.
template <typename Entry>
void PutInto(std::vector<Entry>& entries, const Entry& wanted) {
  const auto it = std::find_if(entries.begin(), entries.end(),
                               [&](const Entry& entry) { return entry.id == wanted.id; });
  if (it == entries.end()) {
    entries.push_back(wanted);
  } else {
    *it = wanted;
  }
}

}  // namespace

absl::StatusOr<TopologyPlan> PlanTopology(const PoolState& state, const Caller& caller,
                                          const TopologyTables& wanted, PlanContext& context) {
  if (absl::Status status = CheckCaller(state, caller, Right::kRunPool); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckTables(wanted, context.fabric); !status.ok()) return status;
  Difference difference(state, caller, context);
  absl::Status status;
  const auto want = [&](const auto& entries) {
    for (const auto& entry : entries) {
      if (status.ok()) status = difference.Want(entry);
    }
  };
  want(wanted.devices);
  want(wanted.hosts);
  want(wanted.switches);
  want(wanted.links);
  if (!status.ok()) return status;
  return std::move(difference).Finish();
}

absl::StatusOr<Change> PlanPutDevice(const PoolState& state, const Caller& caller,
                                     const DeviceEntry& device, PlanContext& context) {
  if (absl::Status status = CheckCaller(state, caller, Right::kRunPool); !status.ok()) {
    return status;
  }
  TopologyTables wanted = EverythingIn(state);
  PutInto(wanted.devices, device);
  if (absl::Status status = CheckEverything(state, wanted, device.id, context.fabric);
      !status.ok()) {
    return status;
  }
  Difference difference(state, caller, context);
  if (absl::Status status = difference.Want(device); !status.ok()) return status;
  // One that drains is used again, as by `device add` without a word about what it is; and one that
  // failed is refused as there, or it would be taken for used again.
  absl::StatusOr<Change> change = std::move(difference).Taken();
  if (!change.ok()) return change;
  const Device* known = state.FindDevice(device.id);
  const bool failed = known != nullptr && known->service == DeviceService::kFailed &&
                      !CXLPOOL_MUTANT("what-failed-is-said-to-be-added");
  if (failed || (known != nullptr && known->service == DeviceService::kDraining)) {
    auto back = PlanAddDevice(state, caller, device.id, context);
    if (!back.ok()) return back.status();
    for (Item& item : *back) change->push_back(std::move(item));
  }
  return change;
}

absl::StatusOr<Change> PlanPutHost(const PoolState& state, const Caller& caller,
                                   const HostEntry& host, PlanContext& context) {
  if (absl::Status status = CheckCaller(state, caller, Right::kRunPool); !status.ok()) {
    return status;
  }
  TopologyTables wanted = EverythingIn(state);
  PutInto(wanted.hosts, host);
  if (absl::Status status = CheckEverything(state, wanted, "", context.fabric); !status.ok()) {
    return status;
  }
  Difference difference(state, caller, context);
  if (absl::Status status = difference.Want(host); !status.ok()) return status;
  return std::move(difference).Taken();
}

Change EraseHostEntry(const PoolState& state, const std::string& host) {
  Change change;
  for (const auto& [key, entry] : state.topology_entries()) {
    const auto* own = std::get_if<HostEntry>(&entry.what);
    const auto* link = std::get_if<LinkEntry>(&entry.what);
    if ((own != nullptr && own->id == host) ||
        (link != nullptr && (link->a == host || link->b == host))) {
      change.push_back(Erased{key});
    }
  }
  return change;
}

bool IsImported(const PoolState& state) {
  return std::any_of(
      state.topology_entries().begin(), state.topology_entries().end(),
      [](const auto& entry) { return std::holds_alternative<TopologyImport>(entry.second.what); });
}

// A manager that dies between two of these changes goes on where it was: entries are known by name.
Change PlanImport(const PoolState& state, const TopologyTables& tables, const std::string& source,
                  PlanContext& context) {
  if (IsImported(state)) return {};
  std::map<std::string, size_t> there;  // How many entries of that name.
  for (const auto& [key, entry] : state.topology_entries()) ++there[NameOf(entry)];
  Change change;
  const auto import = [&](const auto& entries) {
    for (const auto& entry : entries) {
      TopologyEntry wanted{0, entry};
      if (size_t& known = there[NameOf(wanted)]; known > 0) {
        --known;
        continue;
      }
      if (change.size() == context.max_items) return;
      wanted.key = context.next_id();
      change.push_back(std::move(wanted));
    }
  };
  import(tables.devices);
  import(tables.hosts);
  import(tables.switches);
  import(tables.links);
  if (change.size() < context.max_items && !CXLPOOL_MUTANT("tables-taken-in-again")) {
    change.push_back(TopologyEntry{context.next_id(), TopologyImport{source}});
  }
  return change;
}

// What leads from one set of tables to the other, by name: added and changed first, removed last.
// Links have no name of their own, so all links of two nodes are compared together, in any order.
std::vector<TopologyStep> CompareTables(const TopologyTables& now, const TopologyTables& wanted) {
  using Table = std::map<std::string, std::vector<TopologyEntry>>;
  const auto table_of = [](const TopologyTables& tables) {
    Table table;
    const auto add = [&](const auto& entries) {
      for (const auto& each : entries) {
        TopologyEntry entry{0, each};
        table[NameOf(entry)].push_back(std::move(entry));
      }
    };
    add(tables.devices);
    add(tables.hosts);
    add(tables.switches);
    add(tables.links);
    return table;
  };
  const Table before = table_of(now), after = table_of(wanted);
  std::vector<TopologyStep> steps;
  for (const auto& [name, entries] : after) {
    const auto it = before.find(name);
    if (it == before.end()) {
      steps.push_back({TopologyStep::Verb::kAdd, name});
    } else if (it->second.size() != entries.size() ||
               !std::is_permutation(entries.begin(), entries.end(), it->second.begin())) {
      steps.push_back({TopologyStep::Verb::kChange, name});
    }
  }
  for (const auto& [name, entries] : before) {
    if (!after.contains(name)) steps.push_back({TopologyStep::Verb::kRemove, name});
  }
  return steps;
}

}  // namespace cxlpool::fm
