#include "tools/cli/render/error_text.h"

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "proto/support/refusal.h"
#include "tools/cli/render/json.h"
#include "tools/cli/render/printable.h"

namespace cxlpool::cli {

std::string ErrorText(const absl::Status& status) {
  const auto refusal = RefusalOf(status);
  const std::string message =
      Printable(refusal.has_value() ? absl::string_view(refusal->message) : status.message());
  const std::string reason =
      refusal.has_value() ? refusal->reason : absl::StatusCodeToString(status.code());
  std::string out =
      absl::StrCat("cxlpool: error: ", message.empty() ? "no message" : message, "\n");
  if (!reason.empty()) absl::StrAppend(&out, "  reason: ", Printable(reason), "\n");
  if (refusal.has_value() && !refusal->remedy.empty()) {
    absl::StrAppend(&out, "  remedy: ", Printable(refusal->remedy), "\n");
  }
  return out;
}

std::string Quoted(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  const absl::StatusOr<std::string> json = ToJson(value, JsonLayout::kOneLine);
  return json.ok() ? std::string(absl::StripAsciiWhitespace(*json)) : "\"\"";
}

std::string ErrorJson(const absl::Status& status) {
  const Refusal refusal =
      RefusalOf(status).value_or(Refusal{status.code(), "", std::string(status.message()), "", {}});
  const std::string code = absl::StatusCodeToString(status.code());
  std::string metadata;
  for (const auto& [key, value] : refusal.metadata) {
    absl::StrAppend(&metadata, metadata.empty() ? "" : ", ", Quoted(Printable(key)), ": ",
                    Quoted(Printable(value)));
  }
  return absl::StrCat(
      "{\"error\": {\"code\": ", Quoted(code),
      ", \"reason\": ", Quoted(Printable(refusal.reason.empty() ? code : refusal.reason)),
      ", \"message\": ", Quoted(Printable(refusal.message)),
      ", \"remedy\": ", Quoted(Printable(refusal.remedy)), ", \"metadata\": {", metadata, "}}}\n");
}

}  // namespace cxlpool::cli
