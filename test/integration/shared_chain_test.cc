// The manager's core on shared devices: sessions, device tasks, driver, ladder and scrub together,
// with agents that keep to the protocol in memory.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/fabric_shared/shared_backend.h"
#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/service/agent_tasks.h"
#include "fabric-manager/service/pool_service.h"
#include "proto/support/cxl_host.h"
#include "proto/support/loop.h"
#include "proto/support/names.h"
#include "test/rigs/fake_shared_agents.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kGranule = 256 << 20;
constexpr uint64_t kGranules = 64;
constexpr std::chrono::seconds kPatience{30};

// A host's agent in one session. The hosts themselves, with their grants and bytes, outlive it.
class Agent : public SessionPeer, public std::enable_shared_from_this<Agent> {
 public:
  Agent(std::string host, std::string life, FakeSharedAgents* hosts, Loop* loop,
        HostSessions* sessions)
      : host_(std::move(host)),
        life_(std::move(life)),
        hosts_(hosts),
        loop_(loop),
        sessions_(sessions) {}

  void Send(v1::ManagerMessage message) override {
    v1::AgentMessage answer;
    answer.set_session(message.session());
    if (message.has_welcome()) answer.mutable_report();
    for (const v1::Offer& offer : message.welcome().offers()) Take(offer, answer);
    if (message.has_offer()) Take(message.offer(), answer);
    if (message.has_withdraw()) offers_.erase(message.withdraw().attachment_generation());
    if (message.has_device_task()) Do(message.device_task(), *answer.mutable_device_answer());
    Say(answer);
    // What was granted may be what an Offer is waiting for.
    if (!message.device_task().has_grant()) return;
    v1::AgentMessage more;
    more.set_session(message.session());
    more.mutable_report();
    for (const auto& [generation, offer] : offers_) Follow(offer, more);
    Say(more);
  }
  void Close(const absl::Status&) override {}
  std::string address() const override { return "test:" + host_; }

  v1::Hello Hello() const {
    v1::Hello hello;
    hello.set_protocol_version(kHostProtocolVersion);
    hello.set_host("hosts/" + host_);
    hello.set_incarnation(life_);
    hello.set_agent_id(FormatUuid(RandomUuid()));
    v1::BridgeInventory& bridge = *hello.mutable_inventory()->add_bridges();
    bridge.set_name("shared");
    bridge.set_any_order(true);
    bridge.set_max_regions(kSharedSlots);
    for (uint32_t slot = 1; slot <= kSharedSlots; ++slot) bridge.add_slots(slot);
    return hello;
  }

 private:
  void Say(const v1::AgentMessage& message) {
    loop_->Post(
        [self = shared_from_this(), message] { self->sessions_->OnMessage(self.get(), message); });
  }

  void Take(const v1::Offer& offer, v1::AgentMessage& answer) {
    offers_[offer.attachment_generation()] = offer;
    Follow(offer, answer);
  }

  void Do(const v1::DeviceTask& task, v1::DeviceAnswer& answer) const {
    answer.set_id(task.id());
    const auto done = hosts_->Ask(host_, life_, /*session=*/0, task, absl::ZeroDuration());
    if (done.ok()) {
      *answer.mutable_look() = *done;
      return;
    }
    answer.set_code(static_cast<int>(done.status().code()));
    answer.set_message(std::string(done.status().message()));
    if (const auto refusal = RefusalOf(done.status()); refusal.has_value()) {
      answer.mutable_error()->set_reason(refusal->reason);
      answer.mutable_error()->set_remedy(refusal->remedy);
    }
  }

  void Follow(const v1::Offer& offer, v1::AgentMessage& answer) const {
    for (const v1::OfferedSegment& segment : offer.segments()) {
      const v1::Offer::Want want =
          segment.want() == v1::Offer::WANT_UNSPECIFIED ? offer.want() : segment.want();
      const uint64_t serial = segment.targets(0).serial();
      v1::SegmentReport& report = *answer.mutable_report()->add_segments();
      report.set_region_tag(offer.region_tag());
      report.set_attachment_generation(offer.attachment_generation());
      report.set_serial(serial);
      report.mutable_segment()->set_serial(serial);
      if (want == v1::Offer::WANT_EJECTED) hosts_->PowerOff(host_, serial);
      const bool granted = hosts_->Of(host_, [&](FakeSharedAgents::Host& own) {
        return std::any_of(own.grants.begin(), own.grants.end(),
                           [&](const v1::DeviceGrant& grant) { return grant.serial() == serial; });
      });
      if (granted && want == v1::Offer::WANT_ONLINE) hosts_->PowerOn(host_, serial);
      report.set_state(!granted                         ? v1::SEGMENT_ABSENT
                       : want == v1::Offer::WANT_ONLINE ? v1::SEGMENT_ONLINE
                                                        : v1::SEGMENT_PRESENT);
    }
  }

