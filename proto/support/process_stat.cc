#include "proto/support/process_stat.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace cxlpool {

absl::StatusOr<uint64_t> ParseStartTicks(absl::string_view stat) {
  const size_t bracket = stat.rfind(')');
  if (bracket == absl::string_view::npos) return absl::InvalidArgumentError("stat: no command");
  const std::vector<absl::string_view> fields =
      absl::StrSplit(stat.substr(bracket + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStart = 22 - 3;  // The first field after the command is the third.
  uint64_t ticks = 0;
  if (fields.size() <= kStart || !absl::SimpleAtoi(fields[kStart], &ticks)) {
    return absl::InvalidArgumentError("stat: no start time");
  }
  return ticks;
}

}  // namespace cxlpool
