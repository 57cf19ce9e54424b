// The audit trail: its events, and whether it is whole.

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "tools/cli/print.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {

// The manager has the newest first. Here they are last: next to where a person types.
absl::Status Run(ListEvents& command, Connection& connection, Printer& printer) {
  v1::ListEventsResponse all;
  v1::ListEventsRequest request = command.request;
  const uint64_t most = command.most == 0 ? std::numeric_limits<uint64_t>::max() : command.most;
  while (true) {
    const uint64_t left = most - static_cast<uint64_t>(all.events_size());
    request.set_page_size(static_cast<uint32_t>(std::min<uint64_t>(left, 1000)));
    const auto page = connection.Send(request);
    if (!page.ok()) return page.status();
    all.mutable_events()->MergeFrom(page->events());
    const std::string& next = page->next_page_token();
    const bool enough = static_cast<uint64_t>(all.events_size()) >= most;
    // A token that stays as it was would never end.
    if (enough || next.empty() || next == request.page_token()) break;
    request.set_page_token(next);
  }
  std::reverse(all.mutable_events()->pointer_begin(), all.mutable_events()->pointer_end());
  return PrintTable(printer, all, EventTable(all));
}

// A trail that was altered is an error for whoever calls this from a script.
absl::Status PrintAnswer(Printer& printer, const v1::VerifyAuditResponse& verified) {
  std::string text;
  for (const v1::AuditFlaw& flaw : verified.flaws()) {
    absl::StrAppend(&text, "row ", flaw.row(), ": ", flaw.what(), "\n");
  }
  if (verified.head().empty()) {
    absl::StrAppend(&text, "the trail has no row yet\n");
  } else {
    absl::StrAppend(&text, "rows from ", verified.first_row(), " on are kept; the trail ends at ",
                    verified.head(), "\n");
  }
  if (absl::Status status = Print(printer, verified, text); !status.ok()) return status;
  if (verified.flaws().empty()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kDataLoss, "AUDIT_ALTERED",
                "the audit trail is not as it was written",
                "keep a backup as evidence, and find out who can write to the store");
}

}  // namespace cxlpool::cli