  const std::string host_;
  const std::string life_;
  FakeSharedAgents* const hosts_;
  Loop* const loop_;
  HostSessions* const sessions_;
  std::map<uint64_t, v1::Offer> offers_;  // By generation.
};

class SharedChainTest : public testing::Test {
 protected:
  SharedChainTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    storage_ = std::make_shared<FakeStorage>();
    storage_->size_bytes = (kGranules + 1) * kGranule;
    for (const char* host : {"host-a", "host-b"}) {
      hosts_.Change(host, [&](auto& own) { own.devices[absl::StrCat("of-", host)] = storage_; });
    }
    SharedFabricConfig config;
    config.state_directory = directory_ + "/state";
    config.tables.devices = {{.id = "cmm-0",
                              .serial = "s-0",
                              .capacity_bytes = kGranules * kGranule,
                              .granule_bytes = kGranule,
                              .path = "host-a/of-host-a"}};
    config.tables.hosts = {{.id = "host-a"}, {.id = "host-b"}};
    auto driver = SharedBackend::Open(std::move(config), &tasks_);
    EXPECT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    writer_.emplace(Writer::Options{}, &loop_, &clock_, &store_, &views_, &watch_);
    writer_->SetFabric(driver_->capabilities());
    sessions_.emplace(HostSessions::Options{}, &loop_, &clock_, &*writer_);
    reconciler_.emplace(Reconciler::Options{.tick = absl::Milliseconds(20),
                                            .discover_period = absl::Milliseconds(200),
                                            .unbind_wait = absl::Milliseconds(200),
                                            .retry = absl::Milliseconds(20)},
                        &loop_, &clock_, &*writer_, driver_.get(), &*sessions_, nullptr);
    pool_.emplace(&loop_, &*writer_, &*reconciler_, &*sessions_);
    tasks_.Attach(&loop_, &*sessions_);
    std::promise<absl::Status> opened;
    writer_->Open(
        {.on_committed = [this](const auto& changes) { reconciler_->OnCommitted(changes); },
         .on_fatal = [](const absl::Status& status) { FAIL() << status; }},
        [&](absl::Status status) { opened.set_value(std::move(status)); });
    EXPECT_TRUE(opened.get_future().get().ok());
    loop_.Post([this] {
      sessions_->Start(
          {.on_segments = [this](
                              const auto& host, const auto& reports,
                              bool complete) { reconciler_->OnSegments(host, reports, complete); },
           .on_events = [](const auto&, const auto&) {},
           .on_session =
               [this](const auto& host, bool online) {
                 tasks_.OnSession(host, sessions_->LifeOf(host));
                 reconciler_->OnSession(host, online);
               },
           .on_device_answer = [this](const auto& host,
                                      const auto& answer) { tasks_.OnAnswer(host, answer); }});
      reconciler_->Start([](const absl::Status&) {});
    });
    for (const char* host : {"host-a", "host-b"}) {
      EXPECT_TRUE(Do([&](Done done) {
                    pool_->ChangePool(Caller::Admin("test"), {.method = "EnrolHost"},
                                      PlanFor(&PlanEnrol, {.host = host}), std::move(done));
                  }).ok());
      Connect(host, "boot-1");
    }
  }
  ~SharedChainTest() override {
    tasks_.Stop();
    loop_.Stop();
    driver_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Connect(const std::string& host, const std::string& life) {
    hosts_.Session(host, life);
    auto agent = std::make_shared<Agent>(host, life, &hosts_, &loop_, &*sessions_);
    agents_[host] = agent;
    loop_.Post([this, agent] { sessions_->OnHello(agent, {"", true}, agent->Hello()); });
  }
  void Disconnect(const std::string& host) {
    loop_.Post([this, agent = agents_[host]] { sessions_->OnClosed(agent.get()); });
  }

  static absl::Status Do(const std::function<void(Done)>& call) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    auto answer = promise->get_future();
    call([promise](absl::Status status) { promise->set_value(std::move(status)); });
    return answer.get();
  }
  absl::Status Allocate(const std::string& id, const std::string& host) {
    AllocateSpec spec;
    spec.caller = Caller::Admin("cxlpool://operator/alice");
    spec.request = Request{{"test", "AllocateRegion", Uuid(RandomUuid())}, 1};
    spec.region_id = id;
    spec.size_bytes = kGranule;
    spec.host = host;
    return Do([&](Done done) {
      pool_->Allocate(spec, false, [done = std::move(done)](absl::StatusOr<Committed> got) mutable {
        std::move(done)(got.status());
      });
    });
  }
  absl::Status Release(const std::string& id) {
    ReleaseSpec spec;
    spec.caller = Caller::Admin("cxlpool://operator/alice");
    spec.request = Request{{"test", "ReleaseRegion", Uuid(RandomUuid())}, 1};
    spec.region_id = id;
    spec.detach_all = true;
    return Do([&](Done done) {
      pool_->Release(spec, [done = std::move(done)](absl::StatusOr<Committed> got) mutable {
        std::move(done)(got.status());
      });
    });
  }
  RegionPtr Find(const std::string& id) const { return views_.Get()->regions.Find(id); }
  uint64_t free_granules() const { return views_.Get()->capacity.free_bytes / kGranule; }
  static bool WaitUntil(const std::function<bool()>& condition,
                        std::chrono::milliseconds limit = kPatience) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  bool Online(const std::string& id) {
    const RegionPtr region = Find(id);
    return region != nullptr && region->state == RegionState::kAllocated &&
           region->attachments.size() == 1 &&
           region->attachments[0].settled().state == AttachmentState::kOnline;
  }
  // An Attachment waits for its device as long as it takes to prove it.
  void MakeOnline(const std::string& id, const std::string& host) {
    absl::Status status;
    ASSERT_TRUE(WaitUntil([&] { return (status = Allocate(id, host)).ok(); })) << status;
    ASSERT_TRUE(WaitUntil([&] { return Online(id); }));
  }

  std::string directory_;
  FakeSharedAgents hosts_;
  FakeStoragePtr storage_;
  SystemClock clock_;
  ViewHolder views_;
  WatchHub watch_;
  Loop loop_{"manager"};
  MemoryStore store_{std::make_shared<MemoryDisk>()};
  SessionTasks tasks_;
  std::unique_ptr<FabricDriver> driver_;
  std::optional<Writer> writer_;
  std::optional<HostSessions> sessions_;
  std::optional<Reconciler> reconciler_;
  std::optional<PoolService> pool_;
  std::map<std::string, std::shared_ptr<Agent>> agents_;
};

