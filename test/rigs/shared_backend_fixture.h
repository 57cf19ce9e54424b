// The driver of shared devices against agents in memory: one device that hosts a and b reach, and c
// does not.
#ifndef CXLPOOL_TEST_RIGS_SHARED_BACKEND_FIXTURE_H_
#define CXLPOOL_TEST_RIGS_SHARED_BACKEND_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/adapters/fabric_shared/shared_backend.h"
#include "proto/support/cxl_host.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/contract/fabric_event_log.h"
#include "test/rigs/fake_shared_agents.h"

namespace cxlpool::fm {

inline constexpr uint64_t kUnit = 1 << 20;
inline constexpr char kTag[] = "11111111-2222-4333-8444-555555555555";

class SharedBackendTest : public testing::Test {
 protected:
  using Host = FakeSharedAgents::Host;

  SharedBackendTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    tables_.devices = {{.id = "cmm-0",
                        .serial = "serial-0",
                        .capacity_bytes = 8 * kUnit,
                        .granule_bytes = kUnit,
                        .path = "host-a/dax0.0"}};
    tables_.hosts = {{.id = "host-a"}, {.id = "host-b"}, {.id = "host-c"}};
    storage_ = NewStorage();
    Give("host-a", "dax0.0", storage_);
    Give("host-b", "dax1.0", storage_);
  }
  ~SharedBackendTest() override {
    agents_.Stop();
    driver_.reset();
    std::filesystem::remove_all(directory_);
  }

  static FakeStoragePtr NewStorage() {
    auto storage = std::make_shared<FakeStorage>();
    storage->size_bytes = 9 * kUnit;
    return storage;
  }
  static v1::DeviceMark MarkOf(const std::string& pool, const std::string& device) {
    v1::DeviceMark mark;
    mark.set_id(FormatUuid(RandomUuid()));
    mark.set_pool(pool);
    mark.set_device(device);
    mark.set_reserved_bytes(kUnit);
    mark.set_nonce(7);
    return mark;
  }
  void Give(const std::string& host, const std::string& name, FakeStoragePtr storage) {
    agents_.Change(host, [&](Host& own) { own.devices[name] = std::move(storage); });
  }
  void Connect(const std::vector<std::string>& hosts) {
    for (const std::string& host : hosts) agents_.Session(host, "boot-1-" + host);
  }

  // A manager's life.
  void Open() {
    if (driver_ != nullptr) {
      for (const FabricHost& host : Discover().hosts) {
        known_.hosts[host.id] = host.fabric_incarnation;
      }
      driver_.reset();
    }
    SharedFabricConfig config;
    config.state_directory = directory_ + "/state";
    config.tables = tables_;
    config.clear_bytes = kUnit / 2;
    config.timing.answer = absl::Milliseconds(200);
    config.timing.clear = absl::Milliseconds(200);
    config.timing.patience = absl::Milliseconds(500);
    config.timing.operation = absl::Seconds(5);
    config.timing.fence_confirmed = absl::Milliseconds(200);
    config.fence = fence_;
    auto driver = SharedBackend::Open(std::move(config), &agents_);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = std::move(*driver);
    events_ = std::make_shared<FabricEventLog>();
    driver_->Start(known_, [log = events_](FabricEvent event) { log->Add(std::move(event)); });
  }

  // The next manager is on another machine, which was given the pool's identity alone.
  void MoveToAnotherMachine() {
    driver_.reset();
    const std::string state = directory_ + "/state", identity = state + "/identity";
    std::string pool;
    std::getline(std::ifstream(identity), pool);
    std::filesystem::remove_all(state);
    std::filesystem::create_directory(state);
    std::ofstream(identity) << pool << "\n";
    known_.unsettled = {"host-a", "host-b"};
  }

  // The records know both hosts' lives, host-a is not there, and can be fenced.
  void OpenElsewhereWithoutHostA() {
    GiveFenceProgram(2);
    Connect({"host-a", "host-b"});
    Open();
    Discover();
    MoveToAnotherMachine();
    agents_.Session("host-a", "");
    known_.hosts = {{"host-a", "boot-1-host-a"}, {"host-b", "boot-1-host-b"}};
    Open();
    Discover();
  }

