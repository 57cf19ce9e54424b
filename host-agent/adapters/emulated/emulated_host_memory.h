// HostMemory without CXL: the files of slot.proto stand for the fabric, the kernel's tables and
// the DAX devices.
//
// What it shows is what Linux would: memdevs come and go with the fabric's files, each host
// bridge has a decoder stack that blocks as the real one does (cxl_host.h), kmem has memory
// blocks of 128 MiB. NUMA node 0 stands in for the node that system-ram would make. Everything is
// read from the files each time, so a restarted agent finds what was there.
//
// A host region whose memdev vanished stays, keeping its address, until it is destroyed or its
// slot is powered on again for another LD.
//
// One target a host region. An extent is a file of its own, and OpenDax owes one descriptor whose
// bytes are the host region: none spans two files by turns. Mapped stripe by stripe instead, the
// smallest granularities are below a page, and the largest (16 KiB) takes 16384 pieces for 256 MiB,
// where a packet of local.proto has room for some two thousand. So interleaving is refused.
//
// Work runs on the Executor given; OpenDax on the caller's thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_EMULATED_HOST_MEMORY_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_EMULATED_HOST_MEMORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "host-agent/adapters/emulated/slot_files.h"
#include "host-agent/ports/host_memory.h"
#include "proto/support/cxl_host.h"

namespace cxlpool::agent {

inline constexpr uint64_t kEmulatedMemoryBlockBytes = uint64_t{128} << 20;
inline constexpr uint64_t kEmulatedGranuleBytes = uint64_t{2} << 20;
inline constexpr uint64_t kEmulatedMaxWindowBytes = uint64_t{1} << 40;

struct EmulatedBridge {
  std::string name;
  std::vector<uint32_t> slots;
  uint32_t max_regions = 4;
  uint64_t window_bytes = uint64_t{64} << 30;  // At most kEmulatedMaxWindowBytes.
};

struct EmulatedOptions {
  std::string root;  // Absolute.
  std::string host;  // Host id, without "hosts/".
  std::vector<EmulatedBridge> bridges;
  absl::Duration power_on_timeout = absl::Seconds(5);
};

class EmulatedHostMemory : public HostMemory {
 public:
  // `executor` and `clock` outlive this.
  EmulatedHostMemory(EmulatedOptions options, Executor* executor, Clock* clock);

  void Prepare(Done done) override;
  void Observe(DoneWith<HostObservation> done) override;
  void PowerOn(uint32_t slot, uint64_t serial, Done done) override;
  void CreateHostRegion(HostRegionSpec spec, Done done) override;
  void BindDax(uint64_t serial, DaxDriver driver, Done done) override;
  void OnlineBlocks(uint64_t serial, MemoryZone zone, Done done) override;
  void OfflineBlocks(uint64_t serial, absl::Duration patience, Done done) override;
  void UnbindDax(uint64_t serial, Done done) override;
  void DestroyHostRegion(uint64_t serial, Done done) override;
  void PowerOff(uint32_t slot, uint64_t serial, Done done) override;
  void FindHolders(uint64_t serial, DoneWith<std::vector<ProcessId>> done) override;
  absl::StatusOr<OpenedDax> OpenDax(uint64_t serial, bool read_only) override;

 private:
  struct Slot {
    uint32_t number = 0;
    size_t bridge = 0;  // Index into options_.bridges.
    std::string directory;
    SlotFiles files;
  };

  // Runs `work` on the executor and answers with what it returns.
  void Run(absl::AnyInvocable<absl::Status() &&> work, Done done);
  void AwaitLd(uint32_t slot, uint64_t serial, absl::Duration deadline, Done done);

  absl::Status CheckDirectories() const;
  absl::StatusOr<std::vector<Slot>> ReadSlots() const;
  absl::StatusOr<HostObservation> Look() const;
  // The slot whose host side is about `serial`; NOT_FOUND/NO_HOST_REGION.
  absl::StatusOr<Slot> SlotOf(uint64_t serial) const;
  BridgeStack StackOfBridge(size_t bridge, const std::vector<Slot>& slots) const;
  ObservedBridge ShowBridge(size_t bridge, const BridgeStack& stack) const;
  uint64_t WindowBase(size_t bridge) const { return (bridge + 1) * kEmulatedMaxWindowBytes; }

  absl::Status CreateNow(const HostRegionSpec& spec);
  absl::Status BindNow(uint64_t serial, DaxDriver driver);
  absl::Status SetOnline(uint64_t serial, bool online);
  absl::Status UnbindNow(uint64_t serial);
  absl::Status DestroyNow(uint64_t serial);
  absl::Status PowerOffNow(uint32_t slot, uint64_t serial);

  const EmulatedOptions options_;
  Executor* const executor_;
  Clock* const clock_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_EMULATED_HOST_MEMORY_H_
