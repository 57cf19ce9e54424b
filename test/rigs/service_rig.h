// A whole manager core with a world around it, in one thread under a clock that the test drives:
// a fabric that binds what it is told and an agent on each host that does what it is offered. The
// manager can be killed at any rung and started again on the same disk and the same world.
#ifndef CXLPOOL_TEST_RIGS_SERVICE_RIG_H_
#define CXLPOOL_TEST_RIGS_SERVICE_RIG_H_

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/service/lease_keeper.h"
#include "fabric-manager/service/media_keeper.h"
#include "fabric-manager/service/pool_service.h"
#include "proto/support/names.h"
#include "test/rigs/fake_fabric.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {

// The agent of one host: goes wherever the last Offer says, at once.
class FakeAgent : public SessionPeer {
 public:
  FakeAgent(std::string host, World* world) : host_(std::move(host)), world_(world) {}

  void Send(v1::ManagerMessage message) override {
    session_ = message.session();
    if (message.has_welcome()) welcome = message.welcome();
    for (const v1::Offer& offer : message.welcome().offers()) Follow(offer);
    if (message.has_offer()) Follow(message.offer());
    if (message.has_events_seen()) events_seen = message.events_seen().sequence();
  }
  void Close(const absl::Status& status) override { closed = status; }
  std::string address() const override { return "test:" + host_; }

  v1::Hello Hello() const {
    const InTheWorld here(world_);
    v1::Hello hello;
    hello.set_protocol_version(kHostProtocolVersion);
    hello.set_host("hosts/" + host_);
    hello.set_incarnation(absl::StrCat("boot-", world_->LifeOf(host_)));
    hello.set_agent_id(FormatUuid(std::string(16, host_.back())));
    v1::HostInventory& inventory = *hello.mutable_inventory();
    inventory.set_region_granule_bytes(kGranule);
    inventory.set_memory_block_bytes(kGranule / 2);
    for (size_t b = 0; b < world_->slots.size() / 2; ++b) {
      v1::BridgeInventory& bridge = *inventory.add_bridges();
      bridge.set_name(absl::StrCat("ACPI0016:", absl::Dec(b, absl::kZeroPad2)));
      bridge.add_slots(world_->slots[2 * b]);
      bridge.add_slots(world_->slots[2 * b + 1]);
      bridge.set_max_regions(4);
      bridge.set_window_bytes(8ull << 30);
      bridge.set_free_window_bytes(8ull << 30);
      bridge.set_any_order(world_->any_order);
    }
    world_->ForEachOf(host_, [&](uint64_t serial, const World::HostLd& on) {
      if (on.state != v1::SEGMENT_ABSENT) *hello.add_segments() = Of(serial);
    });
    return hello;
  }

  // An Offer may be of what is bound later: tries again what is not online and should be.
  void TryAgain() {
    const InTheWorld here(world_);
    for (const auto& entry : offers) {
      const v1::Offer& offer = entry.second;
      const auto late = [&](const v1::OfferedSegment& segment) {
        const auto want =
            segment.want() == v1::Offer::WANT_UNSPECIFIED ? offer.want() : segment.want();
        const auto ld = world_->bound.find(segment.targets(0).serial());
        return want == v1::Offer::WANT_ONLINE && ld != world_->bound.end() &&
               ld->second.state != v1::SEGMENT_ONLINE;
      };
      if (std::any_of(offer.segments().begin(), offer.segments().end(), late)) FollowNow(offer);
    }
  }

  // Messages for the manager since the last call.
  virtual std::vector<v1::AgentMessage> Take() { return std::exchange(out_, {}); }

  uint64_t session() const { return session_; }

  absl::Status closed;
  v1::Welcome welcome;
  std::map<uint64_t, v1::Offer> offers;
  uint64_t events_seen = 0;

 private:
  v1::SegmentReport Of(uint64_t serial) const {
    const World::HostLd& host = world_->bound.at(serial);
    v1::SegmentReport report;
    report.set_serial(serial);
    report.set_attachment_generation(host.ld.key->generation);
    report.set_state(host.state);
    report.mutable_segment()->set_serial(serial);
    if (host.state == v1::SEGMENT_ONLINE) report.mutable_segment()->set_dax_device("dax0.0");
    return report;
  }
  void Follow(const v1::Offer& offer) {
    const InTheWorld here(world_);
    FollowNow(offer);
  }
  void FollowNow(const v1::Offer& offer) {
    offers[offer.attachment_generation()] = offer;
    v1::AgentMessage message;
    message.set_session(session_);
    for (const v1::OfferedSegment& segment : offer.segments()) {
      const v1::Offer::Want want =
          segment.want() == v1::Offer::WANT_UNSPECIFIED ? offer.want() : segment.want();
      *message.mutable_report()->add_segments() = FollowSegment(segment, want);
    }
    out_.push_back(std::move(message));
  }

