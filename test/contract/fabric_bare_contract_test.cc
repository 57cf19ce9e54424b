// A switch with none of the luxuries, against the contract: hardware has the serials, nothing keeps
// a key, the device carves its LDs wherever it likes, no store can be forbidden, no slice shared,
// nobody can be fenced. In memory; what a new adapter has to write, and no more.
#include <array>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/fabric_shell.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/contract/fabric_driver_contract.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kBareGranule = 1 << 20;
constexpr uint64_t kBareCapacity = 8 * kBareGranule;

// The hardware: outlives the managers.
struct Switch {
  struct Port {
    std::optional<Slice> slice;  // Bound.
    bool powered = false;        // By the host.
  };
  Mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::map<uint32_t, Port>> hosts ABSL_GUARDED_BY(mutex) = {
      {"host-a", {{4, {}}, {7, {}}}}, {"host-b", {{1, {}}, {2, {}}}}};
  std::map<uint64_t, std::vector<size_t>> lds ABSL_GUARDED_BY(mutex);  // Granules, by number.
  // Bytes of each granule that the device has; empty: zeroes.
  std::array<std::string, kBareCapacity / kBareGranule> granules ABSL_GUARDED_BY(mutex);
  std::set<std::string> hung ABSL_GUARDED_BY(mutex);  // Hosts that do not answer.
  std::function<void(FabricEvent)> events ABSL_GUARDED_BY(mutex);
};

uint64_t NumberOf(const Slice& slice) { return slice.dpa_bytes / kBareCapacity; }

class BareFabric : public FabricBackend {
 public:
  // `cuts`: it can take one LD away from a host that holds on.
  BareFabric(Switch* hardware, bool cuts) : switch_(hardware), cuts_(cuts) {}

  FabricCapabilities capabilities() const override {
    return {.driver = "bare",
            .isolates = true,
            .hardware_coherent = true,
            .fence = cuts_ ? FenceScope::kBinding : FenceScope::kNone};
  }
  std::vector<FabricDevice> devices() const override {
    return {{.id = "cmm-0",
             .serial = "serial-0",
             .capacity_bytes = kBareCapacity,
             .granule_bytes = kBareGranule,
             .max_lds = 5}};
  }
  std::vector<std::string> hosts() const override { return {"host-a", "host-b"}; }

  void Start(const KnownFabric&, Sink sink) override {
    MutexLock lock(switch_->mutex);
    switch_->events = std::move(sink);
  }
  // There is only this one switch.
  void Meet(const std::string& host, const std::string& life) override {
    MutexLock lock(switch_->mutex);
    if (!life.empty() && life != "switch-1") strangers_.insert(host);
  }

  HostLook LookAt(const std::string& host, absl::Duration) override {
    MutexLock lock(switch_->mutex);
    HostLook look;
    look.host.id = host;
    look.host.reachable = Answers(host);
    look.host.fabric_incarnation = "switch-1";
    if (!look.host.reachable) look.host.unreachable_reason = "another switch, or none";
    for (const auto& [slot, port] : switch_->hosts.at(host)) {
      look.host.slots.push_back(slot);
      if (port.slice.has_value()) {
        look.bound.push_back(
            {.host = host, .slot = slot, .slice = *port.slice, .serial = SerialOf(*port.slice)});
      }
    }
    return look;
  }

  absl::Status Carve(const Slice& slice, absl::Duration) override {
    MutexLock lock(switch_->mutex);
    const size_t count = slice.length_bytes / kBareGranule;
    if (auto& own = switch_->lds[NumberOf(slice)]; own.size() != count) {
      own.clear();
      std::set<size_t> used;
      for (const auto& [number, ld] : switch_->lds) used.insert(ld.begin(), ld.end());
      for (size_t i = 0; i < switch_->granules.size() && own.size() < count; ++i) {
        if (!used.contains(i)) own.push_back(i);
      }
      if (own.size() == count) return absl::OkStatus();
      own.clear();
      return absl::ResourceExhaustedError("the device has no room");
    }
    return absl::OkStatus();
  }

