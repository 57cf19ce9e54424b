#include "fabric-manager/service/metrics.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/service/explain.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

using metrics::MetricsText;

constexpr size_t kRegionsAtOnce = 1000;

constexpr RegionState kRegionStates[] = {RegionState::kReserved,  RegionState::kAllocated,
                                         RegionState::kReleasing, RegionState::kScrubbing,
                                         RegionState::kFailed,    RegionState::kQuarantined};
constexpr AttachmentState kAttachmentStates[] = {
    AttachmentState::kWanted,        AttachmentState::kBound,    AttachmentState::kOnline,
    AttachmentState::kOffline,       AttachmentState::kEjecting, AttachmentState::kUnbound,
    AttachmentState::kReleaseBlocked};

double SinceEpoch(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }
double Number(uint64_t n) { return static_cast<double>(n); }

// How many there are of each state, all of them, so that none is ever missing.
template <typename State, size_t n>
void AddStates(MetricsText& out, const State (&states)[n],
               const std::map<State, uint64_t>& counts) {
  for (const State state : states) {
    const auto count = counts.find(state);
    out.Sample({{"state", std::string(ToString(state))}},
               count == counts.end() ? 0 : Number(count->second));
  }
}

// What the bytes of the whole pool are, and how much of what is free lies together.
void AddPool(MetricsText& out, const PoolView& view) {
  const Capacity& capacity = view.capacity;
  out.Gauge("cxlpool_pool_capacity_bytes", "Bytes of all devices of the pool.",
            Number(capacity.total_bytes));
  out.Gauge("cxlpool_pool_bytes", "Bytes of the pool by what they are; together the capacity.");
  out.Sample({{"state", "free"}}, Number(capacity.free_bytes));
  out.Sample({{"state", "allocated"}}, Number(capacity.held_bytes));
  out.Sample({{"state", "scrubbing"}}, Number(capacity.scrubbing_bytes));
  out.Sample({{"state", "quarantined"}}, Number(capacity.quarantined_bytes));
  out.Gauge("cxlpool_pool_largest_free_extent_bytes",
            "The largest run of free bytes on a device where something may be placed.",
            Number(capacity.largest_free_bytes));
  out.Gauge("cxlpool_pool_most_free_device_bytes",
            "Free bytes of the device that has most of them, of those where something may be "
            "placed.",
            Number(MostFreeOnOneDevice(view)));
}

// The first that applies says it.
const char* StateOf(const Device& device) {
  switch (device.service) {
    case DeviceService::kFailed:
      return "failed";
    case DeviceService::kDraining:
      return device.reachable ? "draining" : "unreachable";
    case DeviceService::kInService:
    case DeviceService::kRemoved:  // Not shown.
      break;
  }
  return device.reachable ? "in_service" : "unreachable";
}

// Whether no host may have bytes of the device: no link leads one there, or those that are led
// there were found not to reach it. A pool without hosts waits for its first.
bool IsOutOfReach(const PoolView& view, const std::string& device) {
  bool any = false;
  for (const auto& [id, host] : view.hosts) {
    if (host->host.retired) continue;
    any = true;
    const bool led = view.topology->Find(id, device) != nullptr;
    if (led && !host->runtime->unreached.contains(device)) return false;
  }
  return any && !CXLPOOL_MUTANT("what-no-link-leads-to-is-free");
}

