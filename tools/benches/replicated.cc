// bench-replicated: a manager on three members of etcd, beside etcd alone: its commits, its
// allocations, and how long another one takes to stand in for it. docs/performance.md says how it
// measures; tools/bench builds and runs it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "etcd/v3/kv.pb.h"
#include "fabric-manager/adapters/store_etcd/etcd_client.h"
#include "fabric-manager/adapters/store_etcd/etcd_layout.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "proto/support/refusal.h"
#include "test/contract/store_client.h"
#include "test/rigs/etcd_cluster.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/load.h"
#include "tools/benches/requests.h"
#include "tools/benches/rounds.h"
#include "tools/benches/servers.h"
#include "tools/benches/slice.h"
#include "tools/benches/stats.h"

namespace cxlpool::bench {
namespace {

constexpr double Sample::*kRate = &Sample::per_second;
constexpr absl::Duration kStartLimit = absl::Seconds(120);
constexpr absl::Duration kFillLimit = absl::Minutes(10);
constexpr absl::Duration kWarmUp = absl::Milliseconds(500);
constexpr absl::Duration kPoll = absl::Milliseconds(2);
constexpr int kMembers = 3;
constexpr int kBatch = 100;
constexpr int kFillers = 5;  // So many calls at once fill a pool, in batches.
// So much is put into the log before it is measured: by then commits wait if folding is slower.
const uint64_t kLogBytes = fm::EtcdStoreOptions().fold_bytes * 2;
constexpr char kPrefix[] = "/bench/";

struct Options : BenchOptions {
  std::vector<std::string> parts = {"commit", "load", "alone", "takeover"};
  uint64_t regions = 1000000;
};

// One call of `call` after another, on this thread, for `measured`.
absl::StatusOr<Sample> OneByOne(absl::Duration measured,
                                const std::function<absl::Status()>& call) {
  std::vector<float> took_us;
  const absl::Time began = absl::Now(), warm = began + kWarmUp, end = warm + measured;
  for (absl::Time now = began; now < end;) {
    const absl::Time sent = now;
    if (absl::Status status = call(); !status.ok()) return status;
    now = absl::Now();
    if (sent >= warm) took_us.push_back(static_cast<float>(absl::ToDoubleMicroseconds(now - sent)));
  }
  return Sample{.per_second = static_cast<double>(took_us.size()) / absl::ToDoubleSeconds(measured),
                .p50_us = Quantile(took_us, 0.5),
                .p99_us = Quantile(took_us, 0.99)};
}

// Each slice has members of its own, on empty directories.
class ReplicatedRunner {
 public:
  explicit ReplicatedRunner(const Options& options) : options_(options) {}

  // Asks a manager for a batch of allocations, and keeps what it committed for that.
  absl::Status Prepare() {
    if (absl::Status status = CheckOnDisk(options_.directory); !status.ok()) return status;
    const auto etcd = Members();
    if (!etcd.ok()) return etcd.status();
    const std::string directory = options_.directory + "/batch";
    auto server =
        StartManagerOnEtcd(options_.manager, directory, "fm", (*etcd)->endpoints(), kPrefix);
    if (!server.ok()) return server.status();
    absl::Status status =
        AwaitServing(server->address, kBatchAllocate, BatchAllocateRequest(1, kBatch));
    if (!status.ok()) return WithLog(status, server->log);
    server->child.Kill();
    RemoveDirectory(directory);
    fm::EtcdOptions options;
    options.endpoints = (*etcd)->endpoints();
    auto client = fm::EtcdClient::Make(options);
    if (!client.ok()) return client.status();
    etcdserverpb::RangeRequest request;
    request.set_key(fm::EtcdKeys(kPrefix).Log(0));
    request.set_range_end(fm::EtcdKeys(kPrefix).LogEnd());
    const auto log = (*client)->Range(request);
    if (!log.ok()) return log.status();
    std::string largest;
    for (const auto& piece : log->kvs()) {
      if (piece.value().size() > largest.size()) largest = piece.value();
    }
    log_bytes_ = largest.size();
    if (!fm::Expand(largest, batch_) || !fm::DecodeChange(largest, change_) ||
        change_.puts.size() < kBatch) {
      return absl::InternalError("the log has no batch");
    }
    return absl::OkStatus();
  }

