// What one client got as answers: the acknowledged log that the pool is held against after each
// kill.
//
// A client makes one call after the other, on Regions of its own, so at most one call is without an
// answer when the manager dies. That call was carried out wholly or not at all: it is sent again
// with its request_id in a later life, until it is answered.
//
// A plain value. A status that is not OK is a broken promise, and says what was seen.
#ifndef CXLPOOL_TEST_CRASH_LEDGER_H_
#define CXLPOOL_TEST_CRASH_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::crash {

// A Region as it was acknowledged.
struct Known {
  v1::Region region;  // Extents: those that it is to end with.
  uint64_t made_revision = 0;
  uint64_t released_revision = 0;     // 0: nobody got an answer that it goes.
  std::map<std::string, bool> hosts;  // hosts/{host} -> attached, or to be detached.
  std::map<int, uint64_t> written;    // Extent -> what its bytes were filled from (bytes.h).

  bool live() const { return released_revision == 0; }
};

// One call, and the Regions it is about (their tags; of a batch in order).
struct Call {
  std::variant<v1::AllocateRegionRequest, v1::BatchAllocateRegionsRequest, v1::ReleaseRegionRequest,
               v1::BatchReleaseRegionsRequest, v1::ResizeRegionRequest, v1::RenameRegionRequest,
               v1::AttachRegionRequest, v1::DetachRegionRequest, v1::SetTenantRequest>
      request;
  std::vector<std::string> tags;
  int sent = 0;  // Times.

  bool allocates() const;
  bool releases() const;
  bool About(const std::string& tag) const;
};

// For people: "AllocateRegion".
std::string NameOf(const Call& call);

class Ledger {
 public:
  // Takes the answer to `call`.
  absl::Status Take(const Call& call, const v1::AllocateRegionResponse& answer);
  absl::Status Take(const Call& call, const v1::BatchAllocateRegionsResponse& answer);
  absl::Status Take(const Call& call, const v1::ReleaseRegionResponse& answer);
  absl::Status Take(const Call& call, const v1::BatchReleaseRegionsResponse& answer);
  absl::Status Take(const Call& call, const v1::ResizeRegionResponse& answer);
  absl::Status Take(const Call& call, const v1::RenameRegionResponse& answer);
  absl::Status Take(const Call& call, const v1::AttachRegionResponse& answer);
  absl::Status Take(const Call& call, const v1::DetachRegionResponse& answer);
  absl::Status Take(const Call& call, const v1::Tenant& answer);

  // Takes a refusal: one that such a call may meet, or a broken promise.
  absl::Status TakeRefusal(const Call& call, const absl::Status& refusal) const;

  std::map<std::string, Known> regions;   // By tag, until they are seen to be gone.
  std::map<std::string, uint64_t> quota;  // tenants/{tenant} -> as acknowledged.
  std::optional<Call> pending;            // Without an answer.

 private:
  absl::Status TakeAllocated(const v1::AllocateRegionRequest& request, const v1::Region& region,
                             uint64_t revision);
  absl::Status TakeReleased(const std::string& tag, const v1::Region& region, uint64_t revision);
};

bool SameExtent(const v1::Extent& a, const v1::Extent& b);

// How many of `extents` hold `bytes`, from the front.
int ExtentsFor(const v1::Region& region, uint64_t bytes);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_LEDGER_H_
