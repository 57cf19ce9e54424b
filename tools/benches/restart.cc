// bench-restart: how long a killed manager takes until it serves again, beside a bare loop over the
// same bytes and etcd with the same records. docs/performance.md says how it measures; tools/bench
// builds and runs it.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/benches/load.h"
#include "tools/benches/regions.h"
#include "tools/benches/report.h"
#include "tools/benches/requests.h"
#include "tools/benches/rounds.h"
#include "tools/benches/servers.h"
#include "tools/benches/store_reader.h"

namespace cxlpool::bench {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(120);
constexpr absl::Duration kFillLimit = absl::Minutes(10);
constexpr double kMemoryLimitMib = 1024;
constexpr int kBatch = 100;
constexpr int kCallers = 8;

struct Options {
  std::string manager, etcd, directory, json, self;
  uint64_t regions = 1000000;
  int rounds = static_cast<int>(kMinRounds);
};

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

class RestartRunner {
 public:
  explicit RestartRunner(const Options& options) : options_(options) {}

  // Fills the stores, by the servers' own calls.
  absl::Status Prepare() {
    if (absl::Status status = CheckOnDisk(options_.directory); !status.ok()) return status;
    {
      auto server = StartManager(options_.manager, manager_directory());
      if (!server.ok()) return server.status();
      if (absl::Status status =
              Fill(*server, kBatchAllocate, BatchAllocateRequest(1, kBatch), options_.regions);
          !status.ok()) {
        return status;
      }
    }
    auto contents = ReadStore(StoreFile(manager_directory()));
    if (!contents.ok()) return contents.status();
    contents_ = *std::move(contents);
    if (options_.etcd.empty()) return absl::OkStatus();
    auto server = StartEtcd(options_.etcd, etcd_directory());
    if (!server.ok()) return server.status();
    if (const auto ready = CallOnce(server->address, kEtcdRange, EtcdCountRequest(), kStartLimit);
        !ready.ok()) {
      return WithLog(ready.status(), server->log);
    }
    return Fill(*server, kEtcdTxn, EtcdTxnRequest(contents_.newest, kBatch), options_.regions);
  }

  // Until it answers GetCapacity with all Regions. It was killed, or is now.
  absl::StatusOr<Sample> Manager() {
    const absl::Time began = absl::Now();
    auto server = StartManager(options_.manager, manager_directory());
    if (!server.ok()) return server.status();
    const auto regions = CountRegions(server->address, kStartLimit);
    const absl::Time ended = absl::Now();
    if (!regions.ok()) return WithLog(regions.status(), server->log);
    if (*regions < options_.regions) {
      return absl::DataLossError(
          absl::StrCat("after the restart there are ", *regions, " Regions of ", options_.regions));
    }
    const auto resident = server->child.ResidentBytes();
    if (!resident.ok()) return resident.status();
    resident_mib_.push_back(static_cast<double>(*resident) / (1 << 20));
    return Sample{.seconds = absl::ToDoubleSeconds(ended - began)};
  }

  // Until a process of its own has read and checked everything, and ended.
  absl::StatusOr<Sample> Loop() {
    const std::string log = options_.directory + "/loop.log";
    const absl::Time began = absl::Now();
    auto child = Child::Start({options_.self, "--read", StoreFile(manager_directory())}, log);
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
  std::string manager_directory() const { return options_.directory + "/manager"; }
  std::string etcd_directory() const { return options_.directory + "/etcd"; }

  const Options options_;
  StoreContents contents_;
  std::vector<double> resident_mib_;
};

absl::Status Run(const Options& options) {
  RestartRunner runner(options);
  if (absl::Status status = runner.Prepare(); !status.ok()) return status;
  std::cout << absl::StreamFormat(
      "restart with %d records of %.0f bytes: seconds until it serves\n", runner.contents().records,
      static_cast<double>(runner.contents().bytes) /
          static_cast<double>(runner.contents().records));
  const auto seconds = [](const Sample& sample) { return sample.seconds; };
  std::vector<Side> sides = {{"ours", [&] { return runner.Manager(); }, seconds},
                             {"loop", [&] { return runner.Loop(); }, seconds}};
  const bool etcd = !options.etcd.empty();
  if (etcd) sides.push_back({"etcd", [&] { return runner.Etcd(); }, seconds});
  Rounds rounds(std::move(sides));
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  const auto took = [](size_t side) {
    return [side](const std::vector<Sample>& pass) { return pass[side].seconds; };
  };
  const auto add = [&](std::vector<Row>& rows, const std::string& name, size_t peer,
                       double target) {
    rows.push_back(
        {.number = 10,
         .name = name,
         .unit = "s",
         .target = target,
         .aim = Aim::kAtMost,
         .summary = Summarise(rounds.Compare(took(0), took(peer)), target, 10, Aim::kAtMost)});
    std::cout << ToText(rows.back(), rounds.size());
  };
  std::vector<Row> rows;
  add(rows, absl::StrFormat("restart with %d Regions by a bare loop", options.regions), 1, 1.25);
  if (etcd) {
    add(rows, absl::StrFormat("restart with %d Regions by etcd with as many keys", options.regions),
        2, 0.1);
  }
  std::cout << absl::StreamFormat("  resident memory once serving: %.0f MiB (limit %.0f)\n",
                                  runner.resident_mib(), kMemoryLimitMib);
  return options.json.empty() ? absl::OkStatus() : WriteFile(options.json, ToJson(rows));
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::Options options;
  std::string read;
  double ignored = 0;
  CLI::App app{"bench-restart: a killed manager until it serves again"};
  app.add_option("--manager", options.manager, "Path of cxlpool-fm");
  app.add_option("--etcd", options.etcd, "Path of etcd; without it, its row is left out");
  app.add_option("--dir", options.directory, "Empty directory on a disk");
  app.add_option("--regions", options.regions, "How many")
      ->capture_default_str()
      ->check(CLI::Range(800, 10000000));
  app.add_option("--rounds", options.rounds, "Rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", ignored, "Not used: each slice is one restart");
  app.add_option("--json", options.json, "Write the figures there");
  app.add_option("--read", read, "Read and check the database there, and nothing else");
  CLI11_PARSE(app, argc, argv);
  signal(SIGPIPE, SIG_IGN);
  absl::Status status;
  if (!read.empty()) {
    status = cxlpool::bench::ReadStore(read).status();
  } else {
    options.self = "/proc/self/exe";
    status = cxlpool::bench::Run(options);
  }
  if (status.ok()) return 0;
  std::cerr << "bench-restart: " << status.message() << "\n";
  return absl::IsDataLoss(status) ? 3 : 1;
}
