// Every key of the qemu driver's configuration is taken away and changed while memory is held, and
// nothing is given away: config_change_test.py for the driver that needs QEMU, on models of it.
//
// One trial: a Region is ONLINE on host-a, with bytes in the pool file. A manager's life ends, one
// key is changed, the next life begins; the Region is released, and host-b asks for all that is
// free. The host lets go at first of nothing, then of all but the plugged LD, as one that hangs
// does. All that time its bytes stay what they are. Then the key is put back, the host powers the
// slot off, and the Region is scrubbed and gone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"
#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/service/pool_service.h"
#include "proto/support/loop.h"
#include "proto/support/names.h"
#include "test/rigs/fake_qemu.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kGranule = 256 << 20;
constexpr int kGranules = 4;  // Of each device.
constexpr std::chrono::seconds kPatience{30};

// What a host's machine and its agent are, no matter who manages them. Any thread.
struct Machine {
  std::unique_ptr<FakeQemu> qemu;
  std::atomic<bool> holds{true};    // An application has the memory mapped.
  std::atomic<bool> ejects{false};  // It powers slots off when it is asked to.
};

// Says of each segment what its machine would.
class Agent : public SessionPeer, public std::enable_shared_from_this<Agent> {
 public:
  Agent(std::string host, Machine* machine, Loop* loop, HostSessions* sessions)
      : host_(std::move(host)), machine_(machine), loop_(loop), sessions_(sessions) {}

  void Send(v1::ManagerMessage message) override {
    v1::AgentMessage answer;
    answer.set_session(message.session());
    for (const v1::Offer& offer : message.welcome().offers()) Follow(offer, answer);
    if (message.has_offer()) Follow(message.offer(), answer);
    if (answer.has_report()) {
      loop_->Post(
          [self = shared_from_this(), answer] { self->sessions_->OnMessage(self.get(), answer); });
    }
  }
  void Close(const absl::Status&) override {}
  std::string address() const override { return "test:" + host_; }

  v1::Hello Hello() const {
    v1::Hello hello;
    hello.set_protocol_version(1);
    hello.set_host("hosts/" + host_);
    hello.set_incarnation("00000000-0000-4000-8000-00000000000a");
    hello.set_agent_id(FormatUuid(RandomUuid()));
    v1::BridgeInventory& bridge = *hello.mutable_inventory()->add_bridges();
    bridge.set_name("ACPI0016:00");
    for (const uint32_t slot : {10, 11, 12}) bridge.add_slots(slot);
    bridge.set_max_regions(4);
    bridge.set_window_bytes(8ull << 30);
    bridge.set_free_window_bytes(8ull << 30);
    return hello;
  }

 private:
  void Follow(const v1::Offer& offer, v1::AgentMessage& answer) const {
    for (const v1::OfferedSegment& segment : offer.segments()) {
      const v1::Offer::Want want =
          segment.want() == v1::Offer::WANT_UNSPECIFIED ? offer.want() : segment.want();
      v1::SegmentReport& report = *answer.mutable_report()->add_segments();
      report.set_serial(segment.targets(0).serial());
      report.set_attachment_generation(offer.attachment_generation());
      report.mutable_segment()->set_serial(segment.targets(0).serial());
      if (want == v1::Offer::WANT_ONLINE || machine_->holds) {
        report.set_state(v1::SEGMENT_ONLINE);
        if (want != v1::Offer::WANT_ONLINE) report.mutable_error()->set_reason("HOLDERS");
        continue;
      }
      report.set_state(v1::SEGMENT_PRESENT);
      if (want == v1::Offer::WANT_EJECTED && machine_->ejects) {
        machine_->qemu->Eject(segment.targets(0).slot());
        report.set_state(v1::SEGMENT_ABSENT);
      }
    }
  }

  const std::string host_;
  Machine* const machine_;
  Loop* const loop_;
  HostSessions* const sessions_;
};