  absl::Status Return(const Slice& slice, absl::Duration) override {
    MutexLock lock(switch_->mutex);
    switch_->lds.erase(NumberOf(slice));
    return absl::OkStatus();
  }

  absl::StatusOr<BoundLd> Bind(const BindRequest& request, absl::Duration) override {
    MutexLock lock(switch_->mutex);
    const std::string& host = request.key.host;
    if (!Answers(host)) return absl::UnavailableError("the switch does not answer");
    switch_->hosts.at(host).at(request.slot) = {request.slice, false};
    return BoundLd{.host = host,
                   .slot = request.slot,
                   .slice = request.slice,
                   .serial = SerialOf(request.slice)};
  }

  absl::StatusOr<bool> BeginUnbind(const Binding& binding, absl::Duration) override {
    MutexLock lock(switch_->mutex);
    if (!Answers(binding.key.host)) return absl::UnavailableError("the switch does not answer");
    if (PortOf(binding) != nullptr) begun_.emplace(binding.key.host, binding.slot);
    return true;
  }

  absl::StatusOr<bool> IsUnbound(const Binding& binding, absl::Duration) override {
    MutexLock lock(switch_->mutex);
    if (!Answers(binding.key.host)) return absl::UnavailableError("the switch does not answer");
    Switch::Port* port = PortOf(binding);
    if (port == nullptr) return true;
    if (port->powered || !begun_.contains({binding.key.host, binding.slot})) return false;
    begun_.erase({binding.key.host, binding.slot});
    *port = {};
    return true;
  }

  absl::StatusOr<bool> FenceBinding(const Binding& binding, absl::Duration deadline) override {
    if (!cuts_) return FabricBackend::FenceBinding(binding, deadline);
    MutexLock lock(switch_->mutex);
    if (Switch::Port* port = PortOf(binding); port != nullptr) *port = {};
    return true;
  }

  absl::StatusOr<std::unique_ptr<FabricScrub>> BeginScrub(const Slice& slice) override {
    class Scrub : public FabricScrub {
     public:
      Scrub(Switch* hardware, const Slice& own) : switch_(hardware), slice_(own) {}
      absl::StatusOr<bool> Step(absl::Duration) override {
        MutexLock lock(switch_->mutex);
        switch_->granules[switch_->lds.at(NumberOf(slice_)).at(done_ / kBareGranule)].clear();
        done_ += kBareGranule;
        return done_ >= slice_.length_bytes;
      }
      uint64_t done_bytes() const override { return done_; }

     private:
      Switch* const switch_;
      const Slice slice_;
      uint64_t done_ = 0;
    };
    return std::make_unique<Scrub>(switch_, slice);
  }

  void Interrupt(const std::string& lane) override {
    MutexLock lock(switch_->mutex);
    interrupted_.insert(lane);
    switch_->changed.notify_all();
  }

 private:
  // The hardware's own: the host may have met it before.
  static uint64_t SerialOf(const Slice& slice) { return 0xb000 + NumberOf(slice); }

  // Hangs with the host, whatever the deadline is.
  bool Answers(const std::string& host) ABSL_EXCLUSIVE_LOCKS_REQUIRED(switch_->mutex) {
    std::unique_lock<std::mutex> held(switch_->mutex.native(), std::adopt_lock);
    while (switch_->hung.contains(host) && !interrupted_.contains(host)) {
      switch_->changed.wait(held);
    }
    held.release();
    return !strangers_.contains(host) && !switch_->hung.contains(host);
  }

  // Where just this slice is bound; null: it is not there.
  Switch::Port* PortOf(const Binding& binding) ABSL_EXCLUSIVE_LOCKS_REQUIRED(switch_->mutex) {
    auto& ports = switch_->hosts.at(binding.key.host);
    const auto port = ports.find(binding.slot);
    return port != ports.end() && port->second.slice == binding.slice ? &port->second : nullptr;
  }

