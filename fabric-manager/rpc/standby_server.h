// What a manager serves that does not lead: every call is refused with the leader's address, so
// that callers who know several managers turn to the right one. Health checks hear NOT_SERVING.
//
// It listens on the addresses, and under the rules, of the RpcServer that takes its place when this
// manager leads. No record of the pool is read: whose certificate was revoked, or who has which
// role, is for the leader to judge.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_STANDBY_SERVER_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_STANDBY_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/rpc/server.h"

namespace cxlpool::fm {

struct StandbyFacts {
  std::string leader;     // The address to dial it by; empty: not known.
  uint64_t epoch = 0;     // Of the store, as far as this manager has followed it.
  uint64_t revision = 0;  // Likewise.
};

class StandbyServer {
 public:
  // Listens. Of `options` it takes the addresses, TLS and the limits of connections. `facts` is
  // asked at each call, on any thread, and must not block. Errors as RpcServer::Start.
  //
  // Calls end with UNAVAILABLE/NOT_LEADER, whose metadata are `leader` (unless it is not known),
  // `epoch` and `revision`. A caller without a certificate, at an address that takes tokens, is
  // given no metadata: nobody can tell here whether its token is one.
  static absl::StatusOr<std::unique_ptr<StandbyServer>> Start(const ServerOptions& options,
                                                              std::function<StandbyFacts()> facts);
  virtual ~StandbyServer() = default;

  // Frees the addresses, so that another server may listen there. Calls that are under way, which
  // are answered already, have `grace` to get their answer.
  virtual void Shutdown(absl::Duration grace) = 0;

  // As RpcServer::ports.
  virtual std::vector<int> ports() const = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_STANDBY_SERVER_H_
