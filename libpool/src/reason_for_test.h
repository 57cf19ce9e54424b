// What tests of libpool ask of a Result.
#ifndef CXLPOOL_LIBPOOL_SRC_REASON_FOR_TEST_H_
#define CXLPOOL_LIBPOOL_SRC_REASON_FOR_TEST_H_

#include <string>

#include "cxlpool/pool.h"

namespace cxlpool {

// Why it is an Error; "" if it is none.
template <typename T>
std::string ReasonOf(const Result<T>& result) {
  return result.ok() ? "" : result.error().reason;
}

}  // namespace cxlpool

#endif  // CXLPOOL_LIBPOOL_SRC_REASON_FOR_TEST_H_
