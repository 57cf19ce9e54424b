// gRPC's server as every manager has it, whoever answers the calls: limits, keepalives,
// credentials, and the addresses, whose connections listener.h accepts.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_GRPC_FRONT_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_GRPC_FRONT_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fabric-manager/rpc/listener.h"
#include "fabric-manager/rpc/refused_peers.h"
#include "proto/support/tls.h"

namespace cxlpool::fm {

struct ListenAddress {
  std::string address;    // "127.0.0.1:7600", "[::]:7600", "unix:/run/cxlpool/fm.sock".
  bool insecure = false;  // Only for a Unix socket or a loopback address.
  bool tokens = false;    // Who has no certificate may connect, and show a token.
};

class GrpcFront {
 public:
  GrpcFront(const ConnectionLimits& limits, RefusedPeers* refused) : listener_(limits, refused) {}
  ~GrpcFront() { Shutdown(absl::ZeroDuration()); }

  // Serves `calls`, which outlives this. `tls` may be null where every address is insecure.
  // INVALID_ARGUMENT/FAILED_PRECONDITION as in tls.h; UNAVAILABLE/CANNOT_LISTEN names the address.
  absl::Status Start(const std::vector<ListenAddress>& listen,
                     const std::shared_ptr<TlsSource>& tls, grpc::CallbackGenericService* calls);

  Listener& listener() { return listener_; }

  // Frees the addresses at once, then ends calls and streams; those that are not over by `grace`
  // are cancelled. Again, or where it had not started: no effect.
  void Shutdown(absl::Duration grace);

  // Ports in the order of `listen`, 0 for a Unix socket: what port 0 became.
  const std::vector<int>& ports() const { return ports_; }

 private:
  absl::Status ListenOn(const ListenAddress& listen, const std::shared_ptr<TlsSource>& tls,
                        grpc::ServerBuilder& builder);

  std::vector<int> ports_;
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> acceptors_;
  Listener listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_GRPC_FRONT_H_