// Of each device what its bytes are and its state; of the pool, which free bytes can be given to
// nobody, each counted by the first reason that applies. A device that was removed is left out; one
// that the fabric has never shown has a state, and no bytes.
void AddDevices(MetricsText& out, const PoolView& view) {
  std::map<std::string, uint64_t> stranded = {
      {"unreachable", 0}, {"draining", 0}, {"ld_limit", 0}, {"out_of_reach", 0}, {"bad", 0}};
  out.Gauge("cxlpool_device_bytes", "Bytes of a device by what they are.");
  for (const DeviceView& view_of : *view.devices) {
    const Device& device = view_of.device;
    const DeviceUse& use = view_of.use;
    if (device.service == DeviceService::kRemoved) continue;
    const uint64_t free = view_of.free_bytes();
    const auto sample = [&](const char* state, uint64_t bytes) {
      out.Sample({{"device", device.id}, {"state", state}}, Number(bytes));
    };
    sample("free", free);
    sample("allocated", use.held_bytes);
    sample("scrubbing", use.scrubbing_bytes);
    sample("quarantined", use.quarantined_bytes);
    if (device.service == DeviceService::kFailed) {
      stranded["bad"] += free;
    } else if (!device.reachable) {
      stranded["unreachable"] += free;
    } else if (device.service == DeviceService::kDraining) {
      stranded["draining"] += free;
    } else if (view_of.max_lds != 0 && use.lds >= view_of.max_lds) {
      stranded["ld_limit"] += free;
    } else if (IsOutOfReach(view, device.id)) {
      stranded["out_of_reach"] += free;
    }
  }
  out.Gauge("cxlpool_device_lds", "Extents on a device.");
  for (const DeviceView& device : *view.devices) {
    if (device.device.service == DeviceService::kRemoved) continue;
    out.Sample({{"device", device.device.id}}, device.use.lds);
  }
  out.Gauge("cxlpool_device_state", "1 for the state that a device is in, 0 for the others.");
  const auto add_states = [&out](const std::string& device, absl::string_view is) {
    for (const char* state : {"in_service", "draining", "failed", "unreachable"}) {
      out.Sample({{"device", device}, {"state", state}}, is == state ? 1 : 0);
    }
  };
  for (const DeviceView& device : *view.devices) {
    if (device.device.service == DeviceService::kRemoved) continue;
    add_states(device.device.id, StateOf(device.device));
  }
  if (!CXLPOOL_MUTANT("what-was-never-seen-is-not-missed")) {
    for (const auto& [device, why] : view.laid_down->unseen_devices) {
      add_states(device, "unreachable");
    }
  }
  out.Gauge("cxlpool_pool_stranded_bytes", "Free bytes that can be given to nobody, and why.");
  for (const auto& [why, bytes] : stranded) out.Sample({{"why", why}}, Number(bytes));
}

// What the tenants beyond kMaxTenantsShown have is one sum. So is that of one who is called
// "other".
void AddTenants(MetricsText& out, const PoolView& view) {
  std::vector<TenantView> shown;
  TenantView other;
  other.tenant.id = "other";
  for (const TenantView& tenant : *view.tenants) {
    if (shown.size() < kMaxTenantsShown && tenant.tenant.id != other.tenant.id) {
      shown.push_back(tenant);
      continue;
    }
    other.use.held_bytes += tenant.use.held_bytes;
    other.use.regions += tenant.use.regions;
    other.tenant.quota_bytes += tenant.tenant.quota_bytes;
    other.tenant.reserved_bytes += tenant.tenant.reserved_bytes;
  }
  if (shown.size() < view.tenants->size()) shown.push_back(std::move(other));
  const auto add = [&](const char* name, const char* help, auto value) {
    out.Gauge(name, help);
    for (const TenantView& tenant : shown) {
      out.Sample({{"tenant", tenant.tenant.id}}, Number(value(tenant)));
    }
  };
  add("cxlpool_tenant_used_bytes", "Bytes that the Regions of a tenant hold.",
      [](const TenantView& t) { return t.use.held_bytes; });
  add("cxlpool_tenant_quota_bytes", "How many they may hold; 0: no limit.",
      [](const TenantView& t) { return t.tenant.quota_bytes; });
  add("cxlpool_tenant_reserved_bytes", "Bytes kept free for a tenant.",
      [](const TenantView& t) { return t.tenant.reserved_bytes; });
}

// A retired host has no other state. One whose agent has no session is away only if it has memory.
const char* StateOf(const HostView& host) {
  if (host.host.retired) return "retired";
  if (host.runtime->online) return host.runtime->unfit_reason.empty() ? "online" : "unfit";
  return host.occupied.empty() ? "enrolled" : "away";
}

