// bench-allocate: durable allocations by the manager beside an empty echo, etcd, SQLite and the
// disk alone. docs/performance.md says how it measures; tools/bench builds and runs it.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/benches/report.h"
#include "tools/benches/rounds.h"
#include "tools/benches/slice.h"
#include "tools/benches/stats.h"

namespace cxlpool::bench {
namespace {

struct Options {
  SliceOptions slice;
  int rounds = static_cast<int>(kMinRounds);
  std::vector<std::string> parts = {"unary", "batch", "alone"};
  std::string json;
};

double Rate(const Sample& sample) { return sample.per_second; }
double Middle(const Sample& sample) { return sample.p50_us; }
double High(const Sample& sample) { return sample.p99_us; }

// What one side measured in a pass; `sides` counts as in the list given to Rounds.
Rounds::Value Of(size_t side, double (*figure)(const Sample&)) {
  return [side, figure](const std::vector<Sample>& pass) { return figure(pass[side]); };
}

Row MakeRow(int number, const std::string& name, const std::string& unit, double target, Aim aim,
            const std::vector<Round>& rounds) {
  Row row{.number = number,
          .name = name,
          .unit = unit,
          .target = target,
          .aim = aim,
          .summary = Summarise(rounds, target, static_cast<uint64_t>(number), aim)};
  std::cout << ToText(row, rounds.size()) << std::flush;
  return row;
}

void PrintCpu(const Rounds& rounds, const std::vector<std::string>& names) {
  std::cout << "  CPU of the server, us an item:";
  for (size_t side = 0; side < names.size(); ++side) {
    std::cout << absl::StreamFormat(
        " %s %.2f", names[side],
        rounds.Median([side](const std::vector<Sample>& pass) { return pass[side].cpu_micros; }));
  }
  std::cout << std::endl;
}

// Rows 2 and 3: calls of one.
absl::Status RunUnary(const Options& options, SliceRunner& runner, std::vector<Row>& rows) {
  std::vector<Side> sides = {{"ours", [&] { return runner.Manager(kUnary); }, Rate},
                             {"echo", [&] { return runner.Echo(kUnary); }, Rate}};
  const bool etcd = !options.slice.etcd.empty();
  if (etcd) sides.push_back({"etcd-put", [&] { return runner.Etcd(kEtcdPuts); }, Rate});
  std::cout << "unary allocations, 64 callers: per second\n";
  Rounds rounds(std::move(sides));
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  rows.push_back(MakeRow(2, "durable unary allocations by an empty unary echo, 64 callers",
                         "calls/s", 0.85, Aim::kAtLeast, rounds.Compare(Of(0, Rate), Of(1, Rate))));
  if (etcd) {
    rows.push_back(MakeRow(3, "durable unary allocations by etcd put, 128 callers", "records/s",
                           2.5, Aim::kAtLeast, rounds.Compare(Of(0, Rate), Of(2, Rate))));
  }
  PrintCpu(rounds, {"ours", "echo"});
  return absl::OkStatus();
}

// Rows 1, 3 and 5: batches.
absl::Status RunBatch(const Options& options, SliceRunner& runner, std::vector<Row>& rows) {
  std::vector<Side> sides = {{"ours", [&] { return runner.Manager(kBatched); }, Rate},
                             {"echo", [&] { return runner.Echo(kBatched, true); }, Rate},
                             {"sqlite", [&] { return runner.Sqlite(); }, Rate},
                             {"sync-p99-us", [&] { return runner.Sync(); }, High},
                             {"bytes-echo", [&] { return runner.Echo(kBatched); }, Rate}};
  const bool etcd = !options.slice.etcd.empty();
  if (etcd) sides.push_back({"etcd-txn", [&] { return runner.Etcd(kEtcdTxns); }, Rate});
  std::cout << absl::StreamFormat("batched allocations, %d callers of %d: per second\n",
                                  kBatched.callers, kBatched.batch);
  Rounds rounds(std::move(sides));
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  rows.push_back(MakeRow(
      1, absl::StrFormat("durable allocations in batches of %d by an empty echo", kBatched.batch),
      "allocations/s", 0.8, Aim::kAtLeast, rounds.Compare(Of(0, Rate), Of(1, Rate))));
  if (etcd) {
    rows.push_back(MakeRow(3, "durable batched allocations by etcd txn of 100 puts", "records/s",
                           25, Aim::kAtLeast, rounds.Compare(Of(0, Rate), Of(5, Rate))));
  }
  rows.push_back(MakeRow(3, "durable batched allocations by SQLite, one commit a row", "records/s",
                         150, Aim::kAtLeast, rounds.Compare(Of(0, Rate), Of(2, Rate))));
  rows.push_back(MakeRow(5, "acknowledgement of a batch under full load by fdatasync, p99", "us", 3,
                         Aim::kAtMost, rounds.Compare(Of(0, High), Of(3, High))));
  PrintCpu(rounds, {"ours", "echo"});
  std::cout << absl::StreamFormat(
      "  an echo that moves bytes and parses nothing: %.4g allocations/s, %.3f of it ours\n",
      rounds.Median(Of(4, Rate)), Summarise(rounds.Compare(Of(0, Rate), Of(4, Rate)), 0, 1).ratio);
  return absl::OkStatus();
}

// Row 4: one call at a time.
absl::Status RunAlone(const Options& options, SliceRunner& runner, std::vector<Row>& rows) {
  std::cout << "one unloaded caller: p50 in us\n";
  Rounds rounds({{"ours", [&] { return runner.Manager(kAlone); }, Middle},
                 {"echo", [&] { return runner.Echo(kAlone); }, Middle},
                 {"sync", [&] { return runner.Sync(); }, Middle}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  for (const auto& [name, figure, target] :
       {std::tuple{"p50", &Middle, 1.10}, std::tuple{"p99", &High, 1.5}}) {
    const Rounds::Value parts = [figure = figure](const std::vector<Sample>& pass) {
      return figure(pass[1]) + figure(pass[2]);
    };
    rows.push_back(
        MakeRow(4, absl::StrCat("one unloaded unary allocation by echo + fdatasync, ", name), "us",
                target, Aim::kAtMost, rounds.Compare(Of(0, figure), parts)));
  }
  return absl::OkStatus();
}

// A loss is a failure; a missed target is a figure.
absl::Status Run(const Options& options) {
  const auto wanted = [&](const char* part) {
    return std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
  };
  if (options.slice.etcd.empty()) std::cout << "no etcd here: row 3 goes without it\n";
  SliceRunner runner(options.slice);
  if (absl::Status status = runner.Prepare(wanted("batch")); !status.ok()) return status;
  std::vector<Row> rows;
  for (const auto& [part, run] : {std::pair{"unary", &RunUnary}, std::pair{"batch", &RunBatch},
                                  std::pair{"alone", &RunAlone}}) {
    if (!wanted(part)) continue;
    if (absl::Status status = run(options, runner, rows); !status.ok()) return status;
  }
  const Survival& survival = runner.survival();
  std::cout << absl::StreamFormat(
      "killed %d times under load: acknowledged=%d lost=%d overlap=%d unacknowledged=%d\n",
      runner.kills(), survival.acknowledged, survival.lost, survival.overlap, survival.extra);
  if (survival.lost > 0 || survival.overlap > 0) {
    return absl::DataLossError(absl::StrCat("the manager broke its word: ", survival.first_loss,
                                            "; its store is kept in ", options.slice.directory));
  }
  return options.json.empty() ? absl::OkStatus() : WriteFile(options.json, ToJson(rows));
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::Options options;
  double seconds = 1;
  CLI::App app{"bench-allocate: durable allocations beside an echo, etcd, SQLite and the disk"};
  app.add_option("--manager", options.slice.manager, "Path of cxlpool-fm")->required();
  app.add_option("--echo", options.slice.echo, "Path of bench-echo")->required();
  app.add_option("--etcd", options.slice.etcd, "Path of etcd; without it, row 3 lacks two peers");
  app.add_option("--dir", options.slice.directory, "Empty directory on a disk")->required();
  app.add_option("--rounds", options.rounds, "Rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", seconds, "How long each slice of a round is measured")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 60.0));
  app.add_option("--part", options.parts, "Of unary, batch and alone; all")->delimiter(',');
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
