// The main function that all benches share: the options that tools/bench gives each of them, one
// run, its figures, its exit code.
#ifndef CXLPOOL_TOOLS_BENCHES_BENCH_MAIN_H_
#define CXLPOOL_TOOLS_BENCHES_BENCH_MAIN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/benches/report.h"

namespace CLI {
class App;
}

namespace cxlpool::bench {

// What every bench is given. A bench that has no use for one of them ignores it.
struct BenchOptions {
  int rounds = static_cast<int>(kMinRounds);
  absl::Duration measured = absl::Seconds(1);  // How long each slice of a round is measured.
  std::string directory;                       // Empty, on a disk.
  std::string manager;                         // Path of cxlpool-fm,
  std::string before;                          // of that of an earlier build; empty: there is none,
  std::string echo;                            // of the echo,
  std::string etcd;                            // of etcd; empty: there is none.
};

struct Bench {
  std::string name;  // Of the program.
  std::string what;  // For --help.
  std::function<absl::StatusOr<std::vector<Row>>(const BenchOptions&)> measure;
  std::function<void(CLI::App&)> add_options = nullptr;  // Those of this bench.
  BenchOptions* options = nullptr;  // Where a bench with options of its own wants all of them.
};

// Measures, prints the rows, and writes them to --json. The exit code: 0 also where a target is
// missed, which is a figure; 3 where something acknowledged was lost (DATA_LOSS); else 1.
int RunBench(int argc, char** argv, const Bench& bench);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_BENCH_MAIN_H_
