#include "fabric-manager/rpc/tenant_view.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/resources.pb.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// Their words are made of what the caller sent, of its own Regions and of its tenants' figures.
bool IsAboutTheCaller(absl::string_view reason) {
  static const auto* const reasons =
      new absl::flat_hash_set<absl::string_view>{"DETACH_IN_PROGRESS", "DEVICE_NOT_YOURS",
                                                 "ETAG_MISMATCH",      "HOST_CAP_EXCEEDED",
                                                 "HOST_NOT_YOURS",     "ISOLATION_NOT_ENFORCED",
                                                 "NAME_NOT_YOURS",     "NOT_RESIZABLE",
                                                 "NOT_SHAREABLE",      "NO_LEASE",
                                                 "OWNER_NOT_YOURS",    "QUEUE_FULL",
                                                 "QUOTA_EXCEEDED",     "REASON_REQUIRED",
                                                 "REGION_ATTACHED",    "REGION_EXISTS",
                                                 "REGION_IN_USE",      "REGION_NOT_READY",
                                                 "REGION_RELEASING",   "REQUEST_ID_REUSED",
                                                 "REQUEST_TOO_LARGE",  "RESIZE_INSIDE_EXTENT",
                                                 "RESIZE_IN_PROGRESS", "ROLE_NOT_ALLOWED",
                                                 "SHARING_CONFLICT",   "TENANT_NOT_YOURS",
                                                 "TENANT_TOO_BUSY",    "TOO_MANY_ATTACHMENTS",
                                                 "TOO_MANY_EXTENTS",   "UNKNOWN_REGION",
                                                 "UNKNOWN_TENANT"};
  return absl::StartsWith(reason, "BAD_") || reasons->contains(reason);
}

// "RELEASE_BLOCKED" of "RELEASE_BLOCKED: region x lies above it"; empty where it begins with words.
absl::string_view CodeOf(absl::string_view reason) {
  const absl::string_view code = reason.substr(0, reason.find(':'));
  const bool is_code = std::all_of(code.begin(), code.end(), [](char c) {
    return absl::ascii_isupper(c) || absl::ascii_isdigit(c) || c == '_';
  });
  return is_code ? code : absl::string_view();
}

template <typename Message>
void HideReason(Message& of) {
  of.set_state_reason(std::string(CodeOf(of.state_reason())));
}

void Hide(v1::Region& region) {
  HideReason(region);
  for (v1::Extent& extent : *region.mutable_extents()) {
    extent.clear_device();
    extent.clear_dpa_bytes();
    extent.set_bad_reason(std::string(CodeOf(extent.bad_reason())));
  }
  for (v1::Attachment& attachment : *region.mutable_attachments()) {
    HideReason(attachment);
    for (v1::Segment& segment : *attachment.mutable_segments()) {
      segment.clear_slot();
      segment.clear_host_bridge();
      segment.clear_serial();
      segment.clear_hpa_bytes();
    }
  }
}

void Hide(v1::Event& event) {
  event.set_reason(std::string(CodeOf(event.reason())));
  event.clear_more();
}

// What a tenant may do about its Region itself: no force, and no word of another's.
bool IsForTenants(absl::string_view command, absl::string_view region) {
  const std::vector<absl::string_view> words = absl::StrSplit(command, ' ');
  return words.size() > 3 && words[0] == "cxlpool" && words[1] == "region" && words[3] == region &&
         !absl::StrContains(command, "--force");
}

// A finding's problem, time and hosts are the tenant's to know. Its words are for operators: they
// say on which devices it waits, and for whom.
void Hide(v1::Finding& finding) {
  absl::string_view region = finding.subject();
  if (!absl::ConsumePrefix(&region, "regions/")) return;
  finding.set_text("only an operator is shown why: ask one");
  const auto is_others = [](const std::string& name) { return !absl::StartsWith(name, "hosts/"); };
  auto& waits_for = *finding.mutable_waits_for();
  waits_for.erase(std::remove_if(waits_for.begin(), waits_for.end(), is_others), waits_for.end());
  auto& commands = *finding.mutable_commands();
  commands.erase(
      std::remove_if(commands.begin(), commands.end(),
                     [&](const std::string& command) { return !IsForTenants(command, region); }),
      commands.end());
}

