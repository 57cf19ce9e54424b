// bench-agent: how long a host's agent takes to bring a segment online and to take it away, beside
// the same steps by hand. Runs in an emulated host, whose memdev is there already and stays.
//
// Ours: AgentCore over the Linux adapter, as cxlpool-agent makes them, and a manager in this
// process; from an Offer to the Report of what it wants. Everything is in it that the agent does:
// plan, checks, reading back after each step, its looks meanwhile.
// By hand: tools/benches/agent_by_hand, forked and awaited; the same sysfs files and daxctl. It is
// given the names that it cannot know by a glob, and reads nothing back but its last step.
// While one is measured the other does not run. docs/performance.md says how it measures.
#include <sys/resource.h>
#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "host-agent/adapters/linux/linux_host_memory.h"
#include "host-agent/service/agent_core.h"
#include "proto/support/loop.h"
#include "tools/benches/agent_link.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/child.h"
#include "tools/benches/rounds.h"

namespace cxlpool::bench {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(60);
constexpr double kTarget = 1.05;

struct Options : BenchOptions {
  std::string mode, bridge, serial, window, by_hand;
  std::string log = "/var/log/bench-agent.log";
  uint32_t slot = 0;
  uint64_t bytes = 0;
  bool steps = false;
};

absl::Duration CpuOf(int who) {
  rusage usage = {};
  getrusage(who, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

// An agent from its start to its end, with one segment to look after.
class Agent {
 public:
  explicit Agent(const Options& options)
      : options_(options), memory_(agent::MakeLinuxHostMemory({})), loop_("agent") {
    agent::AgentOptions core;
    core.host = "hosts/bench";
    core.incarnation = "bench";
    core.agent_id = "bench";
    core_ = std::make_unique<agent::AgentCore>(core, &loop_, &clock_, memory_->get(), &link_,
                                               [this](absl::string_view point) { Passed(point); });
  }
  ~Agent() {
    OnLoop([this] {
      core_->Stop();
      core_.reset();
    });
    loop_.Stop();
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  absl::Status Start() {
    absl::Status prepared;
    std::promise<void> started;
    OnLoop([&] {
      core_->Start([&](absl::Status status) {
        prepared = std::move(status);
        started.set_value();
      });
    });
    started.get_future().wait();  // The adapter has deadlines.
    return prepared.ok() ? link_.Connect(kLimit) : prepared;
  }

  absl::StatusOr<absl::Duration> Online() {
    ++generation_;
    return Offer(v1::Offer::WANT_ONLINE, v1::SEGMENT_ONLINE);
  }

  absl::StatusOr<absl::Duration> Offline() {
    auto took = Offer(v1::Offer::WANT_OFFLINE, v1::SEGMENT_PRESENT);
    v1::Withdraw withdraw;
    withdraw.set_region_tag("bench");
    withdraw.set_attachment_generation(generation_);
    link_.Withdraw(std::move(withdraw));
    return took;
  }

 private:
  void OnLoop(absl::AnyInvocable<void() &&> task) {
    std::promise<void> done;
    loop_.Post([&] {
      std::move(task)();
      done.set_value();
    });
    done.get_future().wait();
  }

  absl::StatusOr<absl::Duration> Offer(v1::Offer::Want want, v1::SegmentState state) {
    v1::Offer offer;
    offer.set_region_tag("bench");
    offer.set_region_name("regions/bench");
    offer.set_attachment_generation(generation_);
    offer.set_want(want);
    offer.set_mode(options_.mode == "devdax" ? v1::DEVDAX : v1::SYSTEM_RAM);
    offer.set_access(v1::READ_WRITE);
    offer.set_tenant("tenants/default");
    v1::OfferedSegment& segment = *offer.add_segments();
    segment.set_length_bytes(options_.bytes);
    segment.set_host_bridge(options_.bridge);
    v1::Target& target = *segment.add_targets();
    target.set_slot(options_.slot);
    target.set_serial(std::stoull(options_.serial, nullptr, 0));
    began_ = clock_.Elapsed();
    auto took = link_.Offer(std::move(offer), state, kLimit);
    if (options_.steps && took.ok()) {
      std::cout << absl::StreamFormat("%5.0f ms %s\n", absl::ToDoubleMilliseconds(*took),
                                      v1::SegmentState_Name(state));
    }
    return took;
  }

  void Passed(absl::string_view point) {
    if (!options_.steps) return;
    std::cout << absl::StreamFormat("%5.0f ms %s\n",
                                    absl::ToDoubleMilliseconds(clock_.Elapsed() - began_), point);
  }

  const Options& options_;
  SystemClock clock_;
  AgentLink link_;
  absl::StatusOr<std::unique_ptr<agent::HostMemory>> memory_;
  Loop loop_;
  std::unique_ptr<agent::AgentCore> core_;
  uint64_t generation_ = 0;
  absl::Duration began_;
};

class AgentBench {
 public:
  explicit AgentBench(const Options& options) : options_(options) {}

  absl::StatusOr<Sample> Ours() {
    Agent agent(options_);
    if (absl::Status status = agent.Start(); !status.ok()) return status;
    return Slice([&] { return agent.Online(); }, [&] { return agent.Offline(); });
  }

  absl::StatusOr<Sample> ByHand() {
    return Slice([&] { return Run("up"); }, [&] { return Run("down"); });
  }

 private:
  using Half = std::function<absl::StatusOr<absl::Duration>()>;

  // Up and down once to warm up, and then until the slice's time is over.
  absl::StatusOr<Sample> Slice(const Half& up, const Half& down) {
    std::vector<double> online, offline;
    absl::Duration began, cpu;
    for (bool warm = false;; warm = true) {
      const auto went_up = up();
      if (!went_up.ok()) return went_up.status();
      const auto went_down = down();
      if (!went_down.ok()) return went_down.status();
      if (!warm) {
        began = clock_.Elapsed();
        cpu = CpuOf(RUSAGE_SELF) + CpuOf(RUSAGE_CHILDREN);
        continue;
      }
      online.push_back(absl::ToDoubleSeconds(*went_up));
      offline.push_back(absl::ToDoubleSeconds(*went_down));
      if (clock_.Elapsed() - began >= options_.measured) break;
    }
    cpu = CpuOf(RUSAGE_SELF) + CpuOf(RUSAGE_CHILDREN) - cpu;
    return Sample{
        .seconds = Median(online),
        .back_seconds = Median(offline),
        .cpu_micros = absl::ToDoubleMicroseconds(cpu) / static_cast<double>(online.size())};
  }

  absl::StatusOr<absl::Duration> Run(const std::string& verb) {
    const absl::Duration began = clock_.Elapsed();
    auto child = Child::Start({options_.by_hand, verb, options_.mode, options_.window,
                               options_.serial, absl::StrCat(options_.bytes)},
                              options_.log);
    if (!child.ok()) return child.status();
    if (const int code = child->Wait(); code != 0) {
      return absl::InternalError(
          absl::StrCat(options_.by_hand, " ", verb, " ended with ", code, "; see ", options_.log));
    }
    return clock_.Elapsed() - began;
  }

  const Options& options_;
  SystemClock clock_;
};

absl::StatusOr<std::vector<Row>> Run(const Options& options) {
  AgentBench bench(options);
  utsname kernel = {};
  uname(&kernel);
  std::cout << absl::StreamFormat(
      "%s, %d MiB, Linux %s: milliseconds until it is online (and away again: in the rows)\n",
      options.mode, options.bytes >> 20, kernel.release);
  const auto online = [](const Sample& sample) { return 1000 * sample.seconds; };
  Rounds rounds({{"ours", [&] { return bench.Ours(); }, online},
                 {"hand", [&] { return bench.ByHand(); }, online}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  std::cout << absl::StreamFormat("  CPU of both: ours %.0f, by hand %.0f us\n",
                                  rounds.Median(Rounds::Of(0, &Sample::cpu_micros)),
                                  rounds.Median(Rounds::Of(1, &Sample::cpu_micros)));
  const auto row = [&](absl::string_view what, double Sample::*took) {
    const auto millis = [took](size_t side) {
      return [took, side](const std::vector<Sample>& pass) { return 1000 * (pass[side].*took); };
    };
    return MakeRow(16,
                   absl::StrCat("agent ", what, ", ", options.mode, " by the same steps by hand"),
                   "ms in TCG", kTarget, Aim::kAtMost, rounds.Compare(millis(0), millis(1)));
  };
  return std::vector<Row>{row("online", &Sample::seconds), row("offline", &Sample::back_seconds)};
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::Options own;
  return cxlpool::bench::RunBench(
      argc, argv,
      {.name = "bench-agent",
       .what = "a segment online and away again, by the agent and by hand",
       .measure = [&](const auto&) { return cxlpool::bench::Run(own); },
       .add_options =
           [&](CLI::App& app) {
             app.add_option("--mode", own.mode, "devdax or system-ram")
                 ->required()
                 ->check(CLI::IsMember({"devdax", "system-ram"}));
             app.add_option("--bridge", own.bridge, "Host bridge of the memdev: ACPI0016:00")
                 ->required();
             app.add_option("--slot", own.slot, "Its PCIe slot")->required();
             app.add_option("--serial", own.serial, "Its serial, 0x...")->required();
             app.add_option("--bytes", own.bytes, "Its size")->required();
             app.add_option("--window", own.window, "For the peer: decoder0.0")->required();
             app.add_option("--by-hand", own.by_hand, "Path of agent_by_hand")->required();
             app.add_option("--log", own.log, "Where what the peer says is appended")
                 ->capture_default_str();
             app.add_flag("--steps", own.steps, "Print when each rung of ours begins and ends");
           },
       .options = &own});
}
