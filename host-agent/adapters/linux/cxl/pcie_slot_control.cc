#include "host-agent/adapters/linux/cxl/pcie_slot_control.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {
namespace {

constexpr size_t kConfigBytes = 256;
constexpr size_t kStatus = 0x06;  // Bit 4: there is a capability list.
constexpr size_t kCapabilityPointer = 0x34;
constexpr uint8_t kPcieCapabilityId = 0x10;
constexpr size_t kSlotCapabilities = 0x14;  // In the PCI Express capability.
constexpr size_t kSlotControl = 0x18;
constexpr int kMaxCapabilities = 48;  // More would not fit: 4 bytes each in 192.

uint8_t Byte(absl::string_view config, size_t offset) {
  return static_cast<uint8_t>(config[offset]);
}

absl::Status Failed(const std::string& function, absl::string_view what) {
  return Refuse(absl::StatusCode::kInternal, "SLOT_CONTROL",
                absl::StrCat("Slot Control of port ", function, ": ", what),
                "the slot is powered off but the fabric may not see it; run as root with "
                "CAP_SYS_ADMIN, kernel lockdown off");
}

}  // namespace

std::optional<size_t> FindPcieCapability(absl::string_view config) {
  if (config.size() <= kCapabilityPointer || (Byte(config, kStatus) & 0x10) == 0) {
    return std::nullopt;
  }
  size_t offset = Byte(config, kCapabilityPointer) & 0xfc;
  for (int i = 0; i < kMaxCapabilities && offset >= 0x40 && offset + 2 <= config.size(); ++i) {
    if (Byte(config, offset) == kPcieCapabilityId) return offset;
    offset = Byte(config, offset + 1) & 0xfc;
  }
  return std::nullopt;
}

std::optional<bool> HasPowerController(absl::string_view config, size_t capability) {
  if (capability + kSlotCapabilities >= config.size()) return std::nullopt;
  return (Byte(config, capability + kSlotCapabilities) & 0x02) != 0;
}

absl::Status ShowSlotOff(const HostFiles& files, const std::string& function) {
  const std::string path = files.Path(absl::StrCat("sys/bus/pci/devices/", function, "/config"));
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return Failed(function, absl::StrCat(path, ": ", ErrnoText(errno)));
  char config[kConfigBytes];
  const ssize_t got = pread(fd.get(), config, sizeof config, 0);
  if (got < 0) return Failed(function, ErrnoText(errno));
  const absl::string_view bytes(config, static_cast<size_t>(got));
  const std::optional<size_t> capability = FindPcieCapability(bytes);
  if (!capability.has_value()) return Failed(function, "no PCI Express capability");
  const std::optional<bool> power_controller = HasPowerController(bytes, *capability);
  if (!power_controller.has_value() || *capability + kSlotControl + 2 > bytes.size()) {
    return Failed(function, "its configuration space ends before it");
  }
  if (*power_controller) return absl::OkStatus();  // The kernel's driver has switched it.
  const size_t at = *capability + kSlotControl;
  const uint16_t control =
      SlotControlOff(static_cast<uint16_t>(Byte(bytes, at) | Byte(bytes, at + 1) << 8));
  const uint8_t little_endian[2] = {static_cast<uint8_t>(control & 0xff),
                                    static_cast<uint8_t>(control >> 8)};
  if (pwrite(fd.get(), little_endian, 2, static_cast<off_t>(at)) != 2) {
    return Failed(function, ErrnoText(errno));
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::agent
