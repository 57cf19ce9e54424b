#include "test/crash/trail.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cxlpool::crash {
namespace {

absl::Status Broken(const std::string& what) {
  return absl::InternalError(absl::StrCat("audit trail: ", what));
}

}  // namespace

// The chain has to be whole and to contain the end that the look before saw: nothing that was there
// may be missing after a kill. Then the entries are held against the pool.
absl::Status TrailSeen::Check(Client& client, const PoolSeen& seen) {
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

// The newest come first. A row is a commit. One that only has refused calls is a commit of its own
// revision, the next after the one in which they were refused. No new row may be of a revision that
// was held against the pool before: CheckRevisions does not look at it again.
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
  std::set<uint64_t> with_entries;          // Rows of what was done.
  std::map<uint64_t, uint64_t> refused_in;  // By row: at which revision.
  for (const v1::Event& event : events) {
    row_ = std::max(row_, event.row());
    if (event.row() <= read_before) continue;
    if (!event.refused().empty()) {
      refused_in[event.row()] = event.revision();
      continue;
    }
    with_entries.insert(event.row());
    if (event.revision() <= checked_) {
      return Broken(absl::StrCat("a new row of a revision that was there before ", checked_ + 1,
                                 ": ", event.ShortDebugString()));
    }
    if (event.method() == "reserve-ids" || event.method() == "claim-hosts" ||
        event.method() == "try-store") {
      without_change_.insert(event.revision());
      continue;
    }
    const auto [other, first] = changes_.emplace(event.revision(), event);
    if (first) continue;
    return Broken(absl::StrCat("two changes of one revision: ", event.ShortDebugString(), " and ",
                               other->second.ShortDebugString()));
  }
  for (const auto& [row, revision] : refused_in) {
    if (with_entries.contains(row)) continue;
    if (revision < checked_) {
      return Broken(absl::StrCat("a new row of calls that were refused at revision ", revision,
                                 ", before ", checked_));
    }
    without_change_.insert(revision + 1);
  }
  return absl::OkStatus();
}

// No revision up to the pool's own may be without an entry, nor have both a change and the word
// that there was none. Each is looked at once, however often the pool is.
absl::Status TrailSeen::CheckRevisions(uint64_t revision) {
  for (; checked_ < revision; ++checked_) {
    const uint64_t of = checked_ + 1;
    const bool is_change = changes_.contains(of);
    if (is_change != without_change_.contains(of)) continue;
    return Broken(absl::StrCat(
        "revision ", of, " of ", revision,
        is_change ? " has a change, and is that of a commit without one" : " has no entry"));
  }
  return absl::OkStatus();
}

// Each Region is as its newest change left it; and each that the trail knows and the pool does not
// is said to be gone, but for as many as were renamed: their entries have the former name.
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