  Switch* const switch_;
  const bool cuts_;
  std::set<std::string> strangers_;
  std::set<std::string> interrupted_;
  std::set<std::pair<std::string, uint32_t>> begun_;
};

class BareRig : public FabricRig {
 public:
  explicit BareRig(bool cuts) : cuts_(cuts) { Restart(); }
  ~BareRig() override { driver_.reset(); }

  FabricDriver& driver() override { return *driver_; }
  void Restart() override {
    driver_.reset();
    FabricShell::Options options;
    options.patience = absl::Milliseconds(200);
    options.recheck = absl::Milliseconds(5);
    driver_ = std::make_unique<FabricShell>(std::make_unique<BareFabric>(&switch_, cuts_), options);
  }
  std::string AnotherLife() override { return "switch-2"; }
  std::optional<TopologyTables> Parts() override {
    TopologyTables parts;
    parts.devices = {{.id = "cmm-0",
                      .serial = "serial-0",
                      .capacity_bytes = 8 * kBareGranule,
                      .granule_bytes = kBareGranule}};
    parts.hosts = {{.id = "host-a"}, {.id = "host-b"}};
    return parts;
  }

  void PowerOn(const BoundLd& ld) override { Power(ld, true); }
  void PowerOff(const BoundLd& ld) override { Power(ld, false); }
  void Remove(const BoundLd& ld) override {
    MutexLock lock(switch_.mutex);
    switch_.hosts.at(ld.host).at(ld.slot) = {};
    switch_.events({.kind = FabricEvent::Kind::kLdLost, .host = ld.host, .slot = ld.slot});
  }
  bool Hang(const std::string& host, bool hangs) override {
    MutexLock lock(switch_.mutex);
    hangs ? (void)switch_.hung.insert(host) : (void)switch_.hung.erase(host);
    switch_.changed.notify_all();
    return true;
  }

  absl::Status Store(const BoundLd& ld, uint64_t offset, const std::string& bytes) override {
    MutexLock lock(switch_.mutex);
    Granule(ld, offset).replace(offset % kBareGranule, bytes.size(), bytes);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Load(const BoundLd& ld, uint64_t offset, size_t size) override {
    MutexLock lock(switch_.mutex);
    return Granule(ld, offset).substr(offset % kBareGranule, size);
  }

 private:
  void Power(const BoundLd& ld, bool on) {
    MutexLock lock(switch_.mutex);
    switch_.hosts.at(ld.host).at(ld.slot).powered = on;
  }
  std::string& Granule(const BoundLd& ld, uint64_t offset)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(switch_.mutex) {
    std::string& bytes =
        switch_.granules[switch_.lds.at(NumberOf(ld.slice)).at(offset / kBareGranule)];
    bytes.resize(kBareGranule);
    return bytes;
  }

  Switch switch_;
  const bool cuts_;
  std::unique_ptr<FabricDriver> driver_;
};

absl::StatusOr<std::unique_ptr<FabricRig>> MakeBareRig() {
  return std::make_unique<BareRig>(false);
}
absl::StatusOr<std::unique_ptr<FabricRig>> MakeCuttingRig() {
  return std::make_unique<BareRig>(true);
}

// A fence by the operator's program, on a switch that cannot fence; the rig is the power supply.
class FenceProgramTest : public ::testing::Test {
 protected:
  FenceProgramTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~FenceProgramTest() override {
    driver_.reset();
    std::filesystem::remove_all(directory_);
  }

