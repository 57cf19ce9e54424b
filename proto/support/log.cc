#include "proto/support/log.h"

#include <atomic>
#include <cstdlib>
#include <utility>

#include "proto/support/log_sink.h"

namespace cxlpool {
namespace {

std::atomic<int> max_level{static_cast<int>(LogLevel::kInfo)};

thread_local const LogScope* innermost = nullptr;

}  // namespace

LogScope::LogScope(LogFields fields) : fields_(std::move(fields)), outer_(innermost) {
  innermost = this;
}

LogScope::~LogScope() { innermost = outer_; }

LogFields LogScope::Now() {
  LogFields all;
  for (const LogScope* scope = innermost; scope != nullptr; scope = scope->outer_) {
    const LogFields& its = scope->fields_;
    if (all.region.empty()) all.region = its.region;
    if (all.request_id.empty()) all.request_id = its.request_id;
    if (all.host.empty()) all.host = its.host;
    if (all.tenant.empty()) all.tenant = its.tenant;
    if (all.rung.empty()) all.rung = its.rung;
  }
  return all;
}

void SetLogLevel(LogLevel level) { max_level = static_cast<int>(level); }

bool LogsAt(LogLevel level) { return static_cast<int>(level) <= max_level; }

std::optional<LogLevel> ParseLogLevel(absl::string_view text) {
  if (text == "error") return LogLevel::kError;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "info") return LogLevel::kInfo;
  return std::nullopt;
}

void LogLine(LogLevel level, absl::string_view subject, absl::string_view message) {
  if (!LogsAt(level)) return;
  // For as long as the process lasts: threads write lines up to its end.
  static const LogSink* const sink =
      new LogSink({.fd = 2, .journal_stream = std::getenv("JOURNAL_STREAM")});
  sink->Write(level, subject, message, LogScope::Now());
}

}  // namespace cxlpool
