#include "host-agent/service/agent_metrics.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/strip.h"
#include "host-agent/service/agent_core.h"
#include "host-agent/service/reports.h"

namespace cxlpool::agent {
namespace {

using metrics::MetricsText;

double Number(uint64_t n) { return static_cast<double>(n); }

// Enumerations without their prefix: "ONLINE".
std::string StateName(v1::SegmentState state) {
  return std::string(absl::StripPrefix(v1::SegmentState_Name(state), "SEGMENT_"));
}

// States of all segments, memdevs that no Offer names among them; bytes of those that are offered
// and ONLINE by what the host shows now. Each state and mode has its sample, of 0 too: a rule
// over a series that comes and goes would not fire.
void AddSegments(MetricsText& out, const AgentCore& core) {
  std::map<v1::SegmentState, uint64_t> states;
  ForEachStatus(core.attachments(), core.opens(), core.observation(),
                [&](const SegmentStatus& status, uint32_t) { ++states[status.state]; });
  out.Gauge("cxlpool_agent_segments", "Segments of this host by state.");
  for (int state = v1::SegmentState_MIN + 1; state <= v1::SegmentState_MAX; ++state) {
    const auto of = static_cast<v1::SegmentState>(state);
    out.Sample({{"state", StateName(of)}}, Number(states[of]));
  }
  std::map<Mode, uint64_t> bytes = {{Mode::kDevdax, 0}, {Mode::kSystemRam, 0}};
  for (const auto& [key, attachment] : core.attachments().all()) {
    for (const Segment& segment : attachment.segments) {
      if (SegmentStateOf(segment, core.observation()) != v1::SEGMENT_ONLINE) continue;
      bytes[segment.desired.mode] += segment.desired.length_bytes;
    }
  }
  out.Gauge("cxlpool_agent_online_bytes", "Bytes of the pool that are online on this host.");
  out.Sample({{"mode", "devdax"}}, Number(bytes[Mode::kDevdax]));
  out.Sample({{"mode", "system-ram"}}, Number(bytes[Mode::kSystemRam]));
}

// A Region that three processes have open is one Region and three holders; a process with three
// Regions is one holder, and is to let go where one of the three is to go, or has no Offer any
// more.
void AddUse(MetricsText& out, const AgentCore& core) {
  std::set<AttachmentKey> open;
  std::map<ProcessId, bool> processes;  // Whether it is to let go of something.
  core.opens().ForEachUse([&](const AttachmentKey& key, uint64_t, const ProcessId& process,
                              const std::set<uint64_t>&) {
    open.insert(key);
    const auto offered = core.attachments().all().find(key);
    const bool stays = offered != core.attachments().all().end() && offered->second.wanted_online();
    const auto [known, is_new] = processes.try_emplace(process, !stays);
    known->second = known->second || !stays;
  });
  out.Gauge("cxlpool_agent_open_regions", "Regions that applications have open.",
            Number(open.size()));
  out.Gauge("cxlpool_agent_holders", "Processes that have a Region open.",
            Number(processes.size()));
  const auto leaving = static_cast<uint64_t>(std::count_if(
      processes.begin(), processes.end(), [](const auto& process) { return process.second; }));
  out.Gauge("cxlpool_agent_applications",
            "Processes that have a Region open; letting_go: of which a Region is wanted back.");
  out.Sample({{"state", "using"}}, Number(processes.size() - leaving));
  out.Sample({{"state", "letting_go"}}, Number(leaving));
}

// Of each kind of step that does something; kDone, kWait and kRefuse have no figures.
void AddSteps(MetricsText& out, AgentMeters& meters) {
  const auto for_each = [&](auto add) {
    for (size_t i = 0; i < AgentMeters::kSteps; ++i) {
      const auto kind = static_cast<Step::Kind>(static_cast<size_t>(Step::Kind::kPowerOn) + i);
      add(std::string(StepName(kind)), meters.Of(kind));
    }
  };
  out.Histogram("cxlpool_agent_step_duration_seconds", "How long a rung took on this host.");
  for_each([&](const std::string& step, const AgentMeters::OfStep& of) {
    out.Sample({{"step", step}}, of.duration);
  });
  out.Counter("cxlpool_agent_step_failures_total", "Rungs that failed, and are tried again.");
  for_each([&](const std::string& step, const AgentMeters::OfStep& of) {
    out.Sample({{"step", step}}, Number(of.failures.value()));
  });
  out.Counter("cxlpool_agent_offline_attempts_total", "Tries to bring memory offline.");
  const std::pair<const char*, const metrics::Counter*> outcomes[] = {
      {"done", &meters.offline_done},
      {"held", &meters.offline_held},
      {"timeout", &meters.offline_timed_out},
      {"failed", &meters.offline_failed}};
  for (const auto& [outcome, count] : outcomes) {
    out.Sample({{"outcome", outcome}}, Number(count->value()));
  }
  out.Histogram("cxlpool_agent_drain_hook_duration_seconds", "How long the drain hook ran.");
  out.Sample({}, meters.drain_duration);
  out.Counter("cxlpool_agent_drain_hook_failures_total", "Runs of the drain hook that failed.",
              Number(meters.drain_failures.value()));
  out.Counter("cxlpool_agent_owner_releases_total",
              "Regions that were released because the process that owned them had ended.",
              Number(meters.owner_releases.value()));
}

}  // namespace

// Counts a step that has ended. One that takes memory away from its users counts as an attempt to
// bring it offline as well, with one outcome: a deadline that passed comes first, since an
// adapter that ran out of time answers BLOCKS_BUSY, too.
void AgentMeters::Count(const Step& step, absl::Duration took, const absl::Status& status,
                        bool held) {
  Of(step.kind).duration.Observe(took);
  if (!status.ok()) Of(step.kind).failures.Add();
  // A DAX device is taken from applications by its unbinding, memory of the kernel by its blocks.
  if (step.kind != Step::Kind::kOfflineBlocks && !step.check_holders) return;
  const v1::SegmentError error = ErrorOf(status);
  if (status.ok()) {
    offline_done.Add();
  } else if (absl::IsDeadlineExceeded(status) || error.cause() == "timeout") {
    offline_timed_out.Add();
  } else if (held || error.reason() == "HOLDERS" || error.reason() == "BLOCKS_BUSY") {
    offline_held.Add();
  } else {
    offline_failed.Add();
  }
}

// An event of a kind that this release does not know is in no figure.
void AgentMeters::Count(const v1::HostEvent& event) {
  if (v1::HostEvent::Kind_IsValid(event.kind())) events[static_cast<size_t>(event.kind())].Add();
}

std::string AgentMetrics(const AgentCore& core,
                         const std::optional<CertificateEnds>& certificates) {
  MetricsText out;
  AgentMeters& meters = core.meters();
  const AgentCore::Progress progress = core.progress();
  out.Gauge("cxlpool_agent_session_up", "1: it has a session with the manager.",
            progress.session_up ? 1 : 0);
  out.Counter("cxlpool_agent_sessions_total", "Sessions that it has had.", Number(core.sessions()));
  out.Gauge("cxlpool_agent_fit", "1: this host can take memory; 0: `cxlpool-agent check` says why.",
            progress.prepared.ok() ? 1 : 0);
  AddSegments(out, core);
  AddUse(out, core);
  AddSteps(out, meters);
  out.Counter("cxlpool_agent_host_events_total", "What the kernel reported of the pool's memory.");
  for (int kind = v1::HostEvent::Kind_MIN + 1; kind <= v1::HostEvent::Kind_MAX; ++kind) {
    out.Sample({{"kind", v1::HostEvent::Kind_Name(static_cast<v1::HostEvent::Kind>(kind))}},
               Number(meters.events[static_cast<size_t>(kind)].value()));
  }
  if (certificates.has_value()) {
    out.Gauge("cxlpool_tls_certificate_not_after_timestamp_seconds",
              "When a certificate of this program ends, since the epoch.");
    out.Sample({{"certificate", "own"}},
               absl::ToDoubleSeconds(certificates->own - absl::UnixEpoch()));
    out.Sample({{"certificate", "authority"}},
               absl::ToDoubleSeconds(certificates->authority - absl::UnixEpoch()));
  }
  metrics::AddProcess(out);
  return out.text();
}

}  // namespace cxlpool::agent
