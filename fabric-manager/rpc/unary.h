// The shape that every unary call here has.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_UNARY_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_UNARY_H_

#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "proto/support/status_wire.h"

namespace cxlpool::fm {

// Ends a call at once.
inline grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context,
                                           const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToWire(status, *context));
  return reactor;
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_UNARY_H_