  // Before Open. `status`: what it exits with when it is asked for it.
  void GiveFenceProgram(int status) {
    const std::string program = directory_ + "/cut-power";
    std::ofstream(program) << "#!/bin/sh\n[ $CXLPOOL_ACTION = status ] && exit " << status
                           << "\nexit 0\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    fence_ = {program, absl::Seconds(20)};
  }
  absl::Status Fence(const std::string& host) {
    return WaitForAnswer<absl::Status>([&](auto done) { driver_->Fence(host, std::move(done)); });
  }

  // A manager of host-a and host-b, and a piece of the device that host-b has.
  absl::StatusOr<BoundLd> OpenAndBind(uint64_t granule = 0) {
    Connect({"host-a", "host-b"});
    Open();
    Discover();
    return Bind(Request("host-b", granule));
  }
  // A manager of both, which has asked host-a to clear the first granule: it stands still, and its
  // session ends.
  void OpenAndHangInAClear() {
    Connect({"host-a", "host-b"});
    Open();
    Discover();
    agents_.Hang("host-a", true);
    EXPECT_FALSE(Scrub({"cmm-0", 0, kUnit}).ok()) << "host-a clears first, and does not answer";
    agents_.Session("host-a", "");
  }

  FabricView Discover() {
    auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
        [&](auto done) { driver_->Discover(std::move(done)); });
    EXPECT_TRUE(view.ok()) << view.status();
    return view.ok() ? *std::move(view) : FabricView();
  }
  std::string Missing() { return Discover().missing_devices["cmm-0"]; }
  FabricHost ShownHost(const std::string& id) {
    const FabricView view = Discover();
    for (const FabricHost& host : view.hosts) {
      if (host.id == id) return host;
    }
    ADD_FAILURE() << "no host " << id;
    return {};
  }
  BindRequest Request(const std::string& host, uint64_t granule) {
    const uint64_t serial = ++serial_;
    return {.key = {.host = host, .tag = kTag, .generation = serial, .extent_index = 0},
            .slot = static_cast<uint32_t>(serial),
            .slice = {"cmm-0", granule * kUnit, kUnit},
            .serial = kSerialBase + serial,
            .incarnation = agents_.LifeOf(host),
            .claim = agents_.SessionOf(host)};
  }
  absl::StatusOr<BoundLd> Bind(const BindRequest& request) {
    return WaitForAnswer<absl::StatusOr<BoundLd>>(
        [&](auto done) { driver_->Bind(request, std::move(done)); });
  }
  // Empty: bound. Otherwise why not.
  std::string WhyNot(const std::string& host) {
    const absl::Status status = Bind(Request(host, serial_ % 8)).status();
    if (status.ok()) return "";
    EXPECT_EQ(ReasonOf(status), "DEVICE_NOT_PROVEN") << status;
    return std::string(status.message());
  }
  absl::Status BeginUnbind(const Binding& binding) {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { driver_->BeginUnbind(binding, std::move(done)); });
  }
  absl::Status AwaitUnbound(const Binding& binding,
                            absl::Duration timeout = absl::Milliseconds(50)) {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { driver_->AwaitUnbound(binding, timeout, std::move(done)); });
  }
  absl::Status Scrub(const Slice& slice) {
    return WaitForAnswer<absl::StatusOr<ScrubResult>>(
               [&](auto done) { driver_->Scrub(slice, {}, std::move(done)); })
        .status();
  }
  int Count(const std::string& host, int Host::*what) {
    return agents_.Of(host, [&](Host& own) { return own.*what; });
  }

  std::string directory_;
  TopologyTables tables_;
  FakeSharedAgents agents_;
  FakeStoragePtr storage_;
  KnownFabric known_;
  FenceProgram fence_;
  std::unique_ptr<FabricDriver> driver_;
  std::shared_ptr<FabricEventLog> events_;
  uint64_t serial_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_SHARED_BACKEND_FIXTURE_H_
