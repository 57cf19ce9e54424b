#include "host-agent/adapters/linux/linux_host_memory.h"

#include <sys/sysmacros.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "host-agent/adapters/linux/cxl/host_region.h"
#include "host-agent/adapters/linux/cxl/slot_power.h"
#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"
#include "host-agent/adapters/linux/dax/dax_driver.h"
#include "host-agent/adapters/linux/dax/dax_holders.h"
#include "host-agent/adapters/linux/dax/dax_lookup.h"
#include "host-agent/adapters/linux/machine/host_needs.h"
#include "host-agent/adapters/linux/memory/memory_blocks.h"
#include "host-agent/adapters/linux/observe_host.h"
#include "host-agent/support/lane.h"
#include "host-agent/support/run_file.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// What the jobs touch; they share it, so that one stuck in the kernel may outlive the adapter.
struct SharedMachine : Machine {
  explicit SharedMachine(const std::string& known_regions_file)
      : Machine(HostFiles(), known_regions_file, ReadBootId(HostFiles())) {}

  OfflineChild child;  // Used only by the rungs' thread.
};

// REGION_LIVE: powering the slot off would pull the memory out from under its users.
absl::Status CheckNoRegionUses(const CxlSnapshot& snapshot, uint64_t serial) {
  for (const CxlHostRegion& region : snapshot.regions) {
    for (const CxlRegionTarget& target : region.targets) {
      if (target.serial != serial || target.decoder.empty()) continue;
      return Refuse(
          absl::StatusCode::kFailedPrecondition, "REGION_LIVE",
          absl::StrFormat("host region %s uses the memdev with serial %#x", region.name, serial),
          "destroy the host region first");
    }
  }
  return absl::OkStatus();
}

// The rungs that take a DAX device find it by what sysfs shows at that moment.
template <typename Rung>
absl::Status WithDax(SharedMachine& machine, uint64_t serial, Rung rung) {
  absl::StatusOr<DaxDevice> dax = DaxOfHostRegion(machine, serial);
  if (!dax.ok()) return dax.status();
  return rung(*dax);
}

// Each call is a job of one of two lanes. Jobs hold the machine and not this object: one that hangs
// in the kernel may outlive it.
class LinuxHostMemory : public HostMemory {
 public:
  explicit LinuxHostMemory(const LinuxHostMemoryOptions& options)
      : options_(options), machine_(std::make_shared<SharedMachine>(options.known_regions_file)) {}

  void Prepare(Done done) override {
    rungs_.Run(
        "preparing the host", options_.rung_timeout,
        [machine = machine_](const Deadline&) {
          return PrepareHost(machine->files, KernelRelease());
        },
        std::move(done));
  }

  void Observe(DoneWith<HostObservation> done) override {
    looks_.RunWith<HostObservation>(
        "observing the host", options_.look_timeout,
        [machine = machine_](const Deadline&) { return ObserveHost(*machine); }, std::move(done));
  }

  void PowerOn(uint32_t slot, uint64_t serial, Done done) override {
    rungs_.Run(
        absl::StrCat("powering slot ", slot, " on"), options_.rung_timeout,
        [machine = machine_, slot, serial](const Deadline& deadline) {
          return PowerSlotOn(machine->files, slot, serial, deadline);
        },
        std::move(done));
  }

  void CreateHostRegion(HostRegionSpec spec, Done done) override {
    rungs_.Run(
        "creating a host region", options_.rung_timeout,
        [machine = machine_, spec = std::move(spec)](const Deadline& deadline) {
          return MakeHostRegion(*machine, spec, deadline);
        },
        std::move(done));
  }

  // Finds the DAX device only by targets that are still there: a host region that has lost its
  // memdev is not brought up further.
  void BindDax(uint64_t serial, DaxDriver driver, Done done) override {
    rungs_.Run(
        "binding a DAX device", options_.rung_timeout,
        [machine = machine_, serial, driver](const Deadline&) {
          absl::StatusOr<DaxNode> dax = LookUpDax(machine->files, serial);
          if (!dax.ok()) return dax.status();
          absl::Status status = BindDaxDriver(machine->files, dax->name, driver);
          // The page structs have just been taken from the spare memory.
          machine->page_struct_spare.Forget();
          return status;
        },
        std::move(done));
  }

