#include "host-agent/adapters/linux/cxl/slot_power.h"

#include <cerrno>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "host-agent/adapters/linux/cxl/pci_slots.h"
#include "host-agent/adapters/linux/cxl/pcie_slot_control.h"
#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr absl::Duration kPokeAgain = absl::Seconds(1);
// A memdev that is so long without a driver is taken for one that the kernel has given up. Of a
// link that is being reset nothing shows that: its memdev has no driver meanwhile.
constexpr absl::Duration kGivenUpAfter = absl::Seconds(2);

std::string PowerFile(const PciSlot& slot) {
  return absl::StrCat("sys/bus/pci/slots/", slot.number, "/power");
}

// Serial of the memdev that sits in the slot; nothing if there is none.
std::optional<uint64_t> SerialInSlot(const HostFiles& files, const PciSlot& slot) {
  const std::string device = absl::StrCat("sys/bus/pci/devices/", slot.device, ".0");
  for (const std::string& name : files.List(device)) {
    if (!absl::StartsWith(name, "mem")) continue;
    const auto serial = files.ReadNumber(absl::StrCat(device, "/", name, "/serial"));
    if (serial.has_value()) return serial;
  }
  return std::nullopt;
}

absl::Status OtherMemdev(const PciSlot& slot, uint64_t wanted, uint64_t found) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_MEMDEV",
                absl::StrFormat("slot %d holds the memdev with serial %#x, not %#x", slot.number,
                                found, wanted),
                "the fabric and this host disagree about the slot: reconcile the fabric first");
}

bool PowerRefused(int error) {
  // ENODEV: on (or off) already, or the attention button's own course is under way.
  return error != 0 && error != ENODEV && error != EBUSY && error != EAGAIN;
}

absl::Status PowerFailed(const PciSlot& slot, absl::string_view what, int error) {
  return Refuse(absl::StatusCode::kInternal, "SLOT_POWER",
                absl::StrCat("powering slot ", slot.number, " ", what, ": ", ErrnoText(error)),
                error == EACCES || error == EPERM
                    ? "run as root"
                    : "look at the kernel's log for pciehp messages about this slot");
}

}  // namespace

std::string MemdevBySerial(const HostFiles& files, uint64_t serial) {
  for (const std::string& name : files.List(kCxlDevices)) {
    if (absl::StartsWith(name, "mem") &&
        files.ReadNumber(absl::StrCat(kCxlDevices, "/", name, "/serial")) == serial) {
      return name;
    }
  }
  return "";
}

// An error of the link takes the memdev's driver away and gives it back; where the two overlap the
// kernel refuses with EBUSY ("cxl_mem mem0: probe ... failed with error -16") and never tries
// again. A memdev that has a driver is left alone.
bool AwaitMemdev(const HostFiles& files, uint64_t serial, const Deadline& deadline) {
  std::optional<Deadline> bind_at;
  return PollUntil(deadline, [&] {
    if (MemdevReady(files, serial)) return true;
    const std::string memdev = MemdevBySerial(files, serial);
    if (memdev.empty() || !files.LinkName(CxlFile(memdev, "driver")).empty()) {
      bind_at.reset();
    } else if (!bind_at.has_value()) {
      bind_at = Deadline::In(kGivenUpAfter);
    } else if (bind_at->passed()) {
      files.Write("sys/bus/cxl/drivers/cxl_mem/bind", memdev);
      bind_at = Deadline::In(kPokeAgain);
    }
    return false;
  });
}

// A memdev with `serial` that is there already is enough, however it came to be powered. But it has
// to be in this slot: the fabric goes by slots.
absl::Status PowerSlotOn(const HostFiles& files, uint32_t number, uint64_t serial,
                         const Deadline& deadline) {
  absl::StatusOr<PciSlot> slot = FindPciSlot(files, number);
  if (!slot.ok()) return slot.status();
  int error = 0;
  std::optional<Deadline> poke_again;
  const bool came = PollUntil(deadline, [&] {
    if (!MemdevBySerial(files, serial).empty()) return true;
    // Skips the five seconds that the hot-plug driver allows for a second press of the button.
    // Again now and then: the device may be plugged only while we wait.
    if (!poke_again.has_value() || poke_again->passed()) {
      error = files.Write(PowerFile(*slot), "1");
      poke_again = Deadline::In(kPokeAgain);
    }
    return PowerRefused(error);
  });
  if (PowerRefused(error)) return PowerFailed(*slot, "on", error);
  if (!came) {
    std::string instead = SlotOccupied(files, *slot) ? "; a device is there" : "";
    if (const std::optional<uint64_t> found = SerialInSlot(files, *slot); found.has_value()) {
      instead = absl::StrFormat("; the one there has %#x", *found);
    }
    return Refuse(absl::StatusCode::kDeadlineExceeded, "MEMDEV_TIMEOUT",
                  absl::StrFormat("slot %d is on but no memdev with serial %#x came%s", number,
                                  serial, instead),
                  "check that the fabric bound it to this port, and the kernel's log for cxl_pci");
  }
  const std::optional<uint64_t> in_slot = SerialInSlot(files, *slot);
  if (in_slot.has_value() && *in_slot != serial) return OtherMemdev(*slot, serial, *in_slot);
  if (!in_slot.has_value()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_MEMDEV",
                  absl::StrFormat("the memdev with serial %#x is not in slot %d", serial, number),
                  "the fabric and this host disagree about the slot: reconcile the fabric first");
  }
  if (AwaitMemdev(files, serial, deadline)) return absl::OkStatus();
  return Refuse(absl::StatusCode::kDeadlineExceeded, "MEMDEV_TIMEOUT",
                absl::StrFormat("the memdev with serial %#x is in slot %d but its decoders are not "
                                "ready",
                                serial, number),
                "check the kernel's log for cxl_mem and cxl_port");
}

absl::Status PowerSlotOff(const HostFiles& files, uint32_t number, uint64_t serial,
                          const Deadline& deadline) {
  absl::StatusOr<PciSlot> slot = FindPciSlot(files, number);
  if (!slot.ok()) return slot.status();
  const std::optional<uint64_t> found = SerialInSlot(files, *slot);
  if (found.has_value() && *found != serial) return OtherMemdev(*slot, serial, *found);
  int error = 0;
  std::optional<Deadline> poke_again;
  const bool gone = PollUntil(deadline, [&] {
    if (!poke_again.has_value() || poke_again->passed()) {
      error = files.Write(PowerFile(*slot), "0");
      poke_again = Deadline::In(kPokeAgain);
    }
    return PowerRefused(error) || !SlotOccupied(files, *slot);
  });
  if (SlotOccupied(files, *slot)) {
    if (PowerRefused(error)) return PowerFailed(*slot, "off", error);
    if (!gone) {
      return Refuse(absl::StatusCode::kDeadlineExceeded, "KERNEL_TIMEOUT",
                    absl::StrCat("slot ", number, " was powered off but its device is still there"),
                    "look at the kernel's log for pciehp messages about this slot");
    }
  }
  return ShowSlotOff(files, slot->downstream_port);
}

}  // namespace cxlpool::agent
