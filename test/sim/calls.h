// What a step of a client asks the manager for, and how it is written down for the checks.
#ifndef CXLPOOL_TEST_SIM_CALLS_H_
#define CXLPOOL_TEST_SIM_CALLS_H_

#include <cstdint>
#include <string>

#include "fabric-manager/service/pool_service.h"
#include "test/sim/region_history.h"
#include "test/sim/script.h"

namespace cxlpool::sim {

// Names by number. The last few of Regions are those that renames give and take.
std::string RegionName(int64_t region);
std::string Renamed(int64_t region);
std::string NewName(const Step& step);  // Of a rename; never the old one.
std::string TenantName(int64_t tenant);
std::string DeviceName(int64_t device);

// As who a call is made: a step's `by`.
fm::Caller CallerOf(int64_t by);
Interned PrincipalOf(int64_t by);

// The request_id of call `number`, or of an item of that batch: the same for every attempt.
fm::Request RequestOf(Interned method, uint64_t number, uint64_t item, int64_t by = 0);
inline constexpr uint64_t kItemOfDryRun = 200;  // It has a request_id of its own.

// Whether two answers to calls that ask for the same show the same: all but what is never twice.
bool SaysTheSame(const absl::StatusOr<fm::Committed>& a, const absl::StatusOr<fm::Committed>& b);

fm::AllocateSpec AllocateSpecOf(const Step& step, const fm::Request& request, int64_t region);
fm::ReleaseSpec ReleaseSpecOf(const Step& step, const fm::Request& request, int64_t region);

// What is written down of a call before it is answered, of a batch's item by itself. False:
// nothing, for it is not about a Region that has a name.
bool FillOp(const Step& step, int64_t item, ClientOp& op);

// And its answer.
void WriteDown(const absl::StatusOr<fm::Committed>& answer, ClientOp& op);

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_CALLS_H_
