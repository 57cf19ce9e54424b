// A Linux host as its adapter sees it: its files, what is remembered of them between two looks, and
// the look at its CXL that combines both.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_MACHINE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_MACHINE_H_

#include <string>
#include <utility>

#include "host-agent/adapters/linux/cxl/cxl_shape.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/cxl/known_targets.h"
#include "host-agent/adapters/linux/cxl/pci_slots.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/memory/node_room.h"

namespace cxlpool::agent {

// Shared by the threads of the adapter: what is remembered guards itself.
struct Machine {
  explicit Machine(HostFiles its_files, const std::string& known_regions_file = "",
                   const std::string& boot_id = "")
      : files(std::move(its_files)), known(known_regions_file, boot_id) {}
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const HostFiles files;
  KnownTargets known;
  CxlShapes shapes{files};
  PciSlots slots{files};
  PageStructSpare page_struct_spare{files};
};

// The host's CXL as it is now: ReadCxlSnapshot, with the targets that the kernel no longer shows
// filled in from `machine.known`, and with the free space of the windows counted. Any thread.
CxlSnapshot LookAtCxl(Machine& machine);

// Lowers largest_free_bytes of the windows to what lies between regions, orphans among them: the
// kernel keeps the addresses of a region that lost all its targets until it is destroyed. Pure.
void CountFree(CxlSnapshot& snapshot);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_MACHINE_H_
