#include "proto/support/process_stat.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/unique_fd.h"

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

uint64_t StartTicksOf(uint32_t pid) {
  const UniqueFd file(::open(absl::StrCat("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return 0;
  char text[1024];  // 52 fields and a name of 16 bytes.
  const ssize_t size = ::read(file.get(), text, sizeof(text));
  if (size <= 0) return 0;
  return ParseStartTicks(absl::string_view(text, static_cast<size_t>(size))).value_or(0);
}

}  // namespace cxlpool