  // Commits of what a batch is, as new records, one after another. `fold_bytes`: how long the log
  // may be.
  absl::StatusOr<Sample> Commits(uint64_t fold_bytes) {
    const auto etcd = Members();
    if (!etcd.ok()) return etcd.status();
    fm::EtcdStoreOptions options;
    options.etcd.endpoints = (*etcd)->endpoints();
    options.prefix = kPrefix;
    options.fold_bytes = fold_bytes;
    auto made = fm::MakeEtcdStore(options);
    if (!made.ok()) return made.status();
    fm::StoreClient store(*std::move(made));
    if (const auto image = store.Open(); !image.ok()) return image.status();
    uint64_t key = 1;
    return OneByOne(options_.measured, [&] { return store.CommitNext(Rows(key)); });
  }

  // Transactions of one put of as many bytes, by the same client.
  absl::StatusOr<Sample> Puts() {
    const auto etcd = Members();
    if (!etcd.ok()) return etcd.status();
    fm::EtcdOptions options;
    options.endpoints = (*etcd)->endpoints();
    auto client = fm::EtcdClient::Make(options);
    if (!client.ok()) return client.status();
    uint64_t key = 1;
    return OneByOne(options_.measured, [&] {
      etcdserverpb::TxnRequest txn;
      auto& put = *txn.add_success()->mutable_request_put();
      put.set_key(fm::EtcdKeys(kPrefix).Log(key++));
      put.set_value(batch_);
      return (*client)->Txn(txn).status();
    });
  }

  // Allocations by a manager that leads alone. `folding`: measured once the log is folded, too.
  absl::StatusOr<Sample> Manager(const Shape& shape, bool folding) {
    const auto etcd = Members();
    if (!etcd.ok()) return etcd.status();
    const std::string directory = absl::StrCat(options_.directory, "/slice-", ++slices_);
    auto server =
        StartManagerOnEtcd(options_.manager, directory, "fm", (*etcd)->endpoints(), kPrefix);
    if (!server.ok()) return server.status();
    const auto cpu = [&] { return server->child.CpuTime().value_or(absl::ZeroDuration()); };
    const std::string request =
        shape.batch == 0 ? AllocateRequest(slices_) : BatchAllocateRequest(slices_, shape.batch);
    auto sample = Drive(server->address, shape.batch == 0 ? kAllocate : kBatchAllocate, request,
                        shape, folding ? kLogBytes * kBatch / log_bytes_ : 0, cpu);
    if (!sample.ok()) return WithLog(sample.status(), server->log);
    server->child.Kill();
    RemoveDirectory(directory);
    return sample;
  }

  // The same callers; a call is a transaction that puts as many bytes as a batch, or `bytes`.
  absl::StatusOr<Sample> Logs(const Shape& shape, const std::string& bytes = "") {
    const auto etcd = Members();
    if (!etcd.ok()) return etcd.status();
    return Drive((*etcd)->endpoints().front(), kEtcdTxn,
                 EtcdTxnOfOne(bytes.empty() ? batch_ : bytes), shape, 0,
                 [] { return absl::ZeroDuration(); });
  }

  size_t batch_bytes() const { return batch_.size(); }
  double until_measured() const { return Median(until_measured_); }

 private:
  absl::StatusOr<std::unique_ptr<fm::EtcdCluster>> Members() const {
    auto etcd = std::make_unique<fm::EtcdCluster>(kMembers, options_.directory);
    if (!etcd->status().ok()) return etcd->status();
    return etcd;
  }

  std::vector<fm::Row> Rows(uint64_t& key) const {
    std::vector<fm::Row> rows = change_.puts;
    for (fm::Row& row : rows) row.key = key++;
    return rows;
  }

