#include "test/sim/simulation.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "test/sim/clients.h"
#include "test/sim/processes.h"

namespace cxlpool::sim {
namespace {

constexpr int64_t kSecond_us = 1'000'000;
constexpr uint64_t kConnections = 3;  // Of applications, on each host.
// Pauses, and hosts without power, have ends of their own, at most twelve seconds away.
constexpr int64_t kToSettle_us = 30 * kSecond_us;
constexpr int64_t kToEmpty_us = 60 * kSecond_us;

class Simulation {
 public:
  Simulation(const Script& script, const SimulationOptions& options);
  SimulationResult Run();

 private:
  struct Host {
    std::unique_ptr<AgentProcess> agent;
    HostFaults faults;
    Lies lies;
    v1::Hello last_hello;
    uint64_t agent_starts = 0;
    int crash_in_probes = 0;  // > 0: the agent dies at that many-th rung from now.
    int64_t crash_for_us = 0;
  };

  // simulation.cc: lives.
  void StartManager();
  void KillManager(int64_t restart_us);
  void ManagerServes();
  void StartAgent(int host);
  void KillAgent(int host, int64_t restart_us, bool machine_is_gone);
  ManagerProcess* manager() { return manager_.get(); }

  // Faults.
  void Strike(const Step& step);
  void StrikeFabric(const Step& step);
  void StrikeHost(const Step& step);
  void GoesDark(int host);
  void RunStep(const Step& step);
  void Application(const Step& step);

  // The end.
  void MakeWell();
  bool NobodyReaches(const fm::Region& region) const;
  // Why the records and the rack do not rest yet, and are not the same; empty: they are.
  std::string WhyNotSettled() const;
  std::string WhyNotThere(const fm::Region& region, const fm::Attachment& attachment) const;
  void Settle();
  void BringBack();
  bool Empty() const;
  // Whether the host has to keep it. Where it lost a part, it clears the rest away as well.
  bool Stays(const std::string& host, uint64_t serial) const;
  std::string WhyNotEmpty() const;
  void CheckEmpty();
  void CheckHistory();

