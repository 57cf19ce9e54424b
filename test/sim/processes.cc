#include "test/sim/processes.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cxlpool::sim {
namespace {

// The daemons' own settings, made shorter: a trial is some seconds long, and leases are to end, and
// Attachments to be given up, within it.
constexpr fm::HostSessions::Options kSessions = {.heartbeat = absl::Milliseconds(400),
                                                 .lease = absl::Seconds(2)};
constexpr fm::Reconciler::Options kReconciler = {.tick = absl::Milliseconds(250),
                                                 .attach_timeout = absl::Seconds(6),
                                                 .discover_period = absl::Seconds(2),
                                                 .unbind_wait = absl::Seconds(1),
                                                 .retry = absl::Milliseconds(200)};

// A short memory, and little patience: a slow watcher meets the end of both.
constexpr size_t kWatchEvents = 96;
constexpr size_t kFarBehind = 12;

// `agent_id` is of the process, `incarnation` of the host's boot: an agent that was killed comes
// back under another id on the same boot.
agent::AgentOptions OptionsOf(const RackHost& host, const std::string& agent_id) {
  agent::AgentOptions options;
  options.host = absl::StrCat("hosts/", host.id);
  options.incarnation = host.incarnation();
  options.agent_id = agent_id;
  options.agent_version = "sim";
  options.kernel_release = "sim";
  options.observe_interval = absl::Milliseconds(500);
  return options;
}

}  // namespace

std::string HostName(int host) { return std::string("host-") + static_cast<char>('a' + host); }
int HostNumber(const std::string& name) { return name.back() - 'a'; }

// Put together as cxlpool-fm is, of its own parts; only disk, fabric, clock and threads are
// simulated. Records go to the disk unencoded (RecordShelf). Whatever the manager does ends with
// `life`.
ManagerProcess::ManagerProcess(const ManagerWorld& world, LifeId life, Random random,
                               int64_t wall_skew_us, fm::Probe probe,
                               std::function<void(absl::Status)> on_fatal,
                               std::function<void()> on_serving)
    : world_(world),
      life_(life),
      on_serving_(std::move(on_serving)),
      executor_(world.scheduler, life, wall_skew_us),
      store_(world.scheduler, life, world.disk, world.shelf, world.store_faults,
             Random(random.Next())),
      fabric_(world.scheduler, life, world.rack, world.fabric_faults, Random(random.Next())),
      watch_(kWatchEvents, kFarBehind),
      writer_({.make_tag = world.make_tag,
               .encode = [shelf = world.shelf](const fm::Item& item) { return shelf->Keep(item); }},
              &executor_, &executor_, &store_, &views_, &watch_),
      sessions_(kSessions, &executor_, &executor_, &writer_),
      reconciler_(kReconciler, &executor_, &executor_, &writer_, &fabric_, &sessions_,
                  std::move(probe)),
      leases_(&executor_, &executor_, &writer_),
      media_({}, &executor_, &executor_, &writer_, &sessions_),
      pool_(&executor_, &writer_, &reconciler_, &sessions_) {
  writer_.SetFabric(fabric_.capabilities());
  writer_.Open(
      {.on_committed =
           [this](const std::vector<fm::Change>& changes) {
             // It was killed within this very commit: nobody learns of it any more.
             if (!world_.scheduler->Alive(life_)) return;
             world_.reference->Committed(changes, writer_.state(), writer_.revision());
             reconciler_.OnCommitted(changes);
             leases_.OnCommitted(changes);
           },
       .on_fatal = on_fatal},
      [this, on_fatal](const absl::Status& status) { status.ok() ? Serve() : on_fatal(status); });
}

// The store is open. Begins what the manager does by itself, and lets agents in only after the
// reconciler has looked at the fabric, as cxlpool-fm does. The reference goes on from what came
// out of the store.
void ManagerProcess::Serve() {
  world_.reference->Reload(writer_.state());
  sessions_.Start(
      {.on_segments = [this](const auto& host, const auto& reports,
                             bool complete) { reconciler_.OnSegments(host, reports, complete); },
       .on_events = [this](const auto& host, const auto& events) { media_.OnEvents(host, events); },
       .on_session =
           [this](const auto& host, bool online) {
             fabric_.OnSession(host, online);
             reconciler_.OnSession(host, online);
             media_.OnSession(host);
           }});
  leases_.Start();
  reconciler_.Start([this](const absl::Status&) {
    executor_.Post([this] {
      serving_ = true;
      world_.door->sessions = &sessions_;
      world_.door->life = life_;
      on_serving_();
    });
  });
}

// A manager that was started after it may have the door already.
ManagerProcess::~ManagerProcess() {
  if (world_.door->sessions == &sessions_) world_.door->sessions = nullptr;
}

// Likewise cxlpool-agent, with a simulated host and a simulated line to whichever manager has the
// door. Applications of every user may call it.
AgentProcess::AgentProcess(SimLink::World world, Rack* rack, HostFaults* faults, LifeId life,
                           int host, const std::string& agent_id, Random random, agent::Probe probe)
    : life_(life),
      executor_(world.scheduler, life),
      memory_(world.scheduler, life, rack, HostName(host), faults, Random(random.Next())),
      link_(world, life, host),
      core_(OptionsOf(rack->hosts.at(HostName(host)), agent_id), &executor_, &executor_, &memory_,
            &link_, std::move(probe)),
      local_({.tenant = "tenants/default", .allowed_uids = {}, .agent_uid = 0}, &core_, &executor_,
             &executor_, &memory_, &link_) {
  core_.Start([](const absl::Status&) {});
}

}  // namespace cxlpool::sim
