// bench-placement: how quickly and how well bytes are placed (rows 6, 7, 8). docs/performance.md
// says how it measures; tools/bench builds and runs it.

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tools/benches/placement_fill.h"
#include "tools/benches/placement_speed.h"
#include "tools/benches/placement_trace.h"
#include "tools/benches/pod.h"
#include "tools/benches/report.h"

namespace cxlpool::bench {
namespace {

constexpr double kPodTarget = 1.08;
constexpr uint64_t kSeed = 8;

// A pod is a round: ours by the pool that every host reaches whole.
std::vector<Row> MeasurePods(const std::vector<Machine>& machines) {
  std::vector<Round> balanced;
  double even = 0, whole_slices = 0, least_need = 0, need = 0;
  for (const PodTrace& pod : PackPods(machines)) {
    if (pod.peak_slices == 0) continue;
    const double devices = static_cast<double>(kPodDevices);
    const double bound = pod.peak_slices;
    const double ours = devices * DeviceNeed(pod, PodPolicy::kBalanced);
    balanced.push_back({ours, bound, bound, ours});
    need += ours;
    least_need += devices * DeviceNeed(pod, PodPolicy::kLeast);
    even += bound;
    whole_slices += devices * ((pod.peak_slices + kPodDevices - 1) / kPodDevices);
  }
  std::cout << absl::StreamFormat(
      "%d pods, all together by the bound: ours %.4f, least loaded %.4f; whole slices alone %.4f\n",
      balanced.size(), need / even, least_need / even, whole_slices / even);
  return {{.number = 8,
           .name = "capacity of a sparse pod by a fully connected one, median of pods",
           .unit = "GiB",
           .target = kPodTarget,
           .aim = Aim::kAtMost,
           .summary = Summarise(balanced, kPodTarget, kSeed, Aim::kAtMost)}};
}

void Print(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const Summary& s = row.summary;
    std::cout << absl::StreamFormat(
        "row %d, %s: ours %.1f, peer %.1f %s: ratio %.4f [%.4f, %.4f], control [%.3f, %.3f], "
        "target %g: "
        "%s\n",
        row.number, row.name, s.ours, s.peer, row.unit, s.ratio, s.ratio_95.low, s.ratio_95.high,
        s.control_95.low, s.control_95.high, row.target, ToString(s.verdict));
  }
  std::cout << std::flush;
}

absl::Status Run(const std::string& trace, int rounds, const std::string& json) {
  const auto machines = ReadTrace(trace);
  if (!machines.ok()) return machines.status();
  std::vector<Row> rows;
  const auto add = [&](const std::vector<Row>& more) {
    Print(more);
    rows.insert(rows.end(), more.begin(), more.end());
  };
  std::cout << absl::StreamFormat("%s: %d machines\n", trace, machines->size());
  FillOptions fill;
  fill.rounds = rounds;
  add(MeasureFill(*machines, fill));
  add(MeasurePods(*machines));
  SpeedOptions speed;
  speed.rounds = rounds;
  add(MeasureSpeed(speed));
  return json.empty() ? absl::OkStatus() : WriteFile(json, ToJson(rows));
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  std::string trace = "test/data/azure-vm-2017.csv.gz", json, unused;
  int rounds = static_cast<int>(cxlpool::bench::kMinRounds);
  double seconds = 0;
  CLI::App app{"bench-placement: how quickly and how well bytes are placed"};
  app.add_option("--trace", trace, "arrival_s,lifetime_s,vcpus,memory_gib; plain or gzipped");
  app.add_option("--rounds", rounds, "rounds of ours, peer, peer, ours")
      ->check(CLI::Range(1, 1000));
  app.add_option("--json", json, "file for the figures");
  // What every bench is given.
  app.add_option("--manager", unused, "of no use here");
  app.add_option("--dir", unused, "of no use here");
  app.add_option("--seconds", seconds, "of no use here");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = cxlpool::bench::Run(trace, rounds, json);
  if (status.ok()) return 0;
  std::cerr << "bench-placement: " << status.message() << "\n";
  return 1;
}
