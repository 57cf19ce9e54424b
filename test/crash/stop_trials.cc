// cxlpool-stop-trials: SIGTERM to the manager with watchers, some deaf, a backup that nobody reads,
// batches and agents' sessions; and to agents with applications that wait: out within 10 s, with
// exit code 0. Each seed is one stop of a manager and two of agents.

#include <signal.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/support/names.h"
#include "test/crash/busy_manager.h"
#include "test/crash/client.h"
#include "test/crash/local_caller.h"
#include "test/crash/pool.h"
#include "test/trials/trial.h"

namespace cxlpool::crash {
namespace {

constexpr absl::Duration kStopLimit = absl::Seconds(10);
constexpr absl::Duration kReady = absl::Seconds(20);  // For what comes before the stop.
constexpr absl::Duration kPoll = absl::Milliseconds(2);
constexpr int kRegions = 700;  // More than a reader is sent before it reads.
constexpr size_t kCallers = 3;
constexpr uint64_t kMoment_us = 50000;
constexpr uint32_t kWait_ms = 600000;
constexpr char kHosts[][7] = {"host-a", "host-b"};

using Callers = std::vector<LocalCaller>;

class StopTrials {
 public:
  // The pool lives from one seed to the next; after a failure it is made anew.
  absl::Status Run(uint64_t seed, bool trace) {
    random_.seed(seed * 0x9e3779b97f4a7c15u);
    absl::Status status = pool_ == nullptr ? SetUp() : absl::OkStatus();
    if (status.ok()) status = StopManager();
    if (status.ok()) status = StopServingAgent();
    if (status.ok()) status = StopLonelyAgent();
    if (trace) std::cout << Summary() << std::endl;
    if (status.ok()) return status;
    if (pool_ != nullptr) status = pool_->WithLogs(status);
    pool_.reset();
    return status;
  }

  std::string Summary() const {
    return absl::StrFormat(
        "the manager took %.0f ms at most, an agent %.0f ms; %d events and %d batches, %d "
        "applications waited; %d times the manager had too little to do",
        absl::ToDoubleMilliseconds(manager_took_), absl::ToDoubleMilliseconds(agent_took_), events_,
        batches_, waiting_, idle_);
  }

  // Why so many seeds prove nothing: a manager with nothing to do stops in time whatever it does.
  std::string Missing(uint64_t seeds) const {
    if (idle_ * 10 > seeds) return "the manager had too little to do too often";
    if (events_ > 0 && batches_ > 0 && waiting_ > 0) return "";
    return "no event, no batch or no application was on its way";
  }

 private:
  // Hosts, and Regions whose listing is more than a watcher takes without reading. Each seed starts
  // the manager itself, so this one ends.
  absl::Status SetUp() {
    auto pool = Pool::Make(
        {.devices = {{"cmm-0", 8 * kGiB}, {"cmm-1", 8 * kGiB}}, .hosts = {kHosts[0], kHosts[1]}});
    if (!pool.ok()) return pool.status();
    pool_ = *std::move(pool);
    if (absl::Status status = StartManager(); !status.ok()) return status;
    Client client(pool_->socket());
    for (const char* host : kHosts) {
      v1::EnrolHostRequest request;
      request.set_request_id(FormatUuid(RandomUuid()));
      request.set_host(absl::StrCat("hosts/", host));
      const auto enrolled = client.Call(&InventoryStub::EnrolHost, request);
      if (!enrolled.ok()) return enrolled.status();
    }
    v1::BatchAllocateRegionsRequest batch;
    for (int i = 0; i < kRegions; ++i) {
      v1::AllocateRegionRequest& request = *batch.add_requests();
      request.set_request_id(FormatUuid(RandomUuid()));
      request.set_size_bytes(kGranule);
    }
    const auto made = client.Call(&PoolStub::BatchAllocateRegions, batch);
    if (!made.ok()) return made.status();
    pool_->manager().Kill();
    return absl::OkStatus();
  }

  absl::Status StartManager() {
    if (absl::Status status = pool_->StartManager(); !status.ok()) return status;
    return pool_->AwaitServing();
  }

  absl::Status AwaitHosts(Client& client) {
    const absl::Time end = absl::Now() + kReady;
    while (absl::Now() < end) {
      const auto hosts = client.Call(&InventoryStub::ListHosts, v1::ListHostsRequest());
      if (!hosts.ok()) return hosts.status();
      if (std::all_of(hosts->hosts().begin(), hosts->hosts().end(),
                      [](const auto& host) { return host.state() == v1::Host::ONLINE; })) {
        return absl::OkStatus();
      }
      absl::SleepFor(kPoll);
    }
    return absl::InternalError("the agents have no sessions");
  }

