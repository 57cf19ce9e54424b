// From a request to a Change, or a refusal: every rule of the lifecycle that a caller can meet.
//
// Pure: the caller supplies ids and time (PlanContext). A plan is valid only against the state it
// was made on; the one writer applies it before it makes the next.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLANNER_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLANNER_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "fabric-manager/model/pool_state.h"

namespace cxlpool::fm {

// What a plan cannot make by itself.
struct PlanContext {
  std::function<uint64_t()> next_id;      // Keys, generations and serials: never the same twice.
  std::function<std::string()> make_tag;  // 16 random bytes.
  absl::Time now;
  uint64_t revision = 0;  // Of the change.
  bool hardware_coherent = false;
};

struct AllocateSpec {
  Request request;
  std::string region_id;  // Empty: "r-" and the first 12 hex digits of the tag.
  std::string tenant = "default";
  uint64_t size_bytes = 0;
  Sharing sharing = Sharing::kExclusive;
  std::string host;  // Empty: no Attachment.
  Mode mode = Mode::kDevdax;
  Access access = Access::kReadWrite;
  uint32_t max_extents = 1;
  std::string device;
};

struct AttachSpec {
  Request request;
  std::string region_id;
  std::string host;
  Mode mode = Mode::kDevdax;
  Access access = Access::kReadWrite;
};

struct DetachSpec {
  Request request;
  std::string region_id;
  std::string host;
};

struct ReleaseSpec {
  Request request;
  std::string region_id;
  bool detach_all = false;
  std::string etag;
  std::string only_host;  // Set for a call by a host: Attachments elsewhere are refused.
};

// A plan's outcome: the Region as it will be, and the change that makes it so (empty if it is so
// already, or if the request is a retry).
struct Plan {
  RegionPtr region;
  Change change;
};

// Each first looks for the request_id: same payload gives the earlier Region, another payload
// ALREADY_EXISTS/REQUEST_ID_REUSED. Errors as in pool_service.proto. `region_id` may be a UUID.
absl::StatusOr<Plan> PlanAllocate(const PoolState& state, const AllocateSpec& spec,
                                  PlanContext& context);
absl::StatusOr<Plan> PlanAttach(const PoolState& state, const AttachSpec& spec,
                                PlanContext& context);
absl::StatusOr<Plan> PlanDetach(const PoolState& state, const DetachSpec& spec,
                                PlanContext& context);
absl::StatusOr<Plan> PlanRelease(const PoolState& state, const ReleaseSpec& spec,
                                 PlanContext& context);

// Enrols, replaces or brings back a host. The Change is empty if nothing differs.
absl::StatusOr<Change> PlanEnrol(const PoolState& state, const std::string& host,
                                 const std::string& identity, PlanContext& context);
absl::StatusOr<Change> PlanRetire(const PoolState& state, const std::string& host,
                                  PlanContext& context);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLANNER_H_
