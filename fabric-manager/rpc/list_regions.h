// One page of ListRegions, from one view of the pool. Pure.
//
// A page token holds where the last Region stood in the order (its key and id), so that pages go on
// right whatever changes between them: a Region whose key stays is listed exactly once. A token
// fits the filter, order and host it was made with, and no other.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_LIST_REGIONS_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_LIST_REGIONS_H_

#include "absl/status/status.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

inline constexpr uint32_t kDefaultPage = 100;
inline constexpr uint32_t kMaxPage = 1000;
// In order of name a page looks at so many Regions that the caller sees at most: it may be short,
// or empty, and still have a next one. Another order looks at all Regions for each page.
inline constexpr size_t kMaxExamined = 100'000;

// `response` is empty. Of what `caller` may not see (MaySee) neither the page nor its token says
// anything, and a name that is not there is no error to a host.
// INVALID_ARGUMENT: BAD_PAGE_TOKEN, BAD_FILTER, BAD_ORDER_BY, BAD_NAME.
absl::Status ListRegions(const PoolView& view, const Caller& caller,
                         const v1::ListRegionsRequest& request, const FabricCapabilities& fabric,
                         v1::ListRegionsResponse* response);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_LIST_REGIONS_H_
