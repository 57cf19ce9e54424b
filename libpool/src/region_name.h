// Names of Regions and ids of requests, as a caller may write them. The agent has the last word on
// names; what is refused here could be no name at all. Pure functions, any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_REGION_NAME_H_
#define CXLPOOL_LIBPOOL_SRC_REGION_NAME_H_

#include <string>
#include <string_view>

#include "libpool/src/status.h"

namespace cxlpool::libpool {

// "kv" and "regions/kv" both give "kv", and "ml.kv" itself. A tag stands for itself.
// INVALID_ARGUMENT/BAD_NAME.
StatusOr<std::string> RegionIdOf(std::string_view name);

// The same, as "regions/kv".
StatusOr<std::string> RegionNameOf(std::string_view name);

// A UUID in lower case: `given`, or a new one where that is empty. INVALID_ARGUMENT/BAD_ARGUMENT.
StatusOr<std::string> RequestIdOf(std::string_view given);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_REGION_NAME_H_
