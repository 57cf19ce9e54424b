#include "tools/cli/slurm/hooks.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/regions.h"
#include "tools/cli/run.h"
#include "tools/cli/slurm/accounting.h"
#include "tools/cli/slurm/directive.h"
#include "tools/cli/slurm/memory.h"

namespace cxlpool::cli {
namespace {

using Verb = SlurmCommand::Verb;

// The whole answer of a quick hook, with a margin for the start of its process.
constexpr absl::Duration kQuickAnswer = absl::Milliseconds(800);
constexpr absl::Duration kPause = absl::Seconds(3);  // Between two tries.
constexpr absl::Duration kSqueuePatience = absl::Seconds(30);
constexpr size_t kMaxScript = 64u << 20;
constexpr char kJobGone[] = "JOB_GONE";
constexpr char kPending[] = "PENDING", kRunning[] = "RUNNING";  // As squeue names states.

absl::Status JobGone(uint32_t job) {
  return Refuse(absl::StatusCode::kAborted, kJobGone,
                absl::StrCat("job ", job, " has ended meanwhile, and gets no memory"),
                "submit it again, if it is still wanted");
}

// The manager, or Slurm, does not answer.
bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || ReasonOf(status) == "NO_ANSWER";
}

// Refusals that can pass by themselves: others give back what they have, or the manager comes back.
bool MayPass(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || IsAway(status);
}

std::string FigureFile(const SlurmSettings& settings) {
  return absl::StrCat(settings.state, "/figure");
}

// Written whole or not at all. That it cannot be written is no reason to give Slurm no figure.
void KeepFigure(const SlurmSettings& settings, uint64_t bytes) {
  const std::string file = FigureFile(settings);
  const std::string fresh = absl::StrCat(file, ".", ::getpid());
  std::ofstream out(fresh);
  out << bytes << "\n";
  out.close();
  if (!out || std::rename(fresh.c_str(), file.c_str()) != 0) std::remove(fresh.c_str());
}

uint64_t LastFigure(const SlurmSettings& settings) {
  std::string line;
  std::getline(std::ifstream(FigureFile(settings)), line);
  uint64_t bytes = 0;
  return absl::SimpleAtoi(line, &bytes) ? bytes : 0;
}

absl::StatusOr<std::optional<MemoryRequest>> ReadScript(const SlurmSettings& settings,
                                                        const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || text.str().size() > kMaxScript) {
    return Refuse(absl::StatusCode::kNotFound, "NO_SCRIPT",
                  absl::StrCat("cannot read the job's script ", Printable(file)),
                  "run it as Slurm's user, who can");
  }
  auto request = ReadDirective(text.str());
  if (request.ok() && request->has_value() && (*request)->pool != settings.pool) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_DIRECTIVE",
                  absl::StrCat("#CXLPOOL: there is no pool ", Printable((*request)->pool)),
                  absl::StrCat("ask for pool=", settings.pool));
  }
  return request;
}

class Hooks {
 public:
  Hooks(const SlurmCommand& command, const SlurmSettings& settings, Connection& connection,
        SlurmCluster& cluster, Printer& printer)
      : command_(command),
        settings_(settings),
        connection_(connection),
        cluster_(cluster),
        printer_(printer),
        memory_(settings, connection, connection.pacer().Elapsed() + settings.wait) {}

  absl::Status Run() {
    switch (command_.verb) {
      case Verb::kPools:
        return Pools();
      case Verb::kSetup:
        return Setup();
      case Verb::kRealSize:
        return RealSize();
      case Verb::kPreRun:
        return Patiently([this] { return PreRun(); });
      case Verb::kTeardown:
        return Patiently([this] { return Teardown(); });
      case Verb::kStatus:
        return Status();
      case Verb::kSweep:
        return Sweep();
      case Verb::kCheck:
        return Check();
      case Verb::kValidate:
      case Verb::kPaths:
        break;
    }
    return absl::InternalError("not a hook that calls the manager");
  }

 private:
  absl::Status Pools() {
    uint64_t bytes = 0;
    if (const absl::Status status = AskFigure(bytes); status.ok()) {
      KeepFigure(settings_, bytes);
    } else {
      bytes = LastFigure(settings_);
    }
    return Write(printer_, PoolsJson(settings_, bytes));
  }

  // Regions are asked for first: one that is allocated between the two calls is in neither figure.
  absl::Status AskFigure(uint64_t& bytes) {
    const auto regions = memory_.List();
    if (!regions.ok()) return regions.status();
    const auto capacity = connection_.Send(v1::GetCapacityRequest());
    if (!capacity.ok()) return capacity.status();
    bytes = BytesForSlurm(settings_, *capacity, *regions);
    return absl::OkStatus();
  }

