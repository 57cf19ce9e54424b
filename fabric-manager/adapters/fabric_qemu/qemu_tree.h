// What is plugged into a QEMU, out of its object model (QOM): ports, and the CXL memory in them.
//
// The tree is QEMU's /machine/peripheral, where every device with an id is. Types and properties
// as QEMU 10.0 and 11.1 have them: cxl-downstream has `slot`, cxl-type3 has `parent_bus`,
// `volatile-memdev` and `sn`, memory-backend-file has `mem-path`, `offset`, `size`, `readonly`.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_TREE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_TREE_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace cxlpool::fm {

// Executes one command; errors as for QmpClient::Execute.
using QmpCall = absl::FunctionRef<absl::StatusOr<nlohmann::json>(const std::string& command,
                                                                 const nlohmann::json& arguments)>;

inline constexpr size_t kMaxPeripherals = 4096;

// Ids of the devices of one type, "cxl-type3". RESOURCE_EXHAUSTED: more than kMaxPeripherals.
absl::StatusOr<std::vector<std::string>> ListPeripherals(QmpCall call, const std::string& type);

// PCIe slot number to port id, of every cxl-downstream port.
// FAILED_PRECONDITION/SLOT_NOT_UNIQUE: two ports have one number.
absl::StatusOr<std::map<uint32_t, std::string>> ReadPorts(QmpCall call);

// Id of the port that a device sits in.
absl::StatusOr<std::string> ReadPortOf(QmpCall call, const std::string& device_id);

// A cxl-type3 and the slice of a file behind it.
struct QemuMemory {
  std::string backend;  // Its id.
  std::string port;
  std::string path;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  bool read_only = false;
  uint64_t serial = 0;
};
// NOT_FOUND: the device has gone. INVALID_ARGUMENT: its memory is no slice of a file.
absl::StatusOr<QemuMemory> ReadMemory(QmpCall call, const std::string& device_id);

// The same of a backend that no device is known of: no port, no serial.
absl::StatusOr<QemuMemory> ReadBackendMemory(QmpCall call, const std::string& backend_id);

// Ids of all backends of LDs that an address space of this QEMU still maps. A guest that writes
// Slot Control without powering the slot off first makes the device vanish from every list, and
// goes on loading and storing: only this shows whether it can.
absl::StatusOr<std::set<std::string>> ListMappedBackends(QmpCall call);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_TREE_H_
