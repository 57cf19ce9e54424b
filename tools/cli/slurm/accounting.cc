#include "tools/cli/slurm/accounting.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "tools/cli/render/printable.h"

namespace cxlpool::cli {
namespace {

// States in which a job has ended for good; in every other one it runs, will run, or is being
// ended.
constexpr absl::string_view kEnded[] = {"BOOT_FAIL", "CANCELLED", "COMPLETED",     "DEADLINE",
                                        "FAILED",    "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
                                        "REVOKED",   "TIMEOUT"};

// What the names of all Regions of this Slurm begin with.
std::string NameStart(const SlurmSettings& settings) {
  return absl::StrCat(settings.tenant, settings.tenant.empty() ? "" : ".", settings.prefix, "-");
}

// "5", and not "05", "+5" or "": two texts are never one number.
std::optional<uint32_t> ReadNumber(absl::string_view text) {
  uint32_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || absl::StrCat(number) != text) return std::nullopt;
  return number;
}

// The value of a line "SlurmUser               = slurm(64030)".
absl::string_view ConfigValue(absl::string_view config, absl::string_view key) {
  for (const absl::string_view line : absl::StrSplit(config, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (absl::StripAsciiWhitespace(parts.first) == key) {
      return absl::StripAsciiWhitespace(parts.second);
    }
  }
  return "";
}

}  // namespace

std::string JobRegionId(const SlurmSettings& settings, const JobRegion& which) {
  std::string id = absl::StrCat(NameStart(settings), which.job);
  if (which.node.has_value()) absl::StrAppend(&id, "-", *which.node);
  return id;
}

std::optional<JobRegion> FindJobRegion(const SlurmSettings& settings, const v1::Region& region) {
  absl::string_view rest = region.name();
  if (!region.has_expire_time() || !absl::ConsumePrefix(&rest, "regions/") ||
      !absl::ConsumePrefix(&rest, NameStart(settings))) {
    return std::nullopt;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '-');
  const auto job = ReadNumber(parts.front());
  if (!job.has_value() || parts.size() > 2) return std::nullopt;
  if (parts.size() == 1) return JobRegion{.job = *job};
  const auto node = ReadNumber(parts.back());
  if (!node.has_value()) return std::nullopt;
  return JobRegion{.job = *job, .node = node};
}

std::vector<v1::Region> RegionsOfJob(const SlurmSettings& settings,
                                     const v1::ListRegionsResponse& regions, uint32_t job) {
  std::vector<std::pair<int64_t, v1::Region>> found;
  for (const v1::Region& region : regions.regions()) {
    const auto which = FindJobRegion(settings, region);
    if (!which.has_value() || which->job != job) continue;
    found.emplace_back(which->node.has_value() ? int64_t{*which->node} : -1, region);
  }
  absl::c_sort(found, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<v1::Region> sorted;
  for (auto& [node, region] : found) sorted.push_back(std::move(region));
  return sorted;
}

// Regions on their way out are left out, though Slurm may still count them: so it may believe for
// half a minute that there is less, but never that there is more.
uint64_t BytesForSlurm(const SlurmSettings& settings, const v1::Capacity& capacity,
                       const v1::ListRegionsResponse& regions) {
  uint64_t bytes = capacity.free_bytes();
  for (const v1::Region& region : regions.regions()) {
    if (CXLPOOL_MUTANT("slurm-figure-without-own")) continue;
    const bool held =
        region.state() == v1::Region::RESERVED || region.state() == v1::Region::ALLOCATED;
    if (held && FindJobRegion(settings, region).has_value()) bytes += region.size_bytes();
  }
  return bytes;
}

std::string PoolsJson(const SlurmSettings& settings, uint64_t bytes) {
  return absl::StrCat("{\"pools\":[{\"id\":\"", settings.pool,
                      "\",\"quantity\":", bytes / settings.granule_bytes,
                      ",\"granularity\":", settings.granule_bytes, "}]}\n");
}

uint64_t WholeGranules(const SlurmSettings& settings, uint64_t bytes) {
  const uint64_t granules =
      bytes / settings.granule_bytes + (bytes % settings.granule_bytes == 0 ? 0 : 1);
  return granules * settings.granule_bytes;
}

bool MayUseMemory(absl::string_view job_state) { return !absl::c_linear_search(kEnded, job_state); }

absl::StatusOr<std::set<uint32_t>> ReadJobs(absl::string_view listing) {
  std::set<uint32_t> jobs;
  for (const absl::string_view line : absl::StrSplit(listing, '\n', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
    const auto job = ReadNumber(words.front());
    if (words.size() != 2 || !job.has_value()) {
      return Refuse(absl::StatusCode::kUnavailable, "SLURM_UNKNOWN",
                    absl::StrCat("squeue lists no job but \"", Printable(line.substr(0, 80)), "\""),
                    "run squeue by hand as Slurm's user: it says what is wrong");
    }
    if (MayUseMemory(words.back())) jobs.insert(*job);
  }
  return jobs;
}

absl::Status CheckSeesAllJobs(absl::string_view config, uid_t uid) {
  const absl::string_view hidden = ConfigValue(config, "PrivateData");
  const bool is_slurms_user =
      absl::EndsWith(ConfigValue(config, "SlurmUser"), absl::StrCat("(", uid, ")"));
  if (uid == 0 || is_slurms_user || (!hidden.empty() && !absl::StrContains(hidden, "jobs"))) {
    return absl::OkStatus();
  }
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "SLURM_HIDES_JOBS",
      "squeue does not show everybody's jobs to this user, so it cannot say which are gone",
      "run it as Slurm's user (SlurmUser of slurm.conf), or as root");
}

SweepPlan PlanSweep(const SlurmSettings& settings, const v1::ListRegionsResponse& regions,
                    const std::set<uint32_t>& live_jobs, absl::Time now) {
  SweepPlan plan;
  for (const v1::Region& region : regions.regions()) {
    const auto which = FindJobRegion(settings, region);
    // What is on its way out already goes by itself; a quarantine is for a person to end.
    const bool held =
        region.state() == v1::Region::RESERVED || region.state() == v1::Region::ALLOCATED;
    if (!which.has_value() || !held) continue;
    if (!live_jobs.contains(which->job)) {
      plan.release.push_back(region);
      continue;
    }
    const absl::Time end = absl::FromUnixSeconds(region.expire_time().seconds());
    if (end - now < settings.lease * 0.75) plan.renew.push_back(region);
  }
  return plan;
}

}  // namespace cxlpool::cli
