#include "fabric-manager/manager.h"

#ifdef CXLPOOL_TCMALLOC
#include <gperftools/malloc_extension_c.h>
#else
#include <malloc.h>
#endif

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/fabric_drivers.h"
#include "fabric-manager/service/agent_tasks.h"
#include "fabric-manager/service/lease_keeper.h"
#include "fabric-manager/service/media_keeper.h"
#include "fabric-manager/service/metrics.h"
#include "fabric-manager/setup.h"
#include "proto/support/daemon.h"
#include "proto/support/log.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kStepsInTheLog = 16;
constexpr char kSubject[] = "cxlpool-fm";

// For calls that are being answered, which takes milliseconds. Streams, and connections whose
// client looks at nothing, end no sooner: every stop takes so long.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);

void GiveBackMemory() {
#ifdef CXLPOOL_TCMALLOC
  MallocExtension_ReleaseFreeMemory();
#else
  malloc_trim(0);
#endif
}

}  // namespace

// What moves memory, made once the store is ours: before that another manager has the fabric.
struct Manager::Leader {
  // `tasks`: what the driver was made with.
  Leader(const FmConfig& config, std::unique_ptr<SessionTasks> of_driver,
         std::unique_ptr<FabricDriver> fabric, FabricTimes* times, Loop* loop, Clock* clock,
         Writer* writer)
      : tasks(std::move(of_driver)),
        driver(std::make_unique<MeteredFabric>(std::move(fabric), clock, times)),
        sessions(SessionOptionsOf(config), loop, clock, writer),
        reconciler(ReconcilerOptionsOf(config), loop, clock, writer, driver.get(), &sessions,
                   CrashProbe()),
        leases(loop, clock, writer),
        media({}, loop, clock, writer, &sessions),
        pool(loop, writer, &reconciler, &sessions) {
    tasks->Attach(loop, &sessions);
  }

  std::unique_ptr<SessionTasks> tasks;
  std::unique_ptr<FabricDriver> driver;
  HostSessions sessions;
  Reconciler reconciler;
  LeaseKeeper leases;
  MediaKeeper media;
  PoolService pool;
};

Manager::Manager(FmConfig config, std::unique_ptr<Store> store, std::shared_ptr<TlsSource> tls,
                 std::vector<CertificateEnd> etcd_certificates, const EtcdMeters* etcd)
    : config_(std::move(config)),
      etcd_(etcd),
      admins_(config_.admins),
      store_(std::move(store)),
      tls_(std::move(tls)),
      etcd_certificates_(std::move(etcd_certificates)),
      writer_(WriterOptionsOf(config_), &loop_, &clock_, store_.get(), &views_, &watch_) {}

Manager::~Manager() = default;

void Manager::Open(std::function<void(absl::Status)> on_fatal, Done opened) {
  writer_.Open({.on_committed =
                    [this](const auto& changes) {
                      leader_->reconciler.OnCommitted(changes);
                      leader_->leases.OnCommitted(changes);
                    },
                .on_space =
                    [this](const absl::Status& status) {
                      if (RpcServer* const server = serving_.load()) server->NoteStore(status);
                    },
                .on_owner = [this](const StoreOwner& owner) { owner_.Set(owner); },
                .on_fatal = std::move(on_fatal)},
               std::move(opened));
}

absl::Status Manager::StandBy() {
  auto server = StandbyServer::Start(ServerOptionsOf(config_, {}, tls_), [this] {
    const StoreOwner owner = owner_.Get();
    // What was taken in, not what the owner is at: reading all of it takes a while.
    return StandbyFacts{
        .leader = owner.address, .epoch = owner.epoch, .revision = views_.Get()->revision};
  });
  if (!server.ok()) return server.status();
  standby_ = *std::move(server);
  return ServeMetrics();
}

