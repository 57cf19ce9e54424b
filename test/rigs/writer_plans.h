// Plans for tests that submit to a Writer by themselves.
#ifndef CXLPOOL_TEST_RIGS_WRITER_PLANS_H_
#define CXLPOOL_TEST_RIGS_WRITER_PLANS_H_

#include <cstdint>
#include <string>

#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

// Who the tests are.
inline Audit TestAudit() { return {{}, "test", "test", ""}; }

// A device of 4 GiB, "cmm-0", in granules of 256 MiB.
inline absl::StatusOr<Proposal> AddDevice(const PoolState&, PlanContext& context) {
  return Proposal::Of(Device{.key = context.next_id(),
                             .id = "cmm-0",
                             .serial = "1",
                             .capacity_bytes = 4ull << 30,
                             .granule_bytes = 256ull << 20},
                      nullptr);
}

// A Region; `request` tells the requests apart.
inline PlanFn Allocate(const std::string& id, uint64_t size, char request) {
  AllocateSpec spec;
  spec.caller = Caller::Admin("cxlpool://operator/alice");
  spec.request = Request{{"test", "AllocateRegion", Uuid(std::string(16, request))}, 1};
  spec.region_id = id;
  spec.size_bytes = size;
  return [spec](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
    auto plan = PlanAllocate(state, spec, context);
    if (!plan.ok()) return plan.status();
    return Proposal{plan->change, plan->region};
  };
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_WRITER_PLANS_H_
