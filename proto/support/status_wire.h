// absl::Status on the wire: grpc::Status plus cxlpool.v1.ErrorInfo in the binary trailing metadata
// `cxlpool-error-bin` (servers) and back (clients). The one table between the two worlds.
//
// Pure functions, any thread.
#ifndef CXLPOOL_PROTO_SUPPORT_STATUS_WIRE_H_
#define CXLPOOL_PROTO_SUPPORT_STATUS_WIRE_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cxlpool/v1/resources.pb.h"

namespace cxlpool {

inline constexpr char kErrorInfoKey[] = "cxlpool-error-bin";
inline constexpr char kDetailsKey[] = "grpc-status-details-bin";

// For a server: the grpc::Status to finish with, "REASON: message (remedy)" for a Refusal. Its
// ErrorInfo travels as trailing metadata of `context`, and once more as the standard
// google.rpc.Status with an ErrorInfo (domain "cxlpool", the remedy in its metadata), which generic
// tools show. HTTP/2 peers refuse more than 8 KiB of trailers in all, so messages are cut to 2 KiB
// (reason and remedy are kept), and metadata that does not fit is left out.
grpc::Status ToWire(const absl::Status& status, grpc::ServerContextBase& context);

// For an answer that carries outcomes of several calls: the message and the ErrorInfo of one that
// was refused, cut to the same limits.
void FillOutcome(const absl::Status& status, std::string* message, v1::ErrorInfo* info);

// For a client, after the call has finished: the same absl::Status, Refusal included. Transport
// failures become UNAVAILABLE/MANAGER_UNREACHABLE with a remedy that names `peer`; a call that ran
// out of time DEADLINE_EXCEEDED/NO_ANSWER. An ErrorInfo that does not parse is left out.
absl::Status FromWire(const grpc::Status& status, const grpc::ClientContext& context,
                      absl::string_view peer);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_STATUS_WIRE_H_
