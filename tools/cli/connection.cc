#include "tools/cli/connection.h"

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "tools/cli/pacer.h"

namespace cxlpool::cli {
namespace {

// What the operator reads once the time is over.
absl::Status GaveUp(const absl::Status& status, const std::string& after,
                    const std::string& repeat_by) {
  Refusal refusal = RefusalOf(status).value_or(Refusal{.code = status.code(),
                                                       .reason = "NO_ANSWER",
                                                       .message = std::string(status.message()),
                                                       .remedy = "",
                                                       .metadata = {}});
  absl::StrAppend(&refusal.message, "; gave up after ", after);
  if (refusal.remedy.empty()) refusal.remedy = "check that the manager runs, or raise --timeout";
  if (!repeat_by.empty()) {
    absl::StrAppend(&refusal.remedy, "; it may have been carried out all the same: repeat it with ",
                    repeat_by);
  }
  return refusal.ToStatus();
}

}  // namespace

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) ||
         (absl::IsResourceExhausted(status) && ReasonOf(status) == "QUEUE_FULL");
}

// Where all managers were tried, what is said of the round may be another one's failure than the
// last. Only if neither may be worth another try is it the answer; otherwise some manager may have
// carried the call out.
absl::Status Connection::Retry(const std::string& repeat_by,
                               absl::FunctionRef<absl::Status(absl::Duration left)> attempt) {
  const absl::Duration end = pacer_.Elapsed() + timeout_;
  const std::string after = fail_fast_ ? "one try" : absl::FormatDuration(timeout_);
  Backoff backoff(std::random_device{}(),
                  stub_.addresses().size() > 1 ? Backoff::kMostOfSeveral : Backoff::kMost);
  absl::Duration left = timeout_;
  while (true) {
    absl::Status status = attempt(left);
    left = end - pacer_.Elapsed();
    if (absl::IsDeadlineExceeded(status) && left <= absl::ZeroDuration()) {
      return GaveUp(status, after, repeat_by);
    }
    const bool transient = IsTransient(status);
    if (!status.ok() && stub_.Turn(status) && left > absl::ZeroDuration()) continue;
    if (!transient && !IsTransient(status) && ReasonOf(status) != "NO_ANSWER") return status;
    const absl::Duration pause = backoff.Next();
    if (fail_fast_ || left <= pause) return GaveUp(status, after, repeat_by);
    listener_.OnRetry(status, left);
    pacer_.Sleep(pause);
    left = end - pacer_.Elapsed();
    if (left <= absl::ZeroDuration()) return GaveUp(status, after, repeat_by);
  }
}

}  // namespace cxlpool::cli
