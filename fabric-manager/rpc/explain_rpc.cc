// InventoryService.Explain.

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/rpc/inventory_rpc.h"
#include "fabric-manager/rpc/timestamps.h"
#include "fabric-manager/service/explain.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxFindings = 1000;

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

// One that is gone is explained by its end.
absl::Status ExplainRegion(const ViewHolder& views, const std::string& name,
                           v1::ExplainResponse* out) {
  const PoolViewPtr view = views.Get();
  const auto id = ParseResourceName("regions", name);
  if (!id.ok()) return id.status();
  Uuid tag;
  const RegionPtr region = view->regions.Find(ParseUuid(*id, tag) ? views.IdOfTag(tag) : *id);
  if (region != nullptr) {
    FillAll(fm::ExplainRegion(*view, *region, absl::Now()), out);
    return absl::OkStatus();
  }
  const auto end = views.EndOf(*id);
  if (!end.has_value()) return Unknown("UNKNOWN_REGION", name);
  Fill({.urgency = Urgency::kNote,
        .subject = name,
        .problem = "GONE",
        .text = absl::StrCat("the last Region of that name is gone: ", end->reason),
        .since = end->time,
        .commands = {absl::StrCat("cxlpool event list --of ", name)}},
       out->add_findings());
  return absl::OkStatus();
}

absl::Status ExplainHost(const PoolView& view, const std::string& name, v1::ExplainResponse* out) {
  const auto id = ParseResourceName("hosts", name);
  if (!id.ok()) return id.status();
  const auto host = view.hosts.find(*id);
  if (host == view.hosts.end()) return Unknown("UNKNOWN_HOST", name);
  FillAll(fm::ExplainHost(*host->second, absl::Now()), out);
  return absl::OkStatus();
}

absl::Status ExplainDevice(const PoolView& view, const std::string& name,
                           v1::ExplainResponse* out) {
  const auto id = ParseResourceName("devices", name);
  if (!id.ok()) return id.status();
  const std::optional<std::vector<Finding>> findings = fm::ExplainDevice(view, *id);
  if (!findings.has_value()) return Unknown("UNKNOWN_DEVICE", name);
  FillAll(*findings, out);
  return absl::OkStatus();
}

void ExplainAll(const PoolView& view, std::vector<Finding> of_manager, v1::ExplainResponse* out) {
  Diagnosis diagnosis = Diagnose(view, std::move(of_manager), absl::Now(), kMaxFindings);
  FillAll(std::move(diagnosis.findings), out);
  out->set_left_out(diagnosis.left_out);
}

}  // namespace

void InventoryRpc::Explain(UnaryCall<v1::ExplainRequest, v1::ExplainResponse>& call) {
  const std::string& name = call.request().name();
  v1::ExplainResponse* const out = call.response();
  if (name.empty()) {
    ExplainAll(*views_->Get(), server_health_->Findings(), out);
    return call.Finish(absl::OkStatus());
  }
  if (absl::StartsWith(name, "hosts/")) return call.Finish(ExplainHost(*views_->Get(), name, out));
  if (absl::StartsWith(name, "devices/")) {
    return call.Finish(ExplainDevice(*views_->Get(), name, out));
  }
  call.Finish(ExplainRegion(*views_, name, out));
}

}  // namespace cxlpool::fm
