// What every FabricDriver must do (fabric-manager/ports/fabric_driver.h), as tests.
//
// A driver's test file writes a FabricRig, which is the fabric itself and plays the host agents,
// and instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Emulated, FabricDriverContract, ::testing::Values(MakeRig));
//
// Needs a device of four granules or more, and two hosts of two slots or more, all free. What a
// test bound it unbinds again, so that a rack that is not the rig's own can be used.
#ifndef CXLPOOL_TEST_CONTRACT_FABRIC_DRIVER_CONTRACT_H_
#define CXLPOOL_TEST_CONTRACT_FABRIC_DRIVER_CONTRACT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "test/contract/fabric_event_log.h"

namespace cxlpool::fm {

class FabricRig {
 public:
  virtual ~FabricRig() = default;

  // Not started yet.
  virtual FabricDriver& driver() = 0;

  // Ends the driver and makes a new one, as a restarted manager does. What was bound stays.
  virtual void Restart() = 0;

  // The driver of another manager on the same fabric, while the first one's is there, not started
  // yet. Null: this fabric is one process's for as long as that lives.
  virtual std::unique_ptr<FabricDriver> Another() { return nullptr; }

  // The host's agent takes the LD in the slot into use, and lets it go.
  virtual void PowerOn(const BoundLd& ld) = 0;
  virtual void PowerOff(const BoundLd& ld) = 0;

  // The LD vanishes from its slot; neither driver nor manager asked for it.
  virtual void Remove(const BoundLd& ld) = 0;

  // The bytes as the host would store and load them.
  virtual absl::Status Store(const BoundLd& ld, uint64_t offset, const std::string& bytes) = 0;
  virtual absl::StatusOr<std::string> Load(const BoundLd& ld, uint64_t offset, size_t size) = 0;

  // The life of another host, which has not ended and may be anywhere; empty: this rig has none.
  virtual std::string AnotherLife() { return ""; }

  // The host's side of the fabric answers nothing more, until it is set otherwise. False: this rig
  // cannot do that.
  virtual bool Hang(const std::string& /*host*/, bool /*hangs*/) { return false; }

  // Whether calls wait in real time, in a queue of the driver's.
  virtual bool has_queue() const { return true; }

  // What the driver was opened with, for Configure; nothing: this rig is what it is.
  virtual std::optional<TopologyTables> Parts() { return std::nullopt; }

  // Whether a host may be ended for good.
  virtual bool may_fence() const { return true; }
};

// Makes a rig, or says why there is none here: then the test is skipped.
using FabricRigFactory = std::function<absl::StatusOr<std::unique_ptr<FabricRig>>()>;

class FabricDriverContract : public ::testing::TestWithParam<FabricRigFactory> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Starts the rig's driver by what the records know, with a log of its own, and waits until all
  // hosts are reachable.
  void StartDriver();
  void Restart();
  // Discovers by `driver` until it reaches all hosts.
  static void AwaitAll(FabricDriver& driver);

  FabricDriver& driver() { return rig_->driver(); }
  absl::StatusOr<FabricView> Discover() { return Discover(driver()); }
  static absl::StatusOr<FabricView> Discover(FabricDriver& driver);
  absl::StatusOr<BoundLd> Bind(const BindRequest& request);
  absl::Status BeginUnbind(const Binding& binding);
  absl::Status AwaitUnbound(const Binding& binding, absl::Duration timeout = absl::Seconds(20));
  absl::Status Fence(const std::string& host);
  absl::Status Scrub(const BoundLd& ld);
  absl::Status Configure(const TopologyTables& tables);
  const FabricHost* Shown(const FabricView& view, const std::string& host);

  // From bound to unbound, with the agent's part.
  absl::Status Unbind(const BoundLd& ld);

  // A new Region's LD: one granule of the first device, in slot number `slot_index` of a host.
  BindRequest Request(size_t host_index, size_t slot_index, uint64_t granule_index);

  // The host's fabric_incarnation now.
  std::string LifeOf(const std::string& host) { return Look(host).fabric_incarnation; }
  // What Discover shows of the host.
  FabricHost Look(const std::string& host);

  // What Discover says is bound there: by the key where the driver keeps keys, else by host, slot
  // and slice.
  std::optional<BoundLd> Find(const Binding& binding);

  // That `ld` is what was asked for, as far as this driver can grant it.
  void ExpectAsAsked(const BoundLd& ld, const BindRequest& request);

  std::unique_ptr<FabricRig> rig_;
  std::shared_ptr<FabricEventLog> events_;
  FabricView start_;  // As found.
  KnownFabric known_;
  uint64_t next_serial_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_CONTRACT_FABRIC_DRIVER_CONTRACT_H_
