// bench-allocate: durable allocations by the manager beside an empty echo, etcd, SQLite and the
// disk alone. docs/performance.md says how it measures; tools/bench builds and runs it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/rounds.h"
#include "tools/benches/slice.h"
#include "tools/benches/stats.h"

namespace cxlpool::bench {
namespace {

constexpr double Sample::*kRate = &Sample::per_second;
constexpr double Sample::*kMiddle = &Sample::p50_us;
constexpr double Sample::*kHigh = &Sample::p99_us;

// The first sides of `rounds` are servers with these names. Processor time is no row: it is printed
// because it shows a change that the rates of a busy machine hide.
void PrintCpu(const Rounds& rounds, const std::vector<std::string>& names) {
  std::cout << "  CPU of the server, us an item:";
  for (size_t side = 0; side < names.size(); ++side) {
    std::cout << absl::StreamFormat(" %s %.2f", names[side],
                                    rounds.Median(Rounds::Of(side, &Sample::cpu_micros)));
  }
  std::cout << std::endl;
}

// The second side of `rounds`: the most that gRPC can do on this machine. No row either: it looks
// at nothing.
void PrintEcho(const Rounds& rounds) {
  std::cout << absl::StreamFormat("  an empty echo: %.4g allocations/s\n",
                                  rounds.Median(Rounds::Of(1, kRate)));
}

struct AllocateOptions : BenchOptions {
  std::vector<std::string> parts = {"unary", "batch", "alone"};
};

// Row 2: calls of one. An earlier build, where one is given, says what a change cost.
absl::Status RunUnary(const AllocateOptions& options, SliceRunner& runner, std::vector<Row>& rows) {
  std::vector<Side> sides = {{"ours", [&] { return runner.Manager(kUnary); }, kRate},
                             {"echo", [&] { return runner.Echo(kUnary); }, kRate}};
  std::vector<std::string> servers = {"ours", "echo"};
  // Where these two are among the sides; 0: they are not there.
  size_t before = 0, etcd = 0;
  if (!options.before.empty()) {
    before = sides.size();
    sides.push_back({"before", [&] { return runner.ManagerBefore(kUnary); }, kRate});
    servers.push_back("before");
  }
  if (!options.etcd.empty()) {
    etcd = sides.size();
    sides.push_back({"etcd-put", [&] { return runner.Etcd(kEtcdPuts); }, kRate});
  }
  std::cout << "unary allocations, 64 callers: per second\n";
  Rounds rounds(std::move(sides));
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  if (etcd != 0) {
    rows.push_back(MakeRow(2, "durable unary allocations, 64 callers, by etcd put, 128 callers",
                           "records/s", 2, Aim::kAtLeast, rounds.Compare(kRate, etcd)));
  }
  if (before != 0) {
    rows.push_back(MakeRowBefore(2, "durable unary allocations", "calls/s", Aim::kAtLeast,
                                 rounds.Compare(kRate, before)));
  }
  PrintCpu(rounds, servers);
  PrintEcho(rounds);
  return absl::OkStatus();
}

// Rows 3 and 5: batches. A batch is one commit, so it is held against etcd's transactions, which
// are one, too; SQLite by itself commits each row. Row 5 is of a caller under full load, and a lone
// fdatasync is what its answer waits for at least.
absl::Status RunBatch(const AllocateOptions& options, SliceRunner& runner, std::vector<Row>& rows) {
  std::vector<Side> sides = {{"ours", [&] { return runner.Manager(kBatched); }, kRate},
                             {"echo", [&] { return runner.Echo(kBatched); }, kRate}};
  std::vector<std::string> servers = {"ours", "echo"};
  const size_t before = sides.size();
  if (!options.before.empty()) {
    sides.push_back({"before", [&] { return runner.ManagerBefore(kBatched); }, kRate});
    servers.push_back("before");
  }
  const size_t sqlite = sides.size(), sync = sqlite + 1, etcd = sqlite + 2;
  sides.push_back({"sqlite", [&] { return runner.Sqlite(); }, kRate});
  sides.push_back({"sync-p99-us", [&] { return runner.Sync(); }, kHigh});
  if (!options.etcd.empty()) {
    sides.push_back({"etcd-txn", [&] { return runner.Etcd(kEtcdTxns); }, kRate});
  }
  std::cout << absl::StreamFormat("batched allocations, %d callers of %d: per second\n",
                                  kBatched.callers, kBatched.batch);
  Rounds rounds(std::move(sides));
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  if (!options.etcd.empty()) {
    rows.push_back(MakeRow(3, "durable batched allocations by etcd txn of 100 puts", "records/s", 4,
                           Aim::kAtLeast, rounds.Compare(kRate, etcd)));
  }
  rows.push_back(MakeRow(3, "durable batched allocations by SQLite, one commit a row", "records/s",
                         30, Aim::kAtLeast, rounds.Compare(kRate, sqlite)));
  rows.push_back(MakeRow(5, "acknowledgement of a batch under full load by fdatasync, p99", "us",
                         20, Aim::kAtMost, rounds.Compare(kHigh, sync)));
  if (!options.before.empty()) {
    rows.push_back(MakeRowBefore(3, "durable batched allocations", "records/s", Aim::kAtLeast,
                                 rounds.Compare(kRate, before)));
  }
  PrintCpu(rounds, servers);
  PrintEcho(rounds);
  return absl::OkStatus();
}

// Row 4: one call at a time. It needs a round trip and one sync, so the peer is the sum of an echo
// and of a lone fdatasync, in the same pass.
absl::Status RunAlone(const AllocateOptions& options, SliceRunner& runner, std::vector<Row>& rows) {
  std::cout << "one unloaded caller: p50 in us\n";
  Rounds rounds({{"ours", [&] { return runner.Manager(kAlone); }, kMiddle},
                 {"echo", [&] { return runner.Echo(kAlone); }, kMiddle},
                 {"sync", [&] { return runner.Sync(); }, kMiddle}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  for (const auto& [name, figure] : {std::pair{"p50", kMiddle}, std::pair{"p99", kHigh}}) {
    const Rounds::Value parts = [figure = figure](const std::vector<Sample>& pass) {
      return pass[1].*figure + pass[2].*figure;
    };
    rows.push_back(
        MakeRow(4, absl::StrCat("one unloaded unary allocation by echo + fdatasync, ", name), "us",
                1.5, Aim::kAtMost, rounds.Compare(Rounds::Of(0, figure), parts)));
  }
  return absl::OkStatus();
}

// A loss is a failure; a missed target is a figure.
absl::StatusOr<std::vector<Row>> Run(const AllocateOptions& options) {
  const auto wanted = [&](const char* part) {
    return std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
  };
  if (options.etcd.empty()) std::cout << "no etcd here: row 3 goes without it\n";
  SliceRunner runner({.manager = options.manager,
                      .before = options.before,
                      .echo = options.echo,
                      .etcd = options.etcd,
                      .directory = options.directory,
                      .measured = options.measured});
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
                                            "; its store is kept in ", options.directory));
  }
  return rows;
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::AllocateOptions options;
  return cxlpool::bench::RunBench(
      argc, argv,
      {.name = "bench-allocate",
       .what = "durable allocations beside an echo, etcd, SQLite and the disk",
       .measure = [&](const auto&) { return cxlpool::bench::Run(options); },
       .add_options =
           [&](CLI::App& app) {
             app.add_option("--part", options.parts, "Of unary, batch and alone; all")
                 ->delimiter(',');
           },
       .options = &options});
}
