// The model's values as the API's messages (cxlpool.v1). Pure; no gRPC.
//
// Messages that are made many at a time are filled in place: on an arena that copies nothing.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_CONVERT_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_CONVERT_H_

#include <string>
#include <utility>

#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/view.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

// `out` is empty. `fabric` says what it makes of every Attachment.
void FillRegion(const Region& region, const FabricCapabilities& fabric, v1::Region* out);
v1::Region ToProto(const Region& region, const FabricCapabilities& fabric);

// Takes out of a planned Region what it would only get when it is made or changed. `is_new`: the
// Region itself would be, under a name that the caller gave if `named`.
void ForgetMadeUp(bool is_new, bool named, v1::Region* region);

// As it is now: with what is not recorded, for whom each Attachment waits that is on a way.
void FillRegion(const Region& region, const FabricCapabilities& fabric, const PoolView& view,
                v1::Region* out);

// Who uses the Region, on each of its hosts that `caller` may know of: an operator of all, a host
// only of itself. Beyond kMaxHoldersOfAnswer they are only counted, so that it stays below 4 MiB.
inline constexpr int kMaxHoldersOfAnswer = 16384;
void FillHolders(const Region& region, const Caller& caller, const PoolView& view,
                 v1::ListRegionHoldersResponse* out);

// Why a dry run would make the Region so. Figures are of the paths to its first host.
v1::PlacementPlan PlanToProto(const Committed& planned, const Topology& topology);

v1::Device ToProto(const DeviceView& device);
v1::Host ToProto(const HostView& host);
v1::Tenant ToProto(const TenantView& tenant);
v1::Revocation ToProto(const Revocation& revocation);
v1::RoleBinding ToProto(const RoleBinding& binding);
v1::Role ToProto(PoolRole role);
// A device that the fabric has never shown.
v1::Device ToProto(const DeviceEntry& device, const std::string& why_unseen);
v1::TopologyStep ToProto(const TopologyStep& step);
v1::Path ToProto(const std::pair<std::string, std::string>& host_and_device, const Path& path);
v1::Capacity ToProto(const PoolView& view);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_CONVERT_H_
