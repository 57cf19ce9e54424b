// Owner of a libcxl context, which keeps what the library says out of stderr and for the error that
// a caller then writes.
//
// A context caches what it has read: open a new one to see what the kernel has now. Not
// thread-safe; contexts are independent of each other.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LIBCXL_CONTEXT_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LIBCXL_CONTEXT_H_

#include <cxl/libcxl.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace cxlpool::agent {

class CxlContext {
 public:
  // INTERNAL/LIBCXL: no memory, or the library cannot start.
  static absl::StatusOr<CxlContext> Open();

  cxl_ctx* get() const { return context_.get(); }

  // The last thing libcxl complained about; "" if it did not.
  const std::string& complaint() const { return *complaint_; }

 private:
  CxlContext() : complaint_(std::make_unique<std::string>()) {}

  std::unique_ptr<std::string> complaint_;  // Outlives the context, which points to it.
  std::unique_ptr<cxl_ctx, void (*)(cxl_ctx*)> context_{nullptr, [](cxl_ctx* c) { cxl_unref(c); }};
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LIBCXL_CONTEXT_H_