  void OnlineBlocks(uint64_t serial, MemoryZone zone, Done done) override {
    rungs_.Run(
        "bringing memory online", options_.blocks_timeout,
        [machine = machine_, serial, zone](const Deadline&) {
          return WithDax(*machine, serial, [&](const DaxDevice& dax) {
            return OnlineMemoryBlocks(machine->files, dax, zone);
          });
        },
        std::move(done));
  }

  // The child is killed once `patience` is over. Waiting for its end and finding out who uses the
  // node take less than the lane's grace, so the caller gets this answer and not the lane's.
  void OfflineBlocks(uint64_t serial, absl::Duration patience, Done done) override {
    rungs_.Run(
        "bringing memory offline", patience,
        [machine = machine_, serial](const Deadline& deadline) {
          return WithDax(*machine, serial, [&](const DaxDevice& dax) {
            return OfflineMemoryBlocks(machine->files, dax, machine->child, deadline);
          });
        },
        std::move(done));
  }

  void UnbindDax(uint64_t serial, Done done) override {
    rungs_.Run(
        "unbinding a DAX device", options_.rung_timeout,
        [machine = machine_, serial](const Deadline&) {
          return WithDax(*machine, serial, [&](const DaxDevice& dax) {
            return UnbindDaxDriver(machine->files, dax);
          });
        },
        std::move(done));
  }

  void DestroyHostRegion(uint64_t serial, Done done) override {
    rungs_.Run(
        "destroying a host region", options_.rung_timeout,
        [machine = machine_, serial](const Deadline&) {
          return DestroyHostRegionOf(*machine, serial);
        },
        std::move(done));
  }

  // Looks at what the kernel shows and not at what is remembered: only a target that is still there
  // has memory to lose.
  void PowerOff(uint32_t slot, uint64_t serial, Done done) override {
    rungs_.Run(
        absl::StrCat("powering slot ", slot, " off"), options_.rung_timeout,
        [machine = machine_, slot, serial](const Deadline& deadline) {
          absl::Status status = CheckNoRegionUses(ReadCxlSnapshot(machine->files), serial);
          if (!status.ok()) return status;
          return PowerSlotOff(machine->files, slot, serial, deadline);
        },
        std::move(done));
  }

  // Often no DAX device is open at all; then the driver's count of users saves the search through
  // /proc.
  void FindHolders(uint64_t serial, DoneWith<std::vector<ProcessId>> done) override {
    looks_.RunWith<std::vector<ProcessId>>(
        "looking for holders", options_.look_timeout,
        [machine = machine_,
         serial](const Deadline& deadline) -> absl::StatusOr<std::vector<ProcessId>> {
          if (NoDaxDeviceIsOpen(machine->files)) return std::vector<ProcessId>();
          absl::StatusOr<DaxDevice> dax = DaxOfHostRegion(*machine, serial);
          if (absl::IsNotFound(dax.status())) return std::vector<ProcessId>();  // Nothing to hold.
          if (!dax.ok()) return dax.status();
          return FindDeviceHolders(machine->files, {dax->name, makedev(dax->major, dax->minor)},
                                   getpid(), deadline);
        },
        std::move(done));
  }

  // Runs on the caller's thread, and not in a lane: it is only a few reads and an open.
  absl::StatusOr<OpenedDax> OpenDax(uint64_t serial, bool read_only) override {
    const absl::StatusOr<DaxNode> node = LookUpDax(machine_->files, serial);
    if (!node.ok()) return node.status();
    absl::StatusOr<UniqueFd> fd = OpenDaxNode(machine_->files, *node, read_only);
    if (!fd.ok()) return fd.status();
    return OpenedDax(*std::move(fd), 0, DaxNodePath(machine_->files, node->name));
  }

 private:
  const LinuxHostMemoryOptions options_;
  const std::shared_ptr<SharedMachine> machine_;
  Lane rungs_;
  Lane looks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HostMemory>> MakeLinuxHostMemory(LinuxHostMemoryOptions options) {
  for (const absl::Duration timeout :
       {options.look_timeout, options.rung_timeout, options.blocks_timeout}) {
    if (timeout > absl::ZeroDuration() && timeout < absl::Hours(1)) continue;
    return Refuse(
        absl::StatusCode::kInvalidArgument, "BAD_OPTIONS",
        absl::StrCat("a deadline of ", absl::FormatDuration(timeout), " for calls to the kernel"),
        "give one between nothing and an hour");
  }
  return std::make_unique<LinuxHostMemory>(options);
}

}  // namespace cxlpool::agent