// One life of a manager, in real time.
class Life {
 public:
  Life(std::shared_ptr<MemoryDisk> disk, std::unique_ptr<FabricDriver> driver,
       std::map<std::string, Machine>& machines)
      : store_(std::move(disk)),
        driver_(std::move(driver)),
        writer_({}, &loop_, &clock_, &store_, &views_, &watch_),
        sessions_({}, &loop_, &clock_, &writer_),
        reconciler_({.tick = absl::Milliseconds(20),
                     .discover_period = absl::Milliseconds(100),
                     .unbind_wait = absl::Milliseconds(200),
                     .retry = absl::Milliseconds(20)},
                    &loop_, &clock_, &writer_, driver_.get(), &sessions_, nullptr),
        pool_(&loop_, &writer_, &reconciler_, &sessions_) {
    writer_.SetFabric(driver_->capabilities());
    std::promise<absl::Status> opened;
    writer_.Open({.on_committed = [this](const auto& changes) { reconciler_.OnCommitted(changes); },
                  .on_fatal = [](const absl::Status& status) { FAIL() << status; }},
                 [&](absl::Status status) { opened.set_value(std::move(status)); });
    EXPECT_TRUE(opened.get_future().get().ok());
    loop_.Post([this] {
      sessions_.Start({.on_segments =
                           [this](const auto& host, const auto& reports, bool complete) {
                             reconciler_.OnSegments(host, reports, complete);
                           },
                       .on_events = [](const auto&, const auto&) {},
                       .on_session = [this](const auto& host,
                                            bool online) { reconciler_.OnSession(host, online); }});
      reconciler_.Start([](const absl::Status&) {});
    });
    for (auto& [host, machine] : machines) {
      const absl::Status enrolled = Do([&, id = host](Done done) {
        pool_.ChangePool(Caller::Admin("test"), {.method = "EnrolHost"},
                         PlanFor(&PlanEnrol, {.host = id}), std::move(done));
      });
      EXPECT_TRUE(enrolled.ok()) << enrolled;
      auto agent = std::make_shared<Agent>(host, &machine, &loop_, &sessions_);
      loop_.Post([this, agent] { sessions_.OnHello(agent, {"", true}, agent->Hello()); });
    }
  }
  ~Life() { loop_.Stop(); }

