// cxlpool-ha-trials: two managers on three members of etcd lose the leader, members, both, or the
// quorum, under load; then the pool is held against the acknowledged log (audit.h), and what
// clients of the same Regions were answered has to be linearizable (contenders.h). Each seed is one
// fault, of one pool that lives through many; a seed tried alone begins with an empty pool.

#include <signal.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "test/crash/contenders.h"
#include "test/crash/hits.h"
#include "test/crash/loaded_pool.h"
#include "test/trials/trial.h"

namespace cxlpool::crash {
namespace {

constexpr uint64_t kFaultsOfAPool = 50;
constexpr absl::Duration kBefore = absl::Milliseconds(80);  // Of load, at most, until the fault.
constexpr int kMembers = 3;
// Within which somebody leads again, whatever fell.
constexpr absl::Duration kLeads = absl::Seconds(20);
constexpr absl::Duration kEnds = absl::Seconds(10);  // A manager that is told to.

// How long it took, of all the times that something happened.
class Times {
 public:
  void Add(absl::Duration time) { times_.push_back(time); }
  std::string Text() const {
    if (times_.empty()) return "never";
    std::vector<absl::Duration> sorted = times_;
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&](size_t percent) {
      return absl::ToInt64Milliseconds(sorted[(sorted.size() - 1) * percent / 100]);
    };
    return absl::StrCat(sorted.size(), " times, p50 ", at(50), " ms, p99 ", at(99), " ms, at most ",
                        at(100), " ms");
  }

 private:
  std::vector<absl::Duration> times_;
};

class HaTrials {
 public:
  absl::Status Run(uint64_t seed, bool trace) {
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u);
    return pools_.Run([&](LoadedPool& pool) { return RunOne(pool, random, trace); });
  }

  absl::Status End() { return pools_.End(); }

  std::string Summary() const {
    return absl::StrCat(WithCommas(pools_.answered()), " calls answered, ",
                        WithCommas(pools_.changes()), " changes, each in the audit trail; ",
                        WithCommas(contended_), " calls on the same names linearizable (of ",
                        given_up_, " names unknown); ", hits_.Text(),
                        "; a takeover alone: ", alone_.Text(), "; with a member: ", both_.Text());
  }

  std::string Missing() const {
    return hits_.Missing({"leader killed", "leader stopped", "leader told to end", "member killed",
                          "member stopped", "both", "quorum lost"});
  }

 private:
  absl::Status RunOne(LoadedPool& pool, std::mt19937_64& random, bool trace) {
    const absl::Duration before = absl::Milliseconds(random() % absl::ToInt64Milliseconds(kBefore));
    const int member = static_cast<int>(random() % kMembers);
    const uint64_t fault = random() % 7;
    const bool hosted = random() % 2 == 0;
    static const std::vector<std::string> kNames = {
        "leader killed",  "leader stopped", "leader told to end", "member killed",
        "member stopped", "both",           "quorum lost"};
    if (trace) std::cout << kNames[fault] << (hosted ? ", with hosts" : "") << std::endl;
    hits_.Add(kNames[fault]);
    return pool.Live(random, {.crash_at = "", .hosted = hosted, .kill = [&](Process& leader) {
                                return AmidContenders(pool, [&] {
                                  absl::SleepFor(before);
                                  return Fault(pool.pool(), fault, leader, member);
                                });
                              }});
  }

  // With clients that go on from one manager to the next; they are judged, and leave nothing.
  absl::Status AmidContenders(LoadedPool& pool, const std::function<absl::Status()>& fault) {
    Contenders contenders(pool.pool().sockets(), pool.lives());
    absl::Status status = fault();
    if (status.ok()) status = contenders.End();
    contended_ += contenders.operations();
    given_up_ += contenders.gave_up();
    return status;
  }

  // Carries it out, waits until somebody leads again, and mends what fell.
  absl::Status Fault(Pool& pool, uint64_t fault, Process& leader, int member) {
    fm::EtcdCluster& etcd = pool.etcd();
    const absl::Duration term = pool.layout().takeover;
    const int other = (member + 1) % kMembers;
    const absl::Time begun = absl::Now();
    switch (fault) {
      case 0:
        leader.Kill();
        return Leads(pool, begun, &alone_);
      case 1: {
        leader.Signal(SIGSTOP);
        const absl::Status status = HasEndedItself(pool, leader);
        return status.ok() ? Leads(pool, begun, &alone_) : status;
      }
      case 2: {
        leader.Signal(SIGTERM);
        const absl::Status status = Leads(pool, begun, nullptr);
        // It answers its last calls still, and is no standby for the next fault.
        if (!status.ok() || !leader.started()) return status;
        return leader.Wait(kEnds).status();
      }
      case 3:
        etcd.Kill(member);
        absl::SleepFor(2 * term);
        etcd.Start(member);
        return Stays(pool, leader, begun);
      case 4:
        etcd.Signal(member, SIGSTOP);
        absl::SleepFor(2 * term);
        etcd.Signal(member, SIGCONT);
        return Stays(pool, leader, begun);
      case 5: {
        etcd.Kill(member);
        leader.Kill();
        const absl::Status status = Leads(pool, begun, &both_);
        etcd.Start(member);
        return status;
      }
      default: {
        etcd.Kill(member);
        etcd.Kill(other);
        absl::Status status = HasEndedItself(pool, leader);
        etcd.Start(member);
        etcd.Start(other);
        return status.ok() ? Leads(pool, begun, nullptr) : status;
      }
    }
  }

  absl::Status Leads(Pool& pool, absl::Time begun, Times* times) {
    const absl::Status status = pool.AwaitServing(kLeads);
    if (times != nullptr && status.ok()) times->Add(absl::Now() - begun);
    return status;
  }

  // One member, which may have led the others, is not worth another manager: how often it was one
  // all the same is in the summary.
  absl::Status Stays(Pool& pool, Process& leader, absl::Time begun) {
    hits_.Add(leader.Wait(absl::ZeroDuration()).ok() ? "leader lost with a member"
                                                     : "leader kept without a member");
    return Leads(pool, begun, nullptr);
  }

  // The kernel ends a leader that gives no sign of life, before another may lead.
  absl::Status HasEndedItself(const Pool& pool, Process& leader) {
    const auto ended = leader.Wait(pool.layout().takeover);
    if (ended.ok() && *ended == 128 + SIGKILL) return absl::OkStatus();
    return absl::InternalError(ended.ok()
                                   ? absl::StrCat("a leader that was cut off ended with ", *ended)
                                   : "a leader that was cut off goes on");
  }

  Hits hits_;
  Times alone_, both_;
  uint64_t contended_ = 0, given_up_ = 0;
  LoadedPools pools_{&hits_, kFaultsOfAPool, /*managers=*/2};
};

}  // namespace
}  // namespace cxlpool::crash

int main(int argc, char** argv) {
  if (cxlpool::fm::EtcdCluster::Program().empty()) {
    std::cerr << "no etcd here: qemu-cxl/fetch --with etcd brings it\n";
    return 77;
  }
  cxlpool::crash::HaTrials trials;
  return cxlpool::RunTrials(
      argc, argv,
      {.name = "cxlpool-ha-trials",
       .what = "managers and members of etcd fall under load; nothing acknowledged is lost",
       .ci_seeds = 60,
       .run = [&](uint64_t seed, bool trace) { return trials.Run(seed, trace); },
       .end = [&] { return trials.End(); },
       .summary = [&] { return trials.Summary(); },
       .missing = [&](uint64_t) { return trials.Missing(); }});
}