  // All of the job's Regions or none: a job that held some while it waits for the others could wait
  // for one that waits for it. Slurm runs a cancelled job's teardown beside this, where it may come
  // too early to find a Region: so the job is looked at again once it has them.
  absl::Status Setup() {
    const auto request = ReadScript(settings_, command_.script);
    if (!request.ok()) return request.status();
    if (!request->has_value()) return absl::OkStatus();
    for (;;) {
      std::vector<v1::Region> made;
      const auto job = PendingJob();
      absl::Status status = job.ok() ? AllocateAll(**request, *job, made) : job.status();
      if (status.ok() && !CXLPOOL_MUTANT("slurm-setup-after-cancel")) {
        const absl::Status now = Job().status();
        if (ReasonOf(now) == kJobGone) status = now;
      }
      if (status.ok()) return status;
      // Only those: another setup may have been started meanwhile. What stays is the sweep's.
      for (const v1::Region& region : made) memory_.Release(region).IgnoreError();
      if (!MayPass(status) || memory_.Left() < kPause) return status;
      connection_.pacer().Sleep(kPause);
    }
  }

  absl::Status AllocateAll(const MemoryRequest& request, const SlurmJob& job,
                           std::vector<v1::Region>& made) {
    for (uint32_t node = 0; node < (request.per_node ? job.nodes : 1); ++node) {
      JobRegion which{.job = command_.job};
      if (request.per_node) which.node = node;
      auto region = AllocateAnew(which, request, job);
      if (!region.ok()) return region.status();
      made.push_back(*std::move(region));
    }
    return absl::OkStatus();
  }

  // A Region of that name is of an earlier try, or of an earlier job with that number. It is
  // released, so that no job sees another one's bytes; but not if the job has begun with it, since
  // this setup is one that outlived its slurmctld.
  absl::StatusOr<v1::Region> AllocateAnew(const JobRegion& which, const MemoryRequest& request,
                                          const SlurmJob& job) {
    const uint64_t bytes = WholeGranules(settings_, command_.size_bytes);
    auto region = memory_.Allocate(which, request, job, bytes);
    if (ReasonOf(region.status()) != "REGION_EXISTS") return region;
    const auto there = memory_.FindOwn(which);
    if (!there.ok()) return there.status();
    if (const absl::Status now = PendingJob().status(); !now.ok()) return now;
    if (absl::Status status = memory_.Release(*there); !status.ok()) return status;
    return memory_.Allocate(which, request, job, bytes);
  }

  // As Job, of one that has not begun.
  absl::StatusOr<SlurmJob> PendingJob() {
    auto job = Job();
    if (!job.ok() || job->state == kPending) return job;
    return Refuse(absl::StatusCode::kFailedPrecondition, "JOB_STARTED",
                  absl::StrCat("job ", command_.job, " has begun: it needs no setup"),
                  "let it be; its memory stays as it is");
  }

  // The job as Slurm has it now. JOB_GONE; a Slurm that cannot be asked is an error, too.
  absl::StatusOr<SlurmJob> Job() {
    auto job = cluster_.FindJob(command_.job);
    if (!job.ok()) return job.status();
    if (!job->has_value() || !MayUseMemory((*job)->state)) return JobGone(command_.job);
    if (command_.verb == Verb::kSetup) (*job)->user = command_.user;
    return **std::move(job);
  }

  absl::Status RealSize() {
    const auto regions = memory_.List();
    if (!regions.ok()) return regions.status();
    uint64_t bytes = 0;
    for (const v1::Region& region : RegionsOfJob(settings_, *regions, command_.job)) {
      bytes += region.size_bytes();
    }
    return Write(printer_, absl::StrCat(bytes, "\n"));
  }