// A refusal of one of a batch travels as a field, and is hidden as a call's own is. Region and
// Attachment of one that was done are within it, and HideOthers comes to them.
void Hide(v1::BatchResult& result) {
  if (result.code() == 0) return;
  Refusal refusal{static_cast<absl::StatusCode>(result.code()),
                  result.error().reason(),
                  result.message(),
                  result.error().remedy(),
                  {}};
  if (IsAboutTheCaller(refusal.reason)) return;
  const std::optional<Refusal> hidden = RefusalOf(HideOthers(refusal.ToStatus()));
  result.set_message(hidden->message);
  result.mutable_error()->Clear();
  result.mutable_error()->set_reason(hidden->reason);
  result.mutable_error()->set_remedy(hidden->remedy);
}

}  // namespace

// Goes through everything that is in the answer, however deep: a new field that holds a Region or
// an event needs nothing done here. The kinds below are those that say something of others.
void HideOthers(google::protobuf::Message* answer) {
  if (CXLPOOL_MUTANT("tenants-are-told-all")) return;
  // A Region holds no other message with places or reasons than those that Hide names: lists of
  // thousands need not be walked by reflection.
  if (answer->GetDescriptor() == v1::Region::descriptor()) {
    return Hide(static_cast<v1::Region&>(*answer));
  }
  if (answer->GetDescriptor() == v1::Event::descriptor()) {
    return Hide(static_cast<v1::Event&>(*answer));
  }
  if (answer->GetDescriptor() == v1::Finding::descriptor()) {
    return Hide(static_cast<v1::Finding&>(*answer));
  }
  if (answer->GetDescriptor() == v1::PlacementPlan::descriptor()) {
    // They name the Regions that lie on a host's bridges, whichever tenant's they are.
    return static_cast<v1::PlacementPlan&>(*answer).clear_bridges();
  }
  if (answer->GetDescriptor() == v1::BatchResult::descriptor()) {
    Hide(static_cast<v1::BatchResult&>(*answer));
  }
  const auto* reflection = answer->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(*answer, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      HideOthers(reflection->MutableMessage(answer, field));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*answer, field); ++i) {
      HideOthers(reflection->MutableRepeatedMessage(answer, field, i));
    }
  }
}

absl::Status HideOthers(const absl::Status& refusal) {
  const std::optional<Refusal> full = RefusalOf(refusal);
  const std::string reason = full.has_value() ? full->reason : "";
  if (refusal.ok() || IsAboutTheCaller(reason) || CXLPOOL_MUTANT("refusals-name-others")) {
    return refusal;
  }
  // That bytes are reserved, or are free in pieces, says something about the others.
  const bool no_room = reason == "RESERVED_FOR_OTHERS" || reason == "POOL_FRAGMENTED";
  return Refuse(refusal.code(),
                no_room          ? "POOL_FULL"
                : reason.empty() ? "NOT_NOW"
                                 : reason,
                "the pool cannot do this now",
                "try again later, or ask an operator, who is shown why");
}

v1::Capacity CapacityOfTenants(const PoolView& view, const Caller& caller) {
  v1::Capacity out;
  uint64_t quotas = 0;
  bool limited = true;
  for (const TenantView& tenant : *view.tenants) {
    if (!caller.HasTenant(tenant.tenant.id)) continue;
    limited = limited && tenant.tenant.quota_bytes != 0;
    quotas += tenant.tenant.quota_bytes;
    out.set_allocated_bytes(out.allocated_bytes() + tenant.use.held_bytes);
    out.set_regions(out.regions() + tenant.use.regions);
  }
  if (!limited) return out;
  out.set_total_bytes(quotas);
  out.set_free_bytes(quotas - std::min(quotas, out.allocated_bytes()));
  return out;
}

}  // namespace cxlpool::fm
