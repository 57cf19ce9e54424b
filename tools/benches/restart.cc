// bench-restart: how long a killed manager takes until it serves again, beside a bare loop over the
// same bytes and etcd with the same records. docs/performance.md says how it measures; tools/bench
// builds and runs it.

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/load.h"
#include "tools/benches/probes.h"
#include "tools/benches/regions.h"
#include "tools/benches/requests.h"
#include "tools/benches/rounds.h"
#include "tools/benches/servers.h"

namespace cxlpool::bench {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(120);
constexpr absl::Duration kFillLimit = absl::Minutes(10);
constexpr double kMemoryLimitMib = 1024;
constexpr int kBatch = 100;
constexpr int kCallers = 8;

struct Options : BenchOptions {
  uint64_t regions = 1000000;
};

// Has the server take `items` in batches, from several callers at once. A failure comes with the
// end of the server's log.
absl::Status Fill(const Server& server, const std::string& method, const std::string& request,
                  uint64_t items) {
  LoadOptions options;
  options.address = server.address;
  options.method = method;
  options.request = request;
  options.callers = kCallers;
  options.calls_per_caller = items / kBatch / kCallers;
  auto load = Load::Start(options, kStartLimit);
  if (!load.ok()) return WithLog(load.status(), server.log);
  if (auto end = (*load)->Join(kFillLimit); !end.ok()) return WithLog(end.status(), server.log);
  if (absl::Status status = (*load)->failure(); !status.ok()) return WithLog(status, server.log);
  return absl::OkStatus();
}

// Stores of the manager, of an earlier one and of etcd, which stay as they are from one slice to
// the next: a slice starts a process on one of them, and kills it when it ends.
class RestartRunner {
 public:
  explicit RestartRunner(const Options& options) : options_(options) {}

  // Fills the stores, by the servers' own calls.
  absl::Status Prepare() {
    if (absl::Status status = CheckOnDisk(options_.directory); !status.ok()) return status;
    if (absl::Status status = FillManager(options_.manager, manager_directory()); !status.ok()) {
      return status;
    }
    if (!options_.before.empty()) {
      if (absl::Status status = FillManager(options_.before, before_directory()); !status.ok()) {
        return status;
      }
    }
    auto contents = ReadStore(StoreFile(manager_directory()));
    if (!contents.ok()) return contents.status();
    contents_ = *std::move(contents);
    if (options_.etcd.empty()) return absl::OkStatus();
    auto server = StartEtcd(options_.etcd, etcd_directory());
    if (!server.ok()) return server.status();
    // The load does not wait for a server that has only just been started.
    if (const auto ready = CallOnce(server->address, kEtcdRange, EtcdCountRequest(), kStartLimit);
        !ready.ok()) {
      return WithLog(ready.status(), server->log);
    }
    return Fill(*server, kEtcdTxn, EtcdTxnRequest(contents_.newest, kBatch), options_.regions);
  }

  absl::StatusOr<Sample> Manager() {
    return RunManager(options_.manager, manager_directory(), &resident_mib_);
  }
  absl::StatusOr<Sample> ManagerBefore() {
    std::vector<double> ignored;
    return RunManager(options_.before, before_directory(), &ignored);
  }

  // Until a process of its own has read and checked everything, and ended.
  absl::StatusOr<Sample> Loop() {
    const std::string log = options_.directory + "/loop.log";
    const absl::Time began = absl::Now();
    auto child = Child::Start({"/proc/self/exe", "--read", StoreFile(manager_directory())}, log);
    if (!child.ok()) return child.status();
    const int code = child->Wait();
    const absl::Time ended = absl::Now();
    if (code != 0) return WithLog(absl::InternalError("the bare loop failed"), log);
    return Sample{.seconds = absl::ToDoubleSeconds(ended - began)};
  }

  // Until it answers how many keys there are. It was killed, or is now.
  absl::StatusOr<Sample> Etcd() {
    const absl::Time began = absl::Now();
    auto server = StartEtcd(options_.etcd, etcd_directory());
    if (!server.ok()) return server.status();
    const auto answer = CallOnce(server->address, kEtcdRange, EtcdCountRequest(), kStartLimit);
    const absl::Time ended = absl::Now();
    if (!answer.ok()) return WithLog(answer.status(), server->log);
    return Sample{.seconds = absl::ToDoubleSeconds(ended - began)};
  }

  const StoreContents& contents() const { return contents_; }
  double resident_mib() const { return Median(resident_mib_); }

