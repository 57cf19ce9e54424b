#include "test/trials/trial.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cxlpool {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kVoid = 3;

std::atomic<bool> stopped = false;
void Stop(int) { stopped = true; }

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string WithCommas(uint64_t number) {
  std::string digits = absl::StrCat(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

int RunTrials(int argc, char** argv, const TrialProgram& program) {
  CLI::App app{program.name + ": " + program.what};
  app.footer(program.more);
  uint64_t seeds = program.ci_seeds;
  uint64_t first = 1;
  double minutes = 0;
  std::optional<uint64_t> only;
  bool trace = false;
  app.add_option("--seeds", seeds, "How many")->capture_default_str();
  app.add_option("--first-seed", first, "The first of them")->capture_default_str();
  app.add_option("--minutes", minutes, "Goes on until they have passed");
  auto* seed = app.add_option("--seed", only, "This one alone");
  app.add_flag("--trace", trace, "Says what happens")->needs(seed);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (only.has_value()) {
    first = *only;
    seeds = 1;
    minutes = 0;
  }
  // A second one ends it at once.
  struct sigaction action = {};
  action.sa_handler = &Stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
  const auto start = std::chrono::steady_clock::now();
  uint64_t trials = 0;
  int failures = 0;
  const auto go_on = [&] {
    if (stopped || failures >= program.max_failures) return false;
    return minutes > 0 ? SecondsSince(start) < minutes * 60 : trials < seeds;
  };
  for (uint64_t s = first; go_on(); ++s, ++trials) {
    const absl::Status status = program.run(s, trace);
    if (status.ok()) continue;
    ++failures;
    std::cout << program.name << ": seed " << s << " FAILED: " << status.message()
              << "\n  again: " << program.name << " --seed " << s << " --trace" << std::endl;
  }
  const double seconds = SecondsSince(start);
  std::cout << absl::StrFormat("%s: %s trials, %d failed, %.1f seeds/s", program.name,
                               WithCommas(trials), failures,
                               static_cast<double>(trials) / std::max(seconds, 1e-9));
  if (failures == 0 && trials > 0) {
    std::cout << absl::StrFormat("; fails in less than %.2g of them (95 %%)",
                                 3.0 / static_cast<double>(trials));
  }
  if (program.summary) std::cout << "; " << program.summary();
  std::cout << std::endl;
  const absl::Status end = program.end ? program.end() : absl::OkStatus();
  if (!end.ok()) std::cout << program.name << ": its end FAILED: " << end.message() << std::endl;
  if (failures > 0 || !end.ok()) return kFailed;
  const std::string missing =
      program.missing && !only.has_value() ? program.missing(trials) : std::string();
  if (missing.empty()) return 0;
  std::cout << program.name << ": void: " << missing << std::endl;
  return kVoid;
}

}  // namespace cxlpool
