// The plugin's sockets: on one the kubelet finds out who the plugin is, on the other it asks for
// claims.
//
// Bounded: kMaxThreads calls at a time, of which kMaxWaiting wait for Regions; kMaxClaimsOfACall
// claims in one, 1 MiB of request. Every wait has a deadline: the caller's, and `wait` of the
// options.
#ifndef CXLPOOL_TOOLS_DRA_KUBELET_SERVER_H_
#define CXLPOOL_TOOLS_DRA_KUBELET_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/dra/claim_keeper.h"

namespace cxlpool::dra {

struct ServerOptions {
  std::string registration_socket;  // Absolute paths, as the kubelet finds them, too.
  std::string plugin_socket;
  absl::Duration wait;  // For Regions that are on their way.
};

class KubeletServer {
 public:
  static constexpr int kMaxThreads = 32;
  static constexpr int kMaxWaiting = 16;
  static constexpr int kMaxClaimsOfACall = 64;

  virtual ~KubeletServer() = default;  // Stops within seconds, and removes the sockets.
};

// Serves until the answer goes. `keeper` outlives it. INTERNAL: it cannot listen there.
absl::StatusOr<std::unique_ptr<KubeletServer>> ServeKubelet(const ServerOptions& options,
                                                            ClaimKeeper* keeper);

}  // namespace cxlpool::dra

#endif  // CXLPOOL_TOOLS_DRA_KUBELET_SERVER_H_
