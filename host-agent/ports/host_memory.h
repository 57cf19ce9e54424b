// One host's CXL memory as its kernel has it: look, and take one rung of the ladder.
//
// Rungs up: PowerOn, CreateHostRegion, BindDax (+ OnlineBlocks for system-ram). Rungs down:
// OfflineBlocks, UnbindDax, DestroyHostRegion, PowerOff. Each is idempotent, and none is believed:
// the core calls Observe after it and goes by what the kernel says then.
//
// The core has at most one rung under way at a time (concurrent teardown under one switch has
// corrupted kernels: CVE-2026-31530). Observe and FindHolders may run meanwhile. Calls do not
// block; completions come from any thread, each within the adapter's stated deadline
// (DEADLINE_EXCEEDED: it may still happen; Observe). The contract is
// test/contract/host_memory_contract.h.
#ifndef CXLPOOL_HOST_AGENT_PORTS_HOST_MEMORY_H_
#define CXLPOOL_HOST_AGENT_PORTS_HOST_MEMORY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "host-agent/model/observation.h"
#include "host-agent/ports/process_watch.h"
#include "proto/support/executor.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

// Bytes [i * granularity, (i + 1) * granularity) are in target i mod ways.
struct HostRegionSpec {
  std::string host_bridge;
  std::vector<uint64_t> serials;              // One a target, in target order.
  uint32_t interleave_granularity_bytes = 0;  // 0: the window's own.
  uint64_t size_bytes = 0;                    // The whole host region, all targets together.
};

// Bytes [offset, offset + size) of the descriptor are the host region.
struct OpenedDax {
  OpenedDax(UniqueFd opened, uint64_t offset = 0,  // NOLINT: a descriptor is one from byte 0.
            std::string its_node = "")
      : fd(std::move(opened)), offset_bytes(offset), node(std::move(its_node)) {}
  UniqueFd fd;
  uint64_t offset_bytes = 0;
  // The absolute path of a file that is the host region and nothing besides; "": there is none.
  std::string node;
};

class HostMemory {
 public:
  virtual ~HostMemory() = default;

  // Puts the host's policy in order before anything is bound: DAX autoprobe off, so that no
  // driver takes a new DAX device by itself. Call once, first; again after an error.
  // FAILED_PRECONDITION names what the machine lacks (module, kernel option, right) and how to
  // fix it.
  virtual void Prepare(Done done) = 0;

  // Reads the kernel's state. Never changes anything.
  virtual void Observe(DoneWith<HostObservation> done) = 0;

  // Powers the slot on and waits for the memdev with `serial`.
  // DEADLINE_EXCEEDED/MEMDEV_TIMEOUT: it did not come.
  virtual void PowerOn(uint32_t slot, uint64_t serial, Done done) = 0;

  // Makes and commits the host region; its DAX device exists and no driver has it.
  // FAILED_PRECONDITION: BRIDGE_BLOCKED, DECODERS_FULL, WINDOW_FULL (remedy names the blocker).
  // INTERNAL/REGION_COMMIT: the kernel refused; what was half made has been taken away.
  // UNIMPLEMENTED/INTERLEAVE_UNSUPPORTED: this host cannot, and never will.
  virtual void CreateHostRegion(HostRegionSpec spec, Done done) = 0;

  // Gives the DAX device of the host region with a target `serial` to `driver`. For kKmem
  // the memory blocks appear offline. From one driver to the other goes through UnbindDax.
  virtual void BindDax(uint64_t serial, DaxDriver driver, Done done) = 0;

  // Brings every block online that is not: in ZONE_MOVABLE; or with kKernel in the zone that the
  // kernel takes for its own memory, from where it may never go offline again.
  // FAILED_PRECONDITION/NOT_MOVABLE: a block was online in another zone before.
  virtual void OnlineBlocks(uint64_t serial, MemoryZone zone, Done done) = 0;

  // Brings every block offline, in a child process that is killed after `patience`: the kernel
  // itself sets no limit, and no other rung of the host is taken meanwhile.
  // FAILED_PRECONDITION/BLOCKS_BUSY: some stay online; retry later. Metadata "cause" is busy,
  // timeout (it was killed) or no_room; "blocks" and "zone" name them as in v1::SegmentError,
  // "pids" and "starts" (with commas, in the same order) who is known to use their NUMA node, and
  // when each of them started.
  // Partial progress is kept and seen by Observe.
  virtual void OfflineBlocks(uint64_t serial, absl::Duration patience, Done done) = 0;

  // Takes the DAX device from its driver. FAILED_PRECONDITION/BLOCKS_BUSY while a block is
  // online (the kernel would say success and leave it broken), and where one came online meanwhile.
  virtual void UnbindDax(uint64_t serial, Done done) = 0;

  // Destroys the host region with a target `serial`, also one that was left half made or whose
  // memdevs vanished. Serial 0: every one without targets whose owner is not known.
  // FAILED_PRECONDITION/DAX_BOUND while a driver has its DAX device, /BLOCKS_BUSY while the kernel
  // uses its memory without a driver (until a reboot). No such region: OK.
  virtual void DestroyHostRegion(uint64_t serial, Done done) = 0;

  // Powers the slot off, for an unbind that the fabric has begun; the memdev is gone afterwards.
  // FAILED_PRECONDITION/REGION_LIVE while a host region uses it. Empty slot: OK, and it still
  // shows that to the fabric (an agent may have died between the two).
  // FAILED_PRECONDITION/OTHER_MEMDEV: the slot holds another memdev, which stays on.
  virtual void PowerOff(uint32_t slot, uint64_t serial, Done done) = 0;

  // Processes that have the DAX device open or mapped, the agent itself left out. At most 32. One
  // that ended while it was looked at is left out as well.
  virtual void FindHolders(uint64_t serial, DoneWith<std::vector<ProcessId>> done) = 0;

  // Opens the DAX device for an application: O_RDONLY if `read_only`, else O_RDWR; CLOEXEC.
  // Quick; the core's thread.
  virtual absl::StatusOr<OpenedDax> OpenDax(uint64_t serial, bool read_only) = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_PORTS_HOST_MEMORY_H_
