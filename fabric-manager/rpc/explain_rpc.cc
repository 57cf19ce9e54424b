// InventoryService.Explain.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/rpc/inventory_rpc.h"
#include "fabric-manager/rpc/timestamps.h"
#include "fabric-manager/service/explain.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxFindings = 1000;  // Of one answer; the others are counted in `left_out`.

// The numbers of Urgency are those of the API. A time that is not known is not set.
void Fill(Finding finding, v1::Finding* out) {
  out->set_urgency(static_cast<v1::Finding::Urgency>(finding.urgency));
  out->set_subject(std::move(finding.subject));
  out->set_problem(std::move(finding.problem));
  out->set_text(std::move(finding.text));
  FillKnown(finding.since, out, &v1::Finding::mutable_since);
  for (std::string& name : finding.waits_for) out->add_waits_for(std::move(name));
  for (std::string& command : finding.commands) out->add_commands(std::move(command));
}

void FillAll(std::vector<Finding> findings, v1::ExplainResponse* out) {
  for (Finding& finding : findings) Fill(std::move(finding), out->add_findings());
}

absl::Status Unknown(const char* reason, const std::string& name) {
  return Refuse(absl::StatusCode::kNotFound, reason, absl::StrCat("there is no ", name),
                "see `cxlpool doctor` for whatever needs somebody", {{"name", name}});
}

absl::Status NotForTenants(const Caller& caller) {
  return Refuse(absl::StatusCode::kPermissionDenied, "ROLE_NOT_ALLOWED",
                absl::StrCat(caller.identity(), " has a role for tenants, and hosts and devices ",
                             "are no tenant's"),
                "ask for a Region, or let an operator ask", {{"identity", caller.identity()}});
}

// The Region of that name or, where the name is a UUID, of that tag. One that is gone is explained
// by how it ended, for as long as that is known; then it is UNKNOWN_REGION. For a tenant so are
// others' Regions, and whatever is gone: nobody remembers whose it was.
absl::Status ExplainRegion(const ViewHolder& views, const PoolService& service,
                           const Caller& caller, const std::string& name,
                           v1::ExplainResponse* out) {
  const PoolViewPtr view = views.Get();
  const auto id = ParseResourceName("regions", name);
  if (!id.ok()) return id.status();
  // A tag that no Region has gives an empty name, and no Region has that either.
  Uuid tag;
  const RegionPtr region = view->regions.Find(ParseUuid(*id, tag) ? views.IdOfTag(tag) : *id);
  const bool is_told = region != nullptr && (MaySee(caller, /*own=*/nullptr, *region) ||
                                             CXLPOOL_MUTANT("explain-tells-tenants-all"));
  if (is_told) {
    const uint64_t left_bytes = service.LeftToClear(region->key);
    FillAll(fm::ExplainRegion(*view, *region, absl::Now(), left_bytes), out);
    return absl::OkStatus();
  }
  const auto end = caller.for_tenants() ? std::nullopt : views.EndOf(*id);
  if (!end.has_value()) return Unknown("UNKNOWN_REGION", name);
  Fill({.urgency = Urgency::kNote,
        .subject = name,
        .problem = "GONE",
        .text = absl::StrCat("the last Region of that name is gone: ", end->reason),
        .since = end->time,
        .commands = {absl::StrCat("cxlpool event list --of regions/", *id)}},
       out->add_findings());
  return absl::OkStatus();
}

// What is over, the latest first. Nothing waits for it any more.
void FillPast(const ViewHolder& views, const std::string& name, v1::ExplainResponse* out) {
  std::vector<PastTrouble> past = views.PastOf(name);
  std::reverse(past.begin(), past.end());
  for (const PastTrouble& trouble : past) {
    Fill({.urgency = Urgency::kNote,
          .subject = name,
          .problem = "OVER",
          .text = absl::StrCat("it was ", trouble.what, " from ", UtcText(trouble.since), " until ",
                               UtcText(trouble.until)),
          .since = trouble.until},
         out->add_findings());
  }
}

// One that is retired is there, and nothing is wrong with it.
absl::Status ExplainHost(const ViewHolder& views, const std::string& name,
                         v1::ExplainResponse* out) {
  const PoolViewPtr view = views.Get();
  const auto id = ParseResourceName("hosts", name);
  if (!id.ok()) return id.status();
  const auto host = view->hosts.find(*id);
  if (host == view->hosts.end()) return Unknown("UNKNOWN_HOST", name);
  FillAll(fm::ExplainHost(*view, *host->second, absl::Now()), out);
  FillPast(views, name, out);
  return absl::OkStatus();
}

// Also one that is laid down and was never seen.
absl::Status ExplainDevice(const ViewHolder& views, const std::string& name,
                           v1::ExplainResponse* out) {
  const PoolViewPtr view = views.Get();
  const auto id = ParseResourceName("devices", name);
  if (!id.ok()) return id.status();
  const std::optional<std::vector<Finding>> findings = fm::ExplainDevice(*view, *id);
  if (!findings.has_value()) return Unknown("UNKNOWN_DEVICE", name);
  FillAll(*findings, out);
  FillPast(views, name, out);
  return absl::OkStatus();
}

// The whole pool, the worst first, with what is wrong with the manager itself; or what a tenant may
// know of.
void ExplainAll(const PoolView& view, const Caller& caller, std::vector<Finding> of_manager,
                v1::ExplainResponse* out) {
  Diagnosis diagnosis = Diagnose(view, caller, std::move(of_manager), absl::Now(), kMaxFindings);
  FillAll(std::move(diagnosis.findings), out);
  out->set_left_out(diagnosis.left_out);
}

}  // namespace

// Of the records alone, in one view, and of how far a scrub is: it waits for no host and no fabric,
// and answers while they hang. What is neither a host nor a device is taken for a Region, whose
// parser refuses other names.
void InventoryRpc::Explain(UnaryCall<v1::ExplainRequest, v1::ExplainResponse>& call) {
  const std::string& name = call.request().name();
  const Caller& caller = call.caller();
  v1::ExplainResponse* const out = call.response();
  if (name.empty()) {
    ExplainAll(*views_->Get(), caller, server_health_->Findings(), out);
    return call.Finish(absl::OkStatus());
  }
  const bool of_host = absl::StartsWith(name, "hosts/");
  if (!of_host && !absl::StartsWith(name, "devices/")) {
    return call.Finish(ExplainRegion(*views_, *service_, caller, name, out));
  }
  if (caller.for_tenants()) return call.Finish(NotForTenants(caller));
  call.Finish(of_host ? ExplainHost(*views_, name, out) : ExplainDevice(*views_, name, out));
}

}  // namespace cxlpool::fm
