// Callers that allocate one Region after another, each as fast as it is answered, and keep every
// answer. Which server answers, the manager or the echo, they cannot tell.
//
// Thread-safe. This header is free of gRPC.
#ifndef CXLPOOL_TOOLS_BENCHES_LOAD_H_
#define CXLPOOL_TOOLS_BENCHES_LOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::bench {

struct LoadOptions {
  std::string address;  // HOST:PORT, no TLS.
  int callers = 64;     // Calls in flight.
  int connections = 4;  // The callers share them evenly.
  uint64_t size_bytes = 0;
  uint64_t seed = 0;  // Of the request_ids: differs for each load on one manager.
};

class Load {
 public:
  // Connects, then starts every caller. UNAVAILABLE: no connection by `connect_limit`.
  static absl::StatusOr<std::unique_ptr<Load>> Start(const LoadOptions& options,
                                                     absl::Duration connect_limit);
  virtual ~Load() = default;

  // Calls answered OK so far.
  virtual uint64_t answered() const = 0;

  // The first call that failed; OK if none did. A caller ends at its first failure.
  virtual absl::Status failure() const = 0;

  // Waits until every caller has ended at a failure, as when the server is killed. Answers what
  // was acknowledged. DEADLINE_EXCEEDED: some go on after `limit`.
  virtual absl::StatusOr<std::vector<v1::Region>> Join(absl::Duration limit) = 0;
};

// One allocation, for a look at its answer. Errors are the server's, or UNAVAILABLE as in Start.
absl::StatusOr<v1::AllocateRegionResponse> AllocateOnce(const LoadOptions& options,
                                                        absl::Duration connect_limit);

// Every Region of the manager at `address`, page by page.
absl::StatusOr<std::vector<v1::Region>> ListAll(const std::string& address,
                                                absl::Duration connect_limit);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_LOAD_H_
