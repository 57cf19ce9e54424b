// A gRPC connection of a bench's own: no other channel shares it.
#ifndef CXLPOOL_TOOLS_BENCHES_CHANNEL_H_
#define CXLPOOL_TOOLS_BENCHES_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cxlpool::bench {

// Waits for the server, which may be only just starting. UNAVAILABLE: nobody answered by `limit`.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address,
                                                       absl::Duration limit);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_CHANNEL_H_
