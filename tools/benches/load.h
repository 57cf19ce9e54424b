// Callers that make one unary gRPC call after another, each as fast as it is answered. Requests are
// bytes made beforehand and answers are kept as bytes: the callers' own work is as small as it can
// be, and who answers, the manager, the echo or etcd, they cannot tell.
//
// Thread-safe. This header is free of gRPC.
#ifndef CXLPOOL_TOOLS_BENCHES_LOAD_H_
#define CXLPOOL_TOOLS_BENCHES_LOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cxlpool::bench {

struct LoadOptions {
  std::string address;  // HOST:PORT, no TLS.
  std::string method;   // "/package.Service/Method"
  // A serialised request, with markers (requests.h).
  std::string request;
  int callers = 64;               // Calls in flight. At most 4096.
  int connections = 4;            // The callers share them evenly.
  uint64_t calls_per_caller = 0;  // Then it ends. 0: never but by a failure.
  bool keep_answers = false;
};

class Load {
 public:
  // What a load left.
  struct End {
    std::vector<std::string> answers;  // Of calls answered OK, if they were to be kept.
    std::vector<float> latencies_us;   // Of calls that began and ended while measured.
  };

  // Connects, then starts every caller. UNAVAILABLE: no connection by `connect_limit`.
  static absl::StatusOr<std::unique_ptr<Load>> Start(const LoadOptions& options,
                                                     absl::Duration connect_limit);
  virtual ~Load() = default;

  // Calls answered OK so far.
  virtual uint64_t answered() const = 0;

  // Whether calls are timed from now on.
  virtual void Measure(bool on) = 0;

  // The first call that failed; OK if none did. A caller ends at its first failure.
  virtual absl::Status failure() const = 0;

  // No caller begins another call.
  virtual void Stop() = 0;

  // Waits until every caller has ended, as when the server is killed. DEADLINE_EXCEEDED: some go on
  // after `limit`.
  virtual absl::StatusOr<End> Join(absl::Duration limit) = 0;
};

// One call at a time.
class Caller {
 public:
  // UNAVAILABLE as in Load::Start. A server that is only just starting is waited for.
  static absl::StatusOr<std::unique_ptr<Caller>> Connect(const std::string& address,
                                                         const std::string& method,
                                                         absl::Duration limit);
  virtual ~Caller() = default;

  // The answer, serialised, or the server's error. Blocks, 10 s at most.
  virtual absl::StatusOr<std::string> Call(const std::string& request) = 0;
};

// Connects for one call, and sets its numbers.
absl::StatusOr<std::string> CallOnce(const std::string& address, const std::string& method,
                                     const std::string& request, absl::Duration limit);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_LOAD_H_
