// cxlpool-sim: both cores, whole, under many seeds of one simulated rack.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/log.h"
#include "test/sim/script.h"
#include "test/sim/simulation.h"
#include "test/trials/trial.h"

namespace cxlpool::sim {
namespace {

constexpr int kOperations = 200;
constexpr int kShrinkRuns = 2000;
constexpr uint64_t kBenchSeeds = 500;
constexpr int kBenchRounds = 5;

void Print(const std::string& line) { std::cout << line << "\n"; }

bool Fails(const Script& script) { return !RunSimulation(script).violation.empty(); }

absl::Status Try(const Script& script, bool trace, Coverage* coverage) {
  SimulationOptions options;
  if (trace) options.trace = Print;
  const SimulationResult result = RunSimulation(script, options);
  if (trace) {
    std::cout << result.coverage.Table();
    std::cout << absl::StrFormat("digest %016x\n", result.digest);
  }
  if (coverage != nullptr) coverage->Add(result.coverage);
  if (result.violation.empty()) return absl::OkStatus();
  if (trace) return absl::InternalError(result.violation);
  const Script shrunk = Shrink(script, Fails, kShrinkRuns);
  return absl::InternalError(
      absl::StrCat(result.violation, "\n  ", shrunk.steps.size(), " of ", script.steps.size(),
                   " steps do it: ", RunSimulation(shrunk).violation, "\n", ToText(shrunk)));
}

// Seeds a second on one core, all checks on: the median of some rounds.
int Bench() {
  std::vector<double> rates;
  for (int round = 0; round < kBenchRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t seed = 1; seed <= kBenchSeeds; ++seed) {
      const SimulationResult result = RunSimulation(MakeScript(seed, kOperations));
      if (!result.violation.empty()) {
        std::cout << "cxlpool-sim: seed " << seed << " FAILED: " << result.violation << "\n";
        return 1;
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(kBenchSeeds) / took.count());
  }
  std::sort(rates.begin(), rates.end());
  std::cout << absl::StrFormat(
      "cxlpool-sim: %.0f seeds/s on one core (%.0f to %.0f in %d rounds of %d seeds): %d hosts, %d "
      "devices, %d operations each\n",
      rates[rates.size() / 2], rates.front(), rates.back(), kBenchRounds, kBenchSeeds, kHosts,
      kDevices, kOperations);
  return 0;
}

int RunFile(const char* path, bool trace) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto script = ParseScript(text);
  if (!file.is_open() || !script.ok() || script->steps.empty()) {
    std::cerr << "cxlpool-sim: " << path << ": "
              << (script.ok() ? "no script there" : std::string(script.status().message())) << "\n";
    return 2;
  }
  const absl::Status status = Try(*script, trace, nullptr);
  std::cout << (status.ok() ? "all held" : std::string(status.message())) << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace cxlpool::sim

int main(int argc, char** argv) {
  using namespace cxlpool::sim;
  const bool shared = argc > 1 && std::strcmp(argv[1], "--shared") == 0;
  const bool standby = argc > 1 && std::strcmp(argv[1], "--standby") == 0;
  if (shared || standby) {
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  const auto make = [&](uint64_t seed) {
    Script script = MakeScript(seed, kOperations, standby);
    script.shared = shared;
    script.standby = script.standby && !shared;
    return script;
  };
  cxlpool::SetLogLevel(static_cast<cxlpool::LogLevel>(0));
  if (argc == 2 && std::strcmp(argv[1], "--bench") == 0) return Bench();
  if (argc >= 3 && std::strcmp(argv[1], "--script") == 0) {
    return RunFile(argv[2], argc > 3 && std::strcmp(argv[3], "--trace") == 0);
  }
  if (argc == 3 && std::strcmp(argv[1], "--show") == 0) {
    std::cout << ToText(make(std::strtoull(argv[2], nullptr, 10)));
    return 0;
  }
  Coverage coverage;
  return cxlpool::RunTrials(
      argc, argv,
      {.name = "cxlpool-sim",
       .what = "a manager or two, their agents and a rack in one thread, under seeded faults",
       .more =
           "First of all:\n"
           "  --shared                  hosts see the devices whole: their agents are the fabric\n"
           "  --standby                 each seed has two managers, not one in four\n"
           "Also:\n"
           "  --bench                   seeds a second on one core\n"
           "  --show SEED               the script that a seed makes\n"
           "  --script FILE [--trace]   runs a script, for example one that was made shorter",
       .ci_seeds = 3000,
       .run = [&](uint64_t seed, bool trace) { return Try(make(seed), trace, &coverage); },
       .summary = [&] { return coverage.Summary(); },
       .missing = [&](uint64_t) { return coverage.Missing(); }});
}
