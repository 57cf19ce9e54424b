// The fabric manager as a whole: what runs, made in the order it depends on.
//
// With records on etcd it stands by first, while another manager has the pool: it follows what that
// one commits, and tells whoever calls who leads (StandBy). Once the store is its own it makes what
// moves memory, and serves (Serve). There is no way back: a manager that loses its store ends.
#ifndef CXLPOOL_FABRIC_MANAGER_MANAGER_H_
#define CXLPOOL_FABRIC_MANAGER_MANAGER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fabric-manager/config.h"
#include "fabric-manager/ports/store.h"
#include "fabric-manager/rpc/authorize.h"
#include "fabric-manager/rpc/server.h"
#include "fabric-manager/rpc/standby_server.h"
#include "fabric-manager/service/metered_fabric.h"
#include "fabric-manager/service/writer.h"
#include "proto/metrics/metrics_server.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

struct EtcdMeters;

// Who has the store, as was last seen, and how long ago this manager had all that it has. Any
// thread.
class OwnerSeen {
 public:
  void Set(const StoreOwner& owner) {
    MutexLock lock(mutex_);
    owner_ = owner;
    if (owner.is_followed) followed_ = clock_.Elapsed();
  }
  StoreOwner Get() const {
    MutexLock lock(mutex_);
    return owner_;
  }
  absl::Duration age() const {
    MutexLock lock(mutex_);
    return clock_.Elapsed() - followed_;
  }

 private:
  const SystemClock clock_;
  mutable Mutex mutex_;
  StoreOwner owner_ ABSL_GUARDED_BY(mutex_);
  absl::Duration followed_ ABSL_GUARDED_BY(mutex_) = clock_.Elapsed();
};

// One thread makes, opens, serves and ends it.
class Manager {
 public:
  // `etcd_certificates`: EtcdCertificatesOf, as they were when the store was made. `etcd`: what a
  // store on etcd says of itself. Outlives this.
  Manager(FmConfig config, std::unique_ptr<Store> store, std::shared_ptr<TlsSource> tls,
          std::vector<CertificateEnd> etcd_certificates, const EtcdMeters* etcd);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Opens the store, which is at once, or its turn comes once no other manager has it. `on_fatal`
  // may be called from any thread.
  void Open(std::function<void(absl::Status)> on_fatal, Done opened);

  // While another has the store: says to whoever calls who that is.
  absl::Status StandBy();

  // Once the store is open.
  absl::Status Serve();

  // Takes over what counts without a new start.
  void Reload(const FmConfig& config);

  // What is being answered is answered; then nothing runs any more.
  void Stop();

  // Runs `then` once the writer's thread, and then the one that accepts connections, has come to
  // it: that they do is what the watchdog wants to know.
  void Ping(std::function<void()> then);

 private:
  struct Leader;

  void StartSessions();
  absl::Status TakeInTopology();
  void LogAnchor();
  absl::Status ServeMetrics();
  bool MayReadMetrics(const CertificateFacts& facts) const;
  std::string Metrics();

  // But for what Reload takes over, which other threads do not read, it stays as it was made.
  FmConfig config_;
  const EtcdMeters* const etcd_;
  FixedAdmins admins_;  // Who may read metrics; the server has its own.
  SystemClock clock_;
  ViewHolder views_;
  WatchHub watch_;
  OwnerSeen owner_;
  std::unique_ptr<Store> store_;
  FabricTimes fabric_times_;
  const std::shared_ptr<TlsSource> tls_;  // Null: every address is insecure.
  const std::vector<CertificateEnd> etcd_certificates_;
  Loop loop_{"fm-writer"};
  Writer writer_;
  std::unique_ptr<Leader> leader_;  // Null: it stands by.
  std::unique_ptr<StandbyServer> standby_;
  std::unique_ptr<RpcServer> server_;
  // `server_` once it is there, for the writer's thread.
  std::atomic<RpcServer*> serving_ = nullptr;
  std::atomic<uint64_t> epoch_ = 0;  // Of a leader whose store others may want.
  std::unique_ptr<metrics::MetricsListener> metrics_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MANAGER_H_