 private:
  // Its end kills the manager: the store is read, and opened again, as a kill leaves it. An earlier
  // manager has a store of its own: it may not know what a later one writes.
  absl::Status FillManager(const std::string& program, const std::string& directory) {
    auto server = StartManager(program, directory);
    if (!server.ok()) return server.status();
    return Fill(*server, kBatchAllocate, BatchAllocateRequest(1, kBatch), options_.regions);
  }

  // Until it answers GetCapacity with all Regions. It was killed, or is now.
  absl::StatusOr<Sample> RunManager(const std::string& program, const std::string& directory,
                                    std::vector<double>* resident_mib) {
    const absl::Time began = absl::Now();
    auto server = StartManager(program, directory);
    if (!server.ok()) return server.status();
    const auto regions = CountRegions(server->address, kStartLimit);
    const absl::Time ended = absl::Now();
    if (!regions.ok()) return WithLog(regions.status(), server->log);
    if (*regions < options_.regions) {
      return absl::DataLossError(
          absl::StrCat("after the restart there are ", *regions, " Regions of ", options_.regions));
    }
    // Behind the time that is measured.
    const auto resident = server->child.ResidentBytes();
    if (!resident.ok()) return resident.status();
    resident_mib->push_back(static_cast<double>(*resident) / (1 << 20));
    return Sample{.seconds = absl::ToDoubleSeconds(ended - began)};
  }

  std::string manager_directory() const { return options_.directory + "/manager"; }
  std::string before_directory() const { return options_.directory + "/before"; }
  std::string etcd_directory() const { return options_.directory + "/etcd"; }

  const Options options_;
  StoreContents contents_;
  std::vector<double> resident_mib_;
};

// Row 10, held against the loop and, where there is one, against etcd. Memory is no row: its limit
// is the same whatever the peers do.
absl::StatusOr<std::vector<Row>> Run(const Options& options) {
  RestartRunner runner(options);
  if (absl::Status status = runner.Prepare(); !status.ok()) return status;
  std::cout << absl::StreamFormat(
      "restart with %d records of %.0f bytes: seconds until it serves\n", runner.contents().records,
      static_cast<double>(runner.contents().bytes) /
          static_cast<double>(runner.contents().records));
  std::vector<Side> sides = {{"ours", [&] { return runner.Manager(); }, &Sample::seconds},
                             {"loop", [&] { return runner.Loop(); }, &Sample::seconds}};
  // Where these two are among the sides; 0: they are not there.
  size_t before = 0, etcd = 0;
  if (!options.before.empty()) {
    before = sides.size();
    sides.push_back({"before", [&] { return runner.ManagerBefore(); }, &Sample::seconds});
  }
  if (!options.etcd.empty()) {
    etcd = sides.size();
    sides.push_back({"etcd", [&] { return runner.Etcd(); }, &Sample::seconds});
  }
  Rounds rounds(std::move(sides));
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  std::vector<Row> rows = {
      MakeRow(10, absl::StrFormat("restart with %d Regions by a bare loop", options.regions), "s",
              8, Aim::kAtMost, rounds.Compare(&Sample::seconds, 1))};
  if (before != 0) {
    rows.push_back(MakeRowBefore(10, absl::StrFormat("restart with %d Regions", options.regions),
                                 "s", Aim::kAtMost, rounds.Compare(&Sample::seconds, before)));
  }
  if (etcd != 0) {
    rows.push_back(MakeRow(
        10, absl::StrFormat("restart with %d Regions by etcd with as many keys", options.regions),
        "s", 0.3, Aim::kAtMost, rounds.Compare(&Sample::seconds, etcd)));
  }
  std::cout << absl::StreamFormat("  resident memory once serving: %.0f MiB (limit %.0f)\n",
                                  runner.resident_mib(), kMemoryLimitMib);
  return rows;
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::Options own;
  std::string read;
  return cxlpool::bench::RunBench(
      argc, argv,
      {.name = "bench-restart",
       .what = "a killed manager until it serves again",
       .measure = [&](const auto& options) -> absl::StatusOr<std::vector<cxlpool::bench::Row>> {
         if (!read.empty()) {  // This process is the bare loop: RestartRunner::Loop started it.
           if (auto contents = cxlpool::bench::ReadStore(read); !contents.ok()) {
             return contents.status();
           }
           return std::vector<cxlpool::bench::Row>();
         }
         static_cast<cxlpool::bench::BenchOptions&>(own) = options;
         return cxlpool::bench::Run(own);
       },
       .add_options =
           [&](CLI::App& app) {
             app.add_option("--regions", own.regions, "How many")
                 ->capture_default_str()
                 ->check(CLI::Range(800, 10000000));
             app.add_option("--read", read, "Read and check the database there, and nothing else");
           }});
}
