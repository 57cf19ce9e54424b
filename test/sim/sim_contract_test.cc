// The simulated adapters under the suites that every adapter passes. Time goes on while a call is
// waited for, and nowhere else. Not for these: loads and stores through a descriptor.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "test/contract/fabric_driver_contract.h"
#include "test/contract/host_memory_contract.h"
#include "test/sim/sim_fabric.h"
#include "test/sim/sim_host_memory.h"

namespace cxlpool::sim {
namespace {

constexpr int64_t kPatienceUs = 1'000'000;

RackHost MakeHost(const std::string& id) {
  RackHost host;
  host.id = id;
  host.bridges = {{"ACPI0016:00", {1, 2, 3, 4, 5, 6}, 4}, {"ACPI0016:01", {11, 12}, 4}};
  return host;
}

// Breaches are not looked at: the suites bind bytes to two Regions and use serials again.
struct Room {
  Room() {
    rack.devices = {{"cmm-0", std::vector<uint32_t>(16)}};
    for (const char* id : {"host-a", "host-b"}) rack.hosts[id] = MakeHost(id);
  }
  // Lets time pass until `done`, for a second at most.
  void RunUntil(const std::function<bool()>& done) {
    const int64_t end_us = scheduler.now_us() + kPatienceUs;
    while (!done() && scheduler.now_us() < end_us) scheduler.RunUntil(scheduler.now_us() + 100);
  }

  Scheduler scheduler;
  Rack rack{&scheduler, {}, [](const std::string&) {}};
};

// Waits for each call in simulated time; one that takes longer goes on when time does.
class WaitingFabric : public fm::FabricDriver {
 public:
  WaitingFabric(Room* room, fm::FabricDriver* fabric) : room_(room), fabric_(fabric) {}

  fm::FabricCapabilities capabilities() const override { return fabric_->capabilities(); }
  void Start(fm::KnownFabric known, absl::AnyInvocable<void(fm::FabricEvent)> sink) override {
    fabric_->Start(std::move(known), std::move(sink));
    room_->RunUntil([] { return false; });  // Its first events come later.
  }
  void Configure(fm::FabricParts parts, Done done) override {
    fabric_->Configure(std::move(parts), std::move(done));
  }
  void Discover(DoneWith<fm::FabricView> done) override {
    Wait<absl::StatusOr<fm::FabricView>>([&](auto d) { fabric_->Discover(std::move(d)); },
                                         std::move(done));
  }
  void DiscoverHost(std::string host, DoneWith<fm::FabricView> done) override {
    Wait<absl::StatusOr<fm::FabricView>>(
        [&](auto d) { fabric_->DiscoverHost(std::move(host), std::move(d)); }, std::move(done));
  }
  void Bind(fm::BindRequest request, DoneWith<fm::BoundLd> done) override {
    Wait<absl::StatusOr<fm::BoundLd>>(
        [&](auto d) { fabric_->Bind(std::move(request), std::move(d)); }, std::move(done));
  }
  void BeginUnbind(fm::Binding binding, Done done) override {
    Wait<absl::Status>([&](auto d) { fabric_->BeginUnbind(std::move(binding), std::move(d)); },
                       std::move(done));
  }
  void AwaitUnbound(fm::Binding binding, absl::Duration timeout, Done done) override {
    Wait<absl::Status>(
        [&](auto d) { fabric_->AwaitUnbound(std::move(binding), timeout, std::move(d)); },
        std::move(done));
  }
  void Fence(std::string host, Done done) override {
    Wait<absl::Status>([&](auto d) { fabric_->Fence(std::move(host), std::move(d)); },
                       std::move(done));
  }
  void Scrub(fm::Slice slice, fm::ScrubProgress progress, DoneWith<fm::ScrubResult> done) override {
    Wait<absl::StatusOr<fm::ScrubResult>>(
        [&](auto d) { fabric_->Scrub(slice, std::move(progress), std::move(d)); }, std::move(done));
  }

