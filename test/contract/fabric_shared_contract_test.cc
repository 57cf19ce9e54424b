// The driver of shared devices against the contract, with agents in memory.
#include <filesystem>

#include "fabric-manager/adapters/fabric_shared/shared_backend.h"
#include "test/contract/fabric_driver_contract.h"
#include "test/rigs/fake_shared_agents.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kSharedGranule = 1 << 20;

// Two hosts with one device, which the first one marks.
class SharedRig : public FabricRig {
 public:
  SharedRig() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    const auto storage = std::make_shared<FakeStorage>();
    storage->size_bytes = 9 * kSharedGranule;
    for (const std::string host : {"host-a", "host-b"}) {
      agents_.Change(host, [&](auto& own) { own.devices["dax-of-" + host] = storage; });
      agents_.Session(host, "boot-of-" + host);
    }
    Open();
  }
  ~SharedRig() override {
    agents_.Stop();
    driver_.reset();
    std::filesystem::remove_all(directory_);
  }

  FabricDriver& driver() override { return *driver_; }

  void Restart() override {
    driver_.reset();
    Open();
  }

  std::optional<TopologyTables> Parts() override {
    TopologyTables parts;
    parts.devices = {{.id = "cmm-0",
                      .serial = "serial-0",
                      .capacity_bytes = 8 * kSharedGranule,
                      .granule_bytes = kSharedGranule,
                      .path = "host-a/dax-of-host-a"}};
    parts.hosts = {{.id = "host-a"}, {.id = "host-b"}};
    return parts;
  }

  void PowerOn(const BoundLd& ld) override { agents_.PowerOn(ld.host, ld.serial); }
  void PowerOff(const BoundLd& ld) override { agents_.PowerOff(ld.host, ld.serial); }
  void Remove(const BoundLd& ld) override { agents_.Remove(ld.host, ld.serial); }
  bool Hang(const std::string& host, bool hangs) override {
    agents_.Hang(host, hangs);
    return true;
  }

  absl::Status Store(const BoundLd& ld, uint64_t offset, const std::string& bytes) override {
    return agents_.Of(ld.host, [&](FakeSharedAgents::Host& host) {
      auto& stored = host.devices.begin()->second->bytes;
      for (size_t i = 0; i < bytes.size(); ++i) {
        stored[ld.slice.dpa_bytes + offset + i] = bytes[i];
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::string> Load(const BoundLd& ld, uint64_t offset, size_t size) override {
    return agents_.Of(ld.host, [&](FakeSharedAgents::Host& host) {
      const auto& stored = host.devices.begin()->second->bytes;
      std::string bytes(size, '\0');
      for (size_t i = 0; i < size; ++i) {
        const auto byte = stored.find(ld.slice.dpa_bytes + offset + i);
        if (byte != stored.end()) bytes[i] = byte->second;
      }
      return bytes;
    });
  }

 private:
  void Open() {
    SharedFabricConfig config;
    config.state_directory = directory_ + "/state";
    config.tables = *Parts();
    config.clear_bytes = kSharedGranule / 2;
    config.timing.watch = absl::Milliseconds(20);
    config.timing.patience = absl::Milliseconds(500);
    auto driver = SharedBackend::Open(std::move(config), &agents_);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = std::move(*driver);
  }

  std::string directory_;
  FakeSharedAgents agents_;
  std::unique_ptr<FabricDriver> driver_;
};

absl::StatusOr<std::unique_ptr<FabricRig>> MakeSharedRig() { return std::make_unique<SharedRig>(); }

}  // namespace

INSTANTIATE_TEST_SUITE_P(Shared, FabricDriverContract, ::testing::Values(MakeSharedRig));

}  // namespace cxlpool::fm
