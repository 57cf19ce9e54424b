// A pool of real processes in a directory of its own: one cxlpool-fm on a SQLite store, or several
// on three members of etcd, each manager and member on a node of its own, the emulated fabric and a
// Unix socket for each, and a cxlpool-agent a host. Everything ends, and the directory goes, with
// this.
//
// Not thread-safe: one thread makes it, starts its processes and ends it.
#ifndef CXLPOOL_TEST_CRASH_POOL_H_
#define CXLPOOL_TEST_CRASH_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "test/crash/process.h"
#include "test/rigs/etcd_cluster.h"

namespace cxlpool::crash {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;
inline constexpr uint64_t kGranule = 2 * kMiB;

inline constexpr int kMembers = 3;  // Of etcd.

struct PoolLayout {
  std::map<std::string, uint64_t> devices;  // Id -> capacity.
  std::vector<std::string> hosts;
  int bridges = 8;  // Of each host, with slots 20 n + 17 and 20 n + 18.
  uint64_t granule_bytes = kGranule;
  int managers = 1;  // More: on etcd, and the program has entered a PrivateNetwork.
  absl::Duration takeover = absl::Milliseconds(1500);
};

class Pool {
 public:
  // The programs are those beside this one. No process runs yet.
  static absl::StatusOr<std::unique_ptr<Pool>> Make(PoolLayout layout);
  ~Pool();

  // Starts a life of the manager; of several, of each that does not run. `crash_at`: as
  // CXLPOOL_CRASH_AT; empty: none.
  absl::Status StartManager(const std::string& crash_at = "");
  // Waits until it takes connections; until one of several leads, which is manager() from then on.
  // The status has its log's end if it does not, or ended.
  absl::Status AwaitServing(absl::Duration limit = absl::Seconds(20));
  bool Serving() const;  // It takes connections now.
  Process& manager() { return managers_[lead_]; }
  size_t lead() const { return lead_; }
  fm::EtcdCluster& etcd() { return *etcd_; }  // Of several managers.
  // Members are its first nodes, managers the next.
  PrivateNetwork& network() { return *network_; }
  int NodeOfManager(size_t manager) const { return kMembers + static_cast<int>(manager); }
  Process& manager(size_t number) { return managers_[number]; }

  absl::Status StartAgent(const std::string& host, const std::string& crash_at = "");
  Process& agent(const std::string& host) { return agents_[host]; }

  // A program that was built beside this one.
  std::string Program(const std::string& name) const;

  const PoolLayout& layout() const { return layout_; }
  const std::string& directory() const { return directory_; }
  std::string socket() const { return SocketOf(lead_); }
  std::vector<std::string> sockets() const;  // Of all managers.
  std::string store_directory() const { return directory_ + "/store"; }
  std::string store_file() const { return directory_ + "/store/pool.db"; }
  std::string extents_directory() const { return directory_ + "/fabric/extents"; }
  // What several managers did to the fabric (test/contract/fabric_effects.h).
  std::string effects_file() const { return directory_ + "/effects"; }
  std::string agent_socket(const std::string& host) const;

  // Slots where something is bound, as paths: fabric.textproto is there.
  std::vector<std::string> BoundSlots() const;
  // The manager has a backup's copy beside its store.
  bool BackupUnderWay() const;
  // Names of the files that hold Extents' bytes.
  std::vector<std::string> ExtentFiles() const;

  // `status` with the ends of all logs, and which agents have ended.
  absl::Status WithLogs(const absl::Status& status);

 private:
  explicit Pool(PoolLayout layout) : layout_(std::move(layout)) {}
  absl::Status WriteConfigs();
  std::string SocketOf(size_t manager) const;
  std::string StoreConfig(size_t manager) const;
  std::string NameOfManager(size_t manager) const;
  bool Leads(size_t manager) const;

  const PoolLayout layout_;
  std::string directory_;
  std::unique_ptr<PrivateNetwork> network_;
  std::unique_ptr<fm::EtcdCluster> etcd_;
  std::vector<Process> managers_;
  size_t lead_ = 0;
  std::map<std::string, Process> agents_;
};

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_POOL_H_
