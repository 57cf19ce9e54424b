#include "host-agent/adapters/linux/cxl/host_region.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "host-agent/adapters/linux/cxl/bridge_view.h"
#include "host-agent/adapters/linux/cxl/region_plan.h"
#include "host-agent/adapters/linux/cxl/slot_power.h"
#include "host-agent/adapters/linux/cxl/sysfs_region.h"
#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"
#include "host-agent/adapters/linux/dax/dax_driver.h"
#include "host-agent/adapters/linux/dax/dax_lookup.h"
#include "host-agent/adapters/linux/machine/machine.h"
#include "host-agent/adapters/linux/memory/memory_blocks.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// A DAX device that is made again comes within milliseconds or not at all; other rungs wait.
constexpr absl::Duration kRemakeTimeout = absl::Seconds(5);
// Enough for AwaitMemdev to give a memdev to its driver once. Other rungs wait for this, too.
constexpr absl::Duration kReadyTimeout = absl::Seconds(3);

// Refuses what anybody still uses: a driver its DAX device, or another that somebody made of it
// (daxctl create-device), or the kernel its memory. The latter may be where kmem was unbound
// although a block was online. It is asked of a committed region only: one whose memdevs were
// pulled out has no decoders, so that nobody reaches anything through it, and its blocks stay
// online until the next boot whether it goes or not.
absl::Status Destroy(const HostFiles& files, const CxlHostRegion& region) {
  for (const DaxDevice& dax : ReadDaxDevices(files)) {
    if (dax.region != region.name) continue;
    const std::string driver = DaxDriverName(files, dax.name);
    if (driver.empty() && CXLPOOL_MUTANT("first-dax-device-speaks-for-all")) break;
    if (driver.empty()) continue;
    return Refuse(absl::StatusCode::kFailedPrecondition, "DAX_BOUND",
                  absl::StrCat("host region ", region.name, ": driver ", driver, " has its device ",
                               dax.name),
                  "unbind it first");
  }
  if (region.committed && !CXLPOOL_MUTANT("destroyed-under-online-blocks")) {
    absl::Status status = CheckNoBlocksStay(files, absl::StrCat("host region ", region.name),
                                            region.hpa_bytes, region.size_bytes);
    if (!status.ok()) return status;
  }
  return DeleteRegion(files, region);
}

// The window that `region` lies in, if it is over a host bridge of `spec`; else null.
const CxlWindow* SharedWindow(const CxlSnapshot& snapshot, const CxlHostRegion& region,
                              const HostRegionSpec& spec) {
  const auto is_of_spec = [&](const std::string& bridge) {
    return AcpiNameOf(snapshot, bridge) == spec.host_bridge ||
           std::any_of(spec.serials.begin(), spec.serials.end(), [&](uint64_t serial) {
             const CxlMemdev* const memdev = FindMemdev(snapshot, serial);
             return memdev != nullptr && memdev->pci_bridge == bridge;
           });
  };
  for (const CxlWindow& window : snapshot.windows) {
    if (window.name != region.window) continue;
    return std::any_of(window.bridges.begin(), window.bridges.end(), is_of_spec) ? &window
                                                                                 : nullptr;
  }
  return nullptr;
}

// Whether `region` is for MakeHostRegion to clear away. Half made on a memdev of `spec`: yes, the
// memdev is the pool's. An orphan in a window of `spec`: yes, if it is known to have been a pool's.
// One that is anonymous may be a region that a person is just making: that begins without targets,
// too. So it is left to AttachmentTable::TakeOrphans, which waits until it is old. Nobody does that
// where the pool's devices have their hardware's serials; there it goes if it keeps the room that
// `spec` needs.
bool IsInTheWay(const CxlSnapshot& snapshot, const CxlHostRegion& region,
                const HostRegionSpec& spec) {
  if (region.committed) return false;
  const auto is_of_spec = [&](const CxlRegionTarget& target) {
    return std::find(spec.serials.begin(), spec.serials.end(), target.serial) != spec.serials.end();
  };
  if (std::any_of(region.targets.begin(), region.targets.end(), is_of_spec)) return true;
  const CxlWindow* const window = SharedWindow(snapshot, region, spec);
  if (!IsOrphan(region) || (window == nullptr && !CXLPOOL_MUTANT("orphans-of-any-window"))) {
    return false;
  }
  if (IsAnonymousOrphan(region) && !CXLPOOL_MUTANT("a-persons-region-is-cleared")) {
    return !std::any_of(spec.serials.begin(), spec.serials.end(), IsPoolSerial) &&
           region.hpa_bytes != 0 && window->largest_free_bytes < spec.size_bytes;
  }
  return std::all_of(region.targets.begin(), region.targets.end(),
                     [](const CxlRegionTarget& target) {
                       return target.serial == 0 || IsPoolSerial(target.serial);
                     });
}

// Clears the way for `spec`: see IsInTheWay. Whether there was anything.
absl::StatusOr<bool> ClearLeftOvers(const HostFiles& files, const CxlSnapshot& snapshot,
                                    const HostRegionSpec& spec) {
  bool cleared = false;
  for (const CxlHostRegion& region : snapshot.regions) {
    if (!IsInTheWay(snapshot, region, spec)) continue;
    if (absl::Status status = Destroy(files, region); !status.ok()) return status;
    cleared = true;
  }
  return cleared;
}

