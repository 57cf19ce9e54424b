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
#include "fabric-manager/service/pool_service.h"
#include "proto/support/manual_executor.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

inline constexpr uint64_t kGranule = 256ull << 20;

// What outlives the manager: bound LDs, host regions, which bytes were scrubbed.
struct World {
  struct HostLd {
    BoundLd ld;
    v1::SegmentState state = v1::SEGMENT_ABSENT;
  };
  std::map<uint64_t, HostLd> bound;  // By serial.
  std::set<uint64_t> serials_ever;
  std::vector<Slice> scrubbed;
  // The fabric is a switch's: it chooses no serial and keeps no key, knows what is being unbound
  // for as long as one manager lives, and its devices put their LDs where they like.
  bool plain_hardware = false;
  bool hold_offline = false;   // Agents answer HOLDERS instead of going offline.
  bool refuse_online = false;  // Agents answer a permanent error instead of going online.
  int binds = 0;
  bool slow_binds = false;  // Binds take effect, and answer, when `slow` is run.
  std::vector<std::function<void()>> slow;
  bool lose_binds = false;  // Binds take effect, and answer `lost_bind`.
  absl::Status lost_bind = absl::DeadlineExceededError("the switch does not answer");
  int failing_scrubs = 0;                // So many fail.
  std::set<std::string> not_scrubbable;  // Devices that nobody can clear.
  bool refuse_fence = false;
  FenceScope fence = FenceScope::kHost;
  std::set<std::string> unreachable;         // Hosts that the fabric cannot be asked about.
  int failing_discovers = 0;                 // So many fail.
  std::map<std::string, std::string> lives;  // Of hosts' sides of the fabric; not here: "1".
  std::vector<TopologyTables> configured;    // Every one that the driver was given.
  bool follows_topology = false;             // Shows what it was given, instead of what is below.
  // What the configuration names, and what stands behind it.
  std::vector<std::string> hosts;
  std::vector<uint32_t> slots = {10, 11, 30, 31};
  std::vector<FabricDevice> devices = {{"cmm-0", "cmm-0", 8 * kGranule, kGranule, "first"},
                                       {"cmm-1", "cmm-1", 8 * kGranule, kGranule, "second"}};
  static World OfPlainHardware() {
    World world;
    world.plain_hardware = true;
    for (FabricDevice& device : world.devices) device.max_lds = 8;
    return world;
  }
  const FabricDevice* FindDevice(const std::string& id) const {
    const auto device = std::find_if(devices.begin(), devices.end(),
                                     [&](const FabricDevice& d) { return d.id == id; });
    return device == devices.end() ? nullptr : &*device;
  }
  // Where a bench times the manager: a clock, and what was spent here instead. Nothing here looks
  // at all that is bound then, for the caches' sake: of_host says which serials are.
  std::function<absl::Duration()> clock;
  absl::Duration spent_here;
  std::map<std::string, std::set<uint64_t>> of_host;
  // Calls visit(serial, HostLd) for what is bound to the host; empty: to any.
  template <typename Visit>
  void ForEachOf(const std::string& host, Visit visit) {
    if (!clock || host.empty()) {
      for (auto& [serial, on] : bound) {
        if (host.empty() || on.ld.host == host) visit(serial, on);
      }
      return;
    }
    for (const uint64_t serial : of_host[host]) {
      if (const auto on = bound.find(serial); on != bound.end()) visit(serial, on->second);
    }
  }
  std::string LifeOf(const std::string& host) const {
    const auto life = lives.find(host);
    return life == lives.end() ? "1" : life->second;
  }
};

// Counts its life as time that is not the manager's (World::spent_here).
class InTheWorld {
 public:
  explicit InTheWorld(World* world) : world_(world), began_(Now()) {}
  ~InTheWorld() { world_->spent_here += Now() - began_; }

 private:
  absl::Duration Now() const { return world_->clock ? world_->clock() : absl::ZeroDuration(); }

