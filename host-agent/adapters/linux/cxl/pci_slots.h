// The host's hot-plug slots: their numbers, the ports in front of them, the host bridges above.
//
// Read from sysfs: libcxl knows ports and memdevs but no slots, and only the PCI core knows an
// empty slot. The functions are stateless, the class guards itself; any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_PCI_SLOTS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_PCI_SLOTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "proto/support/mutex.h"

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

// The same, remembered while there are the same slots: a switch that is plugged in brings its own.
// One without slots is noticed after kMaxAge.
class PciSlots {
 public:
  static constexpr absl::Duration kMaxAge = absl::Minutes(1);

  explicit PciSlots(const HostFiles& files) : files_(files) {}

  std::vector<PciSlot> Read(absl::Time now = absl::Now());

 private:
  const HostFiles& files_;
  Mutex mutex_;
  std::vector<HostFiles::Entry> seen_ ABSL_GUARDED_BY(mutex_);
  absl::Time read_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::vector<PciSlot> slots_ ABSL_GUARDED_BY(mutex_);
};

// NOT_FOUND/NO_SLOT lists the slots that there are.
absl::StatusOr<PciSlot> FindPciSlot(const HostFiles& files, uint32_t number);

// How many slots can take an LD: those that hold a switch cannot.
size_t CountSlotsForDevices(const HostFiles& files);

// True if the PCI core has a function 0 in the slot.
bool SlotOccupied(const HostFiles& files, const PciSlot& slot);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_PCI_SLOTS_H_