  absl::Status Do(const std::function<void(Done)>& call) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    auto answer = promise->get_future();
    call([promise](absl::Status status) { promise->set_value(std::move(status)); });
    return answer.get();
  }
  absl::Status Allocate(const std::string& id, const std::string& host, uint64_t bytes) {
    AllocateSpec spec;
    spec.caller = Caller::Admin("cxlpool://operator/alice");
    spec.request = Request{{"test", "AllocateRegion", Uuid(RandomUuid())}, 1};
    spec.region_id = id;
    spec.size_bytes = bytes;
    spec.max_extents = 16;
    spec.host = host;
    return Do([&](Done done) {
      pool_.Allocate(spec, false, [done = std::move(done)](absl::StatusOr<Committed> got) mutable {
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
      pool_.Release(spec, [done = std::move(done)](absl::StatusOr<Committed> got) mutable {
        std::move(done)(got.status());
      });
    });
  }
  RegionPtr Find(const std::string& id) const { return views_.Get()->regions.Find(id); }
  uint64_t free_bytes() const { return views_.Get()->capacity.free_bytes; }
  bool WaitUntil(const std::function<bool()>& condition,
                 std::chrono::milliseconds limit = kPatience) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

 private:
  SystemClock clock_;
  ViewHolder views_;
  WatchHub watch_;
  MemoryStore store_;
  std::unique_ptr<FabricDriver> driver_;
  Loop loop_{"manager"};
  Writer writer_;
  HostSessions sessions_;
  Reconciler reconciler_;
  PoolService pool_;
};

class QemuConfigChangeTest : public testing::Test {
 protected:
  QemuConfigChangeTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    for (const char* id : {"cmm-0", "cmm-1"}) {
      const std::string path = absl::StrCat(directory_, "/", id);
      MakeFile(path, kGranules * kGranule);
      config_.devices.push_back({id, std::string("s-") + id, path, kGranules * kGranule, kGranule});
    }
    for (const char* id : {"host-a", "host-b"}) {
      const std::string socket = absl::StrCat(directory_, "/", id, ".qmp");
      config_.hosts.push_back({id, socket});
      machines_[id].qemu = std::make_unique<FakeQemu>(socket, std::vector<uint32_t>{10, 11, 12});
    }
    config_.timing.greeting = absl::Milliseconds(200);
    config_.timing.reconnect_max = absl::Milliseconds(50);
    config_.timing.recheck = absl::Milliseconds(50);
  }
  ~QemuConfigChangeTest() override {
    life_.reset();
    machines_.clear();
    std::filesystem::remove_all(directory_);
  }

  static void MakeFile(const std::string& path, uint64_t bytes) {
    std::ofstream(path, std::ios::app).flush();
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(bytes)), 0);
  }

  // Null: the driver refuses the configuration, and so does the manager.
  void Begin(const QemuFabricConfig& config) {
    life_.reset();
    auto driver = QemuFabric::Open(config);
    if (driver.ok()) life_ = std::make_unique<Life>(disk_, *std::move(driver), machines_);
  }

  // The application's own way to its bytes: what host-a's QEMU has mapped.
  std::string Bytes() const {
    std::string bytes(4096, '?');
    const UniqueFd fd(::open(held_file_.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::pread(fd.get(), bytes.data(), bytes.size(), held_at_), 4096);
    return bytes;
  }

  // A Region that is ONLINE on host-a, and written to.
  void Hold() {
    machines_["host-a"].holds = true;
    machines_["host-a"].ejects = false;
    Begin(config_);
    ASSERT_NE(life_, nullptr);
    ASSERT_TRUE(life_->WaitUntil([&] { return life_->free_bytes() == 2 * kGranules * kGranule; }));
    ASSERT_TRUE(life_->WaitUntil(
        [&] { return life_->Allocate("held", "host-a", kGranule).ok() || life_->Find("held"); }));
    ASSERT_TRUE(life_->WaitUntil([&] {
      const RegionPtr held = life_->Find("held");
      return held != nullptr && held->state == RegionState::kAllocated;
    }));
    const Extent extent = life_->Find("held")->extents[0];
    held_file_ = absl::StrCat(directory_, "/", extent.device.str());
    held_at_ = static_cast<off_t>(extent.dpa_bytes);
    const UniqueFd fd(::open(held_file_.c_str(), O_WRONLY | O_CLOEXEC));
    written_ = std::string(4096, static_cast<char>('a' + ++trials_ % 26));
    ASSERT_EQ(::pwrite(fd.get(), written_.data(), written_.size(), held_at_), 4096);
  }

  // With whatever configuration this life has: nobody gets the bytes, nobody says that they are
  // free.
  void TryToTakeIt(const char* when) {
    if (life_ == nullptr) return;
    life_->WaitUntil([&] { return life_->Release("held").ok(); }, std::chrono::milliseconds(200));
    (void)life_->Allocate("grab", "host-b", kGranule);
    life_->WaitUntil([&] { return life_->Find("held") == nullptr; },
                     std::chrono::milliseconds(300));
    EXPECT_NE(life_->Find("held"), nullptr) << "given away " << when;
    EXPECT_LT(life_->free_bytes(), 2 * kGranules * kGranule) << when;
    EXPECT_EQ(Bytes(), written_) << "cleared or overwritten " << when;
    if (life_->Find("grab") != nullptr) {
      ASSERT_TRUE(life_->WaitUntil([&] {
        const RegionPtr grab = life_->Find("grab");
        return grab == nullptr || grab->state != RegionState::kReserved;
      }));
      (void)life_->Release("grab");
    }
  }

  void Try(const std::string& name, const std::function<void(QemuFabricConfig&)>& change) {
    SCOPED_TRACE(name);
    Hold();
    if (HasFatalFailure()) return;
    QemuFabricConfig changed = config_;
    change(changed);
    for (const char* when : {"while an application has it", "while its LD is plugged"}) {
      Begin(changed);
      served_ += life_ != nullptr;
      TryToTakeIt(when);
      // From here on the host lets go of all but the LD: the next life finds it half detached.
      machines_["host-a"].holds = false;
      Begin(config_);
      ASSERT_NE(life_, nullptr) << "the configuration that it had before is refused";
      (void)life_->WaitUntil([&] { return life_->Release("held").ok(); });
      ASSERT_TRUE(life_->WaitUntil([&] {
        const RegionPtr held = life_->Find("held");
        return held != nullptr && !held->attachments.empty() &&
               held->attachments[0].settled().state == AttachmentState::kEjecting;
      }));
      EXPECT_EQ(Bytes(), written_) << when;
    }
    machines_["host-a"].ejects = true;
    machines_["host-b"].holds = false;
    machines_["host-b"].ejects = true;
    Begin(config_);
    if (life_->Find("grab") != nullptr) (void)life_->Release("grab");
    EXPECT_TRUE(life_->WaitUntil([&] {
      return life_->Find("held") == nullptr && life_->Find("grab") == nullptr;
    })) << "it goes on once the configuration is what it was";
    EXPECT_EQ(Bytes(), std::string(4096, '\0'));
  }

  std::string directory_;
  QemuFabricConfig config_;
  std::map<std::string, Machine> machines_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::unique_ptr<Life> life_;
  std::string held_file_, written_;
  off_t held_at_ = 0;
  int trials_ = 0, served_ = 0;
};

