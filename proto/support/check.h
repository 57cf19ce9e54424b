// What the code relies on, stated where it relies on it, and checked in every build.
//
//   CXLPOOL_CHECK(slot != occupied.end(), "slot ", n, " of host ", host, " is not in the index");
//   CXLPOOL_CHECK_OK(space.Give(run), "bytes of region ", id, " could not be given back");
//
// Where it does not hold the program is wrong, and going on might give one tenant another's memory:
// the log gets one line at level error with file, line, the condition and the message, and the
// process dies by abort(). For what a caller, a file or a device may get wrong there are Status and
// Refusal. The message is only made when the check fails. Any thread.
#ifndef CXLPOOL_PROTO_SUPPORT_CHECK_H_
#define CXLPOOL_PROTO_SUPPORT_CHECK_H_

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cxlpool {

[[noreturn]] void CheckFailed(const char* file, int line, absl::string_view condition,
                              absl::string_view message);

// Behind CXLPOOL_CHECK_OK. `message` is called only where `status` is not OK.
template <typename Message>
void CheckOk(const absl::Status& status, const char* file, int line, absl::string_view expression,
             const Message& message) {
  if (ABSL_PREDICT_TRUE(status.ok())) return;
  CheckFailed(file, line, expression, absl::StrCat(message(), " (", status.ToString(), ")"));
}

}  // namespace cxlpool

#define CXLPOOL_CHECK(condition, ...) \
  (ABSL_PREDICT_TRUE(condition)       \
       ? static_cast<void>(0)         \
       : ::cxlpool::CheckFailed(__FILE__, __LINE__, #condition, ::absl::StrCat(__VA_ARGS__)))

#define CXLPOOL_CHECK_OK(expression, ...)                           \
  ::cxlpool::CheckOk((expression), __FILE__, __LINE__, #expression, \
                     [&] { return ::absl::StrCat(__VA_ARGS__); })

#endif  // CXLPOOL_PROTO_SUPPORT_CHECK_H_
