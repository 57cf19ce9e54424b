// The audit trail as the API shows it: one page of events, and what is wrong with the chain.
//
// A page token is the place of the event that was listed last, in its row: rows come at the other
// end, so that pages go on right whatever happens between them.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_LIST_EVENTS_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_LIST_EVENTS_H_

#include "absl/status/status.h"
#include "cxlpool/v1/access_service.pb.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/service/audit_trail.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

// Rows that one page looks through at most: a filter may fit few of them.
inline constexpr uint64_t kMaxRowsOfPage = 5000;

// `response` is empty. `view`: which Regions a scheduler may see. INVALID_ARGUMENT/BAD_PAGE_TOKEN.
absl::Status ListEvents(const AuditTrail& trail, const PoolView& view, const Caller& caller,
                        const v1::ListEventsRequest& request, v1::ListEventsResponse* response);

// Errors as in access_service.proto.
absl::Status VerifyAudit(const AuditTrail& trail, const v1::VerifyAuditRequest& request,
                         v1::VerifyAuditResponse* response);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_LIST_EVENTS_H_
