#include "tools/cli/render/json.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"

namespace cxlpool::cli {

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message, JsonLayout layout) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = layout == JsonLayout::kIndented;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string out;
  const auto status = google::protobuf::util::MessageToJsonString(message, &out, options);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat("the answer cannot be shown as JSON: ", status.ToString()));
  }
  if (out.empty() || out.back() != '\n') out += '\n';
  return out;
}

}  // namespace cxlpool::cli
