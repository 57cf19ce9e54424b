// bench-placement: how quickly and how well bytes are placed (rows 6, 7, 8). docs/performance.md
// says how it measures; tools/bench builds and runs it.

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/placement_fill.h"
#include "tools/benches/placement_speed.h"
#include "tools/benches/placement_trace.h"
#include "tools/benches/pod.h"

namespace cxlpool::bench {
namespace {

constexpr double kPodTarget = 1.08;

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
  return {MakeRow(8, "capacity of a sparse pod by a fully connected one, median of pods", "GiB",
                  kPodTarget, Aim::kAtMost, balanced)};
}

absl::StatusOr<std::vector<Row>> Run(const std::string& trace, int rounds) {
  const auto machines = ReadTrace(trace);
  if (!machines.ok()) return machines.status();
  std::cout << absl::StreamFormat("%s: %d machines\n", trace, machines->size());
  FillOptions fill;
  fill.rounds = rounds;
  SpeedOptions speed;
  speed.rounds = rounds;
  std::vector<Row> rows = MeasureFill(*machines, fill);
  for (const auto& more : {MeasurePods(*machines), MeasureSpeed(speed)}) {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  std::string trace = "test/data/azure-vm-2017.csv.gz";
  return cxlpool::bench::RunBench(
      argc, argv,
      {.name = "bench-placement",
       .what = "how quickly and how well bytes are placed",
       .measure = [&](const auto& options) { return cxlpool::bench::Run(trace, options.rounds); },
       .add_options =
           [&](CLI::App& app) {
             app.add_option("--trace", trace,
                            "arrival_s,lifetime_s,vcpus,memory_gib; plain or gzipped");
           }});
}
