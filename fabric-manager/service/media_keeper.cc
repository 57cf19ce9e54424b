#include "fabric-manager/service/media_keeper.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxText = 256;

// The device of each Extent that `change` marks bad and that was not before.
std::vector<std::string> NewlyBad(const PoolState& state, const Change& change) {
  std::vector<std::string> devices;
  for (const Item& item : change) {
    const auto* after = std::get_if<RegionPtr>(&item);
    const RegionPtr* before = after == nullptr ? nullptr : state.FindRegion((*after)->key);
    if (before == nullptr) continue;
    for (const BadExtent& bad : (*after)->bad) {
      if ((*before)->FindBad(bad.extent_index) != nullptr) continue;
      devices.push_back((*after)->extents[bad.extent_index].device.str());
    }
  }
  return devices;
}

}  // namespace

void MediaKeeper::OnSession(const std::string& host) {
  const auto from = hosts_.find(host);
  if (from != hosts_.end()) from->second.reported = 0;
}

// Notes what a host's kernel reported, and has what lost bytes made durable. Reports that are not
// durable yet are sent again in the host's next session, so they may be dropped here.
void MediaKeeper::OnEvents(const std::string& host, const HostEvents& events) {
  if (events.empty()) return;
  FromHost& from = hosts_[host];
  for (const v1::HostEvent& event : events) {
    Log(host, from, event);
    from.reported = std::max(from.reported, event.sequence());
    if (!event.bytes_lost()) {
      Count(host, event);
      continue;
    }
    from.waiting.try_emplace(event.serial(),
                             MediaError{event.serial(), event.dpa_bytes(), event.length_bytes(),
                                        v1::HostEvent::Kind_Name(event.kind())});
  }
  if (from.waiting.size() > options_.max_waiting) {
    // Reported again in the next session, and by then some of it is durable.
    from.waiting.clear();
    sessions_->End(host, Refuse(absl::StatusCode::kInvalidArgument, "BAD_REPORT",
                                absl::StrCat("the host reports lost bytes in more than ",
                                             options_.max_waiting, " memdevs at once"),
                                "update cxlpool-agent"));
    return;
  }
  if (CXLPOOL_MUTANT("ack-events-early")) Acknowledge(host, from);
  Commit(host, from);
}

// An event that lost no bytes, by device where it is of a Region that this host has.
void MediaKeeper::Count(const std::string& host, const v1::HostEvent& event) {
  std::string device = "unknown";
  const RegionPtr* region = writer_->state().FindRegionBySerial(event.serial());
  const Attachment* attachment =
      region == nullptr ? nullptr : (*region)->FindAttachment(absl::string_view(host));
  if (attachment != nullptr) {
    for (const Segment& segment : attachment->segments) {
      if (segment.serial != event.serial()) continue;
      device = (*region)->extents[segment.extent_index].device.str();
    }
  }
  writer_->meters().media_errors.Add(device);
}

// A line for each event, for people: at most max_lines a minute from one host. A Region is named
// only where it is attached to that host.
void MediaKeeper::Log(const std::string& host, FromHost& from, const v1::HostEvent& event) {
  const absl::Duration now = clock_->Elapsed();
  if (now - from.minute >= absl::Minutes(1)) {
    if (from.lines > options_.max_lines) {
      LogWarning("events", "host=", host, " and ", from.lines - options_.max_lines, " more");
    }
    from.minute = now;
    from.lines = 0;
  }
  if (++from.lines > options_.max_lines) return;
  const LogLevel level = event.bytes_lost() ? LogLevel::kWarning : LogLevel::kInfo;
  if (!LogsAt(level)) return;
  const RegionPtr* region = writer_->state().FindRegionBySerial(event.serial());
  const bool own = region != nullptr && (*region)->FindAttachment(absl::string_view(host));
  const LogScope scope({.region = own ? (*region)->id : "", .host = host});
  LogLine(level, "events",
          absl::StrCat("host=", host, " region=", own ? (*region)->id : "-", " serial=0x",
                       absl::Hex(event.serial()), " kind=", v1::HostEvent::Kind_Name(event.kind()),
                       " severity=", v1::HostEvent::Severity_Name(event.severity()),
                       " bytes_lost=", event.bytes_lost() ? 1 : 0, " dpa=0x",
                       absl::Hex(event.dpa_bytes()), " length=", event.length_bytes(),
                       " text=", CutText(event.text(), kMaxText)));
}

// Writes all that a host reported and that waits, in one change, and again until nothing waits;
// only then does the agent learn that it need not report it again. A commit that fails is tried
// again after `retry`. Lost bytes are counted where they are marked: what is told once more, in
// another session or by an agent that began anew, is no news.
void MediaKeeper::Commit(const std::string& host, FromHost& from) {
  if (from.committing) return;
  if (from.waiting.empty()) {
    Acknowledge(host, from);
    return;
  }
  from.committing = true;
  std::vector<MediaError> errors;
  errors.reserve(from.waiting.size());
  for (const auto& [serial, error] : from.waiting) errors.push_back(error);
  std::vector<uint64_t> serials;
  for (const MediaError& error : errors) serials.push_back(error.serial);
  auto newly = std::make_shared<std::vector<std::string>>();
  writer_->Submit(
      Audit{{}, "manager", "media-error", absl::StrCat("reported by host ", host)},
      [host, errors = std::move(errors), newly](const PoolState& state,
                                                PlanContext& context) -> absl::StatusOr<Proposal> {
        Change change = PlanMediaErrors(state, host, errors, context);
        *newly = NewlyBad(state, change);
        return Proposal{std::move(change), nullptr};
      },
      [this, host, newly, serials = std::move(serials)](const absl::StatusOr<Committed>& done) {
        if (!done.ok()) {
          LogWarning("events", "host=", host, " cannot be heard: ", done.status().message());
          executor_->PostAfter(options_.retry, [this, host] {
            FromHost& again = hosts_[host];
            again.committing = false;
            Commit(host, again);
          });
          return;
        }
        if (CXLPOOL_MUTANT("old-losses-counted")) newly->assign(serials.size(), "unknown");
        for (const std::string& device : *newly) writer_->meters().media_errors_lost.Add(device);
        FromHost& then = hosts_[host];
        then.committing = false;
        for (const uint64_t serial : serials) then.waiting.erase(serial);
        Commit(host, then);
      });
}

void MediaKeeper::Acknowledge(const std::string& host, FromHost& from) {
  if (from.reported == 0) return;
  sessions_->SendEventsSeen(host, std::exchange(from.reported, 0));
}

}  // namespace cxlpool::fm
