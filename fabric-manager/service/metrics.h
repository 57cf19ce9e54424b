// The manager's metrics as Prometheus reads them: what is counted (meters.h), and what a view of
// the pool says at this moment. Each metric, with its name, help and labels, stands once, in
// metrics.cc.
//
// Labels are states, reasons of ours, methods, and names that operators gave to devices, hosts,
// bridges and tenants: never a Region, a request, a process or a serial. So a pool of 100 hosts,
// 200 devices and 100 tenants has at most 5,000 series.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_METRICS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_METRICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "fabric-manager/service/metered_fabric.h"
#include "fabric-manager/service/meters.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

// Beyond so many, in order of name, tenants are counted together as "other".
inline constexpr size_t kMaxTenantsShown = 200;

// Of a manager among several.
struct ReplicaFacts {
  bool replicated = false;  // Several managers may want the store.
  bool leads = true;
  uint64_t epoch = 0;       // Of the store; a standby's: as it saw it last.
  uint64_t revision = 0;    // A standby's: likewise. A leader's is the view's.
  absl::Duration age = {};  // Of what a standby saw last.
  uint64_t resent = 0;      // As EtcdMeters.
  // Whether each member of etcd takes part, by its endpoint; of those that were asked.
  std::map<std::string, bool> etcd_members = {};
};

// What neither a view nor a meter has.
struct ManagerFacts {
  absl::Time now = {};
  uint64_t queued = 0, max_queue = 0;              // As Writer.
  int watches = 0;                                 // Streams of WatchRegions.
  uint64_t watch_lag = 0;                          // Of the slowest of them, in revisions.
  std::optional<uint64_t> store_bytes = {};        // Nothing: it is in memory.
  std::optional<uint64_t> store_limit_bytes = {};  // Nothing: what its disk has.
  std::optional<absl::Time> certificate = {};  // When the manager's own ends; nothing: it has none.
  std::optional<absl::Time> authority = {};    // When the one of its authority ends.
  // The same of those by which it and etcd know each other.
  std::optional<absl::Time> etcd_certificate = {};
  std::optional<absl::Time> etcd_authority = {};
  const FabricTimes* fabric = nullptr;  // Null: nobody measures.
  ReplicaFacts replica = {};
};

// Any thread: takes no lock, and looks at each Region once.
std::string ManagerMetrics(const PoolView& view, const Meters& meters, const ManagerFacts& facts);

// Of a manager that does not lead: it knows nothing of hosts and Regions.
std::string StandbyMetrics(const ManagerFacts& facts);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_METRICS_H_
