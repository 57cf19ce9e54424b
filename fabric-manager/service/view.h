// What readers see: the pool as of one revision, immutable. The writer publishes a new one after
// each commit; RPC threads take the latest and never wait for the writer.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_VIEW_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_VIEW_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/region_table.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// A host with what it can take and what sits in its slots.
struct HostView {
  Host host;
  HostRuntimePtr runtime;  // Never null.
  std::vector<OccupiedSlot> occupied;
  bool gone = false;  // In a publication: there is no host of this id any more. All else is empty.
};

struct DeviceView {
  Device device;
  DeviceUse use;
  uint64_t largest_free_bytes = 0;  // 0: nothing may be placed there.
  std::string failure_domain;
  uint32_t max_lds = 0;  // 0: no limit.

  uint64_t free_bytes() const;
};

struct TenantView {
  Tenant tenant;  // Of `default` also where it has no record.
  TenantUse use;
};

// What the pool is made of, as it was laid down, and why the fabric has never shown a device of it.
struct LaidDown {
  TopologyTables tables;
  std::map<std::string, std::string> unseen_devices;  // Id, and why for people.
};

// Since when what is scarce is so, as far as this manager knows, by the name that `explain` has for
// it; what is one device's or tenant's has its id behind that: "LDS_TAKEN cmm-0".
using ScarceSince = std::map<std::string, absl::Time>;

struct PoolView {
  uint64_t revision = 0;
  RegionTable regions;
  std::map<std::string, std::shared_ptr<const HostView>, std::less<>> hosts;  // By id.
  std::shared_ptr<const std::vector<DeviceView>> devices;                     // In order of id.
  std::shared_ptr<const std::vector<TenantView>> tenants;                     // In order of id.
  std::shared_ptr<const Topology> topology = std::make_shared<const Topology>();
  std::shared_ptr<const LaidDown> laid_down = std::make_shared<const LaidDown>();
  Capacity capacity;
  std::shared_ptr<const ScarceSince> scarce_since = std::make_shared<const ScarceSince>();
  FabricCapabilities fabric = {};  // Of the driver; without a name: none is open yet.
};
using PoolViewPtr = std::shared_ptr<const PoolView>;

// Null: there is none.
const DeviceView* FindDevice(const PoolView& view, absl::string_view id);

// The free bytes of the device that has most of them, of those where something may be placed. An
// Extent never spans devices: this is what its largest run is held against to say that free memory
// is in pieces.
uint64_t MostFreeOnOneDevice(const PoolView& view);

// What is scarce: POOL_FULL, POOL_FRAGMENTED, TENANT_FULL, LDS_TAKEN and DRAINED.
bool IsNearlyFull(const Capacity& capacity);
bool IsInPieces(const Capacity& capacity, uint64_t most_free_on_one_device);
bool IsNearlyFull(const Tenant& tenant, const TenantUse& use);
bool IsOutOfLds(const Device& device, uint32_t max_lds, const DeviceUse& use);
bool IsDrained(const Device& device, const DeviceUse& use);

// The record of the caller's host in the view, for MaySee; null: it is no host, or it is gone.
const Host* OwnHost(const PoolView& view, const Caller& caller);

// How a Region went that is not there any more, for a caller who asks for it.
struct RegionEnd {
  absl::Time time;
  std::string reason;  // Why, if it failed, and what became of its bytes.
};

// What was wrong with a host or a device, and is over.
struct PastTrouble {
  std::string what;  // As in HostRuntime::wrong_since; of a device DEVICE_UNREACHABLE.
  absl::Time since;
  absl::Time until;
};