  void Violate(const std::string& what) {
    if (!result_.violation.empty()) return;
    result_.violation = absl::StrCat("at ", scheduler_.now_us(), " us: ", what);
    Trace("VIOLATION ", what);
  }
  template <typename... Args>
  void Trace(const Args&... args) {
    if (!tracing_) return;
    const std::string line = absl::StrCat(args...);
    for (const char c : line) digest_ = (digest_ ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    if (options_.trace) options_.trace(absl::StrCat(scheduler_.now_us(), " ", line));
  }
  RackHost& rack_host(int host) { return rack_.hosts.at(HostName(host)); }

  const Script& script_;
  const SimulationOptions& options_;
  const bool tracing_;
  SimulationResult result_;
  uint64_t digest_ = 0xcbf29ce484222325;

  Random random_;
  Scheduler scheduler_;
  Reference reference_;
  Rack rack_;
  FabricFaults fabric_faults_;
  StoreFaults store_faults_;
  const std::shared_ptr<fm::MemoryDisk> disk_ = std::make_shared<fm::MemoryDisk>();
  Network network_;
  ManagerDoor door_;
  Clients clients_;
  std::unique_ptr<ManagerProcess> manager_;
  int manager_crash_in_probes_ = 0;
  int64_t manager_crash_for_us_ = 0;
  int64_t wall_skew_us_ = 0;
  int64_t dark_for_us_ = 500'000;  // The next host that loses its power.
  std::array<Host, kHosts> hosts_;
  uint64_t connections_ = 0;
  uint64_t tags_ = 0;
  bool ending_ = false;
};

Simulation::Simulation(const Script& script, const SimulationOptions& options)
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
                .manager = [this] { return manager(); },
                .may_swear = [this](const fm::Region& region) { return NobodyReaches(region); }}) {
  for (int i = 0; i < kDevices; ++i) {
    RackDevice device;
    device.id = absl::StrCat("cmm-", i);
    device.content.resize(kGranulesPerDevice);
    rack_.devices.push_back(std::move(device));
  }
  for (int i = 0; i < kHosts; ++i) {
    RackHost host;
    host.id = HostName(i);
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
  rack_.on_dark = [this](const std::string& host) { GoesDark(HostNumber(host)); };
  if (tracing_) {
    rack_.trace = [this](absl::string_view line) { Trace(line); };
    clients_.SetTrace([this](const std::string& line) { Trace(line); });
  }
}

// --- Lives.

void Simulation::StartManager() {
  if (manager_ != nullptr) return;
  const LifeId life = scheduler_.Begin();
  ++result_.coverage.lives;
  Trace("manager starts");
  fm::Probe probe = [this, life](absl::string_view point) {
    if (!scheduler_.Alive(life)) return;
    Trace("manager ", point);
    if (manager_crash_in_probes_ > 0 && --manager_crash_in_probes_ == 0) {
      KillManager(manager_crash_for_us_);
    }
  };
  manager_ = std::make_unique<ManagerProcess>(
      ManagerWorld{.scheduler = &scheduler_,
                   .rack = &rack_,
                   .fabric_faults = &fabric_faults_,
                   .disk = disk_,
                   .store_faults = &store_faults_,
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
      [this, life](const absl::Status& why) {
        if (!scheduler_.Alive(life)) return;
        Trace("manager ends: ", why.message());
        if (why.message().find("do not make a sound pool") != std::string::npos) {
          Violate(std::string(why.message()));
        }
        KillManager(random_.Between(1, 50) * 1000);
      },
      [this] { ManagerServes(); });
}

void Simulation::KillManager(int64_t restart_us) {
  if (manager_ == nullptr || !scheduler_.Alive(manager_->life())) return;
  Trace("manager dies");
  scheduler_.End(manager_->life());
  door_.sessions = nullptr;
  // It may be on the stack now.
  scheduler_.At(kWorld, 0, [this] {
    manager_.reset();
    for (Host& host : hosts_) {
      if (host.agent != nullptr) host.agent->link().CutThere(network_.random().Between(50, 3000));
    }
  });
  scheduler_.At(kWorld, std::max<int64_t>(restart_us, 100), [this] { StartManager(); });
}

void Simulation::ManagerServes() {
  for (int host = 0; host < kHosts; ++host) {
    if (result_.coverage.lives == 1) clients_.Enrol(host);
  }
}

void Simulation::StartAgent(int number) {
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
                     .last_hello = &host.last_hello},
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

void Simulation::KillAgent(int number, int64_t restart_us, bool machine_is_gone) {
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

void Simulation::RunStep(const Step& step) {
  if (!result_.violation.empty()) return;
  Trace("step ", InfoOf(step.verb).name);
  if (IsFault(step.verb)) {
    Strike(step);
  } else if (step.verb == Verb::kOpen || step.verb == Verb::kClose) {
    Application(step);
  } else {
    clients_.Do(step);
  }
}

void Simulation::Application(const Step& step) {
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
    request.mutable_open()->set_name(
        absl::StrCat("regions/", Clients::RegionName(step.Get("region"))));
    request.mutable_open()->set_wait_ms(100);
    const agent::LocalPeer peer{.connection = connection, .uid = 0, .pid = 4242};
    agent.local().Handle(peer, std::move(request), [this](agent::LocalReply reply) {
      result_.coverage.Answer(reply.response.code() == 0
                                  ? "open OK"
                                  : absl::StrCat("open ", reply.response.error().reason()));
    });
  });
}

void Simulation::Strike(const Step& step) {
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
      scheduler_.At(kWorld, 30'000, [this, step] { KillManager(step.Get("for")); });
      return;
    case Verb::kKillManager:
      return KillManager(step.Get("for"));
    case Verb::kKillManagerAt:
      manager_crash_in_probes_ = static_cast<int>(step.Get("probe")) + 1;
      manager_crash_for_us_ = step.Get("for");
      return;
    case Verb::kWallJumps:
      // By less than tombstones live: what they remember is remembered by wall time.
      wall_skew_us_ = step.Get("ahead");
      if (manager_ != nullptr) manager_->executor().SetWallSkew(wall_skew_us_);
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

void Simulation::StrikeFabric(const Step& step) {
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
        if (manager_ != nullptr) manager_->fabric().Emit({kind, HostName(number), {}});
      };
      tell(fm::FabricEvent::Kind::kHostUnreachable);
      scheduler_.At(kWorld, step.Get("for"), [this, number, tell] {
        rack_host(number).reachable = true;
        tell(fm::FabricEvent::Kind::kHostReachable);
      });
      return;
    }
    case Verb::kFalseEvent: {
      if (manager_ == nullptr) return;
      const RackHost& host = rack_host(number);
      fm::FabricEvent event{fm::FabricEvent::Kind::kHostReachable, host.id, {}};
      if (step.Get("kind") == 1) event.kind = fm::FabricEvent::Kind::kHostUnreachable;
      if (step.Get("kind") == 2 && !host.slots.empty()) {
        event.kind = fm::FabricEvent::Kind::kLdLost;
        event.key = host.slots.begin()->second.ld.key;
      }
      manager_->fabric().Emit(std::move(event));
      return;
    }
    default:
      return;
  }
}

void Simulation::StrikeHost(const Step& step) {
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
      return;
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
    default:
      return;
  }
}