 private:
  template <typename T>
  void Wait(const std::function<void(absl::AnyInvocable<void(T) &&>)>& call,
            absl::AnyInvocable<void(T) &&> done) {
    auto answered = std::make_shared<bool>(false);
    call([answered, done = std::move(done)](T answer) mutable {
      *answered = true;
      std::move(done)(std::move(answer));
    });
    room_->RunUntil([&] { return *answered; });
  }

  Room* const room_;
  fm::FabricDriver* const fabric_;
};

class FabricRig : public fm::FabricRig {
 public:
  FabricRig() { Restart(); }

  fm::FabricDriver& driver() override { return *waiting_; }
  void Restart() override {
    if (fabric_ != nullptr) room_.scheduler.End(life_);
    life_ = room_.scheduler.Begin();
    fabric_ =
        std::make_unique<SimFabric>(&room_.scheduler, life_, &room_.rack, &faults_, Random(life_));
    waiting_ = std::make_unique<WaitingFabric>(&room_, fabric_.get());
  }
  void PowerOn(const fm::BoundLd& ld) override {
    EXPECT_TRUE(room_.rack.PowerOn(HostOf(ld), ld.slot, ld.serial));
  }
  void PowerOff(const fm::BoundLd& ld) override {
    EXPECT_TRUE(room_.rack.PowerOff(HostOf(ld), ld.slot, ld.serial).ok());
    Pass();
  }
  void Remove(const fm::BoundLd& ld) override {
    room_.rack.Remove(HostOf(ld), ld.slot);
    Pass();
  }
  bool has_queue() const override { return false; }
  // What a granule holds follows from who wrote it; the bytes of that one are kept here.
  absl::Status Store(const fm::BoundLd& ld, uint64_t offset, const std::string& bytes) override {
    Granule(ld, offset) = Rack::HashOf(ld.key->tag);
    bytes_[ld.slice.dpa_bytes + offset] = bytes;
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Load(const fm::BoundLd& ld, uint64_t offset, size_t size) override {
    if (Granule(ld, offset) == 0) return std::string(size, '\0');
    return bytes_[ld.slice.dpa_bytes + offset];
  }

 private:
  RackHost& HostOf(const fm::BoundLd& ld) { return *room_.rack.FindHost(ld.host); }
  uint32_t& Granule(const fm::BoundLd& ld, uint64_t offset) {
    return room_.rack.devices[0].content.at((ld.slice.dpa_bytes + offset) / kGranule);
  }
  void Pass() {
    room_.RunUntil([] { return false; });
  }

  Room room_;
  FabricFaults faults_;
  LifeId life_ = 0;
  std::unique_ptr<SimFabric> fabric_;
  std::unique_ptr<WaitingFabric> waiting_;
  std::map<uint64_t, std::string> bytes_;
};

class WaitingMemory : public agent::HostMemory {
 public:
  WaitingMemory(Room* room, agent::HostMemory* memory) : room_(room), memory_(memory) {}

  void Prepare(Done done) override {
    memory_->Prepare(std::move(done));
    Pass();
  }
  void Observe(DoneWith<agent::HostObservation> done) override {
    memory_->Observe(std::move(done));
    Pass();
  }
  void PowerOn(uint32_t slot, uint64_t serial, Done done) override {
    memory_->PowerOn(slot, serial, std::move(done));
    Pass();
  }
  void CreateHostRegion(agent::HostRegionSpec spec, Done done) override {
    memory_->CreateHostRegion(std::move(spec), std::move(done));
    Pass();
  }
  void BindDax(uint64_t serial, agent::DaxDriver driver, Done done) override {
    memory_->BindDax(serial, driver, std::move(done));
    Pass();
  }
  void OnlineBlocks(uint64_t serial, agent::MemoryZone zone, Done done) override {
    memory_->OnlineBlocks(serial, zone, std::move(done));
    Pass();
  }
  void OfflineBlocks(uint64_t serial, absl::Duration patience, Done done) override {
    memory_->OfflineBlocks(serial, patience, std::move(done));
    Pass();
  }
  void UnbindDax(uint64_t serial, Done done) override {
    memory_->UnbindDax(serial, std::move(done));
    Pass();
  }
  void DestroyHostRegion(uint64_t serial, Done done) override {
    memory_->DestroyHostRegion(serial, std::move(done));
    Pass();
  }
  void PowerOff(uint32_t slot, uint64_t serial, Done done) override {
    memory_->PowerOff(slot, serial, std::move(done));
    Pass();
  }
  void FindHolders(uint64_t serial, DoneWith<std::vector<agent::ProcessId>> done) override {
    memory_->FindHolders(serial, std::move(done));
    Pass();
  }
  absl::StatusOr<agent::OpenedDax> OpenDax(uint64_t serial, bool read_only) override {
    return memory_->OpenDax(serial, read_only);
  }

