// Host agents as far as a heartbeat bench needs them: enrolled, with a session each, and silent but
// for heartbeats.
//
// Not thread-safe. This header is free of gRPC.
#ifndef CXLPOOL_TOOLS_BENCHES_AGENTS_H_
#define CXLPOOL_TOOLS_BENCHES_AGENTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/benches/streams.h"

namespace cxlpool::bench {

class Agents {
 public:
  // Enrols `count` hosts with the manager at `address` and opens a session for each.
  static absl::StatusOr<std::unique_ptr<Agents>> Start(const std::string& address, int count,
                                                       absl::Duration limit);

  // Sends so many heartbeats, agent after agent, at a steady rate for `duration`; answers how many
  // were sent. UNAVAILABLE: the manager ended a session.
  absl::StatusOr<uint64_t> Beat(double per_second, absl::Duration duration);

  size_t size() const { return heartbeats_.size(); }

 private:
  Agents() = default;

  // Learns the sessions of those that were welcomed meanwhile, and sends a heartbeat for each.
  absl::Status Greet();

  std::unique_ptr<Streams> streams_;
  std::vector<std::string> heartbeats_;  // One an agent, with its session's number.
  size_t next_ = 0;
};

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_AGENTS_H_
