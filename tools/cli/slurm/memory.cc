#include "tools/cli/slurm/memory.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

constexpr uint32_t kMaxExtents = 16;  // Bytes that are free in pieces are free for jobs, too.

// Slurm's node, as the pool names hosts: in small letters.
std::string HostOf(const std::string& node) {
  return ResourceName("hosts", absl::AsciiStrToLower(node));
}

WaitGoal GoalOf(WaitGoal::Kind kind, const std::string& host = "") {
  return {.kind = kind, .host = host, .attachment_generation = 0, .size_bytes = 0};
}

// `why` says what about the Region of that name is not as a setup makes it.
absl::Status NotTheJobs(const std::string& region, absl::string_view why) {
  return Refuse(absl::StatusCode::kAlreadyExists, "REGION_EXISTS",
                absl::StrCat("there is a Region ", region, ", which ", why),
                "release or rename it, or give Slurm another `prefix` in cli.toml");
}

}  // namespace

// A second at least: what was just asked for may be done already, however late it is.
absl::StatusOr<v1::Region> JobMemory::Await(const WaitGoal& goal, const v1::Region& region,
                                            uint64_t revision) {
  const absl::Duration left = std::max(Left(), absl::Seconds(1));
  return WaitForRegion(connection_, goal, region, revision, left, [](const v1::Region&) {});
}

// By what the names begin with or contain; FindJobRegion says which of them are really jobs'.
absl::StatusOr<v1::ListRegionsResponse> JobMemory::List() {
  v1::ListRegionsRequest request;
  request.set_filter(absl::StrCat("name : ", settings_.prefix, "-"));
  return AllRegions(connection_, request);
}

// The lease is what ends the Region where everything else of Slurm is gone. Without a wish for
// sharing it is the least that the job needs: a fabric without sharing then has jobs of one node.
// One that is not there in time is released: its job waits or is held, and no sweep takes the
// memory of a job that lives.
absl::StatusOr<v1::Region> JobMemory::Allocate(const JobRegion& which, const MemoryRequest& request,
                                               const SlurmJob& job, uint64_t bytes) {
  v1::AllocateRegionRequest call;
  call.set_region_id(JobRegionId(settings_, which));
  const std::string& tenant = settings_.tenant_is_account ? job.account : settings_.tenant;
  if (!tenant.empty()) call.set_tenant(ResourceName("tenants", tenant));
  call.set_size_bytes(bytes);
  const bool one_host = which.node.has_value() || job.nodes == 1;
  call.set_sharing(request.sharing != v1::SHARING_UNSPECIFIED ? request.sharing
                   : one_host                                 ? v1::EXCLUSIVE
                                                              : v1::SINGLE_WRITER);
  call.set_max_extents(kMaxExtents);
  call.mutable_ttl()->set_seconds(absl::ToInt64Seconds(settings_.lease));
  call.mutable_open_to()->add_uids(job.user);
  // Where decoders are a stack, those that stay longest go lowest.
  if (job.limit > absl::ZeroDuration() && job.limit < absl::InfiniteDuration()) {
    call.mutable_expected_lifetime()->set_seconds(absl::ToInt64Seconds(job.limit));
  }
  call.set_request_id(FormatUuid(RandomUuid()));
  const auto response = connection_.Send(call);
  if (!response.ok()) return response.status();
  auto region = Await(GoalOf(WaitGoal::Kind::kAllocated), response->region(), response->revision());
  if (!region.ok() && !CXLPOOL_MUTANT("slurm-late-region-stays")) {
    Release(response->region()).IgnoreError();
  }
  return region;
}

absl::StatusOr<v1::Region> JobMemory::FindOwn(const JobRegion& which) {
  v1::GetRegionRequest get;
  get.set_name(ResourceName("regions", JobRegionId(settings_, which)));
  auto there = connection_.Send(get);
  if (!there.ok() || FindJobRegion(settings_, *there) == which ||
      CXLPOOL_MUTANT("slurm-believes-a-name")) {
    return there;
  }
  return NotTheJobs(get.name(), "no setup made");
}

// The Region is read first: how it is shared may be another's doing, and says who may write. And a
// name is whoever's who took it first, also a program's on some host, which would read along: the
// job gets what a setup made, and what no host has but its own. It is named by the tag, so that it
// is the one that was looked at.
absl::Status JobMemory::Attach(const JobRegion& which, const std::vector<std::string>& nodes,
                               size_t node, v1::AttachmentMode mode, bool first) {
  const auto region = FindOwn(which);
  if (!region.ok()) return region.status();
  for (const v1::Attachment& there : region->attachments()) {
    const bool is_of_job = std::any_of(nodes.begin(), nodes.end(), [&](const std::string& each) {
      return HostOf(each) == there.host();
    });
    if (is_of_job || CXLPOOL_MUTANT("slurm-shares-with-strangers")) continue;
    return NotTheJobs(region->name(), absl::StrCat(there.host(), " has: no node of the job"));
  }
  v1::AttachRegionRequest call;
  call.set_request_id(FormatUuid(RandomUuid()));
  call.set_name(ResourceName("regions", region->tag()));
  call.set_host(HostOf(nodes[node]));
  call.set_mode(mode);
  const bool reads = region->sharing() == v1::SINGLE_WRITER && !first;
  call.set_access(reads ? v1::READ_ONLY : v1::READ_WRITE);
  return connection_.Send(call).status();
}

absl::Status JobMemory::AwaitOnline(const std::string& region_id, const std::string& node) {
  v1::GetRegionRequest get;
  get.set_name(ResourceName("regions", region_id));
  const auto region = connection_.Send(get);
  if (!region.ok()) return region.status();
  return Await(GoalOf(WaitGoal::Kind::kOnline, HostOf(node)), *region, region->revision()).status();
}

// By the tag: a Region that has been made of the same name meanwhile is another job's.
absl::Status JobMemory::Release(const v1::Region& region) {
  v1::ReleaseRegionRequest call;
  call.set_request_id(FormatUuid(RandomUuid()));
  call.set_name(ResourceName("regions", region.tag()));
  call.set_detach_all(true);
  const auto response = connection_.Send(call);
  if (ReasonOf(response.status()) == "UNKNOWN_REGION") return absl::OkStatus();
  if (!response.ok()) return response.status();
  return Await(GoalOf(WaitGoal::Kind::kGone), response->region(), response->revision()).status();
}

// Goes on after an error, and answers the first: what can go goes.
absl::Status JobMemory::ReleaseAll(uint32_t job) {
  const auto regions = List();
  if (!regions.ok()) return regions.status();
  absl::Status first;
  for (const v1::Region& region : RegionsOfJob(settings_, *regions, job)) {
    first.Update(Release(region));
  }
  return first;
}

}  // namespace cxlpool::cli