// Hosts by state, what each has, and which of its bridges can take more.
void AddHosts(MetricsText& out, const PoolView& view) {
  std::map<absl::string_view, uint64_t> states = {
      {"online", 0}, {"enrolled", 0}, {"retired", 0}, {"unfit", 0}, {"away", 0}};
  for (const auto& [id, host] : view.hosts) ++states[StateOf(*host)];
  out.Gauge("cxlpool_hosts",
            "Hosts by state; away: no agent has a session, and memory is attached there.");
  for (const auto& [state, count] : states)
    out.Sample({{"state", std::string(state)}}, Number(count));
  out.Gauge("cxlpool_host_attached_bytes", "Bytes attached to a host, whatever their state.");
  for (const auto& [id, host] : view.hosts) {
    uint64_t bytes = 0;
    for (const OccupiedSlot& slot : host->occupied) bytes += slot.length_bytes;
    out.Sample({{"host", id}}, Number(bytes));
  }
  const auto of_bridges = [&](auto value) {
    for (const auto& [id, host] : view.hosts) {
      for (const Bridge& bridge : host->runtime->bridges) {
        out.Sample({{"host", id}, {"bridge", bridge.name}},
                   value(bridge, LookAt(bridge, *host->runtime, host->occupied)));
      }
    }
  };
  out.Gauge("cxlpool_host_bridge_free_decoders", "Host regions that a host bridge has room for.");
  of_bridges([](const Bridge& bridge, const BridgeOutlook& outlook) {
    return Number(bridge.depth() - std::min(outlook.stack, bridge.depth()));
  });
  out.Gauge("cxlpool_host_bridge_blocked",
            "1: a host bridge takes nothing new until a Region goes.");
  of_bridges([](const Bridge&, const BridgeOutlook& outlook) { return outlook.blocked ? 1 : 0; });
}

// Where the Extents of each device lie: (first byte, length), in any order.
using ExtentsByDevice = absl::flat_hash_map<Interned, std::vector<std::pair<uint64_t, uint64_t>>>;

// Sorts `lengths` so far that the longest come first, and drops the others.
void KeepLongest(std::vector<uint64_t>& lengths, size_t most) {
  most = std::min(most, lengths.size());
  std::partial_sort(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(most),
                    lengths.end(), std::greater<>());
  lengths.resize(most);
}

// The most that one Region could be given: of all devices where something may be placed, and of
// each device no more runs than it has room for LDs. What lies between Extents is free.
uint64_t LargestGrant(const PoolView& view, ExtentsByDevice& extents) {
  std::vector<uint64_t> longest;
  for (const DeviceView& of : *view.devices) {
    if (of.largest_free_bytes == 0) continue;
    auto& taken = extents[Interned(of.device.id)];
    std::sort(taken.begin(), taken.end());
    const uint64_t granule = std::max<uint64_t>(of.device.granule_bytes, 1);
    const uint64_t end = of.device.capacity_bytes / granule * granule;
    std::vector<uint64_t> runs;
    uint64_t begin = 0;
    for (const auto& [first, length] : taken) {
      if (first > begin) runs.push_back(first - begin);
      begin = first + length;
    }
    if (end > begin) runs.push_back(end - begin);
    const size_t room = of.max_lds == 0 ? kMaxExtentsPerRegion : of.max_lds - of.use.lds;
    KeepLongest(runs, std::min(room, kMaxExtentsPerRegion));
    longest.insert(longest.end(), runs.begin(), runs.end());
  }
  KeepLongest(longest, kMaxExtentsPerRegion);
  return std::accumulate(longest.begin(), longest.end(), uint64_t{0});
}

