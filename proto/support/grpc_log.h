// gRPC's own lines go where ours go: with a priority, and not more often than a person reads.
#ifndef CXLPOOL_PROTO_SUPPORT_GRPC_LOG_H_
#define CXLPOOL_PROTO_SUPPORT_GRPC_LOG_H_

#include <string>

namespace cxlpool {

// From now on gRPC's errors become lines "grpc: TEXT" of this program's log, each place of gRPC's
// source at most once in ten seconds; failed TLS handshakes are kept for LastHandshakeError and are
// no lines, since gRPC cannot say whose they are. protobuf's complaints about messages that do not
// parse are dropped: the code that reads a message reports that, with the peer's name. Once, at the
// start of a daemon. Does nothing where GRPC_VERBOSITY is set in the environment.
void RouteGrpcLog();

// What gRPC logged last of a TLS handshake that failed; empty: nothing within the last seconds.
std::string LastHandshakeError();

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_GRPC_LOG_H_
