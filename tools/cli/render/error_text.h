// A refusal as the operator reads it on stderr. Pure.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_ERROR_TEXT_H_
#define CXLPOOL_TOOLS_CLI_RENDER_ERROR_TEXT_H_

#include <string>

#include "absl/status/status.h"

namespace cxlpool::cli {

//   cxlpool: error: region "kv" needs 64 GiB in one extent; largest free is 48 GiB
//     reason: POOL_FRAGMENTED
//     remedy: raise --max-extents
// Lines without content are left out. A Status that is no Refusal shows its code as the reason.
std::string ErrorText(const absl::Status& status);

// The same for programs, on one line:
//   {"error": {"code": "NOT_FOUND", "reason": "UNKNOWN_REGION", "message": "...", "remedy": "...",
//              "metadata": {"region": "kv"}}}
std::string ErrorJson(const absl::Status& status);

// Text as a JSON string, quotes included.
std::string Quoted(const std::string& text);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_ERROR_TEXT_H_
