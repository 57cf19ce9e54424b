#include "test/crash/loaded_pool.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/fsck/fsck.h"
#include "proto/support/names.h"

namespace cxlpool::crash {
namespace {

constexpr int kLanes = 4;
constexpr int kMaxLeaderLosses = 3;  // One after the other, with nothing that ends them.
constexpr absl::Duration kReadopted = absl::Seconds(10);
constexpr absl::Duration kStopLimit = absl::Seconds(10);
constexpr absl::Duration kDrainLimit = absl::Seconds(30);
constexpr absl::Duration kLoadPoll = absl::Milliseconds(3);
// An agent that lost its manager dials again in so long, or is started afresh.
constexpr absl::Duration kDialLimit = absl::Milliseconds(60);
// Or finds the one that leads now.
constexpr absl::Duration kFindLimit = absl::Seconds(3);

// Large devices that the load does not fill, and a small one that it does.
PoolLayout LoadedLayout(int managers) {
  return {.devices = {{"cmm-0", 4 * kGiB},
                      {"cmm-1", 4 * kGiB},
                      {"cmm-2", 4 * kGiB},
                      {kSmallDevice, 16 * kGranule}},
          .hosts = {"host-a", "host-b"},
          .managers = managers};
}

absl::Status Died() { return absl::CancelledError("the manager died"); }

absl::Duration Below(std::mt19937_64& random, absl::Duration longest) {
  return absl::Microseconds(random() % static_cast<uint64_t>(absl::ToInt64Microseconds(longest)));
}

// A manager that has died answers nothing; anything else is what it is.
absl::Status OrDied(const absl::Status& status) { return Unanswered(status) ? Died() : status; }

}  // namespace

// The moment is drawn now, and not when the load runs: with one seed it is the same one.
LoadedPool::Kill AtAMoment(std::mt19937_64& random, absl::Duration longest) {
  return [moment = Below(random, longest)](Process& manager) {
    absl::SleepFor(moment);
    manager.Kill();
    return absl::OkStatus();
  };
}

absl::StatusOr<std::unique_ptr<LoadedPool>> LoadedPool::Make(Hits* hits, int managers) {
  auto loaded = std::unique_ptr<LoadedPool>(new LoadedPool(hits));
  auto pool = Pool::Make(LoadedLayout(managers));
  if (!pool.ok()) return pool.status();
  loaded->pool_ = *std::move(pool);
  for (int i = 0; i < kLanes; ++i) loaded->lanes_.push_back(std::make_unique<Lane>(i));
  if (absl::Status status = loaded->SetUp(); !status.ok()) return loaded->pool_->WithLogs(status);
  return loaded;
}

// A first life that enrols hosts and makes tenants. It ends by a kill as every other one.
absl::Status LoadedPool::SetUp() {
  if (absl::Status status = pool_->StartManager(); !status.ok()) return status;
  if (absl::Status status = pool_->AwaitServing(); !status.ok()) return status;
  Client client(pool_->socket());
  for (const std::string& host : pool_->layout().hosts) {
    v1::EnrolHostRequest request;
    request.set_request_id(FormatUuid(RandomUuid()));
    request.set_host("hosts/" + host);
    const auto enrolled = client.Call(&InventoryStub::EnrolHost, request);
    if (!enrolled.ok()) return enrolled.status();
  }
  for (int i = 0; i <= kLanes; ++i) {
    v1::SetTenantRequest request;
    request.set_request_id(FormatUuid(RandomUuid()));
    request.mutable_tenant()->set_name(i < kLanes ? absl::StrCat("tenants/lane-", i)
                                                  : std::string(kTightTenant));
    if (i == kLanes) request.mutable_tenant()->set_quota_bytes(kTightQuota);
    const auto set = client.Call(&InventoryStub::SetTenant, request);
    if (!set.ok()) return set.status();
  }
  pool_->manager().Kill();
  return absl::OkStatus();
}

uint64_t LoadedPool::answered() const {
  uint64_t sum = 0;
  for (const auto& lane : lanes_) sum += lane->answered();
  return sum;
}

uint64_t LoadedPool::retried() const {
  uint64_t sum = 0;
  for (const auto& lane : lanes_) sum += lane->retried();
  return sum;
}

absl::Status LoadedPool::KillInStart(std::mt19937_64& random, absl::Duration longest) {
  ++lives_;
  if (absl::Status status = pool_->StartManager(); !status.ok()) return status;
  absl::SleepFor(Below(random, longest));
  const bool serving = pool_->Serving();
  pool_->manager().Kill();
  hits_->Add(serving ? "idle" : "start");
  return absl::OkStatus();
}

// What was acknowledged in former lives is there, with its bytes and its rows in the audit trail,
// or the error says what is not. Where the manager was told to crash, that it does not answer is
// its death, and no broken promise.
absl::Status LoadedPool::Begin(const std::string& crash_at) {
  ++lives_;
  if (absl::Status status = pool_->StartManager(crash_at); !status.ok()) return status;
  if (absl::Status status = pool_->AwaitServing(); !status.ok()) {
    if (crash_at.empty() || pool_->manager().started()) return pool_->WithLogs(status);
    hits_->Add("start");
    return Died();
  }
  if (pool_->BackupUnderWay()) {
    return absl::InternalError("a manager that serves has left a backup of the one before");
  }
  client_ = std::make_unique<Client>(pool_->socket());
  const auto seen = Look(*client_);
  if (!seen.ok()) return crash_at.empty() ? seen.status() : OrDied(seen.status());
  absl::Status status = Audit(*pool_, *seen, lanes_);
  if (status.ok()) status = AuditBytes(*pool_, *seen, lanes_);
  if (status.ok()) status = trail_.Check(*client_, *seen);
  if (!crash_at.empty() && Unanswered(status)) return Died();
  return pool_->WithLogs(status);
}

// Of several managers the one that leads ends where the machine is too busy for its signs of life:
// what it did not answer is asked of the next one.
absl::Status LoadedPool::RetryWithNextLeader(const std::function<absl::Status()>& part) {
  absl::Status status = part();
  for (int i = 0; i < kMaxLeaderLosses && pool_->layout().managers > 1 && Unanswered(status); ++i) {
    hits_->Add("leader lost before a load");
    if (status = pool_->AwaitServing(); !status.ok()) return pool_->WithLogs(status);
    client_ = std::make_unique<Client>(pool_->socket());
    status = part();
  }
  return status;
}

// A life that ends before its load, as `crash_at` wanted, is a good one, too.
absl::Status LoadedPool::Live(std::mt19937_64& random, const Life& life) {
  absl::Status status = RetryWithNextLeader([&] { return Begin(life.crash_at); });
  if (status.ok() && life.hosted) {
    status = OrDied(RetryWithNextLeader([&] { return BringAgents(/*restart=*/false); }));
  }
  if (status.ok()) status = Load(random, life.hosted, life.kill);
  if (absl::IsCancelled(status) && !life.crash_at.empty()) {
    pool_->manager().Kill();
    return absl::OkStatus();
  }
  return status;
}

// All lanes call at once until `kill` returns; then each ends with the call that it is in. An error
// of `kill` goes before those of the lanes, which may follow from it.
absl::Status LoadedPool::Load(std::mt19937_64& random, bool hosted, const Kill& kill) {
  std::atomic<bool> stop = false;
  std::vector<absl::Status> ends(lanes_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    LaneLife life{.seed = random(), .hosts = {}};
    if (hosted) life.hosts = {"hosts/host-a", "hosts/host-b"};
    threads.emplace_back(
        [this, i, life, &ends, &stop] { ends[i] = lanes_[i]->Run(*client_, life, stop); });
  }
  absl::Status status = kill(pool_->manager());
  stop = true;
  for (std::thread& thread : threads) thread.join();
  if (!pool_->manager().started()) CountHits();
  for (const absl::Status& end : ends) {
    if (status.ok()) status = end;
  }
  return pool_->WithLogs(status);
}

// Counts what kinds of calls the kill interrupted: those that were not answered any more.
void LoadedPool::CountHits() {
  for (const auto& lane : lanes_) {
    const auto& pending = lane->ledger().pending;
    if (!pending.has_value()) continue;
    hits_->Add(pending->allocates() ? "allocate" : pending->releases() ? "release" : "edit");
  }
}

absl::StatusOr<bool> HostsOnline(Client& client) {
  const auto hosts = client.Call(&InventoryStub::ListHosts, v1::ListHostsRequest());
  if (!hosts.ok()) return hosts.status();
  return std::all_of(hosts->hosts().begin(), hosts->hosts().end(),
                     [](const auto& host) { return host.state() == v1::Host::ONLINE; });
}

// OK also where they are not online within `limit`: `online` says it.
absl::Status LoadedPool::AwaitHosts(absl::Duration limit, bool* online) {
  const absl::Time end = absl::Now() + limit;
  while (true) {
    const auto all = HostsOnline(*client_);
    if (!all.ok()) return all.status();
    *online = *all;
    if (*online || absl::Now() > end) return absl::OkStatus();
    absl::SleepFor(kLoadPoll);
  }
}

// Agents that run find the manager by themselves; where they do not in time, or `restart` asks for
// it, new ones are started. An agent that was just started has to have a session within 10 s.
absl::Status LoadedPool::BringAgents(bool restart) {
  bool online = false;
  if (!restart) {
    const absl::Duration limit = pool_->layout().managers > 1 ? kFindLimit : kDialLimit;
    if (absl::Status status = AwaitHosts(limit, &online); !status.ok() || online) {
      return status;
    }
  }
  for (const std::string& host : pool_->layout().hosts) {
    if (pool_->agent(host).started()) hits_->Add("agent");
    pool_->agent(host).Kill();
    if (absl::Status status = pool_->StartAgent(host); !status.ok()) return status;
  }
  if (absl::Status status = AwaitHosts(kReadopted, &online); !status.ok()) return status;
  if (online) return absl::OkStatus();
  return pool_->WithLogs(absl::InternalError("a new agent has no session within 10 s"));
}

// Every Attachment that is wanted is ONLINE.
absl::Status LoadedPool::AwaitAttached(absl::Duration limit) {
  const absl::Time end = absl::Now() + limit;
  while (true) {
    const auto regions = client_->Regions();
    if (!regions.ok()) return regions.status();
    const v1::Region* waiting = nullptr;
    for (const v1::Region& region : regions->regions()) {
      for (const v1::Attachment& attachment : region.attachments()) {
        const bool settled = attachment.detaching() || attachment.state() == v1::Attachment::ONLINE;
        if (!settled) waiting = &region;
      }
    }
    if (waiting == nullptr) return absl::OkStatus();
    if (absl::Now() > end) {
      return pool_->WithLogs(absl::InternalError(absl::StrCat(
          "not online within ", absl::FormatDuration(limit), ": ", waiting->ShortDebugString())));
    }
    absl::SleepFor(kLoadPoll);
  }
}

absl::Status LoadedPool::AwaitQuiet() {
  if (absl::Status status = pool_->StartManager(); !status.ok()) return status;
  if (absl::Status status = pool_->AwaitServing(); !status.ok()) return status;
  client_ = std::make_unique<Client>(pool_->socket());
  if (absl::Status status = BringAgents(/*restart=*/false); !status.ok()) return status;
  return AwaitAttached(kReadopted);
}

// The agent is killed under the load and stays away until the load is over. The audit before its
// return is of what its absence may not change, the one after it of what it took up again.
absl::Status LoadedPool::LiveThroughAgentDeath(std::mt19937_64& random,
                                               const std::string& agent_crash_at) {
  if (absl::Status status = Begin(""); !status.ok()) return status;
  const std::string host = pool_->layout().hosts[random() % pool_->layout().hosts.size()];
  if (absl::Status status = BringAgents(/*restart=*/false); !status.ok()) return status;
  if (!agent_crash_at.empty()) {
    pool_->agent(host).Kill();
    if (absl::Status status = pool_->StartAgent(host, agent_crash_at); !status.ok()) return status;
    hits_->Add("agent");
  }
  const absl::Duration moment = Below(random, absl::Milliseconds(100));
  absl::Status status = Load(random, /*hosted=*/true, [&](Process&) {
    if (agent_crash_at.empty()) {
      absl::SleepFor(moment);
    } else if (pool_->agent(host).Wait(absl::Milliseconds(300)).ok()) {
      hits_->Add("agent point");
    }
    pool_->agent(host).Kill();
    hits_->Add("agent");
    absl::SleepFor(absl::Milliseconds(10));  // The load goes on without it.
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  const auto before = Look(*client_);
  if (!before.ok()) return before.status();
  if (status = Audit(*pool_, *before, lanes_); !status.ok()) return pool_->WithLogs(status);
  const absl::Time died = absl::Now();
  if (status = pool_->StartAgent(host); !status.ok()) return status;
  if (status = AwaitAttached(kReadopted - (absl::Now() - died)); !status.ok()) return status;
  hits_->Took("readopted", absl::Now() - died);
  const auto after = Look(*client_);
  if (!after.ok()) return after.status();
  status = Audit(*pool_, *after, lanes_);
  if (status.ok()) status = AuditBytes(*pool_, *after, lanes_);
  pool_->manager().Kill();
  return pool_->WithLogs(status);
}

// Calls that were not answered are sent again, then every Region that a lane has is released. In a
// batch each item has a result of its own; none may be a refusal.
absl::Status LoadedPool::Settle() {
  for (const auto& lane : lanes_) {
    if (absl::Status status = lane->Settle(*client_); !status.ok()) return status;
    v1::BatchReleaseRegionsRequest batch;
    for (const auto& [tag, known] : lane->ledger().regions) {
      if (!known.live()) continue;
      v1::ReleaseRegionRequest& request = *batch.add_requests();
      request.set_request_id(FormatUuid(RandomUuid()));
      request.set_name(known.region.name());
      request.set_detach_all(true);
    }
    if (batch.requests().empty()) continue;
    const auto answer = client_->Call(&PoolStub::BatchReleaseRegions, batch);
    if (!answer.ok()) return answer.status();
    for (const v1::BatchResult& result : answer->results()) {
      if (result.code() != 0) return absl::InternalError(result.ShortDebugString());
    }
  }
  return absl::OkStatus();
}

// What this finds left over was leaked in some life before: nothing is in use any more.
absl::Status LoadedPool::Finish() {
  if (absl::Status status = Begin(""); !status.ok()) return status;
  if (absl::Status status = BringAgents(/*restart=*/true); !status.ok()) return status;
  if (absl::Status status = Settle(); !status.ok()) return pool_->WithLogs(status);
  const absl::Time end = absl::Now() + kDrainLimit;
  while (true) {
    const auto capacity = client_->Call(&PoolStub::GetCapacity, v1::GetCapacityRequest());
    if (!capacity.ok()) return capacity.status();
    if (capacity->regions() == 0 && capacity->free_bytes() == capacity->total_bytes()) break;
    if (absl::Now() > end) {
      const auto left = client_->Regions();
      return pool_->WithLogs(absl::InternalError(absl::StrCat(
          "not all is free after everything was released: ", capacity->ShortDebugString(), "; ",
          left.ok() ? left->ShortDebugString().substr(0, 3000) : "")));
    }
    absl::SleepFor(kLoadPoll);
  }
  const auto files = pool_->ExtentFiles(), slots = pool_->BoundSlots();
  if (!files.empty() || !slots.empty()) {
    return pool_->WithLogs(absl::InternalError(
        absl::StrCat("left over: ", files.size(), " extent files, ", slots.size(),
                     " bound slots: ", files.empty() ? slots[0] : files[0])));
  }
  // Connections that nobody ends are waited for; how long, the stop trials look at.
  for (const std::string& host : pool_->layout().hosts) pool_->agent(host).Kill();
  client_.reset();
  pool_->manager().Signal(SIGTERM);
  const auto code = pool_->manager().Wait(kStopLimit);
  if (!code.ok() || *code != 0) {
    return pool_->WithLogs(absl::InternalError(
        code.ok() ? absl::StrCat("the manager stopped with ", *code) : "it does not stop"));
  }
  if (pool_->layout().managers > 1) return absl::OkStatus();  // There is no file.
  const auto report = fm::RunFsck(pool_->store_file(), /*repair=*/false, absl::Now());
  if (!report.ok()) return report.status();
  if (report->findings.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("fsck: ", report->findings[0].what));
}

// After an error the pool is in no known state: the next seed begins with a new one.
absl::Status LoadedPools::Run(const std::function<absl::Status(LoadedPool& pool)>& part) {
  if (pool_ == nullptr) {
    auto made = LoadedPool::Make(hits_, managers_);
    if (!made.ok()) return made.status();
    pool_ = *std::move(made);
  }
  absl::Status status = part(*pool_);
  if (status.ok() && pool_->lives() >= lives_) status = End();
  if (!status.ok()) pool_.reset();
  return status;
}

absl::Status LoadedPools::End() {
  if (pool_ == nullptr) return absl::OkStatus();
  absl::Status status = pool_->Finish();
  answered_ = answered();
  retried_ = retried();
  changes_ = changes();
  pool_.reset();
  return status;
}

}  // namespace cxlpool::crash
