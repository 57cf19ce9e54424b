// The small grammars of sysfs and procfs. Pure; any thread. What does not parse is nothing, never
// a guess.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_KERNEL_TEXT_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_KERNEL_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cxlpool::agent {

// "4096", "0x1000"; surrounding white space is allowed.
std::optional<uint64_t> ParseKernelNumber(absl::string_view text);

// "8000000": hexadecimal without 0x, as block_size_bytes has it.
std::optional<uint64_t> ParseHex(absl::string_view text);

// "0-2,5": the numbers in a list such as has_normal_memory. Empty if malformed or more than 4096.
std::vector<int> ParseNumberList(absl::string_view text);

// The bytes of `key` ("MemFree") in /proc/meminfo or nodeN/meminfo, whose lines read
// "[Node N ]MemFree:   851832 kB".
std::optional<uint64_t> MeminfoBytes(absl::string_view meminfo, absl::string_view key);

// The number of a PCI slot's folder: "10" gives 10. Nothing for others ("10-1", "eth").
std::optional<uint32_t> ParseSlotNumber(absl::string_view name);

inline constexpr absl::string_view kCxlDevices = "sys/bus/cxl/devices";

// An attribute or link of a CXL device, as a path for HostFiles.
std::string CxlFile(absl::string_view device, absl::string_view attribute);

// A number as the kernel writes it: all ones is its word for none. 0: none, or unknown.
uint64_t KnownOrZero(std::optional<uint64_t> number);

// Whether a CXL device's name is `kind` and a number: "port1"; not "ports", not "portal1".
bool IsNumbered(absl::string_view name, absl::string_view kind);

// "decoder2.3" is decoder 3 of the root, port or endpoint with number 2.
struct DecoderName {
  std::string port;
  int id = 0;
};
std::optional<DecoderName> ParseDecoder(absl::string_view name);

// The host bridge in a resolved sysfs path of a PCI device: of
// "sys/devices/pci0000:0c/0000:0c:00.0/..." it is "pci0000:0c". "" if there is none.
std::string PciHostBridgeOf(absl::string_view resolved_path);

// The PCI functions in a resolved sysfs path, outermost first.
std::vector<std::string> PciFunctionsOf(absl::string_view resolved_path);

// True if /proc/PID/maps shows a mapping of file `inode` on device `major:minor`, or of a file
// named `base_name` whatever its folder (a process may see /dev under another mount).
struct MappedFile {
  std::string base_name;
  uint32_t major = 0;
  uint32_t minor = 0;
  uint64_t inode = 0;
};
bool MapsShow(absl::string_view maps, const MappedFile& file);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_KERNEL_TEXT_H_
