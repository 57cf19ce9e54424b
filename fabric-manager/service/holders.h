// Who uses what on a host: what its agent says, as the manager keeps it while the session lasts.
//
// No pool state: it is not stored, makes no revision and no event, and nothing is decided by it. So
// what is wrong in it never ends a session.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_HOLDERS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_HOLDERS_H_

#include <cstddef>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"
#include "fabric-manager/model/pool/pool_state.h"

namespace cxlpool::fm {

inline constexpr size_t kMaxHoldersOfAttachment = 32;
inline constexpr size_t kMaxHoldersOfHost = 256;
inline constexpr size_t kMaxHolderProgram = 64;  // Bytes.

// What is kept of a report of `host`, made at `now`. Holders beyond the limits are only counted, a
// longer program name is cut, and what is said of an Attachment that the host does not have is left
// out. Where one Attachment comes twice, the first counts.
std::shared_ptr<const HolderReport> TakeHolders(const PoolState& state, absl::string_view host,
                                                const v1::HoldersReport& report, absl::Time now);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_HOLDERS_H_
