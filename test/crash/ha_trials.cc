// cxlpool-ha-trials: two managers on three members of etcd lose the leader, members, the network or
// disks under load; then the pool is held against the acknowledged log (audit.h), and what clients
// of the same Regions were answered has to be linearizable (contenders.h). Each seed is one fault,
// of one pool that lives through many; a seed tried alone begins with an empty pool. No bind and no
// scrub takes effect under a lower epoch than one before it (fabric_effects.h).
//
// How soon the other manager has committed something, and agents have a session with it, is bounded
// as well. With --takeovers nothing else is tried and the bounds are exact. Without it the trials
// run beside other tests, and it may take three times as long.

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "proto/support/names.h"
#include "test/contract/fabric_effects.h"
#include "test/crash/client.h"
#include "test/crash/contenders.h"
#include "test/crash/hits.h"
#include "test/crash/loaded_pool.h"
#include "test/crash/times.h"
#include "test/rigs/private_network.h"
#include "test/rigs/slow_disk.h"
#include "test/trials/trial.h"

namespace cxlpool::crash {
namespace {

constexpr uint64_t kFaultsOfAPool = 50;
constexpr uint64_t kSeedsOfARestore = 30;                   // One of so many: it takes the longest.
constexpr int kSlowWrites = 10;                             // A second, of a member's disk.
constexpr absl::Duration kBefore = absl::Milliseconds(80);  // Of load, at most, until the fault.
// Within which somebody leads again, whatever fell.
constexpr absl::Duration kLeads = absl::Seconds(20);
constexpr absl::Duration kEnds = absl::Seconds(10);  // A manager that is told to.

// A takeover: until the other manager has answered an allocation, which is a commit of its epoch.
// Of the time that the leader may be silent (store.takeover), and in all.
constexpr double kTakeoverOfTerm = 1.3;
constexpr absl::Duration kTakeover = absl::Seconds(2);
constexpr absl::Duration kTakeoverWithMember = absl::Seconds(5);  // A member fell, too.
constexpr absl::Duration kSessions = absl::Seconds(2);            // Of all agents, from then on.
constexpr uint64_t kFewPauses = 4;                                // Of fewer, nothing can be said.
constexpr int kBesideOthers = 3;  // So many times as long, where other tests run meanwhile.

class HaTrials {
 public:
  // `slow_disks`: whether a disk can be made slow here. `takeovers`: only faults after which the
  // other manager leads, and exact bounds of how soon it does.
  HaTrials(bool slow_disks, bool takeovers) : takeovers_(takeovers), faults_(kFaults) {
    std::erase_if(faults_, [&](const Fault& f) {
      return (takeovers && !f.measured) || (!slow_disks && f.carry_out == &HaTrials::MemberSlow);
    });
  }

  absl::Status Run(uint64_t seed, bool trace) {
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u);
    return pools_.Run([&](LoadedPool& pool) { return RunOne(pool, seed, random, trace); });
  }

  // Fails also where takeovers took too long, or leaders were lost that had only paused.
  absl::Status End() {
    absl::Status status = pools_.End();
    // One may be lost to a machine that is slow just then.
    if (status.ok() && pauses_ >= kFewPauses && 2 * lost_in_pauses_ > pauses_) {
      return absl::InternalError(absl::StrCat(lost_in_pauses_, " of ", pauses_,
                                              " leaders were lost ",
                                              "that had paused for less than half a term"));
    }
    if (const std::string late = Late(); status.ok() && !late.empty()) {
      return absl::DeadlineExceededError(late);
    }
    return status;
  }

  std::string Summary() const {
    const FabricEffects effects = Effects();
    return absl::StrCat(WithCommas(pools_.answered()), " calls answered, ",
                        WithCommas(pools_.changes()), " changes, each in the audit trail; ",
                        WithCommas(contended_), " calls on the same names linearizable (of ",
                        given_up_, " names unknown); ", WithCommas(effects.binds), " binds and ",
                        WithCommas(effects.scrubs), " scrubs of ", WithCommas(effects.claims),
                        " managers, in the order of their epochs; ", hits_.Text(),
                        "; a takeover's first commit, alone: ", alone_.TextBy("T", kTerm),
                        "; with a member: ", both_.TextBy("T", kTerm),
                        "; agents in session after it: ", sessions_.Text());
  }