// One pass over all Regions.
void AddRegions(MetricsText& out, const PoolView& view, absl::Time now) {
  std::map<RegionState, uint64_t> regions;
  std::map<AttachmentState, uint64_t> attachments;
  std::map<std::pair<AttachmentState, std::string>, absl::Duration> waits;
  uint64_t unproven = 0;
  ExtentsByDevice extents;
  const auto look_at = [&](const Region& region) {
    ++regions[region.state];
    for (const Extent& extent : region.extents) {
      extents[extent.device].emplace_back(extent.dpa_bytes, extent.length_bytes);
    }
    for (const Attachment& attachment : region.attachments) {
      ++attachments[attachment.settled().state];
      for (const Part& part : attachment.parts) {
        const auto wait = ExplainPart(view, region, attachment, part, now);
        if (!wait.has_value()) continue;
        if (part.state == AttachmentState::kEjecting &&
            absl::StartsWith(part.reason, "UNBIND_NOT_PROVEN")) {
          ++unproven;
        }
        // How long it is in its state, and not how long what keeps it there is wrong.
        if (part.since == absl::InfinitePast()) continue;
        absl::Duration& oldest = waits[{part.state, wait->problem}];
        oldest = std::max(oldest, now - part.since);
      }
    }
  };
  for (std::string after;;) {
    const std::vector<RegionPtr> some = view.regions.List(after, kRegionsAtOnce);
    for (const RegionPtr& region : some) look_at(*region);
    if (some.size() < kRegionsAtOnce) break;
    after = some.back()->id;
  }
  out.Gauge("cxlpool_pool_largest_grant_bytes",
            absl::StrCat("The largest Region that the pool has room for now, in up to ",
                         kMaxExtentsPerRegion,
                         " Extents; reservations of tenants and ways of hosts may allow less."),
            Number(LargestGrant(view, extents)));
  out.Gauge("cxlpool_regions", "Regions by state.");
  AddStates(out, kRegionStates, regions);
  out.Gauge("cxlpool_attachments", "Attachments by state.");
  AddStates(out, kAttachmentStates, attachments);
  out.Gauge(
      "cxlpool_attachment_oldest_wait_seconds",
      "How long the oldest Attachment that waits has been in its state, by what it waits for.");
  for (const auto& [of, wait] : waits) {
    out.Sample({{"state", std::string(ToString(of.first))}, {"reason", of.second}},
               absl::ToDoubleSeconds(wait));
  }
  out.Gauge("cxlpool_unbind_unproven",
            "Attachments of which the fabric has not proven that the host let go.",
            Number(unproven));
}

// A histogram for each kind of call to the fabric.
void AddFabric(MetricsText& out, const FabricTimes& times) {
  out.Histogram("cxlpool_fabric_call_duration_seconds",
                "How long the fabric's driver took to answer a call, well or not.");
  for (size_t i = 0; i < kTimedCallNames.size(); ++i) {
    out.Sample({{"call", kTimedCallNames[i]}}, times.calls[i]);
  }
}

// How long each rung took, which failed and why, and what the ladder has done besides.
void AddLadder(MetricsText& out, const Meters& meters) {
  out.Histogram(
      "cxlpool_rung_duration_seconds",
      "How long an Attachment, or for scrub a Region, was in the state before this rung.");
  for (size_t i = 0; i < kRungNames.size(); ++i) {
    out.Sample({{"rung", kRungNames[i]}}, meters.rungs[i]);
  }
  out.Counter("cxlpool_rung_failures_total", "Calls to the fabric that failed.");
  for (size_t i = 0; i < kRungNames.size(); ++i) {
    for (const auto& [reason, count] : meters.rung_failures[i].Values()) {
      out.Sample({{"rung", kRungNames[i]}, {"reason", reason}}, Number(count));
    }
  }
  out.Counter("cxlpool_scrub_bytes_total", "Bytes that were cleared.",
              Number(meters.scrubbed_bytes.value()));
  out.Gauge(
      "cxlpool_scrub_backlog_bytes",
      "Bytes that wait to be cleared, or are being cleared, before anybody else may have them.",
      Number(meters.scrub_backlog_bytes.load()));
  out.Counter("cxlpool_leases_expired_total", "Leases that ran out.",
              Number(meters.leases_expired.value()));
  out.Counter("cxlpool_strays_total", "Attachments that were found in the fabric and in no record.",
              Number(meters.strays.value()));
  out.Counter("cxlpool_fabric_discover_differences_total",
              "Segments that the fabric did not show as the records have them: not bound though "
              "they are recorded as bound, or bound by their key to something else.",
              Number(meters.fabric_differences.value()));
}