  // Once `until` items are answered and it is warm. `cpu`: of the server so far.
  absl::StatusOr<Sample> Drive(const std::string& address, const std::string& method,
                               const std::string& request, const Shape& shape, uint64_t until,
                               const std::function<absl::Duration()>& cpu) {
    LoadOptions load_options;
    load_options.address = address;
    load_options.method = method;
    load_options.request = request;
    load_options.callers = shape.callers;
    load_options.connections = shape.connections;
    if (absl::Status status = AwaitServing(address, method, request); !status.ok()) return status;
    auto load = Load::Start(load_options, kStartLimit);
    if (!load.ok()) return load.status();
    const uint64_t items = static_cast<uint64_t>(std::max(1, shape.batch));
    absl::SleepFor(kWarmUp);
    const absl::Time began = absl::Now(), deadline = began + kFillLimit;
    const uint64_t first = (*load)->answered();
    while (((*load)->answered() * items < until) && (*load)->failure().ok()) {
      if (absl::Now() > deadline) return absl::DeadlineExceededError("the log does not fill");
      absl::SleepFor(kPoll);
    }
    if (until != 0) {
      until_measured_.push_back(static_cast<double>(((*load)->answered() - first) * items) /
                                absl::ToDoubleSeconds(absl::Now() - began));
    }
    const uint64_t before = (*load)->answered();
    const absl::Duration cpu_before = cpu();
    const absl::Time from = absl::Now();
    (*load)->Measure(true);
    absl::SleepFor(options_.measured);
    (*load)->Measure(false);
    const absl::Duration span = absl::Now() - from, spent = cpu() - cpu_before;
    const double answered = static_cast<double>(((*load)->answered() - before) * items);
    (*load)->Stop();
    const auto end = (*load)->Join(kStartLimit);
    if (!end.ok()) return end.status();
    if (absl::Status status = (*load)->failure(); !status.ok()) return status;
    if (answered == 0) return absl::DeadlineExceededError("not one call was answered");
    return Sample{.per_second = answered / absl::ToDoubleSeconds(span),
                  .cpu_micros = absl::ToDoubleMicroseconds(spent) / answered,
                  .p50_us = Quantile(end->latencies_us, 0.5),
                  .p99_us = Quantile(end->latencies_us, 0.99)};
  }

  // A manager that is started stands by for a moment.
  static absl::Status AwaitServing(const std::string& address, const std::string& method,
                                   const std::string& request) {
    auto caller = Caller::Connect(address, method, kStartLimit);
    if (!caller.ok()) return caller.status();
    const std::string one = NumberedRequest(request, 4095).Next();
    for (const absl::Time deadline = absl::Now() + kStartLimit;; absl::SleepFor(kPoll)) {
      const absl::Status status = (*caller)->Call(one).status();
      if (status.ok() || absl::Now() > deadline) return status;
    }
  }

  const Options options_;
  std::string batch_;      // What a batch is in the log, before it is compressed.
  fm::StoreBatch change_;  // The same, as rows.
  size_t log_bytes_ = 0;   // Compressed.
  int slices_ = 0;
  std::vector<double> until_measured_;
};

// A pool of two managers, of which one is killed, again and again.
class TakeoverPool {
 public:
  TakeoverPool(const Options& options, const fm::EtcdCluster& etcd, uint64_t regions)
      : options_(options), etcd_(etcd), name_(absl::StrCat("pool-", regions)), regions_(regions) {}

  // Fills it, and has the other follow.
  absl::Status Prepare() {
    if (absl::Status status = Start(leader_); !status.ok()) return status;
    if (absl::Status status = AwaitAnswer(leader_, kAllocate, AllocateRequest(0)).status();
        !status.ok()) {
      return status;
    }
    LoadOptions load_options;
    load_options.address = servers_[leader_]->address;
    load_options.method = kBatchAllocate;
    load_options.request = BatchAllocateRequest(1, kBatch);
    load_options.callers = kFillers;
    load_options.calls_per_caller = regions_ / kBatch / kFillers;
    auto load = Load::Start(load_options, kStartLimit);
    if (!load.ok()) return load.status();
    if (const auto end = (*load)->Join(kFillLimit); !end.ok()) return end.status();
    if (absl::Status status = (*load)->failure(); !status.ok()) {
      return WithLog(status, servers_[leader_]->log);
    }
    return StandBy();
  }

  // From the kill to the first allocation that the other one has made durable.
  absl::StatusOr<Sample> TakeOver() {
    const size_t next = 1 - leader_;
    const absl::Time began = absl::Now();
    servers_[leader_]->child.Kill();
    if (const auto answer = AwaitAnswer(next, kAllocate, AllocateRequest(2 + ++takeovers_));
        !answer.ok()) {
      return answer.status();
    }
    const absl::Duration took = absl::Now() - began;
    leader_ = next;
    if (absl::Status status = StandBy(); !status.ok()) return status;
    const auto resident = servers_[leader_]->child.ResidentBytes();
    if (resident.ok()) resident_mib_ = static_cast<double>(*resident) / (1 << 20);
    return Sample{.seconds = absl::ToDoubleSeconds(took)};
  }