  std::string Missing() const {
    std::vector<std::string> wanted;
    if (!takeovers_) wanted.push_back(kRestored);
    for (const Fault& fault : faults_) wanted.push_back(fault.name);
    std::string missing = hits_.Missing(wanted);
    if (contended_ == 0) missing += "no calls on the same names; ";
    if (given_up_ * 2 > names_) missing += "too many names are neither right nor wrong; ";
    if (Effects().binds == 0 || Effects().scrubs == 0) missing += "no binds, or no scrubs; ";
    if (sessions_.count() == 0) missing += "no agents at a takeover; ";
    return missing;
  }

 private:
  // What a fault is carried out on.
  struct Scene {
    Pool& pool;
    Process& leader;
    int member;    // Any of them.
    double share;  // In [0, 1): of how long a fault may last, where that is left to chance.
    bool hosted;   // Agents are there.
    std::string region_id;  // Of a Region that the fault may make once; it goes by itself.
    absl::Time begun;
  };
  // Carries it out, waits until somebody leads again, and repairs what failed.
  struct Fault {
    const char* name;
    absl::Status (HaTrials::*carry_out)(const Scene& scene);
    bool measured;  // The other manager leads after it, and how soon is bounded.
  };
  static const std::vector<Fault> kFaults;
  static constexpr char kRestored[] = "etcd restored";
  inline static const absl::Duration kTerm = PoolLayout().takeover;

  // Each fault is met once in as many seeds as there are faults, in an order that changes.
  const Fault& FaultOf(uint64_t seed) const {
    std::vector<size_t> order(faults_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed / order.size()));
    return faults_[order[seed % order.size()]];
  }

  absl::Status RunOne(LoadedPool& pool, uint64_t seed, std::mt19937_64& random, bool trace) {
    const absl::Duration before = absl::Milliseconds(random() % absl::ToInt64Milliseconds(kBefore));
    const int member = static_cast<int>(random() % kMembers);
    const bool hosted = random() % 2 == 0;
    const double share = std::uniform_real_distribution<double>(0, 1)(random);
    const bool restored = !takeovers_ && seed % kSeedsOfARestore == 0;
    const Fault& fault = FaultOf(seed);
    fault_ = restored ? kRestored : fault.name;
    if (trace) std::cout << fault_ << (hosted ? ", with hosts" : "") << std::endl;
    const absl::Status status =
        pool.Live(random, {.crash_at = "", .hosted = hosted, .kill = [&](Process& leader) {
                             if (restored) return AllKilled(pool.pool());
                             return AmidContenders(pool, seed, [&](const std::string& region_id) {
                               absl::SleepFor(before);
                               return (this->*fault.carry_out)({.pool = pool.pool(),
                                                                .leader = leader,
                                                                .member = member,
                                                                .share = share,
                                                                .hosted = hosted,
                                                                .region_id = region_id,
                                                                .begun = absl::Now()});
                             });
                           }});
    if (!status.ok()) return status;
    if (restored) {
      if (absl::Status came = Restored(pool, member); !came.ok()) {
        return pool.pool().WithLogs(came);
      }
    }
    const FabricEffects& effects = effects_[pool.pool().directory()] =
        ReadFabricEffects(pool.pool().effects_file());
    if (!effects.wrong.empty()) {
      return pool.pool().WithLogs(
          absl::InternalError("a manager that lost had an effect: " + effects.wrong));
    }
    hits_.Add(fault_);
    return absl::OkStatus();
  }

  // Of all pools.
  FabricEffects Effects() const {
    FabricEffects all;
    for (const auto& [pool, effects] : effects_) {
      all.claims += effects.claims;
      all.binds += effects.binds;
      all.scrubs += effects.scrubs;
    }
    return all;
  }