  // All attachments are begun before the first is waited for.
  absl::Status PreRun() {
    const auto request = ReadScript(settings_, command_.script);
    if (!request.ok()) return request.status();
    if (!request->has_value()) return absl::OkStatus();
    const auto job = Job();
    if (!job.ok()) return job.status();
    const auto nodes = cluster_.NodeNames(job->node_list);
    if (!nodes.ok()) return nodes.status();
    std::vector<std::string> regions;
    for (uint32_t i = 0; i < nodes->size(); ++i) {
      JobRegion which{.job = command_.job};
      if ((*request)->per_node) which.node = i;
      regions.push_back(JobRegionId(settings_, which));
      const bool first = (*request)->per_node || i == 0;
      absl::Status status = memory_.Attach(which, *nodes, i, (*request)->mode, first);
      if (ReasonOf(status) == "UNKNOWN_REGION" && (*request)->per_node && i > 0) {
        // It got more nodes than it wants at least, which is all that its setup knew.
        status = memory_
                     .Allocate(which, **request, *job,
                               WholeGranules(settings_, (*request)->capacity_bytes))
                     .status();
        if (status.ok()) status = memory_.Attach(which, *nodes, i, (*request)->mode, true);
      }
      if (!status.ok()) return status;
    }
    for (size_t i = 0; i < nodes->size(); ++i) {
      absl::Status status = memory_.AwaitOnline(regions[i], (*nodes)[i]);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // One that had to wait for the manager may have outlived its slurmctld: if the job runs again
  // meanwhile, what it has is new. (At first it may still be shown as running.)
  absl::Status Teardown() {
    const bool waited = std::exchange(torn_down_before_, true);
    if (waited) {
      const auto job = Job();
      if (job.ok() && job->state == kRunning) return absl::OkStatus();
    }
    return memory_.ReleaseAll(command_.job);
  }

  // Both may be done again. The manager may be away for a while, and a host's bridge blocked until
  // another job's Region goes.
  absl::Status Patiently(absl::FunctionRef<absl::Status()> step) {
    for (;;) {
      absl::Status status = step();
      if (!MayPass(status) || memory_.Left() < kPause) return status;
      connection_.pacer().Sleep(kPause);
    }
  }

  absl::StatusOr<v1::ListRegionsResponse> OwnRegions() {
    auto regions = memory_.List();
    if (!regions.ok()) return regions.status();
    v1::ListRegionsResponse own;
    own.set_revision(regions->revision());
    for (const v1::Region& region : regions->regions()) {
      if (FindJobRegion(settings_, region).has_value()) *own.add_regions() = region;
    }
    return own;
  }

  absl::Status Status() {
    const auto own = OwnRegions();
    if (!own.ok()) return own.status();
    return PrintTable(printer_, *own, RegionTable(*own));
  }

  // Regions before jobs: of a Region that was listed the job had been submitted before, so that a
  // job which is not listed then has ended. If Slurm cannot be asked nothing is released: that it
  // is silent says nothing about its jobs.
  absl::Status Sweep() {
    const auto regions = memory_.List();
    if (!regions.ok()) return regions.status();
    auto jobs = LiveJobs();
    if (!jobs.ok() && CXLPOOL_MUTANT("slurm-sweep-believes-silence")) jobs = std::set<uint32_t>();
    if (!jobs.ok()) return jobs.status();
    const SweepPlan plan = PlanSweep(settings_, *regions, *jobs, absl::Now());
    absl::Status first;
    for (const v1::Region& region : plan.renew) first.Update(Renew(region));
    for (const v1::Region& region : plan.release) first.Update(ReleaseOrphan(region));
    return first;
  }

  // It is started along with slurmctld, which takes a while to answer.
  absl::StatusOr<std::set<uint32_t>> LiveJobs() {
    const absl::Duration until = connection_.pacer().Elapsed() + kSqueuePatience;
    for (;;) {
      auto jobs = cluster_.LiveJobs();
      if (!absl::IsUnavailable(jobs.status()) || connection_.pacer().Elapsed() >= until) {
        return jobs;
      }
      connection_.pacer().Sleep(kPause);
    }
  }

  absl::Status Renew(const v1::Region& region) {
    v1::RenewRegionRequest request;
    request.set_request_id(FormatUuid(RandomUuid()));
    request.set_name(ResourceName("regions", region.tag()));
    const absl::Status status = connection_.Send(request).status();
    const std::string reason = ReasonOf(status);
    // Its job has ended meanwhile.
    return reason == "UNKNOWN_REGION" || reason == "REGION_RELEASING" ? absl::OkStatus() : status;
  }

  absl::Status ReleaseOrphan(const v1::Region& region) {
    v1::ReleaseRegionRequest request;
    request.set_request_id(FormatUuid(RandomUuid()));
    request.set_name(ResourceName("regions", region.tag()));
    request.set_detach_all(true);
    const absl::Status status = connection_.Send(request).status();
    if (ReasonOf(status) == "UNKNOWN_REGION") return absl::OkStatus();
    if (!status.ok()) return status;
    return Write(printer_, absl::StrCat(absl::StripPrefix(region.name(), "regions/"),
                                        " is released: its job is gone\n"));
  }

  absl::Status Check();

  const SlurmCommand& command_;
  const SlurmSettings& settings_;
  Connection& connection_;
  SlurmCluster& cluster_;
  Printer& printer_;
  JobMemory memory_;
  bool torn_down_before_ = false;
};

// Says all that is wrong, not only the first.
absl::Status Hooks::Check() {
  std::vector<std::string> wrong;
  const auto note = [&](const absl::Status& status) {
    if (!status.ok()) wrong.push_back(OneLine(status));
  };
  uint64_t bytes = 0;
  const absl::Status asked = AskFigure(bytes);
  note(asked);
  if (asked.ok()) KeepFigure(settings_, bytes);
  if (asked.ok() && LastFigure(settings_) != bytes) {
    wrong.push_back(absl::StrCat("the pool's last figure cannot be kept in ", settings_.state,
                                 ": make it for this user, who has to be Slurm's"));
  }
  note(cluster_.LiveJobs().status());
  const auto burst = cluster_.BurstBuffers();
  note(burst.status());
  if (burst.ok() && !absl::StrContains(*burst, absl::StrCat("PoolName[0]=", settings_.pool))) {
    wrong.push_back(absl::StrCat("slurmctld has no pool ", settings_.pool,
                                 ": set BurstBufferType=burst_buffer/lua in slurm.conf, and put "
                                 "burst_buffer.lua beside it"));
  }
  const auto nodes = cluster_.AllNodes();
  note(nodes.status());
  const auto hosts = AllPages(connection_, v1::ListHostsRequest());
  // A role for tenants may not list them.
  for (const std::string& node : nodes.ok() && hosts.ok() ? *nodes : std::vector<std::string>()) {
    const std::string name = ResourceName("hosts", absl::AsciiStrToLower(node));
    const bool there = std::any_of(hosts->hosts().begin(), hosts->hosts().end(),
                                   [&](const v1::Host& host) { return host.name() == name; });
    if (!there) {
      wrong.push_back(absl::StrCat("node ", node, " is no host of the pool: its name has to be `",
                                   name.substr(name.find('/') + 1), "` there"));
    }
  }
  if (wrong.empty()) {
    return Write(printer_, absl::StrCat("jobs can have memory: ", PoolsJson(settings_, bytes)));
  }
  if (absl::Status status = Write(printer_, absl::StrCat(absl::StrJoin(wrong, "\n"), "\n"));
      !status.ok()) {
    return status;
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "SLURM_NOT_READY",
                absl::StrCat(wrong.size(), " things keep jobs from memory"),
                "put right what is listed above");
}

// Slurm adds them to the job's environment: they are the same on all of its nodes.
absl::Status WritePaths(const SlurmCommand& command, const SlurmSettings& settings) {
  const auto request = ReadScript(settings, command.script);
  if (!request.ok()) return request.status();
  if (!request->has_value()) return absl::OkStatus();
  const std::string id = JobRegionId(settings, {.job = command.job});
  std::ofstream out(command.path_file);
  if ((*request)->per_node) {
    out << "CXLPOOL_REGION_PREFIX=" << id << "-\n";
  } else {
    out << "CXLPOOL_REGION=" << id << "\n";
  }
  out.close();
  if (out) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInternal, "OUTPUT_LOST",
                absl::StrCat("cannot write ", Printable(command.path_file)),
                "free space where slurmctld keeps its state");
}

}  // namespace

