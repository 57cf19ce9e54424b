// What was probably meant by a word that nobody knows. Pure.
#ifndef CXLPOOL_TOOLS_CLI_NEAREST_H_
#define CXLPOOL_TOOLS_CLI_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cxlpool::cli {

// The known word that was most likely meant; empty: none is near. A word that begins with what was
// written counts as near.
std::string Nearest(absl::string_view word, const std::vector<std::string>& known);

// "; did you mean \"kv\"?", or empty.
std::string DidYouMean(absl::string_view nearest);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_NEAREST_H_
