#include "proto/support/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "absl/strings/escaping.h"

namespace cxlpool {
namespace {

std::atomic<int> max_level{static_cast<int>(LogLevel::kInfo)};
constexpr size_t kMaxLine = 4096;

}  // namespace

void SetLogLevel(LogLevel level) { max_level = static_cast<int>(level); }

void LogLine(LogLevel level, absl::string_view subject, absl::string_view message) {
  if (static_cast<int>(level) > max_level) return;
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  std::string line;
  if (!terminal) absl::StrAppend(&line, "<", static_cast<int>(level), ">");
  absl::StrAppend(&line, subject, ": ", absl::Utf8SafeCHexEscape(message.substr(0, kMaxLine)), "\n");
  // One write: lines of several threads and processes do not mix. A lost line has no remedy.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace cxlpool