TEST_F(QemuConfigChangeTest, NothingIsGivenAway) {
  const std::string other_socket = directory_ + "/other.qmp";
  const FakeQemu other(other_socket, {10, 11, 12});
  const auto devices = [](const char* what, const std::function<void(QemuDeviceConfig&)>& edit) {
    return std::pair(std::string(what), [edit](QemuFabricConfig& config) {
      for (QemuDeviceConfig& device : config.devices) edit(device);
    });
  };
  Try("nothing", [](QemuFabricConfig&) {});
  Try("[[device]] taken away", [](QemuFabricConfig& config) { config.devices.clear(); });
  Try("one [[device]] taken away",
      [](QemuFabricConfig& config) { config.devices.erase(config.devices.begin()); });
  Try("[[host]] taken away", [](QemuFabricConfig& config) { config.hosts.clear(); });
  Try("host-a taken away",
      [](QemuFabricConfig& config) { config.hosts.erase(config.hosts.begin()); });
  for (const auto& [name, change] : {
           devices("device.id", [](QemuDeviceConfig& device) { device.id += "x"; }),
           devices("device.serial", [](QemuDeviceConfig& device) { device.serial += "x"; }),
           devices("device.capacity", [](QemuDeviceConfig& device) { device.capacity_bytes /= 2; }),
           devices("device.granule", [](QemuDeviceConfig& device) { device.granule_bytes *= 2; }),
           devices("device.path taken away", [](QemuDeviceConfig& device) { device.path.clear(); }),
           devices("device.path to a new file",
                   [](QemuDeviceConfig& device) {
                     device.path += ".new";
                     MakeFile(device.path, kGranules * kGranule);
                   }),
           devices("device.path to another name of the file",
                   [](QemuDeviceConfig& device) {
                     const std::string copy = device.path + ".copy";
                     std::filesystem::remove(copy);
                     std::filesystem::create_hard_link(device.path, copy);
                     device.path = copy;
                   }),
       }) {
    Try(name, change);
  }
  Try("device.path exchanged",
      [](QemuFabricConfig& config) { std::swap(config.devices[0].path, config.devices[1].path); });
  Try("host.id", [](QemuFabricConfig& config) { config.hosts[0].id = "host-z"; });
  Try("host.id exchanged",
      [](QemuFabricConfig& config) { std::swap(config.hosts[0].id, config.hosts[1].id); });
  Try("host.qmp to nobody", [](QemuFabricConfig& config) { config.hosts[0].qmp_socket += "x"; });
  Try("host.qmp exchanged", [](QemuFabricConfig& config) {
    std::swap(config.hosts[0].qmp_socket, config.hosts[1].qmp_socket);
  });
  Try("host.qmp to another QEMU",
      [&](QemuFabricConfig& config) { config.hosts[0].qmp_socket = other_socket; });
  Try("fabric.state with a host that has ended", [&](QemuFabricConfig& config) {
    config.state_directory = directory_;
    std::ofstream(directory_ + "/host-a.qemu") << "00000000-0000-0000-0000-000000000000 17 5\n";
  });
  std::printf("config-change-qemu: %d trials, %d of %d lives served; %s\n", trials_, served_,
              2 * trials_,
              HasFailure() ? "bytes were given away" : "0 gave bytes away or said a false word");
}

}  // namespace
}  // namespace cxlpool::fm
