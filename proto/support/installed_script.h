// Scripts that a program of the package goes on as: what is a sequence of commands is written as
// one.
#ifndef CXLPOOL_PROTO_SUPPORT_INSTALLED_SCRIPT_H_
#define CXLPOOL_PROTO_SUPPORT_INSTALLED_SCRIPT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cxlpool {

// Becomes ../libexec/cxlpool/NAME, as seen from this program's folder, with these words. It is of
// the same installation: another one on the PATH must not be mixed with it. Returns where that
// fails only: FAILED_PRECONDITION/NOT_INSTALLED.
absl::Status BecomeScript(const std::string& name, std::vector<std::string> words);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_INSTALLED_SCRIPT_H_
