// Devices and hosts as text for people. Pure; every text ends with a newline.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_INVENTORY_H_
#define CXLPOOL_TOOLS_CLI_RENDER_INVENTORY_H_

#include <cstdint>
#include <string>

#include "cxlpool/v1/inventory_service.pb.h"

namespace cxlpool::cli {

std::string DeviceTable(const v1::ListDevicesResponse& devices);
// The device, and who has bytes there.
std::string DrainText(const v1::DrainDeviceResponse& drained);
std::string TenantTable(const v1::ListTenantsResponse& tenants);
std::string HostTable(const v1::ListHostsResponse& hosts);

// Bytes that nobody holds, and that are neither being scrubbed nor quarantined.
uint64_t FreeBytes(const v1::Device& device);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_INVENTORY_H_
