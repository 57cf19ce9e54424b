// bench-watch: one change sent to many watchers, by the manager and by a server that writes the
// same bytes ready-made. docs/performance.md says how it measures; tools/bench builds and runs it.

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/load.h"
#include "tools/benches/requests.h"
#include "tools/benches/rounds.h"
#include "tools/benches/servers.h"
#include "tools/benches/streams.h"

namespace cxlpool::bench {
namespace {

constexpr char kWatch[] = "/cxlpool.v1.PoolService/WatchRegions";
constexpr double kTarget = 0.9;
constexpr absl::Duration kLimit = absl::Seconds(30);

struct Options : BenchOptions {
  int watchers = 5000;
};

// One slice after another, each with a server of its own in a directory of its own.
class WatchRunner {
 public:
  explicit WatchRunner(const Options& options) : options_(options) {}

  // Keeps the event that one allocation gives, for the echo.
  absl::Status Prepare() {
    if (absl::Status status = CheckOnDisk(options_.directory); !status.ok()) return status;
    const std::string directory = NextDirectory();
    auto server = StartManager(options_.manager, directory);
    if (!server.ok()) return server.status();
    const auto answer = CallOnce(server->address, kAllocate, AllocateRequest(++seed_), kLimit);
    if (!answer.ok()) return WithLog(answer.status(), server->log);
    auto streams = Watch(*server, 1, true);
    if (!streams.ok()) return streams.status();
    // The Region as it is, then SYNCED.
    if (absl::Status status = (*streams)->Await(2, kLimit); !status.ok()) return status;
    event_ = *(*streams)->first_answer(0);
    RemoveDirectory(directory);
    return WriteFile(event_file(), event_);
  }

  // `program`: its path.
  absl::StatusOr<Sample> Manager(const std::string& program) {
    const std::string directory = NextDirectory();
    auto server = StartManager(program, directory);
    if (!server.ok()) return server.status();
    auto sample = Measure(*server);
    RemoveDirectory(directory);
    return sample;
  }

  absl::StatusOr<Sample> Echo() {
    const std::string directory = NextDirectory();
    auto server = StartEcho(options_.echo, directory, event_file());
    if (!server.ok()) return server.status();
    auto sample = Measure(*server);
    RemoveDirectory(directory);
    return sample;
  }

  size_t event_bytes() const { return event_.size(); }

 private:
  std::string NextDirectory() { return absl::StrCat(options_.directory, "/slice-", ++slices_); }
  std::string event_file() const { return options_.directory + "/event"; }

  static absl::StatusOr<std::unique_ptr<Streams>> Watch(const Server& server, int count,
                                                        bool keep) {
    // An empty request: everything, from now.
    return Streams::Open({.address = server.address,
                          .method = kWatch,
                          .first = std::vector<std::string>(count),
                          .keep_first_answer = keep},
                         kLimit);
  }

  // One change after another, each when all have heard of the one before.
  absl::StatusOr<Sample> Measure(const Server& server) {
    auto streams = Watch(server, options_.watchers, false);
    if (!streams.ok()) return WithLog(streams.status(), server.log);
    const uint64_t watchers = options_.watchers;
    if (absl::Status status = (*streams)->Await(watchers, kLimit); !status.ok()) {
      return WithLog(status, server.log);
    }
    auto caller = Caller::Connect(server.address, kAllocate, kLimit);
    if (!caller.ok()) return caller.status();
    NumberedRequest request(AllocateRequest(++seed_), 0);
    uint64_t changes = 0, measured_from = 0;
    absl::Time began;
    absl::Duration cpu_before;
    const absl::Time warm = absl::Now() + absl::Milliseconds(300);
    while (true) {
      const absl::Time now = absl::Now();
      // What is measured begins between two changes, when all have heard of the last one.
      if (measured_from == 0 && now >= warm && changes > 0) {
        const auto cpu = server.child.CpuTime();
        if (!cpu.ok()) return cpu.status();
        cpu_before = *cpu;
        began = now;
        measured_from = changes;
      }
      if (measured_from != 0 && now - began >= options_.measured && changes > measured_from) break;
      if (const auto answer = (*caller)->Call(request.Next()); !answer.ok()) {
        return WithLog(answer.status(), server.log);
      }
      ++changes;
      if (absl::Status status = (*streams)->Await(watchers * (changes + 1), kLimit); !status.ok()) {
        return WithLog(status, server.log);
      }
    }
    const absl::Duration took = absl::Now() - began;
    const auto cpu = server.child.CpuTime();
    if (!cpu.ok()) return cpu.status();
    const auto [least, most] = (*streams)->LeastAndMost();
    // Each has the Region as it was at first, and each change once.
    if (least != changes + 1 || most != changes + 1) {
      return absl::DataLossError(
          absl::StrFormat("after %d changes one watcher has heard %d messages and another %d",
                          changes, least, most));
    }
    const double sent = static_cast<double>((changes - measured_from) * watchers);
    return Sample{.per_second = sent / absl::ToDoubleSeconds(took),
                  .cpu_micros = absl::ToDoubleMicroseconds(*cpu - cpu_before) / sent};
  }

  const Options options_;
  int slices_ = 0;
  uint64_t seed_ = 0;
  std::string event_;
};

absl::StatusOr<std::vector<Row>> Run(const Options& options) {
  WatchRunner runner(options);
  if (absl::Status status = runner.Prepare(); !status.ok()) return status;
  std::cout << absl::StreamFormat(
      "one change to %d watchers, events of %d bytes: messages a second\n", options.watchers,
      runner.event_bytes());
  std::vector<Side> sides = {
      {"ours", [&] { return runner.Manager(options.manager); }, &Sample::per_second},
      {"echo", [&] { return runner.Echo(); }, &Sample::per_second}};
  if (!options.before.empty()) {
    sides.push_back(
        {"before", [&] { return runner.Manager(options.before); }, &Sample::per_second});
  }
  Rounds rounds(std::move(sides));
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  std::cout << absl::StreamFormat("  CPU of the server, us a message: ours %.2f, echo %.2f\n",
                                  rounds.Median(Rounds::Of(0, &Sample::cpu_micros)),
                                  rounds.Median(Rounds::Of(1, &Sample::cpu_micros)));
  const std::string what = absl::StrFormat("one change to %d watchers", options.watchers);
  std::vector<Row> rows = {MakeRow(11, what + " by writing ready bytes", "messages/s", kTarget,
                                   Aim::kAtLeast, rounds.Compare(&Sample::per_second))};
  if (!options.before.empty()) {
    rows.push_back(MakeRowBefore(11, what, "messages/s", Aim::kAtLeast,
                                 rounds.Compare(&Sample::per_second, 2)));
  }
  return rows;
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::Options own;
  return cxlpool::bench::RunBench(argc, argv,
                                  {.name = "bench-watch",
                                   .what = "one change to many watchers",
                                   .measure = [&](const auto&) { return cxlpool::bench::Run(own); },
                                   .add_options =
                                       [&](CLI::App& app) {
                                         app.add_option("--watchers", own.watchers, "How many")
                                             ->capture_default_str()
                                             ->check(CLI::Range(1, 8192));
                                       },
                                   .options = &own});
}