// A fabric that cannot be read yet is looked at again and again; one that another manager has is an
// error: it starts anew, and stands by.
absl::Status Manager::Serve() {
  if (standby_ != nullptr) standby_->Shutdown(absl::ZeroDuration());
  standby_ = nullptr;
  auto tasks = std::make_unique<SessionTasks>();
  auto driver = OpenFabric(config_.fabric, tasks.get());
  if (!driver.ok()) return driver.status();
  leader_ = std::make_unique<Leader>(config_, std::move(tasks), *std::move(driver), &fabric_times_,
                                     &loop_, &clock_, &writer_);
  writer_.SetFabric(leader_->driver->capabilities());
  if (absl::Status status = TakeInTopology(); !status.ok()) return status;
  GiveBackMemory();  // What reading the store took and needs no more: a million records' worth.
  std::promise<absl::Status> discovered;
  // Of a store that one manager has: it may be put back to what it was, epoch and all.
  uint64_t epoch = 0;
  loop_.Post([&] {
    if (config_.store == FmConfig::StoreKind::kEtcd) epoch = writer_.epoch();
    leader_->sessions.SetEpoch(epoch);
    StartSessions();
    leader_->leases.Start();
    LogAnchor();
    leader_->reconciler.Start([&](absl::Status status) { discovered.set_value(status); });
  });
  if (absl::Status status = discovered.get_future().get(); !status.ok()) {
    if (IsFabricBusy(status)) return status;
    LogWarning(kSubject, "the fabric could not be read yet: ", status.message());
  }
  ServerOptions options = ServerOptionsOf(config_, leader_->driver->capabilities(), tls_);
  options.meters = &writer_.meters();
  options.epoch = epoch_ = epoch;
  options.etcd_certificates = etcd_certificates_;
  auto server = RpcServer::Start(options, &loop_, &leader_->pool, &leader_->sessions, store_.get(),
                                 &views_, &watch_);
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  serving_ = server_.get();
  server_->SetServing(true);
  for (size_t i = 0; i < config_.listen.size(); ++i) {
    LogInfo(kSubject, "serving on ", config_.listen[i].address,
            config_.listen[i].insecure ? ", without TLS" : "");
  }
  return ServeMetrics();
}

// Who stands by has no server yet: the one that it starts later is made of config_.
void Manager::Reload(const FmConfig& config) {
  TakeReloaded(config, config_);
  SetLogLevel(config_.log_level);
  admins_.Set(config_.admins);
  if (server_ != nullptr) server_->SetAdmins(config_.admins);
}

void Manager::Stop() {
  metrics_.reset();
  if (standby_ != nullptr) standby_->Shutdown(absl::ZeroDuration());
  if (server_ != nullptr) {
    server_->SetServing(false);
    server_->Shutdown(kShutdownGrace);
  }
  // Nobody answers any more: the driver is not to wait for that.
  if (leader_ != nullptr) leader_->tasks->Stop();
  loop_.Stop();
  if (leader_ != nullptr) leader_->driver.reset();
  store_.reset();
}

void Manager::Ping(std::function<void()> then) {
  loop_.Post([this, then = std::move(then)]() mutable {
    if (RpcServer* const server = serving_.load()) return server->Ping(std::move(then));
    then();
  });
}

// On the loop.
void Manager::StartSessions() {
  leader_->sessions.Start(
      {.on_segments =
           [this](const auto& host, const auto& reports, bool complete) {
             leader_->reconciler.OnSegments(host, reports, complete);
           },
       .on_events = [this](const auto& host,
                           const auto& events) { leader_->media.OnEvents(host, events); },
       .on_session =
           [this](const auto& host, bool online) {
             leader_->tasks->OnSession(host, leader_->sessions.LifeOf(host));
             leader_->reconciler.OnSession(host, online);
             leader_->media.OnSession(host);
           },
       .on_device_answer = [this](const auto& host,
                                  const auto& answer) { leader_->tasks->OnAnswer(host, answer); }});
}

// The configuration's tables become records of a pool that has none. Of every other pool the
// records are what counts, and where the configuration says something else an operator hears of
// it.
absl::Status Manager::TakeInTopology() {
  for (bool done = false; !done;) {
    std::promise<absl::Status> taken;
    writer_.Submit(
        Audit{{}, "manager", "take-in-topology", config_.file},
        [&](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
          Change change = PlanImport(state, config_.tables, config_.file, context);
          done = change.empty();
          return Proposal{std::move(change), nullptr};
        },
        [&](const absl::StatusOr<Committed>& answer) { taken.set_value(answer.status()); });
    if (absl::Status status = taken.get_future().get(); !status.ok()) return status;
  }
  std::promise<TopologyTables> recorded;
  loop_.Post([&] { recorded.set_value(writer_.DurableTables()); });
  const std::vector<TopologyStep> steps =
      CompareTables(recorded.get_future().get(), config_.tables);
  // A configuration without such tables leaves it all to the records.
  if (steps.empty() || config_.tables == TopologyTables()) return absl::OkStatus();
  std::vector<std::string> words;
  for (const TopologyStep& step : steps) {
    if (words.size() == kStepsInTheLog) break;
    words.push_back(
        absl::StrCat(step.name, step.verb == TopologyStep::Verb::kAdd      ? " (only in the file)"
                                : step.verb == TopologyStep::Verb::kRemove ? " (only in the pool)"
                                                                           : " (differs)"));
  }
  LogWarning(kSubject, config_.file,
             " is not what the pool consists of, and the pool's records count: ",
             absl::StrJoin(words, ", "), steps.size() > words.size() ? ", ..." : "",
             "; `cxlpool topology apply ", config_.file,
             "` makes the pool as the file says, and takes out what is only in the pool: look with "
             "--dry-run first");
  return absl::OkStatus();
}

