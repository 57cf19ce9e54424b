// One line a happening, for the journal: "reconciler: regions/kv on host-a: BOUND".
//
// Where stderr is the journal, an entry has fields beside its text, by which everything about one
// request is found: `journalctl CXLPOOL_REQUEST_ID=UUID`. Elsewhere a line is text on stderr, "<6>"
// before it (sd-daemon(3); not on a terminal), and what the fields say and the text does not stands
// at its end. Control characters are escaped there. Any thread; lines never interleave.
#ifndef CXLPOOL_PROTO_SUPPORT_LOG_H_
#define CXLPOOL_PROTO_SUPPORT_LOG_H_

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/support/uuid.h"

namespace cxlpool {

enum class LogLevel { kError = 3, kWarning = 4, kInfo = 6, kDebug = 7 };

// What a line is about. Ids: "kv", not "regions/kv". Empty: it is not said.
struct LogFields {
  std::string region = {};  // CXLPOOL_REGION
  Uuid request_id = {};     // CXLPOOL_REQUEST_ID: of the request that asked for what is done.
  std::string host = {};    // CXLPOOL_HOST
  std::string tenant = {};  // CXLPOOL_TENANT
  std::string rung = {};    // CXLPOOL_RUNG: the step of the ladder.
};

// The lines that this thread writes while this is there have these fields; those that are empty
// here are as in the scope around it. Keep it close to the line: what this thread does next may be
// for another request.
class LogScope {
 public:
  explicit LogScope(LogFields fields);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

  // What a line would have now.
  static LogFields Now();

 private:
  const LogFields fields_;
  const LogScope* const outer_;
};

// Lines above this level are dropped, and not even made. Default kInfo.
void SetLogLevel(LogLevel level);
bool LogsAt(LogLevel level);
// As configurations have it: "error", "warning" or "info". Nothing: it is no level.
std::optional<LogLevel> ParseLogLevel(absl::string_view text);

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