  World* const world_;
  const absl::Duration began_;
};

class FakeFabric : public FabricDriver {
 public:
  FakeFabric(World* world, std::vector<std::string> hosts) : world_(world) {
    if (world_->hosts.empty()) world_->hosts = std::move(hosts);
    for (auto& [serial, on] : world_->bound) {
      if (world_->plain_hardware) on.ld.unbinding = false;
    }
  }

  FabricCapabilities capabilities() const override {
    return {.driver = "fake",
            .extent_granule_bytes = kGranule,
            .max_lds_per_device = 0,
            .chooses_serial = !world_->plain_hardware,
            .keeps_keys = !world_->plain_hardware,
            .isolates = true,
            .enforces_read_only = !world_->plain_hardware,
            .shares_slices = !world_->plain_hardware,
            .hardware_coherent = true,
            .fence = world_->fence};
  }
  void Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) override {
    started_with = std::move(known);
    sink_ = std::move(sink);
  }
  void Configure(FabricParts parts, Done done) override {
    world_->configured.push_back(parts.tables);
    if (world_->follows_topology) {
      world_->hosts.clear();
      for (const HostEntry& host : parts.tables.hosts) world_->hosts.push_back(host.id);
      world_->devices.clear();
      for (const DeviceEntry& device : parts.tables.devices) {
        world_->devices.push_back({device.id, device.serial, device.capacity_bytes,
                                   device.granule_bytes, "storage of " + device.id});
      }
    }
    std::move(done)(absl::OkStatus());
  }
  void Discover(DoneWith<FabricView> done) override { std::move(done)(Look("")); }
  void DiscoverHost(std::string host, DoneWith<FabricView> done) override {
    std::move(done)(Look(host));
  }
  // `only`: one host; empty: all, and the devices.
  absl::StatusOr<FabricView> Look(const std::string& only) const {
    const InTheWorld here(world_);
    if (world_->failing_discovers > 0) {
      --world_->failing_discovers;
      return absl::UnavailableError("the switch does not answer");
    }
    FabricView view;
    if (only.empty()) view.devices = world_->devices;
    std::set<std::string> reachable;
    for (const std::string& host : world_->hosts) {
      if (!only.empty() && host != only) continue;
      const bool answers = !world_->unreachable.contains(host);
      view.hosts.push_back({host, answers, world_->LifeOf(host), world_->slots});
      if (answers) reachable.insert(host);
    }
    const std::set<uint32_t> slots(world_->slots.begin(), world_->slots.end());
    world_->ForEachOf(only, [&](uint64_t, const World::HostLd& on) {
      const bool seen = reachable.contains(on.ld.host) && slots.contains(on.ld.slot);
      if (seen) view.bound.push_back(AsSaid(on.ld));
    });
    return view;
  }
  void Bind(BindRequest request, DoneWith<BoundLd> done) override {
    if (dead) return;
    if (world_->slow_binds) {
      auto held = std::make_shared<std::pair<BindRequest, DoneWith<BoundLd>>>(std::move(request),
                                                                              std::move(done));
      world_->slow.push_back(
          [this, held] { BindNow(std::move(held->first), std::move(held->second)); });
      return;
    }
    BindNow(std::move(request), std::move(done));
  }
  void BindNow(BindRequest request, DoneWith<BoundLd> done) {
    absl::StatusOr<BoundLd> bound = Bound(std::move(request));
    std::move(done)(std::move(bound));
  }
  absl::StatusOr<BoundLd> Bound(BindRequest request) {
    const InTheWorld here(world_);
    if (request.incarnation != world_->LifeOf(request.key.host)) {
      return absl::UnavailableError("another life");
    }
    const Binding binding = request.binding();
    const BoundLd* there = nullptr;
    world_->ForEachOf(world_->clock ? request.key.host : "", [&](uint64_t, const auto& host) {
      if (Means(binding, host.ld)) there = &host.ld;
      // The promise that everything rests on: no byte is bound twice, but for sharing.
      if (host.ld.slice == request.slice && host.ld.key->tag != request.key.tag) std::abort();
    });
    if (there != nullptr) return AsSaid(*there);
    if (const FabricDevice* device = world_->FindDevice(request.slice.device);
        device != nullptr && device->max_lds != 0) {
      std::map<uint64_t, uint64_t> lds = {{request.slice.dpa_bytes, request.slice.length_bytes}};
      for (const auto& [serial, host] : world_->bound) {
        if (host.ld.slice.device == device->id) {
          lds[host.ld.slice.dpa_bytes] = host.ld.slice.length_bytes;
        }
      }
      uint64_t carved = 0;
      for (const auto& [place, bytes] : lds) {
        carved += bytes;
        if (place % device->capacity_bytes != 0) std::abort();  // No LD of such a device.
      }
      if (carved > device->capacity_bytes || lds.size() > device->max_lds) std::abort();
    }
    uint64_t serial = request.serial;
    if (world_->plain_hardware) {
      serial = HardwareSerial(request);
    } else if (!world_->serials_ever.insert(serial).second) {
      std::abort();
    }
    ++world_->binds;
    BoundLd ld{request.key.host, request.slot, request.slice, request.read_only,
               serial,           false,        request.key};
    world_->bound[serial] = {ld, v1::SEGMENT_ABSENT};
    world_->of_host[ld.host].insert(serial);
    if (world_->lose_binds) return world_->lost_bind;
    return AsSaid(ld);
  }
  void BeginUnbind(Binding binding, Done done) override {
    if (dead) return;
    for (auto& [serial, host] : world_->bound) {
      if (Means(binding, host.ld)) host.ld.unbinding = true;
    }
    std::move(done)(absl::OkStatus());
  }
  void AwaitUnbound(Binding binding, absl::Duration, Done done) override {
    if (dead) return;
    for (auto& [serial, host] : world_->bound) {
      if (Means(binding, host.ld)) {
        std::move(done)(absl::DeadlineExceededError("still bound"));
        return;
      }
    }
    std::move(done)(absl::OkStatus());
  }
  void Fence(std::string host, Done done) override {
    if (world_->refuse_fence) {
      std::move(done)(absl::FailedPreconditionError("the host's power cannot be cut"));
      return;
    }
    std::erase_if(world_->bound, [&](const auto& entry) { return entry.second.ld.host == host; });
    std::move(done)(absl::OkStatus());
  }
  void Scrub(Slice slice, ScrubProgress, DoneWith<ScrubResult> done) override {
    if (dead) return;
    for (const auto& [serial, host] : world_->bound) {
      if (host.ld.slice == slice) std::abort();  // Somebody can still reach the bytes.
    }
    if (world_->failing_scrubs > 0) {
      --world_->failing_scrubs;
      std::move(done)(absl::UnavailableError("the device is busy"));
      return;
    }
    if (world_->not_scrubbable.contains(slice.device)) {
      std::move(done)(Refuse(absl::StatusCode::kUnimplemented, "NOT_SCRUBBABLE",
                             "the device has no command that clears", "clear it by hand"));
      return;
    }
    world_->scrubbed.push_back(slice);
    std::move(done)(ScrubResult::kZero);
  }
  void Emit(FabricEvent event) { sink_(std::move(event)); }

  bool dead = false;  // The manager is: nobody calls any more.
  KnownFabric started_with;

 private:
  // What a LD was made with: the same for as long as its bytes are there.
  uint64_t HardwareSerial(const BindRequest& request) const {
    const auto index =
        static_cast<uint64_t>(world_->FindDevice(request.slice.device) - world_->devices.data());
    return 0x5e00'0000 + (index << 16) + (request.slice.dpa_bytes / kGranule << 8) +
           static_cast<unsigned char>(request.key.host.back());
  }
  BoundLd AsSaid(BoundLd ld) const {
    if (world_->plain_hardware) ld.key.reset();
    return ld;
  }
  bool Means(const Binding& binding, const BoundLd& ld) const {
    if (!world_->plain_hardware) return ld.key == binding.key;
    return ld.host == binding.key.host && ld.slot == binding.slot && ld.slice == binding.slice;
  }

  World* const world_;
  absl::AnyInvocable<void(FabricEvent)> sink_;
};

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
    }
    world_->ForEachOf(host_, [&](uint64_t serial, const World::HostLd& on) {
      if (on.state != v1::SEGMENT_ABSENT) *hello.add_segments() = Of(serial);
    });
    return hello;
  }

  // An Offer may be of what is bound later: tries again what is not online and should be.
  void TryAgain() {
    const InTheWorld here(world_);
    for (const auto& [generation, offer] : offers) {
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
  std::vector<v1::AgentMessage> Take() { return std::exchange(out_, {}); }

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
        fabric(world, {"host-a", "host-b"}),
        writer({.shares_slices = fabric.capabilities().shares_slices}, &executor, &executor,
               &store_, &views, &watch),
        sessions({}, &executor, &executor, &writer),
        reconciler({}, &executor, &executor, &writer, &fabric, &sessions, std::move(probe)),
        leases(&executor, &executor, &writer),
        pool(&executor, &writer, &reconciler, &sessions) {
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
                             const auto& events) { reconciler.OnEvents(host, events); },
         .on_session = [this](const auto& host,
                              bool online) { reconciler.OnSession(host, online); }});
    reconciler.Start([this](absl::Status status) {
      started = std::move(status);
      devices_at_start = views.Get()->devices->size();
    });
    leases.Start();
    Run(absl::Milliseconds(100));
    for (const std::string& host : world_->hosts) {
      pool.Enrol(Caller::Operator("test"), {.host = host}, [](const absl::Status&) {});
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
    spec.caller = Caller::Operator("cxlpool://operator/alice");
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
      agent->TryAgain();
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
  FakeFabric fabric;
  Writer writer;
  HostSessions sessions;
  Reconciler reconciler;
  LeaseKeeper leases;
  PoolService pool;
  std::map<std::string, std::shared_ptr<FakeAgent>> agents;
};

