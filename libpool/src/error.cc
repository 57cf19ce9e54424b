#include "cxlpool/error.h"

#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "libpool/src/errors.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

constexpr char kErrnoKey[] = "errno";

// "EACCES, permission denied".
std::string DescribeErrno(int error) {
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  if (name == nullptr || text == nullptr) return absl::StrCat("error ", error);
  return absl::StrCat(name, ", ", absl::AsciiStrToLower(text));
}

}  // namespace

std::string ErrorReason(const absl::Status& status) { return ReasonOf(status); }

std::string ErrorRemedy(const absl::Status& status) {
  const auto refusal = RefusalOf(status);
  return refusal.has_value() ? refusal->remedy : std::string();
}

int ErrnoOf(const absl::Status& status) {
  const auto refusal = RefusalOf(status);
  int error = 0;
  if (!refusal.has_value()) return 0;
  for (const auto& [key, value] : refusal->metadata) {
    if (key == kErrnoKey && !absl::SimpleAtoi(value, &error)) return 0;
  }
  return error;
}

namespace libpool {

absl::Status Error(absl::StatusCode code, std::string reason, std::string message,
                   std::string remedy) {
  return Refuse(code, std::move(reason), std::move(message), std::move(remedy));
}

absl::Status ErrnoError(absl::StatusCode code, std::string reason, std::string message,
                        std::string remedy, int error) {
  return Refuse(code, std::move(reason), absl::StrCat(message, ": ", DescribeErrno(error)),
                std::move(remedy), {{kErrnoKey, absl::StrCat(error)}});
}

absl::Status BadArgument(std::string message, std::string remedy) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ARGUMENT", std::move(message),
               std::move(remedy));
}

}  // namespace libpool
}  // namespace cxlpool