  // With clients that go on from one manager to the next; they are judged, and leave nothing.
  absl::Status AmidContenders(LoadedPool& pool, uint64_t seed,
                              const std::function<absl::Status(const std::string&)>& fault) {
    Contenders contenders(pool.pool().sockets(), pool.lives(), seed);
    absl::Status status = fault(contenders.free_name());
    if (status.ok()) status = contenders.End();
    contended_ += contenders.answered();
    names_ += contenders.names();
    given_up_ += contenders.gave_up();
    return status;
  }

  absl::Status LeaderKilled(const Scene& scene) {
    scene.leader.Kill();
    return OtherLeads(scene, alone_);
  }

  absl::Status LeaderStopped(const Scene& scene) {
    scene.leader.Signal(SIGSTOP);
    absl::Status status = HasEndedItself(scene);
    return status.ok() ? OtherLeads(scene, alone_) : status;
  }

  // For less than the term that it ends itself after: it goes on, unless it was silent before, too.
  absl::Status LeaderPaused(const Scene& scene) {
    const absl::Duration pause = (0.2 + 0.6 * scene.share) * Term(scene);
    scene.leader.Signal(SIGSTOP);
    absl::SleepFor(pause);
    scene.leader.Signal(SIGCONT);
    return StaysAfter(scene, pause);
  }

  // The standby goes on first and has heard nothing meanwhile: for that alone it takes nothing over
  // from a leader that is there. One that was stopped for a whole term is not.
  absl::Status BothStopped(const Scene& scene) {
    Process& standby = scene.pool.manager(1 - scene.pool.lead());
    const absl::Duration pause = (0.2 + 1.6 * scene.share) * Term(scene);
    scene.leader.Signal(SIGSTOP);
    standby.Signal(SIGSTOP);
    absl::SleepFor(pause);
    absl::Status status;
    if (pause >= Term(scene)) status = HasEndedItself(scene);
    standby.Signal(SIGCONT);
    scene.leader.Signal(SIGCONT);
    return status.ok() ? StaysAfter(scene, pause) : status;
  }

  absl::Status LeaderToldToEnd(const Scene& scene) {
    scene.leader.Signal(SIGTERM);
    absl::Status status = Leads(scene);
    // It answers its last calls still, and is no standby for the next fault.
    if (!status.ok() || !scene.leader.started()) return status;
    return scene.leader.Wait(kEnds).status();
  }

  absl::Status MemberKilled(const Scene& scene) {
    scene.pool.etcd().Kill(scene.member);
    absl::SleepFor(2 * Term(scene));
    scene.pool.etcd().Start(scene.member);
    return Stays(scene);
  }

  absl::Status MemberStopped(const Scene& scene) {
    scene.pool.etcd().Signal(scene.member, SIGSTOP);
    absl::SleepFor(2 * Term(scene));
    scene.pool.etcd().Signal(scene.member, SIGCONT);
    return Stays(scene);
  }

  absl::Status Both(const Scene& scene) {
    scene.pool.etcd().Kill(scene.member);
    scene.leader.Kill();
    absl::Status status = OtherLeads(scene, both_);
    scene.pool.etcd().Start(scene.member);
    return status;
  }

  // The same with the member that leads the others: they have to choose another one first.
  absl::Status BothLeaders(const Scene& scene) {
    const auto member = EtcdLeader(scene, -1);
    if (!member.ok()) return member.status();
    Scene both = scene;
    both.member = *member;
    both.begun = absl::Now();
    return Both(both);
  }

  absl::Status QuorumLost(const Scene& scene) {
    const int other = (scene.member + 1) % kMembers;
    scene.pool.etcd().Kill(scene.member);
    scene.pool.etcd().Kill(other);
    absl::Status status = HasEndedItself(scene);
    scene.pool.etcd().Start(scene.member);
    scene.pool.etcd().Start(other);
    return status.ok() ? Leads(scene) : status;
  }

