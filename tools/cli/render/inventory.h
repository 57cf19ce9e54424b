// Devices and hosts, and what is wrong with them, as text for people. Pure; every text ends with a
// newline.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_INVENTORY_H_
#define CXLPOOL_TOOLS_CLI_RENDER_INVENTORY_H_

#include <cstdint>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::cli {

std::string DeviceTable(const v1::ListDevicesResponse& devices);
std::string DiscoveredTable(const v1::DiscoverDevicesResponse& discovered);
// The device, and who has bytes there.
std::string DrainText(const v1::DrainDeviceResponse& drained);
std::string TenantTable(const v1::ListTenantsResponse& tenants);
std::string RoleBindingTable(const v1::ListRoleBindingsResponse& bindings);
std::string EventTable(const v1::ListEventsResponse& events);
std::string RevocationTable(const v1::ListRevocationsResponse& revocations);
// `now`: a certificate that has ended then, or ends soon, is marked.
std::string HostTable(const v1::ListHostsResponse& hosts, absl::Time now = absl::Now());

// All of one host: its slots and bridges too.
std::string HostDetails(const v1::Host& host);

// Slots of the host where no Region is. Of more than so many only the number is shown: on shared
// devices a host has a thousand.
inline constexpr int kMaxFreeSlotsListed = 256;
int FreeSlots(const v1::Host& host);
// All of one device, and the Regions with bytes there.
std::string DeviceDetails(const v1::Device& device, const v1::ListRegionsResponse& regions);

//   WRONG  regions/kv RELEASE_BLOCKED for 3m12s
//          host host-a cannot let go of it (HOLDERS: 1 process); pid 812 (python3) has it open
//          waits for hosts/host-a
//          run: cxlpool region holders kv
//               on host-a: end those processes
// An empty line between two of them.
std::string FindingsText(const v1::ExplainResponse& explained, absl::Time now);

// As the API has it, but UNFIT for an ONLINE host whose agent reports that it can take nothing.
std::string StateWord(const v1::Host& host);

// Bytes that can be given out: no Region holds them, they are neither being scrubbed nor
// quarantined, and the device is neither FAILED nor REMOVED.
uint64_t FreeBytes(const v1::Device& device);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_INVENTORY_H_
