#include "tools/benches/slice.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tools/benches/load.h"
#include "tools/benches/probes.h"
#include "tools/benches/regions.h"
#include "tools/benches/report.h"
#include "tools/benches/requests.h"

namespace cxlpool::bench {
namespace {

// A restart reads the whole store first.
constexpr absl::Duration kConnectLimit = absl::Seconds(30);
// Calls have a deadline of 10 s.
constexpr absl::Duration kEndLimit = absl::Seconds(15);

// One method and one request for all callers of the shape; each call puts an id of its own in.
LoadOptions LoadOf(const Server& server, const Shape& shape, std::string method,
                   std::string request) {
  LoadOptions options;
  options.address = server.address;
  options.method = std::move(method);
  options.request = std::move(request);
  options.callers = shape.callers;
  options.connections = shape.connections;
  return options;
}

LoadOptions Allocations(const Server& server, const Shape& shape, uint64_t seed) {
  return shape.batch == 0
             ? LoadOf(server, shape, kAllocate, AllocateRequest(seed))
             : LoadOf(server, shape, kBatchAllocate, BatchAllocateRequest(seed, shape.batch));
}

// What is counted at one moment; a sample is the difference of two.
struct Reading {
  absl::Time time;
  uint64_t answered = 0;
  absl::Duration cpu;
};

absl::StatusOr<Reading> Read(const Server& server, const Load& load) {
  const auto cpu = server.child.CpuTime();
  if (!cpu.ok()) return cpu.status();
  return Reading{absl::Now(), load.answered(), *cpu};
}

// Drives `server`, measures, and kills it with every caller waiting for an answer. What was
// answered goes to `answers`, if it was to be kept.
absl::StatusOr<Sample> Measure(const SliceOptions& options, const LoadOptions& load_options,
                               int batch, Server& server, std::vector<std::string>& answers) {
  auto load = Load::Start(load_options, kConnectLimit);
  if (!load.ok()) return WithLog(load.status(), server.log);
  absl::SleepFor(options.warm_up);
  const auto before = Read(server, **load);
  (*load)->Measure(true);
  absl::SleepFor(options.measured);
  (*load)->Measure(false);
  const auto after = Read(server, **load);
  if (absl::Status status = (*load)->failure(); !status.ok()) return WithLog(status, server.log);
  if (!before.ok()) return WithLog(before.status(), server.log);
  if (!after.ok()) return WithLog(after.status(), server.log);

  server.child.Kill();
  auto end = (*load)->Join(kEndLimit);
  if (!end.ok()) return end.status();
  answers = std::move(end->answers);
  const double calls = static_cast<double>(after->answered - before->answered);
  if (calls == 0) return absl::DeadlineExceededError("not one call was answered");
  const double items = batch == 0 ? calls : calls * batch;
  return Sample{.per_second = items / absl::ToDoubleSeconds(after->time - before->time),
                .cpu_micros = absl::ToDoubleMicroseconds(after->cpu - before->cpu) / items,
                .p50_us = Quantile(end->latencies_us, 0.5),
                .p99_us = Quantile(end->latencies_us, 0.99)};
}

}  // namespace

std::string SliceRunner::NextDirectory() {
  return absl::StrCat(options_.directory, "/slice-", ++slices_);
}

std::string SliceRunner::AnswerFile(bool batch) const {
  return absl::StrCat(options_.directory, batch ? "/batch-answer" : "/answer");
}

// The echo has to answer with as many bytes as the manager, and etcd and SQLite to store as many:
// so one manager is asked once for each shape, and its answers and its newest record are kept. It
// has ended before its store is read.
absl::Status SliceRunner::Prepare(bool batched) {
  if (absl::Status status = CheckOnDisk(options_.directory); !status.ok()) return status;
  const std::string directory = NextDirectory();
  {
    auto server = StartManager(options_.manager, directory);
    if (!server.ok()) return server.status();
    for (const Shape& shape : {kUnary, kBatched}) {
      const bool batch = shape.batch != 0;
      if (batch && !batched) continue;
      const LoadOptions call = Allocations(*server, shape, slices_);
      const auto answer = CallOnce(call.address, call.method, call.request, kConnectLimit);
      if (!answer.ok()) return WithLog(answer.status(), server->log);
      if (absl::Status status = ForEachAnswered({*answer}, batch, [](const v1::Region&) {});
          !status.ok()) {
        return status;
      }
      if (absl::Status status = WriteFile(AnswerFile(batch), *answer); !status.ok()) return status;
    }
  }
  auto contents = ReadStore(StoreFile(directory));
  if (!contents.ok()) return contents.status();
  record_ = std::move(contents->newest);
  RemoveDirectory(directory);
  return absl::OkStatus();
}

absl::StatusOr<Sample> SliceRunner::Manager(const Shape& shape) {
  return RunManager(options_.manager, shape);
}

absl::StatusOr<Sample> SliceRunner::ManagerBefore(const Shape& shape) {
  return RunManager(options_.before, shape);
}

// A manager that lost what it had acknowledged was fast for a wrong reason: the one that was killed
// under load is started again, and each answered Region looked for. Its store stays where one is
// missing. The same program opens the store: an earlier release may not know what a later one
// wrote.
absl::StatusOr<Sample> SliceRunner::RunManager(const std::string& program, const Shape& shape) {
  const std::string directory = NextDirectory();
  auto server = StartManager(program, directory);
  if (!server.ok()) return server.status();
  std::vector<std::string> answers;
  LoadOptions load = Allocations(*server, shape, slices_);
  load.keep_answers = true;
  const auto sample = Measure(options_, load, shape.batch, *server, answers);
  if (!sample.ok()) return sample.status();
  ++kills_;

  SurvivalCheck check;
  if (absl::Status status = ForEachAnswered(
          answers, shape.batch != 0, [&](const v1::Region& region) { check.Acknowledged(region); });
      !status.ok()) {
    return status;
  }
  auto again = StartManager(program, directory);
  if (!again.ok()) return again.status();
  if (absl::Status status = ForEachListed(again->address, kConnectLimit,
                                          [&](const v1::Region& region) { check.Listed(region); });
      !status.ok()) {
    return WithLog(status, again->log);
  }
  again->child.Kill();
  const Survival survival = check.Finish();
  survival_ += survival;
  if (survival.lost == 0 && survival.overlap == 0) RemoveDirectory(directory);
  return sample;
}

absl::StatusOr<Sample> SliceRunner::Echo(const Shape& shape) {
  const std::string directory = NextDirectory();
  auto server = StartEcho(options_.echo, directory, AnswerFile(shape.batch != 0));
  if (!server.ok()) return server.status();
  std::vector<std::string> ignored;
  LoadOptions load = Allocations(*server, shape, slices_);
  load.keep_answers = true;  // As with the manager.
  auto sample = Measure(options_, load, shape.batch, *server, ignored);
  RemoveDirectory(directory);
  return sample;
}

absl::StatusOr<Sample> SliceRunner::Etcd(const Shape& shape) {
  const std::string directory = NextDirectory();
  auto server = StartEtcd(options_.etcd, directory);
  if (!server.ok()) return server.status();
  // It listens before it has elected itself.
  const auto ready = CallOnce(server->address, kEtcdRange, EtcdCountRequest(), kConnectLimit);
  if (!ready.ok()) return WithLog(ready.status(), server->log);
  const LoadOptions load =
      shape.batch == 0 ? LoadOf(*server, shape, kEtcdPut, EtcdPutRequest(record_))
                       : LoadOf(*server, shape, kEtcdTxn, EtcdTxnRequest(record_, shape.batch));
  std::vector<std::string> ignored;
  auto sample = Measure(options_, load, shape.batch, *server, ignored);
  RemoveDirectory(directory);
  return sample;
}

absl::StatusOr<Sample> SliceRunner::Sqlite() {
  return ProbeSqlite(options_.directory, record_, options_.measured);
}

absl::StatusOr<Sample> SliceRunner::Sync() {
  return ProbeSync(options_.directory, options_.measured);
}

}  // namespace cxlpool::bench
