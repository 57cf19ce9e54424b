// Making the errors that error.h describes.
#ifndef CXLPOOL_LIBPOOL_SRC_ERRORS_H_
#define CXLPOOL_LIBPOOL_SRC_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cxlpool::libpool {

absl::Status Error(absl::StatusCode code, std::string reason, std::string message,
                   std::string remedy);

// The same for a system call that failed: `message` gets ": EACCES, permission denied", and
// ErrnoOf() gives `error`.
absl::Status ErrnoError(absl::StatusCode code, std::string reason, std::string message,
                        std::string remedy, int error);

absl::Status BadArgument(std::string message, std::string remedy);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_ERRORS_H_
