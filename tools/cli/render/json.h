// Messages as JSON for programs: protobuf's own mapping with the names of the .proto files.
//
// Stable: snake_case names, enums by name, 64-bit numbers as strings (a double does not hold them),
// times in RFC 3339, and fields that are zero or empty are there too. Pure.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_JSON_H_
#define CXLPOOL_TOOLS_CLI_RENDER_JSON_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/statusor.h"

namespace cxlpool::cli {

enum class JsonLayout { kIndented, kOneLine };

// Ends with a newline. INTERNAL: the message holds what JSON cannot, such as text not in UTF-8.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message,
                                   JsonLayout layout = JsonLayout::kIndented);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_JSON_H_
