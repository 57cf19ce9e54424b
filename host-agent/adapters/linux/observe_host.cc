#include "host-agent/adapters/linux/observe_host.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/cxl/bridge_view.h"
#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"
#include "host-agent/adapters/linux/dax/dax_driver.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "host-agent/adapters/linux/machine/machine.h"
#include "host-agent/adapters/linux/memory/memory_blocks.h"
#include "host-agent/adapters/linux/memory/node_room.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

std::vector<ObservedMemdev> ViewMemdevs(const CxlSnapshot& snapshot,
                                        const std::vector<PciSlot>& slots) {
  std::vector<ObservedMemdev> views;
  for (const CxlMemdev& memdev : snapshot.memdevs) {
    if (memdev.serial == 0) continue;
    for (const PciSlot& slot : slots) {
      if (!absl::StartsWith(memdev.pci_device, absl::StrCat(slot.device, "."))) continue;
      views.push_back({memdev.serial, slot.number, memdev.name, memdev.size_bytes,
                       AcpiNameOf(snapshot, memdev.pci_bridge)});
    }
  }
  return views;
}

// A target that is there and whose serial is not known counts as kNoSerial, so that it is not taken
// for one that was pulled out (0).
ObservedHostRegion ViewRegion(const HostFiles& files, const CxlHostRegion& region,
                              const DaxDevice* dax) {
  ObservedHostRegion view;
  view.name = region.name;
  for (const CxlRegionTarget& target : region.targets) {
    const bool there = !target.decoder.empty();
    view.serials.push_back(there && target.serial == 0 ? kNoSerial : target.serial);
  }
  view.committed = region.committed;
  view.hpa_bytes = region.hpa_bytes;
  view.size_bytes = region.size_bytes;
  view.interleave_granularity_bytes = region.interleave_granularity_bytes;
  if (dax == nullptr) return view;
  view.dax_device = dax->name;
  view.dax_driver = DaxDriverOf(files, dax->name);
  view.numa_node = dax->target_node;
  view.dax_align_bytes = dax->align_bytes;
  if (view.dax_driver != DaxDriver::kKmem) return view;
  const std::vector<MemoryBlock> blocks = ReadMemoryBlocks(files, dax->hpa_bytes, dax->size_bytes);
  view.total_blocks = static_cast<uint32_t>(blocks.size());
  view.online_blocks = CountOnline(blocks);
  view.all_movable = view.online_blocks != 0 &&
                     std::all_of(blocks.begin(), blocks.end(),
                                 [](const MemoryBlock& b) { return b.offline || b.movable; });
  return view;
}

std::vector<int> ReadOwnNodes(const HostFiles& files) {
  return ParseNumberList(files.Read("sys/devices/system/node/has_cpu").value_or(""));
}

namespace {

// Without the bus there is nothing on it. A bus that cannot be listed has who knows what.
absl::Status CheckListed(const HostFiles& files) {
  std::vector<std::string> names;
  const int error = files.ReadNames(kCxlDevices, names);
  if (error == 0 || error == ENOENT || CXLPOOL_MUTANT("unread-is-absent")) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kUnavailable, "HOST_UNREADABLE",
      absl::StrCat("/", kCxlDevices, " cannot be listed: ", ErrnoText(error)),
      "free memory on this host, or raise LimitNOFILE of cxlpool-agent; it is tried again");
}

}  // namespace

// Looks before, since what is seen is remembered (KnownTargets), and afterwards: descriptors may
// have run out in between, and what could not be opened looks as if it were not there.
absl::StatusOr<HostObservation> ObserveHost(Machine& machine) {
  const HostFiles& files = machine.files;
  if (absl::Status status = CheckListed(files); !status.ok()) return status;
  const CxlSnapshot snapshot = LookAtCxl(machine);
  const std::vector<DaxDevice> devices = ReadDaxDevices(files);
  const std::vector<PciSlot> slots = machine.slots.Read();

  HostObservation observation;
  observation.bridges = ViewBridges(snapshot, slots);
  observation.memdevs = ViewMemdevs(snapshot, slots);
  for (const CxlHostRegion& region : snapshot.regions) {
    observation.regions.push_back(ViewRegion(files, region, FindDax(devices, region.name)));
  }
  observation.memory_block_bytes = MemoryBlockBytes(files);
  // 0 would say that it is not known.
  observation.page_struct_spare_bytes = std::max<uint64_t>(1, machine.page_struct_spare.Read());
  observation.own_nodes = ReadOwnNodes(files);
  if (absl::Status status = CheckListed(files); !status.ok()) return status;
  return observation;
}

}  // namespace cxlpool::agent