  // All its targets go together, and are told of by the first one's serial.
  v1::SegmentReport FollowSegment(const v1::OfferedSegment& segment, v1::Offer::Want want) {
    v1::SegmentReport report;
    report.set_serial(segment.targets(0).serial());
    report.set_state(v1::SEGMENT_ABSENT);
    for (int i = segment.targets_size() - 1; i >= 0; --i) {
      const auto it = world_->bound.find(segment.targets(i).serial());
      if (it == world_->bound.end()) continue;
      v1::SegmentState& state = it->second.state;
      if (want == v1::Offer::WANT_ONLINE && !world_->refuse_online) state = v1::SEGMENT_ONLINE;
      if (want != v1::Offer::WANT_ONLINE && !world_->hold_offline) state = v1::SEGMENT_PRESENT;
      if (want == v1::Offer::WANT_EJECTED && it->second.ld.unbinding) {
        world_->bound.erase(it);
        continue;
      }
      if (i == 0) report = Of(segment.targets(0).serial());
    }
    if (want == v1::Offer::WANT_ONLINE && world_->refuse_online) {
      report.mutable_error()->set_reason("REGION_COMMIT");
      report.mutable_error()->set_message("the kernel refused");
      report.mutable_error()->set_permanent(true);
    }
    if (want == v1::Offer::WANT_OFFLINE && world_->hold_offline) {
      report.mutable_error()->set_reason("HOLDERS");
      report.mutable_error()->set_message("pid 7 has it mapped");
    }
    return report;
  }

  const std::string host_;
  World* const world_;
  uint64_t session_ = 0;
  std::vector<v1::AgentMessage> out_;
};

// One life of the manager.
class ServiceRig {
 public:
  ServiceRig(std::shared_ptr<MemoryDisk> disk, World* world, Probe probe = nullptr)
      : world_(world),
        store_(std::move(disk), &executor, absl::Milliseconds(1)),
        fabric_(world->plain_hardware ? MakeShellFabric(world)
                                      : std::make_unique<FakeFabric>(world)),
        fabric(*fabric_),
        writer({.fabric = {.slots = true}}, &executor, &executor, &store_, &views, &watch),
        sessions({}, &executor, &executor, &writer),
        reconciler({}, &executor, &executor, &writer, &fabric, &sessions, std::move(probe)),
        leases(&executor, &executor, &writer),
        media({}, &executor, &executor, &writer, &sessions),
        pool(&executor, &writer, &reconciler, &sessions) {
    writer.SetFabric(fabric.capabilities());
    writer.Open({.on_committed =
                     [this](const auto& changes) {
                       reconciler.OnCommitted(changes);
                       leases.OnCommitted(changes);
                     },
                 .on_fatal = [this](absl::Status status) { fatal = std::move(status); }},
                [this](absl::Status status) { opened = std::move(status); });
    executor.RunReady();
    if (!opened.ok()) return;
    watch_floor = writer.revision();
    sessions.Start(
        {.on_segments = [this](const auto& host, const auto& reports,
                               bool complete) { reconciler.OnSegments(host, reports, complete); },
         .on_events = [this](const auto& host,
                             const auto& events) { media.OnEvents(host, events); },
         .on_session =
             [this](const auto& host, bool online) {
               reconciler.OnSession(host, online);
               media.OnSession(host);
             }});
    reconciler.Start([this](absl::Status status) {
      started = std::move(status);
      devices_at_start = views.Get()->devices->size();
    });
    leases.Start();
    Run(absl::Milliseconds(100));
    for (const std::string& host : world_->hosts) {
      pool.ChangePool(Caller::Admin("test"), {.method = "EnrolHost"},
                      PlanFor(&PlanEnrol, {.host = host}), [](const absl::Status&) {});
    }
    Run(absl::Milliseconds(100));
    for (const std::string& host : world_->hosts) Connect(host);
    Run(absl::Milliseconds(100));
  }

  std::shared_ptr<FakeAgent> Connect(const std::string& host) {
    auto agent = std::make_shared<FakeAgent>(host, world_);
    agents[host] = agent;
    sessions.OnHello(agent, {"", true}, agent->Hello());
    return agent;
  }

  // Lets time pass and carries the agents' messages.
  void Run(absl::Duration duration) {
    for (absl::Duration spent; spent < duration && !stopped; spent += absl::Milliseconds(10)) {
      executor.Advance(absl::Milliseconds(10));
      fabric.GoOn();
      for (auto& [host, agent] : agents) {
        for (const v1::AgentMessage& message : agent->Take())
          sessions.OnMessage(agent.get(), message);
      }
    }
  }