  // etcd's leader alone, cut off from everybody: the others find another one.
  absl::Status EtcdLeaderCutOff(const Scene& scene) {
    std::vector<int> everybody = Members();
    for (size_t i = 0; i < static_cast<size_t>(scene.pool.layout().managers); ++i) {
      everybody.push_back(scene.pool.NodeOfManager(i));
    }
    return EtcdLeaderCutOffFrom(scene, everybody);
  }

  // The same, but managers reach it still: it must not take a commit, however long it believes that
  // it leads.
  absl::Status EtcdLeaderCutOffFromMembers(const Scene& scene) {
    return EtcdLeaderCutOffFrom(scene, Members());
  }

  absl::Status EtcdLeaderCutOffFrom(const Scene& scene, std::vector<int> nodes) {
    const auto leader = EtcdLeader(scene, -1);
    if (!leader.ok()) return leader.status();
    std::erase(nodes, *leader);
    absl::Status status = scene.pool.network().CutFrom(*leader, nodes);
    if (!status.ok()) return status;
    absl::SleepFor(2 * Term(scene));
    if (const auto next = EtcdLeader(scene, *leader); !next.ok()) return next.status();
    if (status = Stays(scene); !status.ok()) return status;
    if (status = scene.pool.network().Heal(); !status.ok()) return status;
    return TakesPart(scene.pool, *leader);  // Or the next fault would be the second one.
  }

  // What it had sent is on its way still, and arrives once the network is whole again.
  absl::Status LeaderCutOff(const Scene& scene) {
    absl::Status status = scene.pool.network().CutFrom(NodeOfLeader(scene), Members());
    if (status.ok()) status = HasEndedItself(scene);
    if (status.ok()) status = OtherLeads(scene, alone_);
    return status.ok() ? scene.pool.network().Heal() : status;
  }

  // A member that it reaches can ask the others.
  absl::Status LeaderReachesOneMember(const Scene& scene) {
    std::vector<int> members = Members();
    std::erase(members, scene.member);
    absl::Status status = scene.pool.network().CutFrom(NodeOfLeader(scene), members);
    if (!status.ok()) return status;
    absl::SleepFor(2 * Term(scene));
    if (status = Stays(scene); !status.ok()) return status;
    return scene.pool.network().Heal();
  }

  // It hears no sign of life for long, and must take nothing over for that.
  absl::Status StandbyCutOff(const Scene& scene) {
    const size_t standby = 1 - scene.pool.lead();
    absl::Status status =
        scene.pool.network().CutFrom(scene.pool.NodeOfManager(standby), Members());
    if (!status.ok()) return status;
    absl::SleepFor(2 * Term(scene));
    if (status = scene.pool.network().Heal(); !status.ok()) return status;
    absl::SleepFor(Term(scene) / 2);  // Where it were to claim, it would do so now.
    if (scene.leader.Wait(absl::ZeroDuration()).ok()) {
      return absl::InternalError("a leader ended, since its standby was cut off");
    }
    return Leads(scene);
  }

  // Any but the last one, whose files are in memory (tmpfs).
  absl::Status MemberSlow(const Scene& scene) {
    fm::EtcdCluster& etcd = scene.pool.etcd();
    const int member = scene.member % (kMembers - 1);
    auto slow = SlowDisk::Make(etcd.pid(member), etcd.DirectoryOf(member), kSlowWrites);
    if (!slow.ok()) return slow.status();
    absl::SleepFor(2 * Term(scene));
    const uint64_t writes = (*slow)->writes();
    // A large one counts as several. Under this load a member writes some hundred times a second.
    const double most = 10 * kSlowWrites * absl::ToDoubleSeconds(absl::Now() - scene.begun);
    if (writes == 0 || static_cast<double>(writes) > most) {
      return absl::InternalError(
          absl::StrCat("a disk that was made slow wrote ", writes, " times"));
    }
    slow->reset();
    return Stays(scene);
  }

