// Many gRPC streams in one process: each sends one message and counts what it is sent. Nothing is
// parsed.
//
// Thread-safe. This header is free of gRPC.
#ifndef CXLPOOL_TOOLS_BENCHES_STREAMS_H_
#define CXLPOOL_TOOLS_BENCHES_STREAMS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cxlpool::bench {

struct StreamsOptions {
  std::string address;             // HOST:PORT, no TLS.
  std::string method;              // "/package.Service/Method"
  std::vector<std::string> first;  // The message of each stream, and so their number.
  int per_connection = 200;        // Servers allow no more than 256.
  bool keep_first_answer = false;
};

class Streams {
 public:
  // Opens them and sends each its first message. UNAVAILABLE: no connection by `limit`.
  static absl::StatusOr<std::unique_ptr<Streams>> Open(const StreamsOptions& options,
                                                       absl::Duration limit);
  virtual ~Streams() = default;  // Cancels them.

  // Messages received by all streams so far, and by the one that has the fewest and the most.
  virtual uint64_t received() const = 0;
  virtual std::pair<uint64_t, uint64_t> LeastAndMost() const = 0;

  // Waits until `received` is at least `count`. DEADLINE_EXCEEDED: not by `limit`.
  // UNAVAILABLE: a stream has ended.
  virtual absl::Status Await(uint64_t count, absl::Duration limit) = 0;

  // What stream `index` was sent first, if it was to be kept. Null: nothing yet.
  virtual const std::string* first_answer(size_t index) const = 0;
};

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_STREAMS_H_