  // One call, answered.
  template <typename Spec>
  absl::StatusOr<Committed> Call(void (PoolService::*method)(Spec, DoneWith<Committed>),
                                 Spec spec) {
    absl::StatusOr<Committed> answer = absl::UnavailableError("no answer");
    (pool.*method)(std::move(spec),
                   [&](absl::StatusOr<Committed> got) { answer = std::move(got); });
    Run(absl::Milliseconds(50));
    return answer;
  }
  absl::StatusOr<Committed> Resize(const std::string& id, uint64_t size, char request) {
    absl::StatusOr<Committed> answer = absl::UnavailableError("no answer");
    ResizeSpec spec;
    spec.caller = Caller::Admin("cxlpool://operator/alice");
    spec.request = Request{{"test", "ResizeRegion", Uuid(std::string(16, request))}, 1};
    spec.region_id = id;
    spec.size_bytes = size;
    pool.Resize(std::move(spec), false,
                [&](absl::StatusOr<Committed> got) { answer = std::move(got); });
    Run(absl::Milliseconds(50));
    return answer;
  }
  absl::Status Do(const std::function<void(Done)>& call) {
    absl::Status answer = absl::UnavailableError("no answer");
    call([&](absl::Status got) { answer = std::move(got); });
    Run(absl::Milliseconds(50));
    return answer;
  }
  // Changes what the pool itself consists of, by one of the planner's functions.
  template <typename What>
  absl::Status Change(absl::StatusOr<fm::Change> (*plan)(const PoolState&, const Caller&,
                                                         const What&, PlanContext&),
                      std::type_identity_t<What> what, Caller caller = Caller::Admin("op")) {
    return Do([&](Done done) {
      pool.ChangePool(caller, {.method = "Test"}, PlanFor(plan, std::move(what)), std::move(done));
    });
  }
  absl::StatusOr<Committed> Allocate(AllocateSpec spec) {
    absl::StatusOr<Committed> answer = absl::UnavailableError("no answer");
    pool.Allocate(std::move(spec), false,
                  [&](absl::StatusOr<Committed> got) { answer = std::move(got); });
    Run(absl::Milliseconds(50));
    return answer;
  }

  MemoryStore& store() { return store_; }
  RegionPtr Find(const std::string& id) const { return views.Get()->regions.Find(id); }

  bool RunUntil(const std::function<bool()>& condition, absl::Duration limit = absl::Seconds(30)) {
    for (absl::Duration spent; spent < limit && !stopped; spent += absl::Milliseconds(100)) {
      if (condition()) return true;
      KeepAlive();
      for (auto& [host, agent] : agents) agent->TryAgain();
      Run(absl::Milliseconds(100));
    }
    return condition();
  }

  // For a probe: this life is over at this very point.
  void Kill() {
    stopped = fabric.dead = true;
    executor.Halt();
  }
  bool stopped = false;
  uint64_t watch_floor = 0;  // Revision when this life began.
  absl::Status opened = absl::UnknownError("not opened");
  absl::Status fatal;
  absl::Status started = absl::UnknownError("not started");  // What Reconciler::Start answered.
  size_t devices_at_start = 0;                               // That readers saw by then.

  // Heartbeats, and the sessions of agents that have none.
  void KeepAlive() {
    for (auto& [host, agent] : agents) {
      if (!sessions.Online(host)) {
        Connect(host);
        continue;
      }
      v1::AgentMessage alive;
      alive.set_session(agent->session());
      alive.mutable_heartbeat();
      sessions.OnMessage(agent.get(), alive);
    }
  }

 private:
  World* const world_;

 public:
  ManualExecutor executor;

 private:
  MemoryStore store_;

 public:
  ViewHolder views;
  WatchHub watch;

 private:
  std::unique_ptr<WorldFabric> fabric_;

 public:
  WorldFabric& fabric;
  Writer writer;
  HostSessions sessions;
  Reconciler reconciler;
  LeaseKeeper leases;
  MediaKeeper media;
  PoolService pool;
  std::map<std::string, std::shared_ptr<FakeAgent>> agents;
};

// Whether it is as it was last asked for.
inline bool Settled(const RegionPtr& region) {
  return region != nullptr && region->state == RegionState::kAllocated && !region->resizing() &&
         std::all_of(region->attachments.begin(), region->attachments.end(), [](const auto& a) {
           return a.settled().state == AttachmentState::kOnline && a.parts.size() == 1;
         });
}

inline Request TestRequest(const std::string& method, char id) {
  return Request{{"test", method, Uuid(std::string(16, id))}, 1};
}
inline AllocateSpec AllocateOn(const std::string& id, const std::string& host, char request) {
  AllocateSpec spec;
  spec.caller = Caller::Admin("cxlpool://operator/alice");
  spec.request = TestRequest("AllocateRegion", request);
  spec.region_id = id;
  spec.size_bytes = 2 * kGranule;
  spec.host = host;
  return spec;
}
inline ReleaseSpec ReleaseOf(const std::string& id, char request) {
  ReleaseSpec spec;
  spec.caller = Caller::Admin("cxlpool://operator/alice");
  spec.request = TestRequest("ReleaseRegion", request);
  spec.region_id = id;
  spec.detach_all = true;
  return spec;
}
// Whether a Region is allocated, and online wherever it is attached.
inline bool Online(const RegionPtr& region) {
  return region != nullptr && region->state == RegionState::kAllocated &&
         std::all_of(region->attachments.begin(), region->attachments.end(),
                     [](const auto& a) { return a.settled().state == AttachmentState::kOnline; });
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_SERVICE_RIG_H_
