#include "tools/benches/bench_main.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>

namespace cxlpool::bench {

int RunBench(int argc, char** argv, const Bench& bench) {
  BenchOptions shared;
  BenchOptions& options = bench.options == nullptr ? shared : *bench.options;
  double seconds = 1;
  std::string json;
  CLI::App app{bench.name + ": " + bench.what};
  app.add_option("--manager", options.manager, "Path of cxlpool-fm");
  app.add_option("--before", options.before,
                 "Path of the cxlpool-fm of an earlier build, measured beside");
  app.add_option("--echo", options.echo, "Path of the echo");
  app.add_option("--etcd", options.etcd, "Path of etcd; without it, its rows are left out");
  app.add_option("--dir", options.directory, "Empty directory on a disk");
  app.add_option("--rounds", options.rounds, "Rounds of ours, peer, peer, ours")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", seconds, "How long each slice of a round is measured")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 600.0));
  app.add_option("--json", json, "Write the figures there");
  if (bench.add_options) bench.add_options(app);
  CLI11_PARSE(app, argc, argv);
  options.measured = absl::Seconds(seconds);
  signal(SIGPIPE, SIG_IGN);  // A server that is killed under load closes its connections.
  const auto rows = bench.measure(options);
  absl::Status status = rows.status();
  if (status.ok()) {
    for (const Row& row : *rows) std::cout << ToText(row) << std::flush;
    if (!json.empty()) status = WriteFile(json, ToJson(*rows));
  }
  if (status.ok()) return 0;
  std::cerr << bench.name << ": " << status.message() << "\n";
  return absl::IsDataLoss(status) ? 3 : 1;
}

}  // namespace cxlpool::bench
