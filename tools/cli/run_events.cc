// The audit trail: its events, and whether it is whole.

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "tools/cli/print.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {

// The manager has the newest first. Here they are last: next to where a person types. Who knows
// those up to `row` asks every other second, and mostly for a few: pages are small then.
absl::StatusOr<v1::ListEventsResponse> EventsAfter(uint64_t row, const ListEvents& command,
                                                   Connection& connection) {
  v1::ListEventsResponse all;
  v1::ListEventsRequest request = command.request;
  uint64_t most = command.most;
  if (row != 0 || most == 0) most = std::numeric_limits<uint64_t>::max();
  bool enough = false;
  while (!enough) {
    const uint64_t left = most - static_cast<uint64_t>(all.events_size());
    const uint64_t page_size = std::min<uint64_t>(left, row == 0 ? 1000 : 100);
    request.set_page_size(static_cast<uint32_t>(page_size));
    const auto page = connection.Send(request);
    if (!page.ok()) return page.status();
    const bool newest = request.page_token().empty() && page->events_size() != 0;
    // The trail is shorter than it was: the pool was restored from a backup.
    if (newest && page->events(0).row() < row) return EventsAfter(0, command, connection);
    for (const v1::Event& event : page->events()) {
      enough = enough || (row != 0 && event.row() <= row);
      if (!enough) *all.add_events() = event;
    }
    const std::string& next = page->next_page_token();
    // A token that stays as it was would never end.
    enough = enough || static_cast<uint64_t>(all.events_size()) >= most || next.empty() ||
             next == request.page_token();
    request.set_page_token(next);
  }
  std::reverse(all.mutable_events()->pointer_begin(), all.mutable_events()->pointer_end());
  return all;
}

absl::Status Run(ListEvents& command, Connection& connection, Printer& printer) {
  const auto events = EventsAfter(0, command, connection);
  if (!events.ok()) return events.status();
  return PrintTable(printer, *events, EventTable(*events));
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
