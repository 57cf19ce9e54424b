// One line a happening on stderr, for journald: "<6>reconciler: bound regions/kv on host-a".
//
// The prefix is the syslog priority that journald reads (sd-daemon(3)); it is left out where
// stderr is a terminal. Control characters are escaped. Any thread; lines never interleave.
#ifndef CXLPOOL_PROTO_SUPPORT_LOG_H_
#define CXLPOOL_PROTO_SUPPORT_LOG_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cxlpool {

enum class LogLevel { kError = 3, kWarning = 4, kInfo = 6, kDebug = 7 };

// Lines above this level are dropped, and not even made. Default kInfo.
void SetLogLevel(LogLevel level);
bool LogsAt(LogLevel level);

void LogLine(LogLevel level, absl::string_view subject, absl::string_view message);

template <typename... Args>
void LogInfo(absl::string_view subject, const Args&... args) {
  if (LogsAt(LogLevel::kInfo)) LogLine(LogLevel::kInfo, subject, absl::StrCat(args...));
}
template <typename... Args>
void LogWarning(absl::string_view subject, const Args&... args) {
  if (LogsAt(LogLevel::kWarning)) LogLine(LogLevel::kWarning, subject, absl::StrCat(args...));
}
template <typename... Args>
void LogError(absl::string_view subject, const Args&... args) {
  if (LogsAt(LogLevel::kError)) LogLine(LogLevel::kError, subject, absl::StrCat(args...));
}

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_LOG_H_