  // Binds a LD to host-a, which uses it, on a switch whose fence program is `script`.
  void Open(const std::string& script, absl::Duration timeout = absl::Seconds(20)) {
    const std::string program = directory_ + "/cut-power";
    std::ofstream(program) << "#!/bin/sh\n" << script;
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    FabricShell::Options options;
    options.recheck = absl::Milliseconds(5);
    options.fence_program = {program, timeout};
    options.fence_confirmed = absl::Milliseconds(200);
    options_ = options;
    Start({});
    EXPECT_EQ(driver_->capabilities().fence, FenceScope::kHost);
    const auto ld = WaitForAnswer<absl::StatusOr<BoundLd>>([&](auto done) {
      driver_->Bind({.key = {.host = "host-a", .tag = FormatUuid(RandomUuid()), .generation = 1},
                     .slot = 4,
                     .slice = {"cmm-0", 0, kBareGranule},
                     .serial = 1,
                     .incarnation = "switch-1"},
                    std::move(done));
    });
    ASSERT_TRUE(ld.ok()) << ld.status();
    Power(true);
  }
  // Another driver takes the place of the last.
  void Start(KnownFabric known) {
    driver_.reset();
    driver_ =
        std::make_unique<FabricShell>(std::make_unique<BareFabric>(&switch_, false), options_);
    driver_->Start(std::move(known), [](const FabricEvent&) {});
  }
  void Power(bool on) {
    MutexLock lock(switch_.mutex);
    Switch::Port& port = switch_.hosts["host-a"][4];
    port.powered = on;
    if (!on) port.slice.reset();
  }
  absl::Status Fence() {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { driver_->Fence("host-a", std::move(done)); });
  }
  std::string Said() const {
    std::stringstream said;
    said << std::ifstream(directory_ + "/said").rdbuf();
    return said.str();
  }

  std::string directory_;
  FabricShell::Options options_;
  Switch switch_;
  std::unique_ptr<FabricDriver> driver_;
};

TEST_F(FenceProgramTest, ItsWordIsNotBelieved) {
  Open("exit 0");
  const absl::Status fenced = Fence();
  EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << fenced;
}

// After a restart, before anybody has looked: that the host lives a life is no news.
TEST_F(FenceProgramTest, ItsWordIsNotBelievedOfAHostThatWasNotLookedAt) {
  Open("exit 0");
  for (const KnownFabric& known : {KnownFabric{{{"host-a", "switch-1"}}}, KnownFabric{}}) {
    Start(known);
    const absl::Status fenced = Fence();
    EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << fenced;
  }
}

TEST_F(FenceProgramTest, TheFabricConfirmsIt) {
  Open("echo $# $1 $CXLPOOL_HOST $CXLPOOL_INCARNATION > $(dirname $0)/said");
  std::thread power([&] {
    while (Said().empty()) std::this_thread::yield();
    Power(false);
  });
  const absl::Status fenced = Fence();
  power.join();
  EXPECT_TRUE(fenced.ok()) << fenced;
  EXPECT_EQ(Said(), "1 host-a host-a switch-1\n");
}

TEST_F(FenceProgramTest, AFailureOrAHangIsAFailure) {
  Open("exit 3");
  absl::Status fenced = Fence();
  EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << fenced;
  EXPECT_NE(fenced.message().find("status 3"), std::string::npos) << fenced;
  Power(false);
  Open("sleep 1000", absl::Milliseconds(50));
  fenced = Fence();
  EXPECT_EQ(ReasonOf(fenced), "FENCE_FAILED") << fenced;
  EXPECT_NE(fenced.message().find("took longer"), std::string::npos) << fenced;
}

TEST_F(FenceProgramTest, TheEndOfTheDriverEndsIt) {
  Open("sleep 1000", absl::Minutes(10));
  auto promise = std::make_shared<std::promise<absl::Status>>();
  auto answer = promise->get_future();
  driver_->Fence("host-a", [promise](absl::Status status) { promise->set_value(status); });
  driver_.reset();
  ASSERT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_TRUE(absl::IsCancelled(answer.get()));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Bare, FabricDriverContract, ::testing::Values(MakeBareRig));
INSTANTIATE_TEST_SUITE_P(BareThatCuts, FabricDriverContract, ::testing::Values(MakeCuttingRig));

}  // namespace cxlpool::fm
