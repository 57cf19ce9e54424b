#include "fabric-manager/rpc/list_events.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "fabric-manager/rpc/list_inventory.h"
#include "fabric-manager/rpc/timestamps.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint32_t kMaxEvents = 1000;
constexpr char kManager[] = "manager";

// An event is the `entry`th of a row, counted from 1; 0: all of that row were listed.
struct Place {
  uint64_t row = UINT64_MAX;
  uint64_t entry = 0;
};

std::string TokenOf(const Place& place) { return absl::StrCat(place.row, "/", place.entry); }

// Where the page begins: behind this place, towards the older.
absl::StatusOr<Place> ReadToken(const std::string& token) {
  Place place;
  if (token.empty()) return place;
  const std::vector<std::string> parts = absl::StrSplit(token, '/');
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &place.row) && place.row > 0 &&
      absl::SimpleAtoi(parts[1], &place.entry)) {
    return place;
  }
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_PAGE_TOKEN",
                "field page_token was not made by this call", "start again without one");
}

// When the tenant was made; InfinitePast: it is not known, or there is no record of it.
absl::Time CreateTimeOf(const PoolView& view, const std::string& tenant) {
  const auto& all = *view.tenants;
  const auto at = std::lower_bound(
      all.begin(), all.end(), tenant,
      [](const TenantView& one, const std::string& id) { return one.tenant.id < id; });
  if (at == all.end() || at->tenant.id != tenant) return absl::InfinitePast();
  return at->tenant.create_time;
}

// Who has a role in the pool sees everything; a tenant what was done to its Regions, and a
// scheduler of that what it did itself, and what became of Regions that it may see.
bool MaySeeEvent(const PoolView& view, const Caller& caller, const AuditEntry& entry) {
  if (caller.for_pool()) return true;
  if (!caller.for_tenants()) return false;
  if (CXLPOOL_MUTANT("tenants-see-all-events")) return true;
  if (entry.tenant.empty() || !caller.HasTenant(entry.tenant)) return false;
  // Not what was done for another tenant that had the name before.
  if (entry.time < CreateTimeOf(view, entry.tenant) && !CXLPOOL_MUTANT("a-name-has-its-history")) {
    return false;
  }
  if (caller.role() == PoolRole::kTenant || entry.who == caller.identity()) return true;
  absl::string_view id = entry.target;
  if (!absl::ConsumePrefix(&id, "regions/")) return false;
  const RegionPtr region = view.regions.Find(id);
  // Not what became of another of that name.
  return region != nullptr && region->create_time <= entry.time && MaySee(caller, nullptr, *region);
}

v1::Event ToProto(const AuditEntry& entry, uint64_t row) {
  v1::Event event;
  FillTimestamp(entry.time, event.mutable_time());
  event.set_who(entry.who);
  event.set_role(entry.role);
  event.set_peer(entry.peer);
  if (!entry.request_id.empty()) event.set_request_id(FormatUuid(entry.request_id.bytes()));
  event.set_method(entry.method);
  event.set_resource(entry.target);
  event.set_more(entry.more);
  if (!entry.tenant.empty()) event.set_tenant(ResourceName("tenants", entry.tenant));
  event.set_refused(entry.outcome);
  event.set_reason(entry.reason);
  event.set_revision(entry.revision);
  event.set_row(row);
  return event;
}

// Of what others did to its Regions a tenant is told what, and not by whom.
void HideWho(const Caller& caller, v1::Event& event) {
  if (!caller.for_tenants() || event.who() == caller.identity() || event.who() == kManager) return;
  event.clear_who();
  event.clear_role();
  event.clear_peer();
  event.clear_request_id();
}

}  // namespace

// A page is of the newest rows that are older than the token's place. It ends at the number of
// events that were asked for, at kPageBytes, or after kMaxRowsOfPage rows; after so many it may be
// empty. It has no token for a next one only where nothing older is kept.
absl::Status ListEvents(const AuditTrail& trail, const PoolView& view, const Caller& caller,
                        const v1::ListEventsRequest& request, v1::ListEventsResponse* response) {
  const absl::StatusOr<Place> from = ReadToken(request.page_token());
  if (!from.ok()) return from.status();
  const uint64_t head = trail.Read(1, 0).bounds.head.number;
  const uint64_t last =
      std::min(head, from->entry == 0 && from->row != UINT64_MAX ? from->row - 1 : from->row);
  const uint64_t first = last > kMaxRowsOfPage ? last - kMaxRowsOfPage + 1 : 1;
  const uint32_t most =
      request.page_size() == 0 ? kMaxEvents : std::min(request.page_size(), kMaxEvents);
  const AuditTrail::Kept kept = trail.Read(first, last);
  size_t bytes = 0;
  for (auto row = kept.rows.rbegin(); row != kept.rows.rend(); ++row) {
    const uint64_t number = (*row)->head.number;
    const absl::StatusOr<std::vector<AuditEntry>> entries = DecodeEntries(**row);
    if (!entries.ok()) continue;  // It was altered: VerifyAudit says so.
    size_t left = entries->size();
    if (number == from->row) left = std::min<size_t>(left, from->entry - 1);
    for (; left > 0; --left) {
      const AuditEntry& entry = (*entries)[left - 1];
      if (!request.resource().empty() && entry.target != request.resource()) continue;
      if (!MaySeeEvent(view, caller, entry)) continue;
      v1::Event event = ToProto(entry, number);
      HideWho(caller, event);
      // Not before: a filter must not answer what the event does not say.
      if (!request.who().empty() && event.who() != request.who()) continue;
      bytes += event.ByteSizeLong();
      // A page has at least one event, however large: otherwise nobody would get past it.
      if (bytes > kPageBytes && response->events_size() > 0) {
        response->set_next_page_token(TokenOf({number, left + 1}));
        return absl::OkStatus();
      }
      *response->add_events() = std::move(event);
      if (static_cast<uint32_t>(response->events_size()) == most) {
        const bool all = left == 1 && number <= kept.bounds.dropped.number + 1;
        if (!all) response->set_next_page_token(TokenOf({number, left == 1 ? 0 : left}));
        return absl::OkStatus();
      }
    }
  }
  if (first > kept.bounds.dropped.number + 1) response->set_next_page_token(TokenOf({first, 0}));
  return absl::OkStatus();
}

absl::Status VerifyAudit(const AuditTrail& trail, const v1::VerifyAuditRequest& request,
                         v1::VerifyAuditResponse* response) {
  const AuditTrail::Kept kept = trail.Read();
  std::vector<AuditFlaw> flaws = VerifyChain(kept.bounds, kept.rows);
  if (!request.anchor().empty()) {
    const absl::StatusOr<AuditHead> anchor = ParseAuditHead(request.anchor());
    if (!anchor.ok()) return anchor.status();
    const auto flaw = CheckAnchor(kept.bounds, kept.rows, *anchor);
    if (!flaw.ok()) return flaw.status();
    if (flaw->has_value()) flaws.push_back(**flaw);
  }
  for (const AuditFlaw& flaw : flaws) {
    v1::AuditFlaw& out = *response->add_flaws();
    out.set_row(flaw.number);
    out.set_what(flaw.what);
  }
  if (!kept.rows.empty()) response->set_first_row(kept.rows.front()->head.number);
  response->set_head(ToText(kept.bounds.head));
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
