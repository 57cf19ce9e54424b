// JSON as YAML, for people who read it and tools that take YAML. Pure.
//
// The fields, their names and their values are those of the JSON (json.h): a text stays a text,
// also where a YAML reader would take it for a number, a truth or a date.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_YAML_H_
#define CXLPOOL_TOOLS_CLI_RENDER_YAML_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cxlpool::cli {

// One document in block style, without a line `---` before it. Ends with a newline. INTERNAL: it is
// not JSON.
absl::StatusOr<std::string> ToYaml(absl::string_view json);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_YAML_H_
