#include "proto/support/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"

namespace cxlpool {
namespace {

constexpr absl::Duration kSeldom = absl::Seconds(10);
constexpr absl::Duration kRecent = absl::Seconds(2);

struct LogState {
  // Times are Clock::Elapsed: somebody may set the other clock back.
  const SystemClock clock;
  Mutex mutex;
  struct Place {
    absl::Duration last = -absl::InfiniteDuration();  // When a line was last written.
    uint64_t left_out = 0;                            // Since then.
  };
  // By place in gRPC's source.
  std::map<std::pair<std::string, int>, Place> lines ABSL_GUARDED_BY(mutex);
  std::string handshake ABSL_GUARDED_BY(mutex);
  absl::Duration handshake_time ABSL_GUARDED_BY(mutex) = -absl::InfiniteDuration();
};

// Never destroyed: gRPC's threads may log until the very end.
LogState& TheLogState() {
  static LogState& state = *new LogState();
  return state;
}

// "Handshake failed with fatal error SSL_ERROR_SSL: error:0A000086:SSL routines::certificate verify
// failed." is "certificate verify failed".
std::string HandshakeReason(absl::string_view text) {
  const size_t at = text.rfind("::");
  if (at != absl::string_view::npos) text = text.substr(at + 2);
  while (!text.empty() && (text.back() == '.' || text.back() == '\n')) text.remove_suffix(1);
  return std::string(text);
}

// Keeps the reason of a failed handshake for LastHandshakeError instead of logging it; every other
// line is logged once in kSeldom, with how often it came in between.
void Log(gpr_log_func_args* args) {
  LogState& state = TheLogState();
  const absl::string_view file(args->file);
  uint64_t before = 0;
  {
    MutexLock lock(state.mutex);
    const absl::Duration now = state.clock.Elapsed();
    if (absl::StrContains(file, "ssl_transport_security") ||
        absl::StrContains(file, "security_handshaker")) {
      state.handshake = HandshakeReason(args->message);
      state.handshake_time = now;
      return;
    }
    auto& [last, left_out] = state.lines[{std::string(file), args->line}];
    if (now - last < kSeldom) {
      ++left_out;
      return;
    }
    last = now;
    before = std::exchange(left_out, 0);
  }
  const std::string more = before == 0 ? "" : absl::StrCat(" (and ", before, " times before)");
  const absl::string_view name = file.substr(file.rfind('/') + 1);
  if (args->severity == GPR_LOG_SEVERITY_ERROR) {
    LogWarning("grpc", args->message, more, " [", name, ":", args->line, "]");
  } else {
    LogInfo("grpc", args->message, more, " [", name, ":", args->line, "]");
  }
}

}  // namespace

void RouteGrpcLog() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  gpr_set_log_function(Log);
  google::protobuf::SetLogHandler(nullptr);
}

std::string LastHandshakeError() {
  LogState& state = TheLogState();
  MutexLock lock(state.mutex);
  return state.clock.Elapsed() - state.handshake_time < kRecent ? state.handshake : "";
}

}  // namespace cxlpool
