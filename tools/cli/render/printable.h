// Text from elsewhere, safe for a terminal: a host's agent must not steer the operator's screen.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_PRINTABLE_H_
#define CXLPOOL_TOOLS_CLI_RENDER_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace cxlpool::cli {

// Control characters (C0, DEL, C1) and bytes that are not UTF-8 become \xNN; the rest stays.
std::string Printable(absl::string_view text);

// Columns it takes, one a code point.
size_t Width(absl::string_view text);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_PRINTABLE_H_
