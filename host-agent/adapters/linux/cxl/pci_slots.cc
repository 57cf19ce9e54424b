#include "host-agent/adapters/linux/cxl/pci_slots.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kSlots = "sys/bus/pci/slots";
constexpr size_t kMaxSlots = 4096;

bool HoldsBridge(const HostFiles& files, const std::string& device) {
  const std::optional<std::string> pci_class =
      files.Read(absl::StrCat("sys/bus/pci/devices/", device, ".0/class"));
  return pci_class.has_value() && absl::StartsWith(*pci_class, "0x0604");  // PCI-to-PCI bridge
}

std::optional<PciSlot> ReadSlot(const HostFiles& files, const std::string& name) {
  const std::optional<uint32_t> number = ParseSlotNumber(name);
  const std::optional<std::string> address =
      files.Read(absl::StrCat(kSlots, "/", name, "/address"));
  if (!number.has_value() || !address.has_value()) return std::nullopt;
  const size_t bus_end = address->rfind(':');  // domain:bus:device
  if (bus_end == std::string::npos) return std::nullopt;
  // Not resolved: what the link says is the whole path, for one call instead of one a component.
  const std::string bus =
      files.LinkText(absl::StrCat("sys/class/pci_bus/", address->substr(0, bus_end)));
  std::vector<std::string> functions = PciFunctionsOf(bus);
  if (functions.empty()) return std::nullopt;  // On a root bus: no slot registers of its own.
  return PciSlot{*number, *address, std::move(functions.back()), PciHostBridgeOf(bus)};
}

}  // namespace

std::vector<PciSlot> ReadPciSlots(const HostFiles& files) {
  std::vector<PciSlot> slots;
  for (const std::string& name : files.List(kSlots)) {
    std::optional<PciSlot> slot = ReadSlot(files, name);
    if (!slot.has_value() || HoldsBridge(files, slot->device)) continue;
    slots.push_back(*std::move(slot));
    if (slots.size() == kMaxSlots) break;
  }
  std::sort(slots.begin(), slots.end(),
            [](const PciSlot& a, const PciSlot& b) { return a.number < b.number; });
  return slots;
}

std::vector<PciSlot> PciSlots::Read(absl::Time now) {
  std::vector<HostFiles::Entry> seen = files_.Entries(kSlots);
  const MutexLock lock(mutex_);
  if (IsYoung(read_at_, now, kMaxAge) && seen == seen_) return slots_;
  slots_ = ReadPciSlots(files_);
  seen_ = std::move(seen);
  read_at_ = now;
  return slots_;
}

absl::StatusOr<PciSlot> FindPciSlot(const HostFiles& files, uint32_t number) {
  const std::vector<PciSlot> slots = ReadPciSlots(files);
  for (const PciSlot& slot : slots) {
    if (slot.number == number) return slot;
  }
  const auto append = [](std::string* out, const PciSlot& slot) {
    absl::StrAppend(out, slot.number);
  };
  return Refuse(
      absl::StatusCode::kNotFound, "NO_SLOT",
      absl::StrCat("this host has no hot-plug slot ", number, "; it has ",
                   slots.empty() ? "none" : absl::StrJoin(slots, ", ", append)),
      "compare the slot numbers that the fabric is configured with to /sys/bus/pci/slots");
}

size_t CountSlotsForDevices(const HostFiles& files) {
  size_t slots = 0;
  for (const std::string& name : files.List(kSlots)) {
    const auto address = files.Read(absl::StrCat(kSlots, "/", name, "/address"));
    if (!address.has_value() || !HoldsBridge(files, *address)) ++slots;
  }
  return slots;
}

bool SlotOccupied(const HostFiles& files, const PciSlot& slot) {
  return files.Exists(absl::StrCat("sys/bus/pci/devices/", slot.device, ".0"));
}

}  // namespace cxlpool::agent
