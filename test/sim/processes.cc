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

ManagerProcess::Leader::Leader(const ManagerWorld& world, LifeId life, Random random,
                               SimExecutor* executor, fm::Writer* writer, fm::Probe probe)
    : fabric(world.scheduler, life, world.rack, world.fabric_faults, random),
      sessions(kSessions, executor, executor, writer),
      reconciler(kReconciler, executor, executor, writer, &fabric, &sessions, std::move(probe)),
      leases(executor, executor, writer),
      media({}, executor, executor, writer, &sessions),
      pool(executor, writer, &reconciler, &sessions) {}

std::unique_ptr<fm::Store> ManagerProcess::MakeStore(Random random,
                                                     const std::function<void(absl::Status)>& end) {
  if (world_.etcd == nullptr) {
    return std::make_unique<SimStore>(world_.scheduler, life_, world_.disk, world_.shelf,
                                      world_.store_faults, random);
  }
  auto store = std::make_unique<SimReplicatedStore>(
      SimReplicatedStore::World{world_.scheduler, world_.etcd, world_.shelf, world_.store_faults,
                                world_.store_met},
      &executor_, random,
      [end] { end(absl::UnavailableError("no sign of life came through in time")); });
  replicated_ = store.get();
  return store;
}

// Put together as cxlpool-fm is, of its own parts; only store, fabric, clock and threads are
// simulated. Records go to the store unencoded (RecordShelf). Whatever the manager does ends with
// `life`.
ManagerProcess::ManagerProcess(const ManagerWorld& world, LifeId life, Random random,
                               int64_t wall_skew_us, fm::Probe probe,
                               std::function<void(absl::Status)> on_fatal,
                               std::function<void()> on_serving)
    : world_(world),
      life_(life),
      on_serving_(std::move(on_serving)),
      executor_(world.scheduler, life, wall_skew_us),
      store_(MakeStore(Random(random.Next()), on_fatal)),
      fabric_random_(random.Next()),
      probe_(std::move(probe)),
      watch_(kWatchEvents, kFarBehind),
      writer_({.plan_ahead = 1,
               .make_tag = world.make_tag,
               .encode = [shelf = world.shelf](const fm::Item& item) { return shelf->Keep(item); }},
              &executor_, &executor_, store_.get(), &views_, &watch_) {
  writer_.Open({.on_committed =
                    [this](const std::vector<fm::Change>& changes) {
                      // It was killed within this very commit: nobody learns of it any more.
                      if (!world_.scheduler->Alive(life_)) return;
                      world_.reference->Committed(changes, writer_.state(), writer_.revision(),
                                                  writer_.epoch());
                      leader_->reconciler.OnCommitted(changes);
                      leader_->leases.OnCommitted(changes);
                    },
                .on_fatal = on_fatal},
               [this, on_fatal](const absl::Status& status) {
                 if (!world_.scheduler->Alive(life_)) return;
                 status.ok() ? Serve() : on_fatal(status);
               });
}

// The store is ours. Begins what the manager does by itself, and lets agents in only after the
// reconciler has looked at the fabric, as cxlpool-fm does. The reference goes on from what came
// out of the store.
void ManagerProcess::Serve() {
  world_.reference->Reload(writer_.state(), writer_.epoch(), writer_.revision());
  leader_.emplace(world_, life_, fabric_random_, &executor_, &writer_, std::move(probe_));
  writer_.SetFabric(leader_->fabric.capabilities());
  if (world_.etcd != nullptr) leader_->sessions.SetEpoch(writer_.epoch());
  leader_->sessions.Start(
      {.on_segments =
           [this](const auto& host, const auto& reports, bool complete) {
             leader_->reconciler.OnSegments(host, reports, complete);
           },
       .on_events = [this](const auto& host,
                           const auto& events) { leader_->media.OnEvents(host, events); },
       .on_session =
           [this](const auto& host, bool online) {
             leader_->fabric.OnSession(host, online);
             leader_->reconciler.OnSession(host, online);
             leader_->media.OnSession(host);
           }});
  leader_->leases.Start();
  leader_->reconciler.Start([this](const absl::Status&) {
    executor_.Post([this] {
      serving_ = true;
      // One that stood still, and has not heard that another has taken over, is not found.
      if (world_.etcd != nullptr && world_.etcd->now().owner != life_) return;
      world_.door->sessions = &leader_->sessions;
      world_.door->life = life_;
      on_serving_();
    });
  });
}

// A manager that was started after it may have the door already.
ManagerProcess::~ManagerProcess() {
  if (world_.door->life == life_) world_.door->sessions = nullptr;
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
