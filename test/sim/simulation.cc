#include "test/sim/simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "test/sim/simulation_run.h"

namespace cxlpool::sim {
namespace {

constexpr uint32_t kSharedSlotsPerHost = 32;
constexpr int64_t kToEmpty_us = 60 * kSecond_us;

}  // namespace

SimulationRun::SimulationRun(const Script& script, const SimulationOptions& options)
    : script_(script),
      options_(options),
      tracing_(options.trace || options.digest),
      random_(script.seed * 0x9e3779b97f4a7c15 + 1),
      reference_(&result_.coverage, [this](const std::string& what) { Violate(what); }),
      rack_(&scheduler_,
            {.intends = [this](const auto&... a) { return reference_.Intends(a...); },
             .leaving = [this](const auto&... a) { return reference_.Leaving(a...); },
             .stays = [this](const std::string& host,
                             uint64_t serial) { return Stays(host, serial); }},
            [this](const std::string& what) { Violate(what); }),
      network_(&scheduler_, Random(random_.Next())),
      clients_({.scheduler = &scheduler_,
                .network = &network_,
                .reference = &reference_,
                .coverage = &result_.coverage,
                .disk = disk_.get(),
                .violate = [this](const std::string& what) { Violate(what); },
                .manager = [this] { return Answering(); },
                .may_vouch = [this](const fm::Region& region) { return NobodyReaches(region); }}),
      watchers_({.scheduler = &scheduler_,
                 .reference = &reference_,
                 .coverage = &result_.coverage,
                 .manager = [this]() -> ManagerProcess* {
                   ManagerProcess* const leader = manager();
                   return leader != nullptr && leader->MayAnswer() ? leader : nullptr;
                 },
                 .violate = [this](const std::string& what) { Violate(what); }},
                Random(script.seed ^ 0x7761746368)),
      poison_random_(script.seed ^ 0x6c6f7374),
      on_events_seen_([this](int host, uint64_t serial) {
        if (reference_.IsMarked(HostName(host), serial)) return;
        Violate(absl::StrCat("lost bytes of serial ", serial, " on ", HostName(host),
                             " are acknowledged, and no record says so"));
      }) {
  for (int i = 0; i < kDevices; ++i) {
    RackDevice device;
    device.id = absl::StrCat("cmm-", i);
    device.content.resize(kGranulesPerDevice);
    rack_.devices.push_back(std::move(device));
  }
  for (int i = 0; i < kHosts; ++i) {
    RackHost host;
    host.id = HostName(i);
    host.shared = script.shared;
    if (script.shared) {
      RackBridge whole{.name = "shared", .slots = {}, .max_regions = kSharedSlotsPerHost};
      for (uint32_t slot = 1; slot <= kSharedSlotsPerHost; ++slot) whole.slots.push_back(slot);
      host.bridges.push_back(std::move(whole));
      rack_.hosts.emplace(host.id, std::move(host));
      continue;
    }
    for (uint32_t bridge = 0; bridge < 2; ++bridge) {
      RackBridge to;
      to.name = absl::StrCat("ACPI0016:0", bridge);
      for (uint32_t slot = 0; slot < kSlotsPerHost / 2; ++slot) {
        to.slots.push_back(10 + bridge * 20 + slot);
      }
      host.bridges.push_back(std::move(to));
    }
    rack_.hosts.emplace(host.id, std::move(host));
  }
  rack_.shared = script.shared;
  rack_.session_of = [this](const RackHost& host) -> Rack::AgentSession {
    const Host& own = hosts_[static_cast<size_t>(HostNumber(host.id))];
    const bool there = own.agent != nullptr && scheduler_.Alive(own.agent->life()) &&
                       door_.sessions != nullptr && door_.sessions->Online(host.id);
    if (!there) return {};
    return {own.agent->life(), own.faults.paused_until_us > scheduler_.now_us()};
  };
  rack_.on_dark = [this](const std::string& host) { GoesDark(HostNumber(host)); };
  if (tracing_) {
    rack_.trace = [this](absl::string_view line) { Trace(line); };
    clients_.SetTrace([this](const std::string& line) { Trace(line); });
  }
}

// --- Lives.

void SimulationRun::StartManager(size_t which) {
  if (managers_[which] != nullptr) return;
  const LifeId life = scheduler_.Begin();
  ++result_.coverage.lives;
  const std::string name = script_.standby ? absl::StrCat("manager ", which) : "manager";
  Trace(name, " starts");
  fm::Probe probe = [this, which, life, name](absl::string_view point) {
    if (!scheduler_.Alive(life)) return;
    Trace(name, " ", point);
    if (manager_crash_in_probes_ > 0 && --manager_crash_in_probes_ == 0) {
      KillManager(which, manager_crash_for_us_);
    }
    // With a command in its hand.
    const bool gives = point == "before-bind" || point == "before-scrub";
    if (gives && manager_pause_in_calls_ > 0 && --manager_pause_in_calls_ == 0) {
      PauseManager(which, manager_pause_for_us_);
    }
  };
  managers_[which] = std::make_unique<ManagerProcess>(
      ManagerWorld{.scheduler = &scheduler_,
                   .rack = &rack_,
                   .fabric_faults = &fabric_faults_,
                   .disk = disk_,
                   .etcd = script_.standby ? &etcd_ : nullptr,
                   .shelf = &shelf_,
                   .store_faults = &store_faults_,
                   .store_met = &store_met_,
                   .reference = &reference_,
                   .door = &door_,
                   .make_tag =
                       [this] {
                         std::string tag(16, '\x11');
                         ++tags_;
                         for (size_t i = 0; i < 8; ++i)
                           tag[i] = static_cast<char>(tags_ >> (8 * i));
                         return Uuid(tag);
                       }},
      life, Random(random_.Next()), wall_skew_us_, std::move(probe),
      [this, which, life, name](const absl::Status& why) {
        if (!scheduler_.Alive(life)) return;
        Trace(name, " ends: ", why.message());
        if (why.message().find("do not make a sound pool") != std::string::npos ||
            why.message().find("cannot be followed") != std::string::npos) {
          Violate(std::string(why.message()));
        }
        KillManager(which, random_.Between(1, 50) * 1000);
      },
      [this, which] { ManagerServes(which); });
}

void SimulationRun::KillManager(size_t which, int64_t restart_us) {
  ManagerProcess* const dies = managers_[which].get();
  if (dies == nullptr || !scheduler_.Alive(dies->life())) return;
  const LifeId life = dies->life();
  Trace(script_.standby ? absl::StrCat("manager ", which) : "manager", " dies");
  scheduler_.End(life);
  if (door_.life == life) door_.sessions = nullptr;
  // It may be on the stack now.
  scheduler_.At(kWorld, 0, [this, which, life] {
    managers_[which].reset();
    for (Host& host : hosts_) {
      if (host.agent == nullptr) continue;
      const int64_t far_us = network_.random().Between(50, 3000);
      // The other's sessions go on.
      if (script_.standby && host.agent->link().manager() != life) continue;
      host.agent->link().CutThere(far_us);
    }
  });
  scheduler_.At(kWorld, std::max<int64_t>(restart_us, 100), [this, which] { StartManager(which); });
}

// Most agents find out, one after the other, that nobody is there any more.
void SimulationRun::PauseManager(size_t which, int64_t for_us) {
  ManagerProcess* const stops = managers_[which].get();
  if (stops == nullptr || !scheduler_.Alive(stops->life())) return;
  const LifeId life = stops->life();
  Trace("manager ", which, " stands still");
  scheduler_.Pause(life, scheduler_.now_us() + for_us);
  for (Host& host : hosts_) {
    if (network_.random().OneIn(5)) continue;  // Not this one.
    scheduler_.At(kWorld, network_.random().Between(20'000, 500'000), [this, &host, life] {
      const bool here = host.agent != nullptr && host.agent->link().manager() == life;
      if (here && scheduler_.IsPaused(life)) host.agent->link().CutHere(0);
    });
  }
  const bool led = stops->leads();
  scheduler_.At(kWorld, for_us, [this, which, life, led] {
    if (!scheduler_.Alive(life)) return;
    Trace("manager ", which, " goes on");
    if (!led) return;
    if (etcd_.now().owner != life) result_.coverage.Met(Meeting::kCameBack);
    // Its connections to etcd are dead by now: no refusal from there stops what
    // it does until its timer ends it.
    if (network_.random().OneIn(2)) managers_[which]->CutOffStore();
  });
}

void SimulationRun::ManagerServes(size_t which) {
  const ManagerProcess* const other = managers_[1 - which].get();
  if (other != nullptr && scheduler_.Alive(other->life()) && other->MayAnswer()) {
    Violate(absl::StrCat("manager ", which, " serves, and the other one may still answer"));
  }
  leader_ = which;
  for (int host = 0; host < kHosts; ++host) {
    if (result_.coverage.lives <= manager_count()) clients_.Enrol(host);
  }
}

// Not one that cannot be sure any more that it leads. A client that finds one that stands still
// waits for it (Clients::Arrive).
ManagerProcess* SimulationRun::Answering() {
  ManagerProcess* const leader = manager();
  if (leader == nullptr || !script_.standby) return leader;
  return leader->MayAnswer() || scheduler_.IsPaused(leader->life()) ? leader : nullptr;
}

void SimulationRun::Emit(const fm::FabricEvent& event) {
  for (const auto& manager : managers_) {
    if (manager != nullptr && manager->leads()) manager->fabric().Emit(event);
  }
}

void SimulationRun::StartAgent(int number) {
  Host& host = hosts_[static_cast<size_t>(number)];
  if (host.agent != nullptr || !rack_host(number).powered) return;
  const LifeId life = scheduler_.Begin();
  std::string id(16, '\x22');
  id[0] = static_cast<char>(number);
  id[1] = static_cast<char>(++host.agent_starts);
  id[2] = static_cast<char>(host.agent_starts >> 8);
  Trace("agent of ", HostName(number), " starts");
  if (host.faults.paused_until_us > scheduler_.now_us()) {
    scheduler_.Pause(life, host.faults.paused_until_us);
  }
  host.agent = std::make_unique<AgentProcess>(
      SimLink::World{.scheduler = &scheduler_,
                     .network = &network_,
                     .door = &door_,
                     .lies = &host.lies,
                     .last_hello = &host.last_hello,
                     .on_events_seen = &on_events_seen_},
      &rack_, &host.faults, life, number, FormatUuid(id), Random(random_.Next()),
      [this, life, number](absl::string_view point) {
        if (!scheduler_.Alive(life)) return;
        Trace("agent of ", HostName(number), " ", point);
        Host& own = hosts_[static_cast<size_t>(number)];
        if (own.crash_in_probes > 0 && --own.crash_in_probes == 0) {
          KillAgent(number, own.crash_for_us, false);
        }
      });
}

void SimulationRun::KillAgent(int number, int64_t restart_us, bool machine_is_gone) {
  Host& host = hosts_[static_cast<size_t>(number)];
  if (host.agent != nullptr && scheduler_.Alive(host.agent->life())) {
    Trace("agent of ", HostName(number), " dies");
    scheduler_.End(host.agent->life());
    // Without its machine nobody says goodbye for it: a lease has to find out.
    if (machine_is_gone) host.agent->link().CutHere(-1);
    scheduler_.At(kWorld, 0, [this, number] {
      Host& own = hosts_[static_cast<size_t>(number)];
      if (own.agent != nullptr && !scheduler_.Alive(own.agent->life())) own.agent.reset();
    });
  }
  scheduler_.At(kWorld, std::max<int64_t>(restart_us, 100), [this, number] { StartAgent(number); });
}

// --- What happens.

void SimulationRun::RunStep(const Step& step) {
  if (!result_.violation.empty()) return;
  Trace("step ", InfoOf(step.verb).name);
  if (IsFault(step.verb)) {
    Strike(step);
  } else if (step.verb == Verb::kOpen || step.verb == Verb::kClose) {
    Application(step);
  } else if (step.verb == Verb::kWatch) {
    watchers_.Begin(step);
  } else {
    clients_.Do(step);
  }
}

void SimulationRun::Application(const Step& step) {
  Host& host = hosts_[static_cast<size_t>(step.Get("host"))];
  ++result_.coverage.operations;
  if (host.agent == nullptr || !scheduler_.Alive(host.agent->life())) return;
  AgentProcess& agent = *host.agent;
  const auto connection = static_cast<uint64_t>(step.Get("connection"));
  // On the agent's own thread, as its socket server would have it.
  scheduler_.At(agent.life(), 1, [this, &agent, step, connection] {
    if (step.verb == Verb::kClose) return agent.local().ConnectionEnded(connection);
    v1::LocalRequest request;
    request.set_protocol_version(agent::kLocalProtocolVersion);
    request.mutable_open()->set_name(absl::StrCat("regions/", RegionName(step.Get("region"))));
    request.mutable_open()->set_wait_ms(100);
    const agent::LocalPeer peer{.connection = connection, .uid = 0, .pid = 4242};
    agent.local().Handle(peer, std::move(request), [this](agent::LocalReply reply) {
      result_.coverage.Answer(reply.response.code() == 0
                                  ? "open OK"
                                  : absl::StrCat("open ", reply.response.error().reason()));
    });
  });
}

SimulationResult SimulationRun::Run() {
  store_faults_.troubled = script_.standby;
  result_.coverage.standbys += script_.standby;
  for (size_t which = 0; which < manager_count(); ++which) StartManager(which);
  for (int host = 0; host < kHosts; ++host) StartAgent(host);
  scheduler_.RunUntil(20'000);
  const int64_t begin_us = scheduler_.now_us();
  for (const Step& step : script_.steps) {
    scheduler_.RunUntil(begin_us + step.at_us);
    if (!result_.violation.empty()) break;
    RunStep(step);
  }
  scheduler_.RunUntil(scheduler_.now_us() + 50'000);
  MakeWell();
  Settle();
  const int64_t end_us = scheduler_.now_us() + kToEmpty_us;
  while (result_.violation.empty() && !Empty() && scheduler_.now_us() < end_us) {
    BringBack();
    clients_.ReleaseAll();
    const int64_t until_us = scheduler_.now_us() + kSecond_us;
    while (result_.violation.empty() && !Empty() && scheduler_.now_us() < until_us) {
      scheduler_.RunUntil(scheduler_.now_us() + 20'000);
    }
  }
  if (result_.violation.empty()) CheckEmpty();
  if (result_.violation.empty()) watchers_.CatchUp();
  if (result_.violation.empty()) CheckHistory();
  CountMeetings();
  result_.coverage.events = scheduler_.events();
  result_.coverage.simulated_us = scheduler_.now_us();
  result_.digest = digest_;
  // Whatever is still queued belongs to lives that are over.
  for (const auto& manager : managers_) {
    if (manager != nullptr) scheduler_.End(manager->life());
  }
  for (Host& host : hosts_) {
    if (host.agent != nullptr) scheduler_.End(host.agent->life());
  }
  return std::move(result_);
}

SimulationResult RunSimulation(const Script& script, const SimulationOptions& options) {
  return SimulationRun(script, options).Run();
}

}  // namespace cxlpool::sim
