// What each fault of a script does.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "test/sim/simulation_run.h"

namespace cxlpool::sim {
namespace {

constexpr int64_t kPollPoison_us = kSecond_us / 2;

}  // namespace

void SimulationRun::Strike(const Step& step) {
  result_.coverage.Struck(step.verb);
  const int64_t now = scheduler_.now_us();
  const int64_t until = now + step.Get("for");
  switch (step.verb) {
    case Verb::kWeather:
      network_.weather = {.drop_percent = static_cast<uint32_t>(step.Get("drop")),
                          .duplicate_percent = static_cast<uint32_t>(step.Get("duplicate")),
                          .late_percent = static_cast<uint32_t>(step.Get("late"))};
      return;
    case Verb::kPartitionClient:
      return network_.PartitionClient(static_cast<int>(step.Get("client")), until);
    case Verb::kSlowStore:
      store_faults_.slow_until_us = until;
      return;
    case Verb::kFullStore:
      store_faults_.full_until_us = until;
      return;
    case Verb::kFailStore:
      store_faults_.next =
          step.Get("done") != 0 ? StoreFaults::Next::kFailsDone : StoreFaults::Next::kFailsNotDone;
      return;
    case Verb::kLoseCommit:
      // Commits pile up, and the manager dies on top of them.
      store_faults_.slow_until_us = now + 50'000;
      scheduler_.At(kWorld, 30'000, [this, step] { KillManager(leader_, step.Get("for")); });
      return;
    case Verb::kKillManager:
      return KillManager(leader_, step.Get("for"));
    case Verb::kPauseManager:
      if (!script_.standby) return;
      manager_pause_in_calls_ = static_cast<int>(step.Get("call"));
      manager_pause_for_us_ = step.Get("for");
      if (manager_pause_in_calls_ > 0) return;
      return PauseManager(step.Get("standby") != 0 ? 1 - leader_ : leader_, step.Get("for"));
    case Verb::kKillManagerAt:
      manager_crash_in_probes_ = static_cast<int>(step.Get("probe")) + 1;
      manager_crash_for_us_ = step.Get("for");
      return;
    case Verb::kWallJumps:
      // By less than tombstones live: what they remember is remembered by wall time.
      wall_skew_us_ = step.Get("ahead");
      for (const auto& manager : managers_) {
        if (manager != nullptr) manager->executor().SetWallSkew(wall_skew_us_);
      }
      return;
    case Verb::kFabricFails:
    case Verb::kFabricUnknown:
    case Verb::kFabricSlow:
    case Verb::kFabricLies:
    case Verb::kSurpriseRemoval:
    case Verb::kUnreachableHost:
    case Verb::kFalseEvent:
    case Verb::kNoFence:
      return StrikeFabric(step);
    default:
      return StrikeHost(step);
  }
}

void SimulationRun::StrikeFabric(const Step& step) {
  const auto call = static_cast<FabricCall>(step.Get("call"));
  using Kind = FabricFault::Kind;
  const int number = static_cast<int>(step.Get("host"));
  switch (step.verb) {
    case Verb::kFabricFails:
      fabric_faults_.next.push_back({call, Kind::kFails});
      return;
    case Verb::kFabricUnknown:
      fabric_faults_.next.push_back(
          {call, step.Get("done") != 0 ? Kind::kUnknownDone : Kind::kUnknownNot});
      return;
    case Verb::kFabricSlow:
      fabric_faults_.next.push_back({call, Kind::kSlow});
      return;
    case Verb::kFabricLies:
      fabric_faults_.next.push_back({FabricCall::kBind, Kind::kLies});
      return;
    case Verb::kNoFence:
      fabric_faults_.can_fence = false;
      scheduler_.At(kWorld, step.Get("for"), [this] { fabric_faults_.can_fence = true; });
      return;
    case Verb::kSurpriseRemoval: {
      // The slot that the step names, or the next one that has something in it.
      RackHost& host = rack_host(number);
      if (host.slots.empty()) return;
      auto slot = host.slots.begin();
      std::advance(slot, step.Get("slot") % static_cast<int64_t>(host.slots.size()));
      Trace("surprise removal in slot ", slot->first, " of ", host.id);
      rack_.Remove(host, slot->first);
      return;
    }
    case Verb::kUnreachableHost: {
      rack_host(number).reachable = false;
      const auto tell = [this, number](fm::FabricEvent::Kind kind) {
        Emit({kind, HostName(number), {}});
      };
      tell(fm::FabricEvent::Kind::kHostUnreachable);
      scheduler_.At(kWorld, step.Get("for"), [this, number, tell] {
        rack_host(number).reachable = true;
        tell(fm::FabricEvent::Kind::kHostReachable);
      });
      return;
    }
    case Verb::kFalseEvent: {
      const RackHost& host = rack_host(number);
      fm::FabricEvent event{fm::FabricEvent::Kind::kHostReachable, host.id, {}};
      if (step.Get("kind") == 1) event.kind = fm::FabricEvent::Kind::kHostUnreachable;
      if (step.Get("kind") == 2 && !host.slots.empty()) {
        event.kind = fm::FabricEvent::Kind::kLdLost;
        event.key = host.slots.begin()->second.ld.key;
      }
      Emit(event);
      return;
    }
    default:
      return;
  }
}

void SimulationRun::StrikeHost(const Step& step) {
  const int number = static_cast<int>(step.Get("host"));
  Host& host = hosts_[static_cast<size_t>(number)];
  RackHost& machine = rack_host(number);
  const int64_t duration = step.Get("for");
  const int64_t until = scheduler_.now_us() + duration;
  const auto after = [&](auto then) {
    scheduler_.At(kWorld, std::max<int64_t>(duration, 1), then);
  };
  const SimLink::World world{.scheduler = &scheduler_,
                             .network = &network_,
                             .door = &door_,
                             .lies = &host.lies,
                             .last_hello = &host.last_hello};
  switch (step.verb) {
    case Verb::kPartitionHost:
      network_.PartitionHost(number, until);
      if (host.agent == nullptr || step.Get("cut") == 0) return;
      // TCP gives up on one side first.
      return step.Get("cut") == 1 ? host.agent->link().CutHere(-1)
                                  : host.agent->link().CutThere(duration);
    case Verb::kCutSession:
      if (host.agent != nullptr) host.agent->link().CutHere(network_.OfHost(number));
      return;
    case Verb::kKillAgent:
      return KillAgent(number, duration, false);
    case Verb::kKillAgentAt:
      host.crash_in_probes = static_cast<int>(step.Get("probe")) + 1;
      host.crash_for_us = duration;
      return;
    case Verb::kPauseHost:
      host.faults.paused_until_us = std::max(host.faults.paused_until_us, until);
      if (host.agent != nullptr) scheduler_.Pause(host.agent->life(), until);
      // Its applications know nothing of the pause.
      return after([this, &machine, boots = machine.boots] {
        if (machine.boots == boots) rack_.Store(machine);
      });
    case Verb::kResetHost:
      KillAgent(number, duration, true);
      host.faults.paused_until_us = 0;
      if (machine.powered) rack_.Reset(machine);
      return;
    case Verb::kPowerLoss:
      if (!machine.powered) return;
      dark_for_us_ = duration;
      return rack_.PowerLost(machine);
    case Verb::kRefuseOffline:
      machine.refuses_offline = true;
      return after([&machine] { machine.refuses_offline = false; });
    case Verb::kHoldMemory:
      for (const agent::ObservedHostRegion& region : machine.regions) {
        machine.held.insert(region.serials.front());
      }
      return after([&machine] { machine.held.clear(); });
    case Verb::kRungFails:
      host.faults.next.push_back({static_cast<HostFault::Kind>(step.Get("how"))});
      return;
    case Verb::kAgentLies:
      host.lies.until_us = std::max(host.lies.until_us, until);
      host.lies.random = Random(random_.Next());
      // Afterwards it says all of it again, as it is.
      return after([this, number] {
        Host& own = hosts_[static_cast<size_t>(number)];
        if (own.agent != nullptr) own.agent->link().CutHere(network_.OfHost(number));
      });
    case Verb::kOldState:
      return ComeBackAsOf(world, number, host.last_hello);
    case Verb::kPoison: {
      if (machine.slots.empty()) return;
      auto slot = machine.slots.begin();
      std::advance(slot, step.Get("slot") % static_cast<int64_t>(machine.slots.size()));
      if (!rack_.Poison(machine, slot->first)) return;
      for (int64_t times = poison_random_.Between(0, 2); times > 0; --times) {
        TellPoison(number, poison_random_.Between(100, 50'000));
      }
      if (!std::exchange(polls_poison_, true)) PollPoison();
      return;
    }
    default:
      return;
  }
}

void SimulationRun::TellPoison(int number, int64_t delay_us) {
  scheduler_.At(kWorld, delay_us, [this, number] {
    const auto& agent = hosts_[static_cast<size_t>(number)].agent;
    if (agent == nullptr || !scheduler_.Alive(agent->life())) return;
    std::vector<v1::HostEvent> events;
    for (const Rack::PoisonSeen& seen : rack_.PoisonOn(rack_host(number))) {
      v1::HostEvent& event = events.emplace_back();
      event.set_serial(seen.serial);
      event.set_kind(v1::HostEvent::POISON);
      event.set_severity(v1::HostEvent::FAILURE);
      event.set_bytes_lost(true);
      event.set_dpa_bytes(seen.dpa_bytes);
      event.set_length_bytes(64);
    }
    if (events.empty()) return;
    scheduler_.At(agent->life(), 1, [to = agent.get(), events = std::move(events)] {
      to->core().TakeEvents(events);
    });
  });
}

// As an agent reads the poison lists: for as long as there is something on one.
void SimulationRun::PollPoison() {
  scheduler_.At(kWorld, kPollPoison_us, [this] {
    polls_poison_ = rack_.AnyPoison();
    if (!polls_poison_) return;
    for (int host = 0; host < kHosts; ++host) TellPoison(host, poison_random_.Between(1, 1'000));
    PollPoison();
  });
}

// Fenced, or without power: its kernel and what was plugged are gone. It comes back later.
void SimulationRun::GoesDark(int number) {
  const int64_t back_us = std::max<int64_t>(1000, std::exchange(dark_for_us_, 500'000));
  hosts_[static_cast<size_t>(number)].faults.paused_until_us = 0;
  KillAgent(number, back_us + 1000, true);
  scheduler_.At(kWorld, back_us, [this, number] {
    RackHost& back = rack_host(number);
    if (!back.powered) rack_.PowerBack(back);
  });
}

}  // namespace cxlpool::sim
