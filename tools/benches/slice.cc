#include "tools/benches/slice.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tools/benches/load.h"
#include "tools/benches/report.h"
#include "tools/benches/servers.h"

namespace cxlpool::bench {
namespace {

// A restart reads the whole store first.
constexpr absl::Duration kConnectLimit = absl::Seconds(30);
// Calls have a deadline of 10 s.
constexpr absl::Duration kEndLimit = absl::Seconds(15);
constexpr size_t kLogEnd = 2000;

absl::Status WithLog(const absl::Status& status, const std::string& log) {
  std::ifstream file(log, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() > kLogEnd) text.erase(0, text.size() - kLogEnd);
  return absl::Status(status.code(), absl::StrCat(status.message(), "; the server's log: ", text));
}

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

// Drives `server`, measures, and kills it with every caller waiting for an answer.
// What was acknowledged goes to `acknowledged`.
absl::StatusOr<Slice> Measure(const SliceOptions& options, uint64_t seed, Server& server,
                              std::vector<v1::Region>& acknowledged) {
  auto load = Load::Start({.address = server.address,
                           .callers = options.callers,
                           .size_bytes = kGranuleBytes,
                           .seed = seed},
                          kConnectLimit);
  if (!load.ok()) return WithLog(load.status(), server.log);
  absl::SleepFor(options.warm_up);
  const auto before = Read(server, **load);
  absl::SleepFor(options.measured);
  const auto after = Read(server, **load);
  if (absl::Status status = (*load)->failure(); !status.ok()) return WithLog(status, server.log);
  if (!before.ok()) return WithLog(before.status(), server.log);
  if (!after.ok()) return WithLog(after.status(), server.log);

  server.child.Kill();
  auto answers = (*load)->Join(kEndLimit);
  if (!answers.ok()) return answers.status();
  acknowledged = *std::move(answers);
  const double calls = static_cast<double>(after->answered - before->answered);
  if (calls == 0) return absl::DeadlineExceededError("not one call was answered");
  return Slice{.per_second = calls / absl::ToDoubleSeconds(after->time - before->time),
               .cpu_micros = absl::ToDoubleMicroseconds(after->cpu - before->cpu) / calls,
               .survival = {}};
}

void Remove(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

}  // namespace

std::string SliceRunner::NextDirectory() {
  return absl::StrCat(options_.directory, "/slice-", ++slices_);
}

absl::Status SliceRunner::Prepare() {
  if (absl::Status status = CheckOnDisk(options_.directory); !status.ok()) return status;
  const std::string directory = NextDirectory();
  auto server = StartManager(options_.manager, directory);
  if (!server.ok()) return server.status();
  const auto answer =
      AllocateOnce({.address = server->address, .size_bytes = kGranuleBytes}, kConnectLimit);
  if (!answer.ok()) return WithLog(answer.status(), server->log);
  const std::string bytes = answer->SerializeAsString();
  answer_bytes_ = bytes.size();
  server->child.Kill();
  Remove(directory);
  return WriteFile(answer_file(), bytes);
}

absl::StatusOr<Slice> SliceRunner::Manager() {
  const std::string directory = NextDirectory();
  auto server = StartManager(options_.manager, directory);
  if (!server.ok()) return server.status();
  std::vector<v1::Region> acknowledged;
  auto slice = Measure(options_, slices_, *server, acknowledged);
  if (!slice.ok()) return slice.status();

  auto again = StartManager(options_.manager, directory);
  if (!again.ok()) return again.status();
  const auto listed = ListAll(again->address, kConnectLimit);
  if (!listed.ok()) return WithLog(listed.status(), again->log);
  slice->survival = Compare(acknowledged, *listed);
  again->child.Kill();
  if (slice->survival.lost == 0 && slice->survival.overlap == 0) Remove(directory);
  return slice;
}

absl::StatusOr<Slice> SliceRunner::Echo() {
  const std::string directory = NextDirectory();
  auto server = StartEcho(options_.echo, directory, answer_file());
  if (!server.ok()) return server.status();
  std::vector<v1::Region> ignored;
  auto slice = Measure(options_, slices_, *server, ignored);
  Remove(directory);
  return slice;
}

}  // namespace cxlpool::bench