TEST_F(SharedChainTest, ARegionComesAndGoesClean) {
  MakeOnline("kv", "host-b");
  const Extent extent = Find("kv")->extents[0];
  hosts_.Change("host-b", [&](auto&) { storage_->bytes[extent.dpa_bytes] = 'x'; });
  EXPECT_EQ(free_granules(), kGranules - 1);
  ASSERT_TRUE(Release("kv").ok());
  ASSERT_TRUE(WaitUntil([&] { return Find("kv") == nullptr; }));
  EXPECT_EQ(free_granules(), kGranules);
  EXPECT_TRUE(hosts_.Of("host-b",
                        [&](auto& own) { return own.grants.empty() && storage_->bytes.empty(); }));
}

// Many, and they go in any order.
TEST_F(SharedChainTest, NoneIsInAnothersWay) {
  constexpr int kRegions = 24;
  for (int i = 0; i < kRegions; ++i) {
    absl::Status status;
    ASSERT_TRUE(WaitUntil([&] {
      return (status = Allocate(absl::StrCat("r-", i), "host-a")).ok();
    })) << status;
  }
  for (int i = 0; i < kRegions; ++i) {
    ASSERT_TRUE(WaitUntil([&] { return Online(absl::StrCat("r-", i)); })) << i;
  }
  for (int i = 0; i < kRegions; i += 2) EXPECT_TRUE(Release(absl::StrCat("r-", i)).ok());
  ASSERT_TRUE(WaitUntil([&] { return free_granules() == kGranules - kRegions / 2; }));
  MakeOnline("another", "host-a");
}

TEST_F(SharedChainTest, AHostThatRebootedGetsBackWhatItHad) {
  MakeOnline("kv", "host-b");
  Connect("host-b", "boot-2");
  ASSERT_TRUE(WaitUntil([&] {
    return Online("kv") && hosts_.Of("host-b", [](auto& own) { return own.grants.size() == 1; });
  }));
}

TEST_F(SharedChainTest, AHostThatIsSilentKeepsItsBytesUntilItsBootHasEnded) {
  MakeOnline("kv", "host-b");
  Disconnect("host-b");
  ASSERT_TRUE(Release("kv").ok());
  EXPECT_FALSE(WaitUntil([&] { return Find("kv") == nullptr; }, std::chrono::seconds(1)));
  EXPECT_EQ(free_granules(), kGranules - 1);
  EXPECT_EQ(hosts_.Of("host-a", [](auto& own) { return own.clears; }), 0);
  Connect("host-b", "boot-2");
  EXPECT_TRUE(WaitUntil([&] { return Find("kv") == nullptr; }));
  EXPECT_EQ(free_granules(), kGranules);
}

TEST_F(SharedChainTest, BytesUnderAStrangersDaxDeviceGoToNobody) {
  ASSERT_TRUE(WaitUntil([&] { return free_granules() == kGranules; }));
  hosts_.Change("host-b", [&](auto& own) {
    v1::DeviceGrant piece;
    piece.set_device("cmm-0");
    piece.set_mark(storage_->mark->id());
    piece.set_dpa_bytes(kGranule + 4096);
    piece.set_length_bytes(kGranule);
    own.foreign.push_back(piece);
  });
  ASSERT_TRUE(WaitUntil([&] { return free_granules() == kGranules - 2; }));
}

}  // namespace
}  // namespace cxlpool::fm
