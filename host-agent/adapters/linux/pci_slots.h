// The host's hot-plug slots: their numbers, the ports in front of them, the host bridges above.
//
// Read from sysfs: libcxl knows ports and memdevs but no slots, and an empty slot is known to the
// PCI core alone. Stateless; any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_PCI_SLOTS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_PCI_SLOTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/host_files.h"

namespace cxlpool::agent {

struct PciSlot {
  uint32_t number = 0;
  std::string device;           // The device in it, without function: "0000:0f:00".
  std::string downstream_port;  // The function that holds its Slot registers: "0000:0e:00.0".
  std::string host_bridge;      // "pci0000:0c".
};

// Every slot that a device can be put in; a slot that holds a bridge (a switch) is not one.
// Sorted by number.
std::vector<PciSlot> ReadPciSlots(const HostFiles& files);

// NOT_FOUND/NO_SLOT lists the slots that there are.
absl::StatusOr<PciSlot> FindPciSlot(const HostFiles& files, uint32_t number);

// How many slots can take an LD: those that hold a switch cannot.
size_t CountSlotsForDevices(const HostFiles& files);

// True if the PCI core has a function 0 in the slot.
bool SlotOccupied(const HostFiles& files, const PciSlot& slot);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_PCI_SLOTS_H_