  // Sends SIGTERM; how long it took until the end.
  absl::Status Stop(Process& process, const std::string& who, absl::Duration* longest) {
    const absl::Time asked = absl::Now();
    process.Signal(SIGTERM);
    const auto code = process.Wait(kStopLimit);
    const absl::Duration took = absl::Now() - asked;
    *longest = std::max(*longest, took);
    if (code.ok() && *code == 0) return absl::OkStatus();
    return absl::InternalError(
        code.ok()
            ? absl::StrCat(who, " stopped with ", *code, " after ", absl::FormatDuration(took))
            : absl::StrCat(who, " goes on after ", absl::FormatDuration(kStopLimit)));
  }

  // A manager with everything that could keep it: agents in session, an application that waits,
  // and the watchers, backup and batches of BusyManager. Stopped at some moment after these have
  // begun, or after kReady without them, which is counted.
  absl::Status StopManager() {
    if (absl::Status status = StartManager(); !status.ok()) return status;
    for (const char* host : kHosts) {
      pool_->agent(host).Kill();
      if (absl::Status status = pool_->StartAgent(host); !status.ok()) return status;
    }
    {
      Client client(pool_->socket());
      if (absl::Status status = AwaitHosts(client); !status.ok()) return status;
    }
    applications_.clear();
    if (absl::Status status = Ask(kHosts[0], /*open=*/false); !status.ok()) return status;
    BusyManager busy(pool_->socket());
    const absl::Time end = absl::Now() + kReady;
    const auto is_busy = [&busy] { return busy.events() >= kRegions && busy.batches() > 0; };
    while (!is_busy() && absl::Now() < end) absl::SleepFor(kPoll);
    if (!is_busy()) ++idle_;
    absl::SleepFor(absl::Microseconds(random_() % kMoment_us));
    absl::Status status = Stop(pool_->manager(), "the manager", &manager_took_);
    events_ += busy.events();
    batches_ += busy.batches();
    return status;
  }

  // Its applications are connected; what they allocate is under way, or waits for the manager.
  absl::Status StopServingAgent() {
    if (absl::Status status = Ask(kHosts[0], /*open=*/false); !status.ok()) return status;
    return Stop(pool_->agent(kHosts[0]), "an agent that served", &agent_took_);
  }

  // It has not reached a manager since it started, and applications wait for it.
  absl::Status StopLonelyAgent() {
    applications_.clear();
    pool_->agent(kHosts[1]).Kill();
    if (absl::Status status = pool_->StartAgent(kHosts[1]); !status.ok()) return status;
    if (absl::Status status = Ask(kHosts[1], /*open=*/true); !status.ok()) return status;
    absl::SleepFor(absl::Microseconds(random_() % kMoment_us));
    for (size_t i = 0; i < kCallers; ++i) waiting_ += applications_[i].Answered() ? 0 : 1;
    return Stop(pool_->agent(kHosts[1]), "an agent without a manager", &agent_took_);
  }

  // Connects applications that ask for a Region, and as many that say nothing. `open`: they wait
  // for one that nobody makes; otherwise each allocates its own.
  absl::Status Ask(const std::string& host, bool open) {
    for (size_t i = 0; i < 2 * kCallers; ++i) {
      auto caller = LocalCaller::Connect(pool_->agent_socket(host), kReady);
      if (!caller.ok()) return caller.status();
      v1::LocalRequest request;
      request.set_protocol_version(1);
      if (open) {
        request.mutable_open()->set_name("regions/awaited");
        request.mutable_open()->set_wait_ms(kWait_ms);
      } else {
        request.mutable_allocate()->set_request_id(FormatUuid(RandomUuid()));
        request.mutable_allocate()->set_size_bytes(kGranule);
        request.mutable_allocate()->set_wait_ms(kWait_ms);
      }
      if (i < kCallers) {
        if (absl::Status status = caller->Send(request); !status.ok()) return status;
      }
      applications_.push_back(*std::move(caller));
    }
    return absl::OkStatus();
  }

  std::mt19937_64 random_;
  std::unique_ptr<Pool> pool_;
  Callers applications_;
  absl::Duration manager_took_, agent_took_;
  uint64_t events_ = 0, batches_ = 0, waiting_ = 0;
  uint64_t idle_ = 0;  // Stops of a manager without all of what was meant to keep it busy.
};

}  // namespace
}  // namespace cxlpool::crash

int main(int argc, char** argv) {
  cxlpool::crash::StopTrials trials;
  return cxlpool::RunTrials(
      argc, argv,
      {.name = "cxlpool-stop-trials",
       .what = "manager and agents are asked to stop with work in flight; out within 10 s",
       .ci_seeds = 100,
       .run = [&](uint64_t seed, bool trace) { return trials.Run(seed, trace); },
       .summary = [&] { return trials.Summary(); },
       .missing = [&](uint64_t seeds) { return trials.Missing(seeds); }});
}
