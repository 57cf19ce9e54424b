#include "tools/benches/stats.h"

#include <algorithm>
#include <random>

namespace cxlpool::bench {
namespace {

constexpr size_t kSamples = 10000;

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Interval BootstrapMedian(const std::vector<double>& values, uint64_t seed) {
  if (values.empty()) return {};
  std::mt19937_64 random(seed);
  std::vector<double> medians(kSamples);
  std::vector<double> sample(values.size());
  for (double& median : medians) {
    for (double& value : sample) value = values[random() % values.size()];
    median = Median(sample);
  }
  std::sort(medians.begin(), medians.end());
  return {medians[kSamples * 25 / 1000], medians[kSamples * 975 / 1000 - 1]};
}

const char* ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMet:
      return "met";
    case Verdict::kMissed:
      return "missed";
    case Verdict::kInconclusive:
      return "inconclusive";
  }
  return "";
}

Summary Summarise(const std::vector<Round>& rounds, double target, uint64_t seed, Aim aim) {
  std::vector<double> ours, peer, ratios, controls;
  for (const Round& round : rounds) {
    ours.insert(ours.end(), {round.ours_first, round.ours_last});
    peer.insert(peer.end(), {round.peer_first, round.peer_last});
    ratios.push_back(round.Ratio());
    controls.push_back(round.Control());
  }
  Summary summary{.ours = Median(ours),
                  .peer = Median(peer),
                  .ratio = Median(ratios),
                  .ratio_95 = BootstrapMedian(ratios, seed),
                  .control_95 = BootstrapMedian(controls, seed),
                  .rounds = rounds.size()};
  if (rounds.size() >= kMinRounds && summary.control_95.low >= kControlBounds.low &&
      summary.control_95.high <= kControlBounds.high) {
    const bool met = aim == Aim::kAtLeast ? summary.ratio >= target : summary.ratio <= target;
    summary.verdict = met ? Verdict::kMet : Verdict::kMissed;
  }
  return summary;
}

double Quantile(std::vector<float> values, double share) {
  if (values.empty()) return 0;
  const size_t rank =
      std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(rank), values.end());
  return values[rank];
}

}  // namespace cxlpool::bench