// Each device has its samples from the beginning: an increase from nothing is no increase.
void AddMedia(MetricsText& out, const PoolView& view, const Meters& meters) {
  const auto lost = meters.media_errors_lost.Values(), others = meters.media_errors.Values();
  std::map<std::string, std::pair<uint64_t, uint64_t>> devices;
  for (const DeviceView& device : *view.devices) devices[device.device.id];
  devices["unknown"];
  for (const auto& [device, count] : lost) devices[device].first = count;
  for (const auto& [device, count] : others) devices[device].second = count;
  out.Counter(
      "cxlpool_media_errors_total",
      "Errors of a device's memory that hosts' kernels reported; bytes_lost=\"true\": Extents that "
      "have lost bytes, each once.");
  for (const auto& [device, counts] : devices) {
    out.Sample({{"device", device}, {"bytes_lost", "true"}}, Number(counts.first));
    out.Sample({{"device", device}, {"bytes_lost", "false"}}, Number(counts.second));
  }
}

// What became of agents' sessions since the manager started.
void AddSessions(MetricsText& out, const Meters& meters) {
  out.Counter("cxlpool_session_events_total", "What became of sessions of agents.");
  const std::pair<const char*, const metrics::Counter*> events[] = {
      {"opened", &meters.sessions_opened},
      {"lost", &meters.sessions_lost},
      {"replaced", &meters.sessions_replaced},
      {"refused", &meters.sessions_refused}};
  for (const auto& [event, count] : events) out.Sample({{"event", event}}, Number(count->value()));
}

// Calls by method and code, refusals by reason, and the watches that are open.
void AddCalls(MetricsText& out, const Meters& meters, const ManagerFacts& facts) {
  out.Counter(
      "cxlpool_rpc_requests_total",
      "Calls that have ended, watches and backups too; of sessions those that were refused.");
  for (const auto& [method, meter] : meters.methods) {
    for (size_t code = 0; code < MethodMeter::kCodes; ++code) {
      const uint64_t count = meter->answered[code].value();
      if (count == 0 && code != 0) continue;  // Most codes never come.
      out.Sample({{"method", method},
                  {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}},
                 Number(count));
    }
  }
  out.Histogram("cxlpool_rpc_duration_seconds",
                "How long a call took, from its headers to its answer.");
  for (const auto& [method, meter] : meters.methods) {
    out.Sample({{"method", method}}, meter->duration);
  }
  out.Counter("cxlpool_refusals_total", "Refusals by reason; docs/errors.md has each.");
  for (const auto& [reason, count] : meters.refusals.Values()) {
    out.Sample({{"reason", reason}}, Number(count));
  }
  out.Gauge("cxlpool_watch_streams", "Watches that are open.", facts.watches);
  out.Gauge("cxlpool_watch_lag_revisions",
            "How many revisions of the pool the slowest open watch has yet to take.",
            Number(facts.watch_lag));
  out.Counter("cxlpool_watch_dropped_total",
              "Watches that the manager ended because they had not taken their events in time.",
              Number(meters.watches_dropped.value()));
}

// Not where every address is insecure, and etcd's, too.
void AddCertificates(MetricsText& out, const ManagerFacts& facts) {
  const std::pair<std::string, std::optional<absl::Time>> all[] = {
      {"own", facts.certificate},
      {"authority", facts.authority},
      {"etcd", facts.etcd_certificate},
      {"etcd-authority", facts.etcd_authority}};
  if (!facts.certificate.has_value() && !facts.etcd_certificate.has_value()) return;
  out.Gauge("cxlpool_tls_certificate_not_after_timestamp_seconds",
            "When a certificate of this program ends, since the epoch.");
  for (const auto& [which, end] : all) {
    const bool known = end.has_value() && !CXLPOOL_MUTANT("certificates-end-unmeasured");
    if (known) out.Sample({{"certificate", which}}, SinceEpoch(*end));
  }
}

void AddRevision(MetricsText& out, uint64_t revision) {
  out.Gauge("cxlpool_store_revision", "Revision of the pool.", Number(revision));
}