// Fenced, or without power: its kernel and what was plugged are gone. It comes back later.
void Simulation::GoesDark(int number) {
  const int64_t back_us = std::max<int64_t>(1000, std::exchange(dark_for_us_, 500'000));
  hosts_[static_cast<size_t>(number)].faults.paused_until_us = 0;
  KillAgent(number, back_us + 1000, true);
  scheduler_.At(kWorld, back_us, [this, number] {
    RackHost& back = rack_host(number);
    if (!back.powered) rack_.PowerBack(back);
  });
}

// --- The end.

void Simulation::MakeWell() {
  ending_ = true;
  Trace("all is made well");
  network_.Heal();
  fabric_faults_.next.clear();
  fabric_faults_.can_fence = true;
  store_faults_ = {};
  manager_crash_in_probes_ = 0;
  for (int number = 0; number < kHosts; ++number) {
    Host& host = hosts_[static_cast<size_t>(number)];
    RackHost& machine = rack_host(number);
    host.faults.next.clear();
    host.crash_in_probes = 0;
    machine.reachable = true;
    machine.refuses_offline = false;
    machine.held.clear();
    if (!machine.powered) rack_.PowerBack(machine);
    const bool lied = host.lies.until_us > scheduler_.now_us();
    host.lies.until_us = 0;
    if (host.agent == nullptr) StartAgent(number);
    if (host.agent == nullptr) continue;
    if (lied) host.agent->link().CutHere(network_.OfHost(number));
  }
  if (manager_ == nullptr) StartManager();
}

bool Simulation::Stays(const std::string& host, uint64_t serial) const {
  const fm::Attachment* attachment = reference_.ThatStays(host, serial);
  if (attachment == nullptr) return false;
  const auto& slots = rack_.hosts.at(host).slots;
  return std::all_of(attachment->segments.begin(), attachment->segments.end(),
                     [&](const fm::Segment& segment) {
                       const auto slot = slots.find(segment.slot);
                       return slot != slots.end() && slot->second.ld.serial == segment.serial;
                     });
}

bool Simulation::NobodyReaches(const fm::Region& region) const {
  return std::all_of(region.attachments.begin(), region.attachments.end(),
                     [this](const fm::Attachment& a) { return !rack_.hosts.at(a.host).powered; });
}

// Every LD bound, every host region made, in its mode and whole.
std::string Simulation::WhyNotThere(const fm::Region& region,
                                    const fm::Attachment& attachment) const {
  const RackHost& host = rack_.hosts.at(attachment.host);
  for (const fm::Segment& segment : attachment.segments) {
    const auto slot = host.slots.find(segment.slot);
    const auto made = std::find_if(
        host.regions.begin(), host.regions.end(), [&](const agent::ObservedHostRegion& r) {
          return std::find(r.serials.begin(), r.serials.end(), segment.serial) != r.serials.end();
        });
    std::string why;
    if (slot == host.slots.end() || slot->second.ld.serial != segment.serial) {
      why = "no LD in slot ";
    } else if (made == host.regions.end()) {
      why = "no host region for the LD in slot ";
    } else if (attachment.mode == fm::Mode::kDevdax
                   ? made->dax_driver != agent::DaxDriver::kDeviceDax
                   : made->dax_driver != agent::DaxDriver::kKmem ||
                         made->online_blocks != made->total_blocks) {
      why = "not in its mode is what is in slot ";
    }
    if (!why.empty()) {
      return absl::StrCat("; regions/", region.id, " is ONLINE on ", attachment.host, ", but ", why,
                          segment.slot);
    }
  }
  return "";
}

std::string Simulation::WhyNotSettled() const {
  std::string why;
  if (manager_ == nullptr || !manager_->serving()) return "; no manager serves";
  if (clients_.under_way() > 0) return "; calls are under way";
  size_t lds = 0;
  for (const auto& [key, region] : reference_.regions()) {
    const bool rests = region->state == fm::RegionState::kQuarantined ||
                       (region->state == fm::RegionState::kAllocated && !region->resizing());
    if (!rests) {
      absl::StrAppend(&why, "; regions/", region->id, " is ", ToString(region->state),
                      region->resizing() ? ", resizing" : "", " (", region->state_reason, ")");
    }
    for (const fm::Attachment& attachment : region->attachments) {
      lds += attachment.segments.size();
      // What was lost cannot come back under one that stayed: decoders are a stack.
      if (attachment.reason.find("BRIDGE_BLOCKED") != std::string::npos) continue;
      if (attachment.state != fm::AttachmentState::kOnline || attachment.detaching) {
        absl::StrAppend(&why, "; regions/", region->id, " is ", ToString(attachment.state), " on ",
                        attachment.host, attachment.detaching ? ", detaching (" : " (",
                        attachment.reason, ")");
      } else if (rests) {
        absl::StrAppend(&why, WhyNotThere(*region, attachment));
      }
    }
  }
  size_t plugged = 0;
  for (const auto& [id, host] : rack_.hosts) plugged += host.slots.size();
  if (why.empty() && plugged != lds) {
    absl::StrAppend(&why, "; ", plugged, " LDs are bound, the records have ", lds);
  }
  return why;
}

// Hosts without agent or enrolment, and applications that are done.
void Simulation::BringBack() {
  for (int host = 0; host < kHosts; ++host) {
    const auto& agent = hosts_[static_cast<size_t>(host)].agent;
    if (agent == nullptr) StartAgent(host);
    for (uint64_t connection = 1; agent != nullptr && connection <= kConnections; ++connection) {
      agent->local().ConnectionEnded(connection);
    }
    clients_.Enrol(host);
  }
}

// Whatever was asked for comes to its end: ONLINE, or gone.
void Simulation::Settle() {
  const int64_t end_us = scheduler_.now_us() + kToSettle_us;
  std::string why = "begins";
  while (result_.violation.empty() && !why.empty() && scheduler_.now_us() < end_us) {
    BringBack();
    for (int i = 0; i < 20 && result_.violation.empty() && !why.empty(); ++i) {
      scheduler_.RunUntil(scheduler_.now_us() + 50'000);
      why = WhyNotSettled();
    }
  }
  if (!why.empty()) Violate(absl::StrCat("half a minute after all was well", why));
}

bool Simulation::Empty() const {
  if (manager_ == nullptr || !manager_->serving() || !reference_.regions().empty()) return false;
  if (clients_.under_way() > 0 || manager_->writer().revision() != disk_->revision()) return false;
  for (const auto& [id, host] : rack_.hosts) {
    if (!host.slots.empty() || !host.regions.empty()) return false;
  }
  return true;
}

std::string Simulation::WhyNotEmpty() const {
  std::string why;
  if (manager_ == nullptr || !manager_->serving()) absl::StrAppend(&why, "; no manager serves");
  for (const auto& [key, region] : reference_.regions()) {
    absl::StrAppend(&why, "; regions/", region->id, " is ", ToString(region->state), " (",
                    region->state_reason, ")");
    for (const fm::Attachment& attachment : region->attachments) {
      absl::StrAppend(&why, ", on ", attachment.host, " ", ToString(attachment.state),
                      attachment.detaching ? " detaching" : "", " (", attachment.reason, ")");
    }
  }
  for (const auto& [id, host] : rack_.hosts) {
    for (const auto& [slot, plugged] : host.slots) {
      absl::StrAppend(&why, "; slot ", slot, " of ", id, " has an LD of ", plugged.ld.key.tag,
                      plugged.ld.unbinding ? ", unbinding" : "", plugged.powered ? ", on" : "");
    }
    for (const auto& region : host.regions) {
      absl::StrAppend(&why, "; ", id, " has ", region.name);
    }
  }
  return why;
}

void Simulation::CheckEmpty() {
  if (!Empty()) return Violate(absl::StrCat("a minute after all was well", WhyNotEmpty()));
  if (absl::Status sound = manager_->writer().state().CheckInvariants(); !sound.ok()) {
    Violate(std::string(sound.message()));
  }
  for (const RackDevice& device : rack_.devices) {
    if (reference_.DeviceFailed(device.id)) continue;
    for (size_t i = 0; i < device.content.size(); ++i) {
      if (device.content[i] != 0) {
        Violate(absl::StrCat("granule ", i, " of ", device.id, " is free and not zero"));
      }
    }
  }
  const fm::Capacity capacity = manager_->writer().state().GetCapacity();
  if (capacity.held_bytes + capacity.scrubbing_bytes != 0) Violate("bytes leaked");
}

void Simulation::CheckHistory() {
  // Where nothing went wrong, nothing turned down by itself.
  const auto disturbs = [](const Step& step) {
    return IsFault(step.verb) || step.verb == Verb::kFenceHost || step.verb == Verb::kRetireHost ||
           step.verb == Verb::kFailDevice || step.verb == Verb::kForceRelease;
  };
  const bool calm = std::none_of(script_.steps.begin(), script_.steps.end(), disturbs);
  const RegionHistoryResult checked = CheckRegionHistory(
      clients_.History(), {.model = {.attachments_fail = !calm, .devices_fail = !calm}});
  result_.coverage.histories = checked.names;
  result_.coverage.gave_up = checked.gave_up;
  if (!checked.ok()) Violate(checked.why);
}

SimulationResult Simulation::Run() {
  StartManager();
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
  if (result_.violation.empty()) CheckHistory();
  result_.coverage.events = scheduler_.events();
  result_.coverage.simulated_us = scheduler_.now_us();
  result_.digest = digest_;
  // Whatever is still queued belongs to lives that are over.
  if (manager_ != nullptr) scheduler_.End(manager_->life());
  for (Host& host : hosts_) {
    if (host.agent != nullptr) scheduler_.End(host.agent->life());
  }
  return std::move(result_);
}

}  // namespace

SimulationResult RunSimulation(const Script& script, const SimulationOptions& options) {
  return Simulation(script, options).Run();
}

}  // namespace cxlpool::sim