// Where the audit trail ends, at the start and once an hour: whoever can write to the store
// cannot write to a journal that is kept elsewhere. Where log_level keeps the line out of the
// journal, nobody is told that it is there. On the loop.
void Manager::LogAnchor() {
  const AuditHead head = writer_.trail().Read(1, 0).bounds.head;
  if (head.number != 0 && LogsAt(LogLevel::kInfo)) {
    LogInfo("audit", "the trail ends at ", ToText(head));
    writer_.meters().last_anchor_s = absl::ToUnixSeconds(clock_.Now());
  }
  loop_.PostAfter(absl::Hours(1), [this] { LogAnchor(); });
}

// Goes on from the standby to the leader that it becomes.
absl::Status Manager::ServeMetrics() {
  if (metrics_ != nullptr) return absl::OkStatus();
  auto listener = metrics::ServeMetrics(
      config_.metrics, tls_, [this] { return Metrics(); },
      [this](const CertificateFacts& facts) { return MayReadMetrics(facts); });
  if (!listener.ok()) return listener.status();
  metrics_ = *std::move(listener);
  return absl::OkStatus();
}

// Whether an operator's certificate may: any role but those for tenants will do, as the figures are
// of all tenants. On the listener's thread.
bool Manager::MayReadMetrics(const CertificateFacts& facts) const {
  // What a standby says it tells every caller; whom the pool believes it does not know.
  if (serving_.load() == nullptr) return true;
  const std::string& identity = facts.uris[0];
  const auto rules = views_.GetAccessRules();
  if (!CheckRevoked(rules->revocations, identity, facts.serial).ok()) return false;
  if (admins_.Get()->contains(identity)) return true;
  const auto granted = RoleOf(rules->bindings, identity, Proof::kOperatorCertificate, clock_.Now());
  return granted.has_value() && !IsForTenants(granted->role);
}

// On the listener's thread.
std::string Manager::Metrics() {
  ManagerFacts facts{.now = clock_.Now(),
                     .queued = writer_.queued(),
                     .max_queue = writer_.max_queue(),
                     .store_bytes = StoreBytes(config_),
                     .fabric = &fabric_times_};
  if (tls_ != nullptr) {
    const auto material = tls_->current();
    facts.certificate = material->leaf.not_after;
    facts.authority = material->authority.not_after;
  }
  if (!etcd_certificates_.empty()) {
    facts.etcd_certificate = etcd_certificates_.front().facts.not_after;
    facts.etcd_authority = etcd_certificates_.back().facts.not_after;
  }
  facts.replica.replicated = config_.store == FmConfig::StoreKind::kEtcd;
  facts.replica.epoch = epoch_;
  facts.replica.resent = etcd_->resent.value();
  if (facts.replica.replicated) {
    facts.store_bytes = etcd_->used_bytes.load();
    facts.store_limit_bytes = config_.etcd.max_bytes;
    for (size_t i = 0; i < etcd_->members.size(); ++i) {
      const EtcdMeters::Member member = etcd_->members[i];
      if (member == EtcdMeters::Member::kNotAsked) continue;
      facts.replica.etcd_members[config_.etcd.endpoints[i]] =
          member == EtcdMeters::Member::kAnswers;
    }
  }
  RpcServer* const server = serving_.load();
  if (server == nullptr) {
    const StoreOwner owner = owner_.Get();
    facts.replica.leads = false;
    facts.replica.epoch = owner.epoch;
    facts.replica.revision = owner.revision;
    facts.replica.age = owner_.age();
    return StandbyMetrics(facts);
  }
  facts.watches = server->watches();
  facts.watch_lag = server->watch_lag();
  return ManagerMetrics(*views_.Get(), writer_.meters(), facts);
}

}  // namespace cxlpool::fm
