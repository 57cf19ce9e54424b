// The server of a manager that leads: the four services, reflection and health, behind
// grpc_front.h. Calls are let in by calls.h.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_SERVER_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/ports/store.h"
#include "fabric-manager/rpc/grpc_front.h"
#include "fabric-manager/service/host_sessions.h"
#include "fabric-manager/service/pool_service.h"
#include "fabric-manager/service/view.h"
#include "fabric-manager/service/watch_hub.h"

namespace cxlpool::fm {

struct ServerOptions {
  std::vector<ListenAddress> listen;
  std::shared_ptr<TlsSource> tls;  // Needed unless every address is insecure.
  FabricCapabilities fabric = {};
  ConnectionLimits connections;
  std::vector<std::string> admins;  // Identities that are admins whatever the bindings say.
  std::string store_directory;      // Where a backup may be written; empty: the store has none.
  std::string database = {};        // That the records are in; empty: they are in none.
  uint64_t epoch = 0;               // Under which it leads; 0: there are no replicas.
  Meters* meters = nullptr;         // Counts calls and backups; null: nobody does.
  // By which it and etcd know each other, for `cxlpool doctor`.
  std::vector<CertificateEnd> etcd_certificates = {};
};

class RpcServer {
 public:
  // Listens. INVALID_ARGUMENT/FAILED_PRECONDITION as in tls.h; UNAVAILABLE/CANNOT_LISTEN names the
  // address. Until SetServing the health service says NOT_SERVING.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const ServerOptions& options,
                                                          Executor* executor, PoolService* pool,
                                                          HostSessions* sessions, Store* store,
                                                          const ViewHolder* views, WatchHub* watch);
  virtual ~RpcServer() = default;

  virtual void SetServing(bool serving) = 0;

  // As ServerHealth: STORE_FULL, or OK once it took a change again.
  virtual void NoteStore(const absl::Status& status) = 0;

  // From now on these are admins whatever the bindings say; the calls and watches of who was one
  // and is not end. Not from one of gRPC's callbacks.
  virtual void SetAdmins(const std::vector<std::string>& admins) = 0;

  // Runs `task` on the thread that accepts connections.
  virtual void Ping(Task task) = 0;

  // Watches that are open, and by how many revisions the slowest of them is behind.
  virtual int watches() = 0;
  virtual uint64_t watch_lag() = 0;

  // Ends calls and streams; those that are not over by `grace` are cancelled.
  virtual void Shutdown(absl::Duration grace) = 0;

  // Ports in the order of `listen`, 0 for a Unix socket: what port 0 became.
  virtual std::vector<int> ports() const = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_SERVER_H_