  double resident_mib() const { return resident_mib_; }

 private:
  absl::Status Start(size_t number) {
    auto server = StartManagerOnEtcd(options_.manager, absl::StrCat(options_.directory, "/", name_),
                                     absl::StrCat("fm", number), etcd_.endpoints(),
                                     absl::StrCat("/", name_, "/"));
    if (!server.ok()) return server.status();
    servers_[number] = *std::move(server);
    return absl::OkStatus();
  }

  // Asks until one answers that leads.
  absl::StatusOr<std::string> AwaitAnswer(size_t number, const std::string& method,
                                          const std::string& request) {
    const Server& server = *servers_[number];
    auto caller = Caller::Connect(server.address, method, kStartLimit);
    if (!caller.ok()) return WithLog(caller.status(), server.log);
    const std::string one = NumberedRequest(request, 0).Next();
    for (const absl::Time deadline = absl::Now() + kStartLimit;; absl::SleepFor(kPoll)) {
      auto answer = (*caller)->Call(one);
      if (answer.ok()) return answer;
      if (absl::Now() > deadline) return WithLog(answer.status(), server.log);
    }
  }

  // Starts the one that does not lead, and waits until it has all that the other one has.
  absl::Status StandBy() {
    const size_t number = 1 - leader_;
    if (absl::Status status = Start(number); !status.ok()) return status;
    const auto answer = AwaitAnswer(leader_, kGetCapacity, "");
    if (!answer.ok()) return answer.status();
    v1::Capacity capacity;
    if (!capacity.ParseFromString(*answer)) return absl::InternalError("no capacity");
    if (capacity.regions() < regions_) {
      return absl::DataLossError(absl::StrCat("of ", regions_, " Regions there are ",
                                              capacity.regions(), " after a takeover"));
    }
    for (const absl::Time deadline = absl::Now() + kStartLimit; absl::Now() < deadline;
         absl::SleepFor(absl::Milliseconds(50))) {
      const auto refused =
          RefusalOf(CallOnce(servers_[number]->address, kGetCapacity, "", kStartLimit).status());
      if (!refused.has_value()) continue;
      for (const auto& [key, value] : refused->metadata) {
        uint64_t revision = 0;
        if (key == "revision" && absl::SimpleAtoi(value, &revision) &&
            revision >= capacity.revision()) {
          return absl::OkStatus();
        }
      }
    }
    return WithLog(absl::DeadlineExceededError("the standby does not follow"),
                   servers_[number]->log);
  }

