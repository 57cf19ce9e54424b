#include "tools/cli/render/error_text.h"

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
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

}  // namespace cxlpool::cli