  // It ends by itself as soon as it finds no room, and comes back when there is some.
  absl::Status MemberFull(const Scene& scene) {
    fm::EtcdCluster& etcd = scene.pool.etcd();
    if (absl::Status status = etcd.SetDiskFull(true); !status.ok()) return status;
    absl::SleepFor(2 * Term(scene));
    absl::Status status = Stays(scene);
    hits_.Add(etcd.Answers(kMembers - 1) ? "full member works" : "full member has ended");
    if (absl::Status emptied = etcd.SetDiskFull(false); !emptied.ok()) return emptied;
    if (!status.ok()) return status;
    etcd.Kill(kMembers - 1);
    etcd.Start(kMembers - 1);
    return TakesPart(scene.pool, kMembers - 1);
  }

  absl::Status AllKilled(Pool& pool) {
    for (size_t i = 0; i < static_cast<size_t>(pool.layout().managers); ++i) pool.manager(i).Kill();
    return absl::OkStatus();
  }

  // The whole of etcd goes back to a snapshot since which nobody was answered, while agents know a
  // later epoch than it has. All that was answered is there, and no epoch comes again.
  absl::Status Restored(LoadedPool& loaded, int member) {
    Pool& pool = loaded.pool();
    const std::string file = pool.directory() + "/etcd.snapshot";
    if (absl::Status status = loaded.AwaitQuiet(); !status.ok()) return status;
    if (absl::Status status = AllKilled(pool); !status.ok()) return status;
    // Its answer to this has all that was committed; its snapshot has then, too.
    const auto saved = Stored(pool, member);
    if (!saved.ok()) return saved.status();
    absl::Status status = pool.etcd().SaveSnapshot(member, file);
    if (status.ok()) status = loaded.AwaitQuiet();
    if (!status.ok()) return status;
    const auto known = Stored(pool, member);
    if (!known.ok()) return known.status();
    if (status = AllKilled(pool); !status.ok()) return status;
    for (int i = 0; i < kMembers; ++i) pool.etcd().Kill(i);
    if (status = pool.etcd().Restore(file); !status.ok()) return status;
    for (int i = 0; i < kMembers; ++i) pool.etcd().Start(i);
    for (int i = 0; i < kMembers && status.ok(); ++i) status = TakesPart(pool, i);
    if (status.ok()) status = pool.StartManager();
    if (status.ok()) status = pool.AwaitServing(kLeads);
    if (!status.ok()) return status;
    for (int i = 0; i < kMembers; ++i) {
      const auto now = Stored(pool, i);
      if (!now.ok()) return now.status();
      if (saved->epoch < known->epoch && known->epoch < now->epoch &&
          saved->revision <= now->revision) {
        continue;
      }
      return absl::InternalError(
          absl::StrCat("epoch and revision of member ", i, ": saved ", saved->epoch, " ",
                       saved->revision, ", before the restore ", known->epoch, " ", known->revision,
                       ", after it ", now->epoch, " ", now->revision));
    }
    return absl::OkStatus();
  }

  // What the managers have in etcd, as one member says it.
  static absl::StatusOr<fm::StoreImage> Stored(Pool& pool, int member) {
    fm::EtcdStoreOptions options;
    options.etcd = pool.etcd().options();
    options.etcd.endpoints = {pool.etcd().endpoints()[static_cast<size_t>(member)]};
    return fm::ReadEtcdStore(options);
  }

  static absl::Status TakesPart(Pool& pool, int member) {
    const absl::Time end = absl::Now() + kLeads;
    while (!pool.etcd().Answers(member)) {
      if (absl::Now() > end) {
        return absl::InternalError(absl::StrCat("member ", member, " does not come back"));
      }
      absl::SleepFor(absl::Milliseconds(50));
    }
    return absl::OkStatus();
  }

  // The member that leads the others, and is not `former`.
  static absl::StatusOr<int> EtcdLeader(const Scene& scene, int former) {
    const absl::Time end = absl::Now() + kLeads;
    while (absl::Now() < end) {
      const int leader = scene.pool.etcd().Leader();
      if (leader >= 0 && leader != former) return leader;
      absl::SleepFor(absl::Milliseconds(50));
    }
    return absl::InternalError("no member of etcd leads that is not cut off");
  }

  static absl::Duration Term(const Scene& scene) { return scene.pool.layout().takeover; }
  static std::vector<int> Members() { return {0, 1, 2}; }

