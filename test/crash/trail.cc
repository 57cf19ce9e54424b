#include "test/crash/trail.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cxlpool::crash {
namespace {

absl::Status Broken(const std::string& what) {
  return absl::InternalError(absl::StrCat("audit trail: ", what));
}

}  // namespace

absl::Status TrailSeen::Check(Client& client, const PoolSeen& seen) {
  ++lives_;
  v1::VerifyAuditRequest request;
  request.set_anchor(head_);
  const auto verified = client.Call(&AccessStub::VerifyAudit, request);
  if (!verified.ok()) return verified.status();
  if (!verified->flaws().empty()) return Broken(verified->flaws(0).what());
  if (absl::Status status = ReadNew(client); !status.ok()) return status;
  head_ = verified->head();
  if (absl::Status status = CheckRevisions(seen.regions.revision()); !status.ok()) return status;
  return CheckRegions(seen);
}

// The newest come first.
absl::Status TrailSeen::ReadNew(Client& client) {
  v1::ListEventsRequest request;
  std::vector<v1::Event> events;  // Taken once all are there: the manager may die meanwhile.
  do {
    const auto page = client.Call(&AccessStub::ListEvents, request);
    if (!page.ok()) return page.status();
    events.insert(events.end(), page->events().begin(), page->events().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty() && (events.empty() || events.back().row() > row_));
  const uint64_t read_before = row_;
  for (const v1::Event& event : events) {
    row_ = std::max(row_, event.row());
    if (event.row() <= read_before || !event.refused().empty()) continue;
    const auto [other, first] = changes_.emplace(event.revision(), event);
    if (first) continue;
    return Broken(absl::StrCat("two changes of one revision: ", event.ShortDebugString(), " and ",
                               other->second.ShortDebugString()));
  }
  return absl::OkStatus();
}

absl::Status TrailSeen::CheckRevisions(uint64_t revision) const {
  uint64_t without = 0, last = 0;
  for (const auto& [of, event] : changes_) {
    if (of > revision) break;
    without += of - last - 1;
    last = of;
  }
  without += revision - last;
  // Lives that ended before they were held against it reserve ids as well.
  if (without <= 2 * lives_ + 2) return absl::OkStatus();
  return Broken(absl::StrCat(without, " of ", revision, " revisions have no entry, after ", lives_,
                             " lives"));
}

absl::Status TrailSeen::CheckRegions(const PoolSeen& seen) const {
  std::map<std::string, const v1::Event*> newest;  // By name.
  uint64_t renamed = 0;
  for (const auto& [revision, event] : changes_) {
    if (revision > seen.regions.revision()) break;
    if (absl::StartsWith(event.resource(), "regions/")) newest[event.resource()] = &event;
    renamed += event.method() == "RenameRegion" ? 1 : 0;
  }
  for (const v1::Region& region : seen.regions.regions()) {
    const auto change = changes_.find(region.revision());
    if (change == changes_.end() || change->second.resource() != region.name()) {
      return Broken(absl::StrCat("nothing made this Region as it is: ", region.ShortDebugString()));
    }
    const auto last = newest.find(region.name());
    if (last == newest.end() || last->second->method() == "gone") {
      return Broken(absl::StrCat("this Region is said to be gone: ", region.ShortDebugString()));
    }
    newest.erase(last);
  }
  // The others are gone, or have another name now.
  for (const auto& [name, event] : newest) {
    if (event->method() == "gone") continue;
    if (renamed == 0) {
      return Broken(absl::StrCat("there is no ", name,
                                 ", and nothing says where it went: ", event->ShortDebugString()));
    }
    --renamed;
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::crash
