// The QEMU driver against one process that stands in for QEMU: host-a, and a device of four
// granules.
#ifndef CXLPOOL_TEST_RIGS_QEMU_FABRIC_FIXTURE_H_
#define CXLPOOL_TEST_RIGS_QEMU_FABRIC_FIXTURE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"
#include "proto/support/unique_fd.h"
#include "test/contract/fabric_event_log.h"
#include "test/rigs/fake_qemu.h"

namespace cxlpool::fm {

inline constexpr uint64_t kGranule = 256 << 20;
inline constexpr char kTag[] = "0f0e0d0c-0b0a-4908-8706-050403020100";

class QemuFabricTest : public ::testing::Test {
 protected:
  using Kind = FabricEvent::Kind;

  QemuFabricTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    socket_ = directory_ + "/qmp";
    const std::string pool = directory_ + "/pool";
    EXPECT_TRUE(UniqueFd(::open(pool.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)).valid());
    EXPECT_EQ(::truncate(pool.c_str(), 4 * kGranule), 0);
    config_.devices = {{"cmm-0", "s0", pool, 4 * kGranule, kGranule}};
    config_.hosts = {{"host-a", socket_}};
    config_.timing.greeting = absl::Milliseconds(100);
    config_.timing.reconnect_min = absl::Milliseconds(5);
    config_.timing.reconnect_max = absl::Milliseconds(20);
    config_.timing.busy_retry = absl::Milliseconds(5);
  }
  ~QemuFabricTest() override {
    fabric_.reset();
    qemu_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Boot() { qemu_ = std::make_unique<FakeQemu>(socket_, std::vector<uint32_t>{10, 11}); }

  void Open() {
    fabric_.reset();
    auto fabric = QemuFabric::Open(config_);
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    fabric_ = std::move(*fabric);
    events_ = std::make_shared<FabricEventLog>();
    fabric_->Start(known_, [log = events_](FabricEvent event) { log->Add(std::move(event)); });
  }

  // Opens, and waits until the host answers.
  void OpenReachable() {
    Open();
    ASSERT_TRUE(Saw(Kind::kHostReachable));
  }

  bool Saw(Kind kind) {
    return events_->WaitFor([kind](const FabricEvent& event) { return event.kind == kind; });
  }
  void Forget() { events_->Clear(); }

  static BindRequest Request(uint64_t serial, uint32_t slot = 10) {
    return {.key = {.host = "host-a", .tag = kTag, .generation = serial, .extent_index = 0},
            .slot = slot,
            .slice = {.device = "cmm-0", .dpa_bytes = 0, .length_bytes = kGranule},
            .read_only = false,
            .serial = serial,
            .incarnation = ""};
  }

  FabricHost DiscoverHost() {
    auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
        [&](auto done) { fabric_->Discover(std::move(done)); });
    EXPECT_TRUE(view.ok()) << view.status();
    bound_ = view->bound;
    // As the core records it.
    const FabricHost& host = view->hosts.at(0);
    if (host.reachable) known_.hosts["host-a"] = host.fabric_incarnation;
    return host;
  }
  // What config_ says, as the pool's records have it.
  FabricParts Parts() const {
    FabricParts parts{{}, known_};
    for (const QemuDeviceConfig& device : config_.devices) {
      parts.tables.devices.push_back({.id = device.id,
                                      .serial = device.serial,
                                      .capacity_bytes = device.capacity_bytes,
                                      .granule_bytes = device.granule_bytes,
                                      .path = device.path});
    }
    for (const QemuHostConfig& host : config_.hosts) {
      parts.tables.hosts.push_back({.id = host.id, .qmp_socket = host.qmp_socket});
    }
    return parts;
  }
  absl::Status Configure() {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { fabric_->Configure(Parts(), std::move(done)); });
  }
  std::vector<FabricDevice> Devices() {
    auto view = WaitForAnswer<absl::StatusOr<FabricView>>(
        [&](auto done) { fabric_->Discover(std::move(done)); });
    EXPECT_TRUE(view.ok()) << view.status();
    return view.ok() ? view->devices : std::vector<FabricDevice>();
  }
  absl::StatusOr<BoundLd> Bind(BindRequest request) {
    const FabricHost host = DiscoverHost();
    request.incarnation = host.fabric_incarnation;
    request.claim = host.claim;
    return WaitForAnswer<absl::StatusOr<BoundLd>>(
        [&](auto done) { fabric_->Bind(request, std::move(done)); });
  }
  absl::Status BeginUnbind(const BindRequest& of) {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { fabric_->BeginUnbind(of.binding(), std::move(done)); });
  }
  absl::Status AwaitUnbound(const BindRequest& of, absl::Duration timeout = absl::Seconds(20)) {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { fabric_->AwaitUnbound(of.binding(), timeout, std::move(done)); });
  }
  absl::Status Fence() {
    return WaitForAnswer<absl::Status>(
        [&](auto done) { fabric_->Fence("host-a", std::move(done)); });
  }

  std::string directory_, socket_;
  QemuFabricConfig config_;
  std::unique_ptr<FakeQemu> qemu_;
  std::shared_ptr<FabricEventLog> events_;
  std::unique_ptr<FabricDriver> fabric_;
  std::vector<BoundLd> bound_;
  KnownFabric known_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_QEMU_FABRIC_FIXTURE_H_