  static int NodeOfLeader(const Scene& scene) {
    return scene.pool.NodeOfManager(scene.pool.lead());
  }

  static absl::Status Leads(const Scene& scene) { return scene.pool.AwaitServing(kLeads); }

  // Waits until the manager that leads now has committed something, and notes in `times` how long
  // that was after the fault. Then until the agents, if there are any, have a session with it.
  absl::Status OtherLeads(const Scene& scene, Times& times) {
    if (absl::Status status = Leads(scene); !status.ok()) return status;
    Client client(scene.pool.socket());
    v1::AllocateRegionRequest request;
    request.set_request_id(FormatUuid(RandomUuid()));
    request.set_region_id(scene.region_id);
    request.set_size_bytes(kGranule);
    const absl::Time end = absl::Now() + kLeads;
    // It may answer reads before it has seen a device that has room.
    while (true) {
      const auto allocated = client.Call(&PoolStub::AllocateRegion, request);
      if (allocated.ok()) break;
      if (absl::Now() > end) return allocated.status();
      absl::SleepFor(absl::Milliseconds(2));
    }
    const absl::Time committed = absl::Now();
    times.Add(committed - scene.begun);
    while (scene.hosted) {
      const auto online = HostsOnline(client);
      // Beside other tests the new leader may be too slow, too.
      if (!takeovers_ && Unanswered(online.status())) {
        hits_.Add("leader lost after a takeover");
        return Leads(scene);
      }
      if (!online.ok()) return online.status();
      if (*online) break;
      if (absl::Now() > end) return absl::InternalError("agents have no session after a takeover");
      absl::SleepFor(absl::Milliseconds(5));
    }
    if (scene.hosted) sessions_.Add(absl::Now() - committed);
    return absl::OkStatus();
  }

  // Which times were too long; empty: none.
  std::string Late() const {
    const int factor = takeovers_ ? 1 : kBesideOthers;
    const absl::Duration single = factor * std::min(kTakeoverOfTerm * kTerm, kTakeover);
    return absl::StrCat(alone_.Late("takeovers", single),
                        both_.Late("takeovers with a member", factor * kTakeoverWithMember),
                        sessions_.Late("times until agents were in session", factor * kSessions));
  }

  // Losing one member should not cost the leader; the summary says how often it did. Whether it was
  // lost shows once somebody leads.
  absl::Status Stays(const Scene& scene, bool* lost = nullptr) {
    const size_t leader = scene.pool.lead();
    absl::Status status = Leads(scene);
    const bool other = scene.pool.lead() != leader;
    const bool gone =
        other || scene.leader.Wait(absl::ZeroDuration()).ok() || !scene.leader.started();
    hits_.Add(absl::StrCat(gone ? "leader lost by " : "leader kept through ", fault_));
    if (lost != nullptr) *lost = gone;
    return status;
  }

  // A leader that was silent for less than half a term leads on: End judges all of them.
  absl::Status StaysAfter(const Scene& scene, absl::Duration silent) {
    bool lost = false;
    absl::Status status = Stays(scene, &lost);
    if (silent < Term(scene) / 2) {
      ++pauses_;
      lost_in_pauses_ += lost ? 1 : 0;
    }
    return status;
  }

  // The kernel ends a leader that gives no sign of life, before another may lead.
  absl::Status HasEndedItself(const Scene& scene) {
    const auto ended = scene.leader.Wait(Term(scene));
    if (ended.ok() && *ended == 128 + SIGKILL) return absl::OkStatus();
    return absl::InternalError(
        ended.ok() ? absl::StrCat("a leader without a sign of life ended with ", *ended)
                   : "a leader without a sign of life goes on");
  }

