#include "host-agent/service/readiness.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::agent {
namespace {

constexpr absl::Duration kLookBefore = absl::Milliseconds(100);
constexpr absl::Duration kLookAfter = absl::Seconds(1);
constexpr size_t kMaxStatus = 1024;  // A datagram, and a line of systemctl status.

}  // namespace

Readiness::Readiness(const AgentCore* core, std::string manager, Executor* executor,
                     const Clock* clock, absl::AnyInvocable<void(absl::string_view)> notify)
    : core_(core),
      manager_(std::move(manager)),
      executor_(executor),
      clock_(clock),
      notify_(std::move(notify)) {}

void Readiness::Start() {
  started_at_ = clock_->Elapsed();
  Look();
}

void Readiness::Look() {
  std::string status = Status();
  std::replace(status.begin(), status.end(), '\n', ' ');  // A line is an assignment.
  // systemd passes over a text that is no UTF-8.
  status = CutText(status, kMaxStatus);
  if (status != last_status_) {
    last_status_ = std::move(status);
    notify_(absl::StrCat("STATUS=", last_status_));
  }
  const AgentCore::Progress progress = core_->progress();
  const bool overdue = clock_->Elapsed() - started_at_ >= kReadyDeadline;
  if (!ready_ && (progress.reconciled || (overdue && progress.observed))) {
    ready_ = true;
    notify_("READY=1");
  }
  executor_->PostAfter(ready_ ? kLookAfter : kLookBefore,
                       [this, alive = std::weak_ptr<bool>(alive_)] {
                         if (!alive.expired()) Look();
                       });
}

std::string Readiness::Status() const {
  const AgentCore::Progress progress = core_->progress();
  if (!progress.prepared.ok()) {
    const std::string reason = ReasonOf(progress.prepared);
    return absl::StrCat(reason, reason.empty() ? "" : ": ", progress.prepared.message(),
                        reason.empty() ? "" : "; cxlpool-agent check shows more");
  }
  if (!progress.observed) return "looking at the host";
  if (!progress.refused.ok()) {
    return absl::StrCat("refused: ", ReasonOf(progress.refused), ": ", progress.refused.message(),
                        "; what is attached stays as it is");
  }
  if (!core_->welcomed()) {
    return absl::StrCat("waiting for the fabric manager at ", manager_,
                        "; what is attached stays as it is");
  }
  if (!progress.reconciled) return "bringing the host to what the fabric manager wants";
  return absl::StrCat(progress.session_up ? "in a session with" : "no session with",
                      " the fabric manager at ", manager_,
                      progress.session_up ? "" : "; what is attached stays as it is");
}

}  // namespace cxlpool::agent
