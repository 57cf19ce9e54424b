// What a caller with a role for tenants is told: its own, and nothing of the pool or of others.
//
// Whose Regions they are is MaySee's matter. This is about the rest of an answer: where in the pool
// the bytes are, and reasons and refusals whose words name others' Regions, hosts or sizes. All
// answers pass here (UnaryCall::Finish, Watch), and a refusal that is not known to be harmless
// loses its words: a new one says too little to a tenant, not too much.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_TENANT_VIEW_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_TENANT_VIEW_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

// Takes out of `answer` what is not its receiver's, at all depths: places on devices and in hosts,
// and the words of reasons but the reason itself ("RELEASE_BLOCKED").
void HideOthers(google::protobuf::Message* answer);

// The refusal as a tenant may read it: as it is if its words are only about the request and the
// tenant's own; otherwise its code and reason alone. Others' reservations look like a full pool.
absl::Status HideOthers(const absl::Status& refusal);

// The capacity of the caller's tenants: their quotas and what they hold.
v1::Capacity CapacityOfTenants(const PoolView& view, const Caller& caller);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_TENANT_VIEW_H_
