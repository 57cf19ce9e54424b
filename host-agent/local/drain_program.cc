#include "host-agent/local/drain_program.h"

#include <sys/eventfd.h>

#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/operator_program.h"
#include "proto/support/process_stat.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr char kWhat[] = "the drain hook";

absl::Status NotRun(absl::StatusCode code, const std::string& why, const char* remedy) {
  return Refuse(code, "DRAIN_HOOK", absl::StrCat(kWhat, " is not run: ", why), remedy);
}

// Those that live now. The pid of one that has ended may be anybody's: root's hook would end it.
std::vector<ProcessId> Living(const std::vector<ProcessId>& processes) {
  std::vector<ProcessId> living;
  for (const ProcessId& process : processes) {
    const bool same = process.start_ticks != 0 && StartTicksOf(process.pid) == process.start_ticks;
    if (!same && !CXLPOOL_MUTANT("hook-gets-stale-pids")) continue;
    living.push_back(process);
    if (living.size() == kMaxDrainPids) break;
  }
  return living;
}

// Called when the run begins: a process that has ended by then is not named. CXLPOOL_PIDS and
// CXLPOOL_PID_STARTS have the processes in the same order.
std::vector<std::string> EnvironmentOf(const DrainRequest& request) {
  std::string pids;
  std::string starts;
  for (const ProcessId& process : Living(request.processes)) {
    absl::StrAppend(&pids, pids.empty() ? "" : " ", process.pid);
    absl::StrAppend(&starts, starts.empty() ? "" : " ", process.start_ticks);
  }
  return {
      absl::StrCat("CXLPOOL_REGION=", request.region),
      absl::StrCat("CXLPOOL_TAG=", request.tag),
      absl::StrCat("CXLPOOL_MODE=", request.mode),
      absl::StrCat("CXLPOOL_NODE=",
                   request.numa_node.has_value() ? absl::StrCat(*request.numa_node) : ""),
      absl::StrCat("CXLPOOL_DAX=", request.dax_device),
      absl::StrCat("CXLPOOL_PIDS=", pids),
      absl::StrCat("CXLPOOL_PID_STARTS=", starts),
      absl::StrCat("CXLPOOL_REASON=", request.reason),
  };
}

}  // namespace

absl::StatusOr<std::string> CheckDrainProgram(const std::string& path) {
  return CheckProgram(kWhat, path);
}

DrainProgram::DrainProgram(std::string path, absl::Duration timeout)
    : stop_(::eventfd(0, EFD_CLOEXEC)), path_(std::move(path)), timeout_(timeout) {}

void DrainProgram::Set(std::string path, absl::Duration timeout) {
  MutexLock lock(mutex_);
  path_ = std::move(path);
  timeout_ = timeout;
}

// Returns once every run has answered and its thread has ended. Joins them without the lock,
// because a run takes it before it ends.
void DrainProgram::Stop() {
  std::map<uint64_t, std::thread> runs;
  std::vector<std::thread> ended;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    ::eventfd_write(stop_.get(), 1);
    runs.swap(runs_);
    ended.swap(ended_);
  }
  for (auto& [id, thread] : runs) thread.join();
  for (std::thread& thread : ended) thread.join();
}

void DrainProgram::JoinEnded() {
  for (std::thread& thread : ended_) thread.join();  // Each is at its last line.
  ended_.clear();
}

// The thread is stored under the lock that it takes before it ends, so it always finds itself in
// `runs_`, unless Stop took it. Where no thread is to be had (TasksMax of the unit), that is a
// refusal like any other, and the core tries again later. A refusal is answered without the lock.
void DrainProgram::Run(DrainRequest request, Done done) {
  absl::Status refused;
  {
    MutexLock lock(mutex_);
    JoinEnded();
    if (stopped_) {
      refused = NotRun(absl::StatusCode::kCancelled, "the agent stops",
                       "start the agent again: it runs the hook for what still waits");
    } else if (runs_.size() >= kMaxDrainRuns) {
      refused = NotRun(absl::StatusCode::kResourceExhausted,
                       absl::StrCat("it runs ", kMaxDrainRuns, " times already"),
                       "let it end sooner, or lower release.drain_timeout");
    } else {
      const uint64_t id = ++last_id_;
      // Shared with the thread: what a thread was to have that is not made would be lost.
      auto answer = std::make_shared<Done>(std::move(done));
      try {
        runs_[id] = std::thread(
            [this, id, path = path_, timeout = timeout_, request = std::move(request),
             answer]() mutable { Follow(id, path, timeout, request, std::move(*answer)); });
        return;
      } catch (const std::system_error& error) {
        if (CXLPOOL_MUTANT("no-thread-ends-the-agent")) throw;
        done = std::move(*answer);
        refused = NotRun(absl::StatusCode::kResourceExhausted,
                         absl::StrCat("no thread is to be had (", error.code().message(), ")"),
                         "let it start fewer processes, or raise TasksMax= of the agent's unit");
      }
    }
  }
  std::move(done)(std::move(refused));
}

// The thread of one run.
void DrainProgram::Follow(uint64_t id, const std::string& path, absl::Duration timeout,
                          const DrainRequest& request, Done done) {
  ProgramRun run;
  std::move(done)(run.Run({.what = kWhat,
                           .reason = "DRAIN_HOOK",
                           .subject = "drain-hook",
                           .about = absl::StrCat("Region ", request.region),
                           .path = path,
                           .arguments = {},
                           .environment = EnvironmentOf(request),
                           .timeout = timeout,
                           .stop = stop_.get()}));
  // What does not even die of SIGKILL keeps its place among the runs.
  run.AwaitDeath(stop_.get());
  MutexLock lock(mutex_);
  const auto self = runs_.find(id);
  if (self == runs_.end()) return;  // Stop has it.
  ended_.push_back(std::move(self->second));
  runs_.erase(self);
}

}  // namespace cxlpool::agent