bool IsQuick(const SlurmCommand& command) {
  return command.verb == Verb::kPools || command.verb == Verb::kStatus;
}

absl::Status Execute(const SlurmCommand& command, const SlurmSettings& settings, Connect connect,
                     SlurmCluster& cluster, Printer& printer) {
  if (command.verb == Verb::kValidate) return ReadScript(settings, command.script).status();
  if (command.verb == Verb::kPaths) return WritePaths(command, settings);
  const auto connection = connect();
  if (!connection.ok() && command.verb == Verb::kPools) {
    return Write(printer, PoolsJson(settings, LastFigure(settings)));
  }
  if (!connection.ok()) return connection.status();
  return Hooks(command, settings, **connection, cluster, printer).Run();
}

Claim AnswerInASecond(const SlurmCommand& command, const SlurmSettings& settings) {
  const bool pools = command.verb == Verb::kPools;
  const auto claimed = std::make_shared<std::atomic_flag>();
  std::thread([claimed,
               answer = pools ? PoolsJson(settings, LastFigure(settings))
                              : std::string("the fabric manager does not answer\n"),
               code = pools ? 0 : 1] {
    absl::SleepFor(kQuickAnswer);
    if (claimed->test_and_set()) return;
    const ssize_t written = ::write(STDOUT_FILENO, answer.data(), answer.size());
    _exit(written < 0 ? 1 : code);
  }).detach();
  return [claimed] { return !claimed->test_and_set(); };
}

std::string OneLine(const absl::Status& status) {
  const auto refusal = RefusalOf(status);
  if (!refusal.has_value()) return Printable(status.message());
  return Printable(
      absl::StrCat(refusal->message, "; ", refusal->remedy, " (", refusal->reason, ")"));
}

}  // namespace cxlpool::cli
