// The API's requests as specs of the model, with every field checked. Pure; no gRPC.
//
// INVALID_ARGUMENT names the field and says what to write: BAD_REQUEST_ID, BAD_NAME, BAD_SIZE,
// BAD_ENUM, BAD_MAX_EXTENTS, BAD_INTERLEAVE, BAD_ISOLATE_FROM, BAD_TTL, BAD_LIFETIME, BAD_OWNER,
// BAD_REASON, REASON_REQUIRED. Every spec says who asks.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_CONVERT_REQUEST_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_CONVERT_REQUEST_H_

#include <string>

#include "absl/status/statusor.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/model/plans/planner.h"

namespace cxlpool::fm {

absl::StatusOr<AllocateSpec> FromProto(const v1::AllocateRegionRequest& request,
                                       const Caller& caller);
absl::StatusOr<AttachSpec> FromProto(const v1::AttachRegionRequest& request, const Caller& caller);
absl::StatusOr<DetachSpec> FromProto(const v1::DetachRegionRequest& request, const Caller& caller);
absl::StatusOr<ReleaseSpec> FromProto(const v1::ReleaseRegionRequest& request,
                                      const Caller& caller);
absl::StatusOr<ResizeSpec> FromProto(const v1::ResizeRegionRequest& request, const Caller& caller);
absl::StatusOr<RenameSpec> FromProto(const v1::RenameRegionRequest& request, const Caller& caller);
absl::StatusOr<RenewSpec> FromProto(const v1::RenewRegionRequest& request, const Caller& caller);

// A text that is kept in the audit record: REASON_REQUIRED, BAD_REASON (longer than 512).
absl::Status CheckReason(const std::string& reason);

absl::StatusOr<EnrolSpec> FromProto(const v1::EnrolHostRequest& request);
absl::StatusOr<Tenant> FromProto(const v1::Tenant& tenant);

// A certificate's serial number or an identity, in the one form in which they are compared.
// INVALID_ARGUMENT/BAD_IDENTITY: neither.
absl::StatusOr<std::string> ReadRevocationSubject(const std::string& text);
// Whether they make sense is the planner's to say (CheckTables).
DeviceEntry FromProto(const std::string& id, const v1::DeviceSettings& settings);
HostEntry FromProto(const std::string& id, const v1::HostSettings& settings);
// BAD_NAME.
absl::StatusOr<TopologyTables> FromProto(const v1::TopologyTables& tables);
// INVALID_ARGUMENT: BAD_IDENTITY.
absl::StatusOr<std::string> ReadUserIdentity(const std::string& text);
// INVALID_ARGUMENT: BAD_IDENTITY, BAD_ROLE, BAD_TIME, and as CheckReason.
absl::StatusOr<RoleBinding> FromProto(const v1::SetRoleBindingRequest& request,
                                      const Caller& caller);
absl::StatusOr<Revocation> FromProto(const v1::RevokeCertificateRequest& request,
                                     const Caller& caller);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_CONVERT_REQUEST_H_
