// The rounds of a run: each measures its sides in order and then back, A B C C B A, so that any two
// of them are set side by side A B B A and a drift that is even over the round cancels.
//
// Not thread-safe.
#ifndef CXLPOOL_TOOLS_BENCHES_ROUNDS_H_
#define CXLPOOL_TOOLS_BENCHES_ROUNDS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/benches/stats.h"

namespace cxlpool::bench {

// What one slice of one side gave. What a side does not measure stays 0.
struct Sample {
  double per_second = 0;
  double seconds = 0;       // Of one long thing,
  double back_seconds = 0;  // and of undoing it.
  double cpu_micros = 0;    // Of the server, for each operation.
  double p50_us = 0;
  double p99_us = 0;
};

// How long this thread has run: other programs take none of it away.
absl::Duration ThreadCpuTime();

struct Side {
  std::string name;  // For people, one word or two.
  std::function<absl::StatusOr<Sample>()> measure;
  // What a line for people says of a sample.
  std::function<double(const Sample&)> headline;
};

class Rounds {
 public:
  // A figure of one pass through all sides, in their order.
  using Value = std::function<double(const std::vector<Sample>&)>;
  // The one of side number `side`.
  static Value Of(size_t side, double Sample::*figure) {
    return [side, figure](const std::vector<Sample>& pass) { return pass[side].*figure; };
  }

  explicit Rounds(std::vector<Side> sides) : sides_(std::move(sides)) {}

  // Runs so many, and prints a line of each. The first error ends it.
  absl::Status Run(int rounds);

  std::vector<Round> Compare(const Value& ours, const Value& peer) const;
  // Of the first side by side number `peer`.
  std::vector<Round> Compare(double Sample::*figure, size_t peer = 1) const {
    return Compare(Of(0, figure), Of(peer, figure));
  }

  // Median over all slices.
  double Median(const Value& value) const;

 private:
  const std::vector<Side> sides_;
  std::vector<std::vector<Sample>> there_, back_;  // One of each a round; samples by side.
};

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_ROUNDS_H_