  const bool takeovers_;
  std::vector<Fault> faults_;  // That are carried out.
  Hits hits_;
  Times alone_, both_;                            // From the fault to the first commit.
  Times sessions_;                                // From there to the last agent's session.
  std::map<std::string, FabricEffects> effects_;  // Of each pool, by its directory.
  uint64_t contended_ = 0, names_ = 0, given_up_ = 0;
  uint64_t pauses_ = 0, lost_in_pauses_ = 0;  // Of less than half a term.
  std::string fault_;                         // Of this seed.
  LoadedPools pools_{&hits_, kFaultsOfAPool, /*managers=*/2};
};

const std::vector<HaTrials::Fault> HaTrials::kFaults = {
    {.name = "leader killed", .carry_out = &HaTrials::LeaderKilled, .measured = true},
    {.name = "leader stopped", .carry_out = &HaTrials::LeaderStopped, .measured = true},
    {.name = "leader paused", .carry_out = &HaTrials::LeaderPaused, .measured = false},
    {.name = "both stopped", .carry_out = &HaTrials::BothStopped, .measured = false},
    {.name = "leader told to end", .carry_out = &HaTrials::LeaderToldToEnd, .measured = false},
    {.name = "leader cut off", .carry_out = &HaTrials::LeaderCutOff, .measured = true},
    {.name = "leader with one member",
     .carry_out = &HaTrials::LeaderReachesOneMember,
     .measured = false},
    {.name = "standby cut off", .carry_out = &HaTrials::StandbyCutOff, .measured = false},
    {.name = "member killed", .carry_out = &HaTrials::MemberKilled, .measured = false},
    {.name = "member stopped", .carry_out = &HaTrials::MemberStopped, .measured = false},
    {.name = "member slow", .carry_out = &HaTrials::MemberSlow, .measured = false},
    {.name = "member full", .carry_out = &HaTrials::MemberFull, .measured = false},
    {.name = "etcd's leader cut off", .carry_out = &HaTrials::EtcdLeaderCutOff, .measured = false},
    {.name = "etcd's leader cut off from members",
     .carry_out = &HaTrials::EtcdLeaderCutOffFromMembers,
     .measured = false},
    {.name = "both", .carry_out = &HaTrials::Both, .measured = true},
    {.name = "both leaders", .carry_out = &HaTrials::BothLeaders, .measured = true},
    {.name = "quorum lost", .carry_out = &HaTrials::QuorumLost, .measured = false},
};

// Why nothing can be tried here; empty: it can.
std::string Prevented() {
  if (fm::EtcdCluster::Program().empty()) {
    return "no etcd here: qemu-cxl/fetch --with etcd brings it";
  }
  return std::string(PrivateNetwork::Enter().message());
}

}  // namespace
}  // namespace cxlpool::crash

int main(int argc, char** argv) {
  const bool takeovers = argc > 1 && strcmp(argv[1], "--takeovers") == 0;
  if (takeovers) {
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  const bool in_ci = getenv("CI") != nullptr;  // What cannot be tried is a failure there.
  if (const std::string why = cxlpool::crash::Prevented(); !why.empty()) {
    std::cerr << why << "\n";
    return in_ci ? 1 : 77;
  }
  absl::Status slow;
  if (!takeovers) {
    slow = cxlpool::SlowDisk::Make(getpid(), std::filesystem::temp_directory_path(),
                                   cxlpool::crash::kSlowWrites)
               .status();
  }
  if (!slow.ok()) {
    std::cerr << "no member has a slow disk: " << slow.message() << "\n";
    if (in_ci) return 1;
  }
  cxlpool::crash::HaTrials trials(slow.ok(), takeovers);
  return cxlpool::RunTrials(
      argc, argv,
      {.name = takeovers ? "cxlpool-ha-trials --takeovers" : "cxlpool-ha-trials",
       .what = "managers, members of etcd, network and disks fail under load; nothing acknowledged "
               "is lost",
       .more = "First of all:\n"
               "  --takeovers   only takeovers, by exact bounds: nothing else may run meanwhile",
       .ci_seeds = 60,
       .run = [&](uint64_t seed, bool trace) { return trials.Run(seed, trace); },
       .end = [&] { return trials.End(); },
       .summary = [&] { return trials.Summary(); },
       .missing = [&](uint64_t) { return trials.Missing(); }});
}
