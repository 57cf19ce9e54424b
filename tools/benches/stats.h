// What a ratio on a noisy machine is worth: medians and their bootstrap intervals.
//
// Pure functions, any thread. Same numbers and seed, same answer.
#ifndef CXLPOOL_TOOLS_BENCHES_STATS_H_
#define CXLPOOL_TOOLS_BENCHES_STATS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cxlpool::bench {

struct Interval {
  double low = 0;
  double high = 0;
};

// The middle value, or the mean of the two in the middle. 0 of nothing.
double Median(std::vector<double> values);

// 95 % interval of the median: percentiles of the medians of 10,000 samples drawn with
// replacement from `values`. {0, 0} of nothing.
Interval BootstrapMedian(const std::vector<double>& values, uint64_t seed);

// One round, A B B A: ours, peer, peer, ours. Rates or costs, > 0.
struct Round {
  double ours_first = 0;
  double peer_first = 0;
  double peer_last = 0;
  double ours_last = 0;

  // Ours by peer. A drift that is even over the round cancels.
  double Ratio() const { return (ours_first + ours_last) / (peer_first + peer_last); }
  // Ours by ours: 1, but for the machine's noise.
  double Control() const { return ours_last / ours_first; }
};

enum class Verdict { kMet, kMissed, kInconclusive };
const char* ToString(Verdict verdict);

// What the rounds say of one figure.
struct Summary {
  double ours = 0;      // Median.
  double peer = 0;      // Median.
  double ratio = 0;     // Median of the rounds' ratios,
  Interval ratio_95;    // and its interval.
  Interval control_95;  // Of the control's median.
  size_t rounds = 0;
  Verdict verdict = Verdict::kInconclusive;
};

// Fewer rounds prove nothing.
inline constexpr size_t kMinRounds = 9;
// Where the whole interval of the control must lie, else the machine was too noisy to tell.
inline constexpr Interval kControlBounds = {0.95, 1.05};

// What a target is: a rate's is to be reached, a cost's not to be passed.
enum class Aim { kAtLeast, kAtMost };

// Met if the median ratio reaches `target`, or does not pass it; inconclusive with fewer than
// kMinRounds rounds or a control outside its bounds.
Summary Summarise(const std::vector<Round>& rounds, double target, uint64_t seed,
                  Aim aim = Aim::kAtLeast);

// The value below which a share of `values` lies, `share` from 0 to 1; 0 of nothing.
double Quantile(std::vector<float> values, double share);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_STATS_H_