// Of a leader and of a standby alike, and of a manager that is alone: alerts ask whether any of a
// pool's managers leads.
void AddReplica(MetricsText& out, const ReplicaFacts& replica) {
  out.Gauge("cxlpool_fm_leader", "Whether this manager leads; one that does not stands by.",
            replica.leads ? 1 : 0);
  out.Gauge("cxlpool_fm_replicated", "Whether another manager can take this one's place.",
            replica.replicated ? 1 : 0);
  out.Gauge("cxlpool_fm_epoch",
            "Grows each time that a manager takes the store over; 0: no other one can.",
            Number(replica.epoch));
  out.Gauge("cxlpool_fm_standby_age_seconds",
            "How long ago a standby last knew all that the store has; 0: this manager leads.",
            absl::ToDoubleSeconds(replica.age));
  out.Counter("cxlpool_store_resent_total",
              "Transactions that were sent to etcd again, since it had not said whether they were "
              "done.",
              Number(replica.resent));
  out.Gauge("cxlpool_etcd_member_up",
            "Whether a member of etcd answers this manager, and takes part with the others.");
  for (const auto& [endpoint, answers] : replica.etcd_members) {
    out.Sample({{"endpoint", endpoint}}, answers ? 1 : 0);
  }
}

// The queue before the store, its commits, and how old the last backup and anchor are.
void AddStore(MetricsText& out, const PoolView& view, const Meters& meters,
              const ManagerFacts& facts) {
  out.Gauge("cxlpool_writer_queue_length", "Changes that wait for their answer.",
            Number(facts.queued));
  out.Gauge("cxlpool_writer_queue_limit", "How many there may be; one more is refused.",
            Number(facts.max_queue));
  out.Histogram("cxlpool_commit_group_size", "Requests in one commit.");
  out.Sample({}, meters.commit_group_size);
  out.Histogram("cxlpool_store_commit_duration_seconds",
                "How long a commit took until it was durable.");
  out.Sample({}, meters.commit_duration);
  out.Counter("cxlpool_store_commit_failures_total", "Commits that failed.",
              Number(meters.commit_failures.value()));
  if (facts.store_bytes.has_value()) {
    out.Gauge("cxlpool_store_size_bytes",
              "The store's files, or in etcd what counts against store.max_bytes.",
              Number(*facts.store_bytes));
  }
  out.Gauge("cxlpool_store_limit_bytes",
            "How large the store may become, where that is not its disk's to say.");
  if (facts.store_limit_bytes.has_value()) out.Sample({}, Number(*facts.store_limit_bytes));
  AddRevision(out, view.revision);
  out.Gauge(
      "cxlpool_backup_last_success_timestamp_seconds",
      "When a backup was last taken whole, since the epoch; 0: none since the manager started.",
      static_cast<double>(meters.last_backup_s.load()));
  out.Counter("cxlpool_audit_entries_total", "Entries of the audit trail that were written.",
              Number(meters.audit_entries.value()));
  out.Gauge("cxlpool_audit_chain_ok",
            "Whether the audit trail was as it was written when the manager started.",
            meters.audit_chain_ok.load() ? 1 : 0);
  out.Gauge("cxlpool_audit_anchor_timestamp_seconds",
            "When the end of the audit trail was logged last, since the epoch; 0: it was not.",
            static_cast<double>(meters.last_anchor_s.load()));
}

}  // namespace

// One scrape of a manager that leads. It reads one view and counters, and waits for nobody.
std::string ManagerMetrics(const PoolView& view, const Meters& meters, const ManagerFacts& facts) {
  MetricsText out;
  AddPool(out, view);
  AddDevices(out, view);
  AddTenants(out, view);
  AddHosts(out, view);
  AddRegions(out, view, facts.now);
  AddLadder(out, meters);
  if (facts.fabric != nullptr) AddFabric(out, *facts.fabric);
  AddMedia(out, view, meters);
  AddSessions(out, meters);
  AddCalls(out, meters, facts);
  AddStore(out, view, meters, facts);
  AddReplica(out, facts.replica);
  AddCertificates(out, facts);
  metrics::AddProcess(out);
  return out.text();
}

// The pool's figures are the leader's to tell: told twice they would be summed up.
std::string StandbyMetrics(const ManagerFacts& facts) {
  MetricsText out;
  AddRevision(out, facts.replica.revision);
  AddReplica(out, facts.replica);
  AddCertificates(out, facts);
  metrics::AddProcess(out);
  return out.text();
}

}  // namespace cxlpool::fm
