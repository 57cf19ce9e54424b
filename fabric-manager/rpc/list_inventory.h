// One page of whatever InventoryService and AccessService list but by filter, from one view of the
// pool. Pure.
//
// A page token is the name of the last that was listed, so that pages go on right whatever comes
// and goes between them: what stays is listed exactly once.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_LIST_INVENTORY_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_LIST_INVENTORY_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

// No page of any list is longer, but where one item by itself is: gRPC clients take messages of 4
// MiB unless they are configured otherwise.
inline constexpr size_t kPageBytes = 3 << 20;

// Every device of the pool, by id: those that the fabric has never shown, too.
std::map<std::string, v1::Device> AllDevices(const PoolView& view);

// `response` is empty. INVALID_ARGUMENT/BAD_PAGE_TOKEN.
absl::Status ListDevices(const PoolView& view, const v1::ListDevicesRequest& request,
                         v1::ListDevicesResponse* response);
absl::Status ListHosts(const PoolView& view, const v1::ListHostsRequest& request,
                       v1::ListHostsResponse* response);
absl::Status ListTenants(const PoolView& view, const Caller& caller,
                         const v1::ListTenantsRequest& request, v1::ListTenantsResponse* response);
absl::Status ListRevocations(const Revocations& revocations,
                             const v1::ListRevocationsRequest& request,
                             v1::ListRevocationsResponse* response);
absl::Status ListRoleBindings(const RoleBindings& bindings,
                              const v1::ListRoleBindingsRequest& request,
                              v1::ListRoleBindingsResponse* response);
// `fabric`: the driver's name.
absl::Status GetTopology(const PoolView& view, const std::string& fabric,
                         const v1::GetTopologyRequest& request, v1::Topology* response);

// What the hosts see, with guesses: which are one device, and what AddDevice would do well to say.
void FillDiscovered(const PoolView& view, const SeenDevices& seen,
                    v1::DiscoverDevicesResponse* response);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_LIST_INVENTORY_H_