// Waits for those of the memdevs for `spec` that are there without their decoders. Whether there
// were any.
bool AwaitUnready(const HostFiles& files, const CxlSnapshot& snapshot, const HostRegionSpec& spec,
                  const Deadline& deadline) {
  bool waited = false;
  for (const uint64_t serial : spec.serials) {
    const CxlMemdev* const memdev = FindMemdev(snapshot, serial);
    if (memdev == nullptr || memdev->ready) continue;
    AwaitMemdev(files, serial, deadline);
    waited = true;
  }
  return waited;
}

bool SameShape(const CxlHostRegion& region, const HostRegionSpec& spec) {
  if (region.size_bytes != spec.size_bytes || region.targets.size() != spec.serials.size()) {
    return false;
  }
  for (size_t i = 0; i < spec.serials.size(); ++i) {
    if (region.targets[i].serial != spec.serials[i] || region.targets[i].decoder.empty()) {
      return false;
    }
  }
  return spec.interleave_granularity_bytes == 0 ||
         spec.interleave_granularity_bytes == region.interleave_granularity_bytes;
}

absl::Status AwaitDax(Machine& machine, uint64_t serial, const Deadline& deadline) {
  absl::Status status;
  const auto there = [&] {
    status = LookUpDax(machine.files, serial).status();
    return status.ok();
  };
  PollUntil(deadline, there);  // Linux 7 makes it some milliseconds later.
  return status;
}

}  // namespace

// After an error nothing is left of the region, unless it cannot be destroyed either: then the next
// call, or the rungs down, find it and clear it away.
absl::Status MakeHostRegion(Machine& machine, const HostRegionSpec& spec,
                            const Deadline& deadline) {
  const HostFiles& files = machine.files;
  CxlSnapshot snapshot = LookAtCxl(machine);
  const uint64_t first = spec.serials.empty() ? 0 : spec.serials.front();
  const CxlHostRegion* const there = FindRegion(snapshot, first);
  if (there != nullptr && there->committed) {
    if (!SameShape(*there, spec)) {
      return Refuse(absl::StatusCode::kAlreadyExists, "OTHER_REGION",
                    absl::StrFormat("host region %s of %d bytes and %d targets begins with the "
                                    "memdev of serial %#x already",
                                    there->name, there->size_bytes, there->targets.size(), first),
                    "destroy it first");
    }
    if (!there->enabled) {
      if (absl::Status status = SwitchAutoprobeOff(files); !status.ok()) return status;
      if (absl::Status status = EnableRegion(files, there->name); !status.ok()) return status;
    }
    return AwaitDax(machine, first, Deadline::In(std::min(deadline.left(), kRemakeTimeout)));
  }
  const absl::StatusOr<bool> cleared = ClearLeftOvers(files, snapshot, spec);
  if (!cleared.ok()) return cleared.status();
  const Deadline soon = Deadline::In(std::min(deadline.left(), kReadyTimeout));
  const bool waited = AwaitUnready(files, snapshot, spec, soon);
  if (*cleared || waited) snapshot = LookAtCxl(machine);
  absl::StatusOr<RegionPlan> plan = PlanHostRegion(snapshot, spec);
  if (!plan.ok()) return plan.status();
  // Somebody may have switched it on since Prepare.
  if (absl::Status status = SwitchAutoprobeOff(files); !status.ok()) return status;
  if (absl::Status status = ProgramRegion(files, *plan); !status.ok()) return status;
  absl::Status status = AwaitDax(machine, first, deadline);
  if (status.ok()) return status;
  snapshot = LookAtCxl(machine);
  const CxlHostRegion* const made = FindRegion(snapshot, first);
  if (made != nullptr) Destroy(files, *made).IgnoreError();  // `status` is the first error.
  return status;
}

absl::Status DestroyHostRegionOf(Machine& machine, uint64_t serial) {
  const HostFiles& files = machine.files;
  // The quick way first; it does not know what lost its memdev.
  for (const CxlHostRegion& region : ReadCxlRegions(files, machine.shapes)) {
    if (serial != 0 && HasTarget(region, serial)) return Destroy(files, region);
  }
  const CxlSnapshot snapshot = LookAtCxl(machine);
  if (serial != 0) {
    const CxlHostRegion* const region = FindRegionWith(snapshot, serial);
    return region == nullptr ? absl::OkStatus() : Destroy(files, *region);
  }
  absl::Status status;
  for (const CxlHostRegion& region : snapshot.regions) {
    if (IsAnonymousOrphan(region)) status.Update(Destroy(files, region));
  }
  return status;
}

absl::StatusOr<DaxDevice> DaxOfHostRegion(Machine& machine, uint64_t serial) {
  const HostFiles& files = machine.files;
  // The quick way first; it does not know what lost its memdev.
  if (const absl::StatusOr<DaxNode> node = LookUpDax(files, serial); node.ok()) {
    const std::optional<DaxDevice> dax = ReadDaxDevice(files, node->name);
    if (dax.has_value() && dax->region == node->region) return *dax;
  }
  const CxlSnapshot snapshot = LookAtCxl(machine);
  const CxlHostRegion* const region = FindRegionWith(snapshot, serial);
  if (region == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "NO_HOST_REGION",
                  absl::StrFormat("no host region has the memdev of serial %#x", serial),
                  "make the host region first");
  }
  const std::vector<DaxDevice> devices = ReadDaxDevices(files);
  const DaxDevice* const dax = FindDax(devices, region->name);
  if (dax != nullptr) return *dax;
  return Refuse(absl::StatusCode::kNotFound, "NO_DAX_DEVICE",
                absl::StrCat("host region ", region->name, " has no DAX device"),
                "check that the module dax_cxl is loaded");
}

}  // namespace cxlpool::agent