// What one commit makes of the view, in parts that cost little to make.
struct Publication {
  uint64_t revision = 0;
  // A Region as it is now, or the last of its id.
  std::vector<RegionTable::Edit> regions;
  // A tag and its Region; null: no Region has that tag any more.
  std::vector<std::pair<Uuid, RegionPtr>> tags;
  std::vector<std::pair<std::string, RegionEnd>> ends;  // By id, in their order.
  std::vector<std::shared_ptr<const HostView>> hosts;   // Those that changed.
  // Numbers of every device and tenant, in order of id, and their sums; what they are changes
  // seldom. Without `has_numbers`: as before.
  bool has_numbers = false;
  struct DeviceNumbers {
    DeviceUse use;
    uint64_t largest_free_bytes = 0;
  };
  std::vector<DeviceNumbers> devices;
  std::shared_ptr<const std::vector<DeviceView>> device_infos;
  std::vector<TenantUse> tenants;
  std::shared_ptr<const std::vector<TenantView>> tenant_infos;
  Capacity capacity;
  std::shared_ptr<const ScarceSince> scarce_since;
  std::shared_ptr<const Topology> topology;
  std::shared_ptr<const LaidDown> laid_down;
  std::shared_ptr<const AccessRules> access_rules;  // Null: as before.
};

// Holds the latest, and indices of tags and of hosts' identities. Any thread.
//
// The writer hands over publications; the first reader after some puts them together. So a commit
// costs the writer next to nothing while nobody looks. A view that no reader keeps is made the next
// one in place.
class ViewHolder {
 public:
  PoolViewPtr Get() const;

  // Leaves the lists of `publication` empty, with room for the next.
  void Publish(Publication& publication);

  // Puts the next view together where much waits for a reader who has not come. For the writer, at
  // a moment when nobody waits for it: then Publish seldom has to.
  void CatchUp();

  // Whose fabric the pool has, in every view from now on.
  void SetFabric(FabricCapabilities fabric);

  // Who may what, and who is not believed any more, as of the latest publication. Another pointer
  // after each change of them. Never waits for a view to be put together: every call asks.
  std::shared_ptr<const AccessRules> GetAccessRules() const;

  // Empty if there is none.
  std::string IdOfTag(const Uuid& tag) const;

  // How the last Region of that id went; nothing: there was none, or it is long ago.
  std::optional<RegionEnd> EndOf(absl::string_view region_id) const;

  // What was wrong with the host or the device of that resource name, the latest last: as much as
  // is kept, of what this manager has seen begin and end.
  std::vector<PastTrouble> PastOf(absl::string_view name) const;
  void NotePast(const std::string& name, PastTrouble past);

  // The id of the host that is enrolled under this identity and not retired; empty: there is none.
  std::string HostOfIdentity(absl::string_view identity) const;

 private:
  // What waits for a reader. From so much on the writer puts it together itself, when it has
  // nothing more urgent to do; beyond the other, whatever it has to do.
  static constexpr size_t kManyPending = 1024;
  static constexpr size_t kMaxPending = 8192;
  static constexpr size_t kMaxEnds = 4096;  // The latest.
  static constexpr size_t kMaxPast = 4096;  // The latest, and as many of one host or device:
  static constexpr size_t kMaxPastOfOne = 16;

  // Hosts too: their heartbeats are shown while nobody looks.
  size_t Waiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pending_.regions.size() + pending_.hosts.size();
  }
  void Merge() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MergeHost(PoolView& view, std::shared_ptr<const HostView> host) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MergeNumbers(PoolView& view) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MergeEnds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  mutable std::shared_ptr<PoolView> view_ ABSL_GUARDED_BY(mutex_) = MakeEmpty();
  mutable absl::flat_hash_map<Uuid, RegionPtr> by_tag_ ABSL_GUARDED_BY(mutex_);
  mutable absl::flat_hash_map<std::string, std::string> by_identity_ ABSL_GUARDED_BY(mutex_);
  mutable absl::flat_hash_map<std::string, RegionEnd> ends_ ABSL_GUARDED_BY(mutex_);
  mutable std::deque<std::pair<std::string, absl::Time>> ends_in_order_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<std::string, PastTrouble>> past_ ABSL_GUARDED_BY(mutex_);
  mutable Publication pending_ ABSL_GUARDED_BY(mutex_);  // All since the view was made, as one.
  mutable bool stale_ ABSL_GUARDED_BY(mutex_) = false;

  mutable Mutex access_mutex_;  // Held by nobody for longer than it takes to copy a pointer.
  std::shared_ptr<const AccessRules> access_rules_ ABSL_GUARDED_BY(access_mutex_) =
      std::make_shared<const AccessRules>();

  static std::shared_ptr<PoolView> MakeEmpty();
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_VIEW_H_
