// The Slot Control register of a downstream port, for slots without a power controller.
//
// A port that advertises no power controller (QEMU's cxl-downstream) never has its Slot Control
// written by the kernel's hot-plug driver, and the other side then never learns that the slot is
// off. PCI Express Base Specification 6.0: 7.5.3.9 Slot Capabilities, 7.5.3.10 Slot Control.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_PCIE_SLOT_CONTROL_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_PCIE_SLOT_CONTROL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

// Offset of the PCI Express capability in a configuration space; nothing if there is none or the
// list is malformed. `config` is at least its first 64 bytes.
std::optional<size_t> FindPcieCapability(absl::string_view config);

// Slot Capabilities bit 1; nothing if `config` ends before it.
std::optional<bool> HasPowerController(absl::string_view config, size_t capability);

// `control` with Power Controller Control off (bit 10) and Power Indicator Control off (bits 9:8).
constexpr uint16_t SlotControlOff(uint16_t control) {
  return static_cast<uint16_t>((control & ~0x0700) | 0x0700);
}

// Writes that to the port `function` ("0000:0e:00.0") unless it has a power controller of its own.
// To be called only after the slot was powered off by its driver: done before, the device goes
// away for the fabric while this host still stores to it.
// INTERNAL/SLOT_CONTROL: the register could not be read or written.
absl::Status ShowSlotOff(const HostFiles& files, const std::string& function);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_PCIE_SLOT_CONTROL_H_
