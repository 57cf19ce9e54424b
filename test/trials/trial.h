// A trial program: one thing that must never happen, tried under many seeds.
//
//   --seeds N --first-seed S   this many, one after the other (default: CI's figure)
//   --minutes M                goes on until they have passed, whatever N is
//   --seed S [--trace]         that one alone, and what happened in it
//   SIGTERM                    ends it after the seed under way; what was tried so far is said. A
//                              second one ends it at once
//
// Zero failures in N trials bound the rate of failure at 3/N with 95 % confidence, so N is printed,
// with seeds a second. A seed that failed is printed as the command that tries it again.
//
// Exit codes: 0 all held; 1 one did not; 2 bad arguments; 3 void: all held, but too little was
// tried.
#ifndef CXLPOOL_TEST_TRIALS_TRIAL_H_
#define CXLPOOL_TEST_TRIALS_TRIAL_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace cxlpool {

struct TrialProgram {
  std::string name;         // As it is called.
  std::string what;         // In a few words, for --help and the summary.
  std::string more = {};    // For the end of --help.
  uint64_t ci_seeds = 100;  // Without arguments.

  // Tries one seed; an error is a failure of the promise, and says what was seen. `trace`: also
  // says what happens, on standard output.
  std::function<absl::Status(uint64_t seed, bool trace)> run;

  // Called once, after the last seed and after the summary was printed: ends what is still open. An
  // error is a failure as one of `run` is. May be null.
  std::function<absl::Status()> end = nullptr;

  // How much was tried so far, for people: "3 kinds of fault, 12,345 commits". May be null.
  std::function<std::string()> summary = nullptr;

  // What was not visited after so many seeds, and makes the run void. Empty: nothing. May be null.
  // Not asked after --seed.
  std::function<std::string(uint64_t seeds)> missing = nullptr;

  int max_failures = 5;  // Then it stops.
};

// Reads the arguments, runs, prints; answers the exit code.
int RunTrials(int argc, char** argv, const TrialProgram& program);

// "12,345".
std::string WithCommas(uint64_t number);

}  // namespace cxlpool

#endif  // CXLPOOL_TEST_TRIALS_TRIAL_H_