  const Options options_;
  const fm::EtcdCluster& etcd_;
  const std::string name_;
  const uint64_t regions_;
  std::array<std::optional<Server>, 2> servers_;
  size_t leader_ = 0;
  uint64_t takeovers_ = 0;
  double resident_mib_ = 0;
};

absl::Status RunCommit(const Options& options, ReplicatedRunner& runner, std::vector<Row>& rows) {
  std::cout << absl::StreamFormat(
      "commits of %d records, %d bytes, one after another: per second\n", kBatch,
      runner.batch_bytes());
  Rounds rounds({{"ours", [&] { return runner.Commits(uint64_t{64} << 20); }, kRate},
                 {"etcd-txn", [&] { return runner.Puts(); }, kRate},
                 {"ours, folded", [&] { return runner.Commits(uint64_t{1} << 20); }, kRate}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  rows.push_back(MakeRow(22, "commits by raw etcd transactions of the same bytes", "commits/s", 0.9,
                         Aim::kAtLeast, rounds.Compare(kRate)));
  std::cout << absl::StreamFormat(
      "  p50: ours %.0f us, etcd %.0f us; each commit's records also folded: %.4g commits/s\n",
      rounds.Median(Rounds::Of(0, &Sample::p50_us)), rounds.Median(Rounds::Of(1, &Sample::p50_us)),
      rounds.Median(Rounds::Of(2, kRate)));
  return absl::OkStatus();
}

absl::Status RunLoad(const Options& options, ReplicatedRunner& runner, std::vector<Row>& rows) {
  std::cout << absl::StreamFormat("batched allocations, %d callers of %d: per second\n",
                                  kBatched.callers, kBatched.batch);
  Rounds rounds({{"ours", [&] { return runner.Manager(kBatched, /*folding=*/true); }, kRate},
                 {"etcd-txn", [&] { return runner.Logs(kBatched); }, kRate}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  rows.push_back(MakeRow(23, "durable batched allocations by raw etcd transactions of their log",
                         "records/s", 0.5, Aim::kAtLeast, rounds.Compare(kRate)));
  std::cout << absl::StreamFormat(
      "  %.4g/s until it was measured; CPU of the manager %.2f us each\n", runner.until_measured(),
      rounds.Median(Rounds::Of(0, &Sample::cpu_micros)));
  return absl::OkStatus();
}

absl::Status RunAlone(const Options& options, ReplicatedRunner& runner, std::vector<Row>& rows) {
  constexpr size_t kBytes = 400;
  std::cout << "one unloaded caller: p50 in us\n";
  Rounds rounds(
      {{"ours", [&] { return runner.Manager(kAlone, /*folding=*/false); }, &Sample::p50_us},
       {"etcd-txn", [&] { return runner.Logs(kAlone, std::string(kBytes, 'x')); },
        &Sample::p50_us}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  rows.push_back(MakeRow(24, "one unloaded allocation by a raw etcd transaction of 400 bytes, p50",
                         "us", 1.6, Aim::kAtMost, rounds.Compare(&Sample::p50_us)));
  return absl::OkStatus();
}

absl::Status RunTakeover(const Options& options, std::vector<Row>& rows) {
  constexpr uint64_t kFew = 1000;
  fm::EtcdCluster etcd(kMembers, options.directory);
  if (!etcd.status().ok()) return etcd.status();
  TakeoverPool many(options, etcd, options.regions), few(options, etcd, kFew);
  if (absl::Status status = many.Prepare(); !status.ok()) return status;
  if (absl::Status status = few.Prepare(); !status.ok()) return status;
  std::cout << absl::StreamFormat("takeover with %d Regions and with %d: seconds\n",
                                  options.regions, kFew);
  Rounds rounds({{"many", [&] { return many.TakeOver(); }, &Sample::seconds},
                 {"few", [&] { return few.TakeOver(); }, &Sample::seconds}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  rows.push_back(MakeRow(
      25, absl::StrFormat("takeover after kill -9, %d Regions by %d", options.regions, kFew), "s",
      1.5, Aim::kAtMost, rounds.Compare(&Sample::seconds)));
  std::cout << absl::StreamFormat("  resident memory of a manager that leads: %.0f MiB\n",
                                  many.resident_mib());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Row>> Run(const Options& options) {
  const auto wanted = [&](const char* part) {
    return std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
  };
  if (fm::EtcdCluster::Program().empty()) {
    return absl::NotFoundError("there is no etcd here; qemu-cxl/fetch --with etcd brings it");
  }
  ReplicatedRunner runner(options);
  if (absl::Status status = runner.Prepare(); !status.ok()) return status;
  std::vector<Row> rows;
  for (const auto& [part, run] : {std::pair{"commit", &RunCommit}, std::pair{"load", &RunLoad},
                                  std::pair{"alone", &RunAlone}}) {
    if (!wanted(part)) continue;
    if (absl::Status status = run(options, runner, rows); !status.ok()) return status;
  }
  if (wanted("takeover")) {
    if (absl::Status status = RunTakeover(options, rows); !status.ok()) return status;
  }
  return rows;
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::Options options;
  return cxlpool::bench::RunBench(
      argc, argv,
      {.name = "bench-replicated",
       .what = "a manager on three members of etcd, beside etcd alone",
       .measure = [&](const auto&) { return cxlpool::bench::Run(options); },
       .add_options =
           [&](CLI::App& app) {
             app.add_option("--part", options.parts, "Of commit, load, alone and takeover; all")
                 ->delimiter(',');
             app.add_option("--regions", options.regions, "Of the larger pool that is taken over")
                 ->capture_default_str()
                 ->check(CLI::Range(500, 10000000));
           },
       .options = &options});
}
