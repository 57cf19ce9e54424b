#include "libpool/src/without_exceptions_for_test.h"

#include "cxlpool/pool.h"

#if defined(__cpp_exceptions)
#error "compile this without exceptions"
#endif

namespace cxlpool {

int ValueOfAnError() {
  const Result<int> result = Error{.message = "none there"};
  return result.value();
}

}  // namespace cxlpool