// Whether it is as it was last asked for.
inline bool Settled(const RegionPtr& region) {
  return region != nullptr && region->state == RegionState::kAllocated && !region->resizing() &&
         std::all_of(region->attachments.begin(), region->attachments.end(), [](const auto& a) {
           return a.state == AttachmentState::kOnline && !a.tail.has_value();
         });
}

inline Request TestRequest(const std::string& method, char id) {
  return Request{{"test", method, Uuid(std::string(16, id))}, 1};
}
inline AllocateSpec AllocateOn(const std::string& id, const std::string& host, char request) {
  AllocateSpec spec;
  spec.caller = Caller::Operator("cxlpool://operator/alice");
  spec.request = TestRequest("AllocateRegion", request);
  spec.region_id = id;
  spec.size_bytes = 2 * kGranule;
  spec.host = host;
  return spec;
}
inline ReleaseSpec ReleaseOf(const std::string& id, char request) {
  ReleaseSpec spec;
  spec.caller = Caller::Operator("cxlpool://operator/alice");
  spec.request = TestRequest("ReleaseRegion", request);
  spec.region_id = id;
  spec.detach_all = true;
  return spec;
}
// Whether a Region is allocated, and online wherever it is attached.
inline bool Online(const RegionPtr& region) {
  return region != nullptr && region->state == RegionState::kAllocated &&
         std::all_of(region->attachments.begin(), region->attachments.end(),
                     [](const auto& a) { return a.state == AttachmentState::kOnline; });
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_SERVICE_RIG_H_
