#include "proto/support/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"

namespace cxlpool {
namespace {

std::atomic<int> max_level{static_cast<int>(LogLevel::kInfo)};
constexpr size_t kMaxLine = 4096;

}  // namespace

void SetLogLevel(LogLevel level) { max_level = static_cast<int>(level); }

bool LogsAt(LogLevel level) { return static_cast<int>(level) <= max_level; }

void LogLine(LogLevel level, absl::string_view subject, absl::string_view message) {
  if (!LogsAt(level)) return;
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  std::string line;
  if (!terminal) absl::StrAppend(&line, "<", static_cast<int>(level), ">");
  absl::StrAppend(&line, subject, ": ");
  for (const char c : message.substr(0, kMaxLine)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&line, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      line += c;
    }
  }
  line += '\n';
  // One write: lines of several threads and processes do not mix. A lost line has no remedy.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace cxlpool
