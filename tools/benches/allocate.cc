// bench-allocate: durable allocations by the manager beside an empty echo. docs/performance.md says
// how it measures; tools/bench builds and runs it.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tools/benches/report.h"
#include "tools/benches/slice.h"
#include "tools/benches/stats.h"

namespace cxlpool::bench {
namespace {

constexpr double kTarget = 0.85;
constexpr uint64_t kSeed = 2;

struct Options {
  SliceOptions slice;
  int rounds = static_cast<int>(kMinRounds);
  std::string json;
};

struct Result {
  std::vector<Round> rounds;
  std::vector<double> our_cpu, peer_cpu;  // One a slice.
  Survival survival;
};

absl::Status AddRound(SliceRunner& runner, Result& result) {
  const auto ours_first = runner.Manager();
  if (!ours_first.ok()) return ours_first.status();
  const auto peer_first = runner.Echo();
  if (!peer_first.ok()) return peer_first.status();
  const auto peer_last = runner.Echo();
  if (!peer_last.ok()) return peer_last.status();
  const auto ours_last = runner.Manager();
  if (!ours_last.ok()) return ours_last.status();
  result.rounds.push_back({ours_first->per_second, peer_first->per_second, peer_last->per_second,
                           ours_last->per_second});
  result.our_cpu.insert(result.our_cpu.end(), {ours_first->cpu_micros, ours_last->cpu_micros});
  result.peer_cpu.insert(result.peer_cpu.end(), {peer_first->cpu_micros, peer_last->cpu_micros});
  result.survival += ours_first->survival;
  result.survival += ours_last->survival;
  return absl::OkStatus();
}

void Print(const Options& options, const Result& result, const Row& row) {
  const Summary& s = row.summary;
  std::cout << absl::StreamFormat(
      "ours %.0f/s, echo %.0f/s: ratio %.3f, 95 %% [%.3f, %.3f], N = %d rounds\n"
      "control (ours by ours) 95 %% [%.3f, %.3f]; target %.2f: %s\n"
      "CPU of the server: ours %.1f us an allocation, echo %.1f us a call\n"
      "killed %d times under load: acknowledged=%d lost=%d overlap=%d unacknowledged=%d\n",
      s.ours, s.peer, s.ratio, s.ratio_95.low, s.ratio_95.high, result.rounds.size(),
      s.control_95.low, s.control_95.high, row.target, ToString(s.verdict), Median(result.our_cpu),
      Median(result.peer_cpu), 2 * options.rounds, result.survival.acknowledged,
      result.survival.lost, result.survival.overlap, result.survival.extra);
}

// A loss is a failure; a missed target is a figure.
absl::Status Run(const Options& options) {
  SliceRunner runner(options.slice);
  if (absl::Status status = runner.Prepare(); !status.ok()) return status;
  std::cout << absl::StreamFormat("unary allocations, %d callers, answers of %d bytes\n",
                                  options.slice.callers, runner.answer_bytes())
            << std::flush;
  Result result;
  for (int i = 1; i <= options.rounds; ++i) {
    if (absl::Status status = AddRound(runner, result); !status.ok()) return status;
    const Round& round = result.rounds.back();
    std::cout << absl::StreamFormat("round %d of %d: ours %.0f, echo %.0f %.0f, ours %.0f: %.3f\n",
                                    i, options.rounds, round.ours_first, round.peer_first,
                                    round.peer_last, round.ours_last, round.Ratio())
              << std::flush;
  }
  const Row row{.number = 2,
                .name = "durable unary allocations by an empty unary echo, 64 callers",
                .unit = "calls/s",
                .target = kTarget,
                .summary = Summarise(result.rounds, kTarget, kSeed)};
  Print(options, result, row);
  if (result.survival.lost > 0 || result.survival.overlap > 0) {
    return absl::DataLossError(
        absl::StrCat("the manager broke its word: ", result.survival.first_loss,
                     "; its store is kept in ", options.slice.directory));
  }
  return options.json.empty() ? absl::OkStatus() : WriteFile(options.json, ToJson({row}));
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::Options options;
  double seconds = 2;
  CLI::App app{"bench-allocate: durable allocations beside an empty echo"};
  app.add_option("--manager", options.slice.manager, "Path of cxlpool-fm")->required();
  app.add_option("--echo", options.slice.echo, "Path of bench-echo")->required();
  app.add_option("--dir", options.slice.directory, "Empty directory on a disk")->required();
  app.add_option("--rounds", options.rounds, "Rounds of ours, echo, echo, ours")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", seconds, "How long each of the four is measured")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 60.0));
  app.add_option("--json", options.json, "Write the figures there");
  CLI11_PARSE(app, argc, argv);
  options.slice.measured = absl::Seconds(seconds);
  signal(SIGPIPE, SIG_IGN);
  if (const absl::Status status = cxlpool::bench::Run(options); !status.ok()) {
    std::cerr << "bench-allocate: " << status.message() << "\n";
    return absl::IsDataLoss(status) ? 3 : 1;
  }
  return 0;
}
