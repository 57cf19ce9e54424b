#include "tools/cli/watch_list.h"

#include <optional>
#include <sstream>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/mutant.h"
#include "tools/cli/execute.h"
#include "tools/cli/region_follower.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/render/regions.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

// To the first column of the first line, and clear all that is below.
constexpr char kClearScreen[] = "\x1b[H\x1b[2J";

class Repainter {
 public:
  // `how`: how changes are found out, for people.
  Repainter(Printer& printer, std::string how) : printer_(printer), how_(std::move(how)) {}

  // Prints what `print` prints, if it is not what was printed last.
  absl::Status Paint(absl::FunctionRef<absl::Status(Printer&)> print) {
    std::ostringstream text;
    Printer page{.out = text,
                 .err = printer_.err,
                 .format = printer_.format,
                 .headers = printer_.headers,
                 .columns = printer_.columns,
                 .one_of_many = true};
    if (absl::Status status = print(page); !status.ok()) return status;
    if (shown_ == text.str()) return absl::OkStatus();
    const bool first = !shown_.has_value();
    shown_ = text.str();
    if (printer_.for_programs()) return Write(printer_, *shown_);
    if (printer_.columns == 0) return Write(printer_, absl::StrCat(first ? "" : "\n", *shown_));
    const std::string now = absl::FormatTime("%H:%M:%S", absl::Now(), absl::LocalTimeZone());
    return Write(printer_,
                 absl::StrCat(kClearScreen, now, "  ", how_, "; Ctrl-C ends it\n\n", *shown_));
  }

 private:
  Printer& printer_;
  const std::string how_;
  std::optional<std::string> shown_;
};

// A Watch that begins with all Regions as they are says when it has shown them; from then on each
// event that is newer than the list shown last means that there is another. A list holds what many
// events brought, so that a busy pool is not listed for each.
absl::Status WatchRegionList(const ListRegions& command, Connection& connection, Printer& printer) {
  Repainter repainter(printer, "at each change");
  RegionFollower follower(connection, {.patience = connection.fail_fast() ? absl::ZeroDuration()
                                                                          : connection.timeout()});
  bool synced = false;
  uint64_t shown = 0;
  // A manager that was restored from a backup counts from an earlier revision.
  follower.ListenForGaps([&](const absl::Status&) { shown = 0; });
  absl::Status status;
  const auto end = follower.Follow([&](const v1::WatchRegionsResponse& event) {
    synced |= event.event() == v1::WatchRegionsResponse::SYNCED;
    if (!synced || (shown != 0 && event.revision() <= shown)) return true;
    const auto regions = AllRegions(connection, command.request);
    status = regions.status();
    if (!status.ok()) return false;
    shown = regions->revision();
    status = repainter.Paint(
        [&](Printer& page) { return PrintTable(page, *regions, RegionTable(*regions)); });
    return status.ok();
  });
  return end.ok() ? status : end.status();
}

// What happened stays as it was printed; what has happened since follows it.
absl::Status WatchEvents(const ListEvents& command, Connection& connection, Printer& printer) {
  Printer page = printer;
  page.one_of_many = true;
  ListEvents asked = command;
  uint64_t shown = 0;
  while (true) {
    const auto events = EventsAfter(shown, asked, connection);
    if (!events.ok()) return events.status();
    if (events->events_size() != 0) {
      absl::Status status = PrintTable(page, *events, EventTable(*events));
      if (!status.ok()) return status;
      page.headers = false;
      shown = events->events().rbegin()->row();
    }
    // Where there was none yet the next ones are new, however many come at once.
    const bool all_are_new = shown == 0 && !CXLPOOL_MUTANT("event-watch-loses-a-burst");
    asked.most = all_are_new ? 0 : command.most;
    connection.pacer().Sleep(kPollInterval);
  }
}

}  // namespace

absl::Status ExecuteAndWatch(const PoolCommand& command, Connection& connection, Printer& printer) {
  if (const auto* regions = std::get_if<ListRegions>(&command)) {
    return WatchRegionList(*regions, connection, printer);
  }
  if (const auto* events = std::get_if<ListEvents>(&command)) {
    return WatchEvents(*events, connection, printer);
  }
  Repainter repainter(printer, absl::StrCat("every ", absl::FormatDuration(kPollInterval)));
  while (true) {
    absl::Status status =
        repainter.Paint([&](Printer& page) { return Execute(command, connection, page); });
    if (!status.ok()) return status;
    connection.pacer().Sleep(kPollInterval);
  }
}

}  // namespace cxlpool::cli