 private:
  // A second is longer than any rung.
  void Pass() {
    room_->RunUntil([] { return false; });
  }

  Room* const room_;
  agent::HostMemory* const memory_;
};

class MemoryRig : public agent::HostMemoryRig {
 public:
  MemoryRig() { Restart(); }

  agent::HostMemory& memory() override { return *waiting_; }
  void Restart() override {
    if (memory_ != nullptr) room_.scheduler.End(life_);
    life_ = room_.scheduler.Begin();
    memory_ = std::make_unique<SimHostMemory>(&room_.scheduler, life_, &room_.rack, "host-a",
                                              &faults_, Random(life_));
    waiting_ = std::make_unique<WaitingMemory>(&room_, memory_.get());
  }
  absl::StatusOr<agent::PluggedLd> Plug(size_t bridge) override {
    const RackBridge& own = host().bridges.at(bridge);
    for (const uint32_t slot : own.slots) {
      if (host().slots.contains(slot)) continue;
      fm::BindRequest request;
      request.key = {"host-a", "tag", ++last_serial_, 0};
      request.slot = slot;
      request.slice = {"cmm-0", next_granule_++ * kGranule, kGranule};
      request.serial = last_serial_;
      request.incarnation = host().life();
      const absl::StatusOr<fm::BoundLd> ld = room_.rack.Bind(request);
      if (!ld.ok()) return ld.status();
      keys_[ld->serial] = *ld->key;
      return agent::PluggedLd{slot, ld->serial, own.name};
    }
    return absl::ResourceExhaustedError("every slot of the bridge is taken");
  }
  void GiveBack(const agent::PluggedLd&) override {}
  // The fabric's half of an unbind is begun here, when the host's is through.
  bool ProvenUnplugged(const agent::PluggedLd& ld) override {
    if (!room_.rack.BeginUnbind(keys_[ld.serial]).ok()) return false;
    const bool powered = host().slots.contains(ld.slot) && host().slots.at(ld.slot).powered;
    if (powered || !room_.rack.PowerOff(host(), ld.slot, ld.serial).ok()) return false;
    return !room_.rack.IsBound(keys_[ld.serial]);
  }
  bool Yank(const agent::PluggedLd& ld) override {
    room_.rack.Remove(host(), ld.slot);
    return true;
  }

 private:
  RackHost& host() { return *room_.rack.FindHost("host-a"); }

  Room room_;
  HostFaults faults_;
  LifeId life_ = 0;
  std::unique_ptr<SimHostMemory> memory_;
  std::unique_ptr<WaitingMemory> waiting_;
  std::map<uint64_t, fm::LdKey> keys_;
  uint64_t last_serial_ = 0x100;
  uint64_t next_granule_ = 0;
};

absl::StatusOr<std::unique_ptr<fm::FabricRig>> MakeFabricRig() {
  return std::make_unique<FabricRig>();
}
absl::StatusOr<std::unique_ptr<agent::HostMemoryRig>> MakeMemoryRig() {
  return std::make_unique<MemoryRig>();
}

}  // namespace
}  // namespace cxlpool::sim

namespace cxlpool::fm {
INSTANTIATE_TEST_SUITE_P(Simulated, FabricDriverContract, ::testing::Values(sim::MakeFabricRig));
}
namespace cxlpool::agent {
INSTANTIATE_TEST_SUITE_P(Simulated, HostMemoryContract, ::testing::Values(sim::MakeMemoryRig));
}
