#include "fabric-manager/rpc/call_log.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxRequestText = 400;

}  // namespace

CallLog::CallLog(const Clock* clock, Sink sink)
    : clock_(clock), sink_(sink != nullptr ? std::move(sink) : [](const std::string& line) {
        LogInfo("calls", line);
      }) {}

// One line for each call that may have changed something. In a second there are kMaxLines at most;
// the next line says how many were left out.
void CallLog::Note(const AnsweredCall& call) {
  const absl::string_view name = call.method.substr(call.method.rfind('/') + 1);
  for (const absl::string_view reading : {"Get", "List", "Check"}) {
    if (absl::StartsWith(name, reading)) return;
  }
  uint64_t others = 0;
  {
    MutexLock lock(mutex_);
    const absl::Duration now = clock_->Elapsed();
    if (now - second_ >= absl::Seconds(1)) {
      second_ = now;
      lines_ = 0;
    }
    if (lines_ >= kMaxLines) {
      ++unsaid_;
      return;
    }
    ++lines_;
    others = std::exchange(unsaid_, 0);
  }
  const std::string outcome = call.status.ok()
                                  ? "done"
                                  : absl::StrCat("refused: ", ReasonOf(call.status), ": ",
                                                 absl::string_view(call.status.message()));
  const std::string not_logged =
      others == 0 ? "" : absl::StrCat(" (", others, " calls before it are not in the log)");
  sink_(absl::StrCat(name, " {", CutText(call.request.ShortDebugString(), kMaxRequestText), "} by ",
                     call.caller.empty() ? "anybody who may use the insecure address" : call.caller,
                     " from ", call.peer, ": ", outcome, not_logged));
}

}  // namespace cxlpool::fm
