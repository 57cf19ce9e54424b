// bench-heartbeat: what a heartbeat of a host agent costs the manager, beside what an empty unary
// call costs an echo. docs/performance.md says how it measures; tools/bench builds and runs it.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/benches/agents.h"
#include "tools/benches/report.h"
#include "tools/benches/rounds.h"
#include "tools/benches/servers.h"
#include "tools/benches/slice.h"

namespace cxlpool::bench {
namespace {

constexpr double kTarget = 1.0 / 15;
constexpr absl::Duration kLimit = absl::Minutes(2);
// For what was sent last to be read.
constexpr absl::Duration kSettle = absl::Milliseconds(50);

struct Options {
  SliceOptions slice;
  std::string json;
  int agents = 10000;
  double per_second = 50000;  // 100,000 agents, each every 2 s.
  int rounds = static_cast<int>(kMinRounds);
};

absl::StatusOr<Sample> Heartbeats(const Options& options, const Server& server, Agents& agents) {
  // Every lease is fresh, and the path warm.
  if (const auto sent = agents.Beat(options.per_second, options.slice.warm_up); !sent.ok()) {
    return WithLog(sent.status(), server.log);
  }
  absl::SleepFor(kSettle);
  const auto before = server.child.CpuTime();
  const absl::Time began = absl::Now();
  const auto sent = agents.Beat(options.per_second, options.slice.measured);
  if (!sent.ok()) return WithLog(sent.status(), server.log);
  const absl::Duration took = absl::Now() - began;
  absl::SleepFor(kSettle);
  const auto after = server.child.CpuTime();
  if (!before.ok()) return before.status();
  if (!after.ok()) return after.status();
  if (*sent == 0) return absl::DeadlineExceededError("not one heartbeat was sent");
  const double count = static_cast<double>(*sent);
  return Sample{.per_second = count / absl::ToDoubleSeconds(took),
                .cpu_micros = absl::ToDoubleMicroseconds(*after - *before) / count};
}

absl::Status Run(const Options& options) {
  SliceRunner runner(options.slice);
  if (absl::Status status = runner.Prepare(false); !status.ok()) return status;
  // One manager for the whole run: its sessions last, and only what a slice spends is counted.
  auto server = StartManager(options.slice.manager, options.slice.directory + "/manager");
  if (!server.ok()) return server.status();
  const absl::Time began = absl::Now();
  const auto agents = Agents::Start(server->address, options.agents, kLimit);
  if (!agents.ok()) return WithLog(agents.status(), server->log);
  std::cout << absl::StreamFormat(
      "%d agents enrolled and connected in %.1f s; %.0f heartbeats a second: us of CPU each\n",
      options.agents, absl::ToDoubleSeconds(absl::Now() - began), options.per_second);
  const auto cpu = [](const Sample& sample) { return sample.cpu_micros; };
  Rounds rounds({{"ours", [&] { return Heartbeats(options, *server, **agents); }, cpu},
                 {"echo", [&] { return runner.Echo(kUnary); }, cpu}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  const auto of = [](size_t side) {
    return [side](const std::vector<Sample>& pass) { return pass[side].cpu_micros; };
  };
  const Row row{
      .number = 12,
      .name = absl::StrFormat("heartbeat of one of %d agents by a unary echo, CPU of the server",
                              options.agents),
      .unit = "us",
      .target = kTarget,
      .aim = Aim::kAtMost,
      .summary = Summarise(rounds.Compare(of(0), of(1)), kTarget, 12, Aim::kAtMost)};
  const auto resident = server->child.ResidentBytes();
  std::cout << ToText(row, rounds.size())
            << absl::StreamFormat(
                   "  heartbeats a second: %.0f; a call costs %.1f times a heartbeat; resident "
                   "memory %.0f MiB\n",
                   rounds.Median(
                       [](const std::vector<Sample>& pass) { return pass[0].per_second; }),
                   1 / row.summary.ratio,
                   resident.ok() ? static_cast<double>(*resident) / (1 << 20) : 0.0);
  return options.json.empty() ? absl::OkStatus() : WriteFile(options.json, ToJson({row}));
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::Options options;
  double seconds = 1;
  CLI::App app{"bench-heartbeat: what a heartbeat costs the manager"};
  app.add_option("--manager", options.slice.manager, "Path of cxlpool-fm")->required();
  app.add_option("--echo", options.slice.echo, "Path of bench-echo")->required();
  app.add_option("--dir", options.slice.directory, "Empty directory on a disk")->required();
  app.add_option("--agents", options.agents, "How many have a session")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--rate", options.per_second, "Heartbeats a second, of all together")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--rounds", options.rounds, "Rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", seconds, "How long each slice of a round is measured")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3.0));  // Leases last 10 s.
  app.add_option("--json", options.json, "Write the figures there");
  CLI11_PARSE(app, argc, argv);
  options.slice.measured = absl::Seconds(seconds);
  signal(SIGPIPE, SIG_IGN);
  if (const absl::Status status = cxlpool::bench::Run(options); !status.ok()) {
    std::cerr << "bench-heartbeat: " << status.message() << "\n";
    return 1;
  }
  return 0;
}
