// What every HostMemory must do (host-agent/ports/host_memory.h), as tests.
//
// An adapter's test file writes a HostMemoryRig, which plays the fabric, and instantiates the
// suite:
//
//   INSTANTIATE_TEST_SUITE_P(Emulated, HostMemoryContract, ::testing::Values(MakeRig));
//
// A test takes the LDs it needs from the rig and leaves no host region behind, so that the suite
// can run in a machine that is not the rig's own. Where the rig has no LD left the test is
// skipped, with the reason.
#ifndef CXLPOOL_TEST_CONTRACT_HOST_MEMORY_CONTRACT_H_
#define CXLPOOL_TEST_CONTRACT_HOST_MEMORY_CONTRACT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "host-agent/ports/host_memory.h"

namespace cxlpool::agent {

// A LD that the fabric shows in a slot of the host, not powered on by the host yet.
struct PluggedLd {
  uint32_t slot = 0;
  uint64_t serial = 0;
  std::string host_bridge;
};

class HostMemoryRig {
 public:
  virtual ~HostMemoryRig() = default;

  virtual HostMemory& memory() = 0;

  // Ends the adapter and makes a new one, as a restarted agent does. The host stays.
  virtual void Restart() = 0;

  // A LD under the host bridge with this index; two bridges at least.
  // RESOURCE_EXHAUSTED: there is no more.
  virtual absl::StatusOr<PluggedLd> Plug(size_t bridge) = 0;

  // The test is done with the LD: there is no host region on it.
  virtual void GiveBack(const PluggedLd& ld) = 0;

  // Whether the fabric has the proof that the host cannot reach the LD.
  virtual bool ProvenUnplugged(const PluggedLd& ld) = 0;

  // Whether host bridges have decoder stacks.
  virtual bool HasStacks() const { return true; }

  // Whether the adapter can make a host region of several targets.
  virtual bool CanInterleave() const { return true; }

  // Takes the LD away behind the host's back. False: not possible here.
  virtual bool Yank(const PluggedLd&) { return false; }
};

// Makes a rig, or says why there is none here: then the test is skipped.
using HostMemoryRigFactory = std::function<absl::StatusOr<std::unique_ptr<HostMemoryRig>>()>;

class HostMemoryContract : public ::testing::TestWithParam<HostMemoryRigFactory> {
 protected:
  using Call = std::function<void(HostMemory&, Done)>;

  void SetUp() override;
  void TearDown() override;

  // Each waits for the completion, up to two minutes.
  absl::Status Do(const Call& call);
  HostObservation Observe();
  std::vector<int> Holders(uint64_t serial);

  absl::Status PowerOn(const PluggedLd& ld);
  absl::Status Create(const PluggedLd& ld);
  absl::Status Bind(const PluggedLd& ld, DaxDriver driver);
  absl::Status Unbind(const PluggedLd& ld);
  absl::Status Destroy(const PluggedLd& ld);
  absl::Status PowerOff(const PluggedLd& ld);

  // Takes a LD from the rig and powers it on. Nothing: the test has been marked as skipped.
  bool Take(size_t bridge, PluggedLd& ld);

  // Takes as many LDs of the first bridge; the host region over all of them. Empty: skipped.
  std::vector<PluggedLd> TakeSet(size_t ways);
  HostRegionSpec SpecOver(const std::vector<PluggedLd>& set, uint32_t granularity_bytes);
  absl::Status CreateOver(const HostRegionSpec& spec);
  void RefusesToInterleave(const std::vector<PluggedLd>& set);
  // Maps the first `bytes` of the DAX device for writing, for as long as `use` runs.
  void WithBytes(const PluggedLd& ld, size_t bytes, const std::function<void(uint64_t*)>& use);

  // What Observe shows of the LD; fails the test where there is none.
  ObservedHostRegion Region(const PluggedLd& ld);
  ObservedBridge Bridge(const std::string& name);
  bool HasMemdev(const PluggedLd& ld);
  bool HasRegion(const PluggedLd& ld);

  std::unique_ptr<HostMemoryRig> rig_;
  std::vector<PluggedLd> taken_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_CONTRACT_HOST_MEMORY_CONTRACT_H_
