// Between the model's values and the API's messages (cxlpool.v1). Pure; no gRPC.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_CONVERT_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_CONVERT_H_

#include <string>

#include "absl/status/statusor.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/model/planner.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

v1::Region ToProto(const Region& region, bool hardware_coherent);
v1::Device ToProto(const DeviceView& device);
v1::Host ToProto(const HostView& host);
v1::Capacity ToProto(const PoolView& view);

// Requests, with every field checked: INVALID_ARGUMENT names the field and says what to write
// (BAD_REQUEST_ID, BAD_NAME, BAD_SIZE, BAD_ENUM, BAD_MAX_EXTENTS). `principal`: who asks.
absl::StatusOr<AllocateSpec> FromProto(const v1::AllocateRegionRequest& request,
                                       const std::string& principal);
absl::StatusOr<AttachSpec> FromProto(const v1::AttachRegionRequest& request,
                                     const std::string& principal);
absl::StatusOr<DetachSpec> FromProto(const v1::DetachRegionRequest& request,
                                     const std::string& principal);
absl::StatusOr<ReleaseSpec> FromProto(const v1::ReleaseRegionRequest& request,
                                      const std::string& principal);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_CONVERT_H_
