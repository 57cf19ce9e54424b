#include "fabric-manager/service/explain.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/byte_size.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kStep = 1000;  // Regions taken from a view at a time.
constexpr size_t kNamed = 5;    // Of those that something waits for.

std::string RegionName(absl::string_view id) { return ResourceName("regions", id); }
std::string HostName(absl::string_view id) { return ResourceName("hosts", id); }
std::string DeviceName(absl::string_view id) { return ResourceName("devices", id); }

std::string OnHost(absl::string_view host, absl::string_view command) {
  return absl::StrCat("on ", host, ": ", command);
}
std::string Fence(absl::string_view host) {
  return absl::StrCat("cxlpool host fence ", host, " --reason WHY");
}
std::string Detach(absl::string_view region, absl::string_view host) {
  return absl::StrCat("cxlpool region detach ", region, " --host ", host);
}
std::string ForceRelease(absl::string_view region) {
  return absl::StrCat("cxlpool region release ", region, " --detach-all --force --reason WHY");
}

// " (why)", or nothing.
std::string InBrackets(absl::string_view why) {
  return why.empty() ? std::string() : absl::StrCat(" (", why, ")");
}

const HostView* FindHost(const PoolView& view, absl::string_view id) {
  const auto host = view.hosts.find(id);
  return host == view.hosts.end() ? nullptr : host->second.get();
}

const DeviceView* FindDevice(const PoolView& view, absl::string_view id) {
  for (const DeviceView& device : *view.devices) {
    if (device.device.id == id) return &device;
  }
  return nullptr;
}

const Bridge* FindBridge(const HostRuntime& runtime, absl::string_view name) {
  for (const Bridge& bridge : runtime.bridges) {
    if (bridge.name == name) return &bridge;
  }
  return nullptr;
}

// "pid 812 (python3) of user 1000, pid 813 ..."; empty: nobody is known to hold it.
std::string HoldersOf(const HostRuntime& runtime, uint64_t generation) {
  if (runtime.holders == nullptr) return "";
  const auto of = runtime.holders->by_generation.find(generation);
  if (of == runtime.holders->by_generation.end()) return "";
  std::vector<std::string> words;
  for (const Holder& holder : of->second.holders) {
    if (words.size() == kNamed) break;
    words.push_back(
        absl::StrCat("pid ", holder.pid, InBrackets(holder.program), " of user ", holder.uid));
  }
  const size_t more = of->second.holders.size() + of->second.more - words.size();
  if (more > 0) words.push_back(absl::StrCat(more, " more"));
  return absl::StrJoin(words, ", ");
}

// What one part of an Attachment waits for.
class PartExplainer {
 public:
  PartExplainer(const PoolView& view, const Region& region, const Attachment& attachment,
                const Part& part, absl::Time now)
      : view_(view), region_(region), attachment_(attachment), part_(part), now_(now) {
    finding_.subject = RegionName(region.id);
    finding_.since = part.since;
    finding_.waits_for = {HostName(attachment.host)};
  }

  // The first of them that applies says it: what keeps all others waiting comes first.
  Finding Explain() {
    const HostView* host = FindHost(view_, attachment_.host);
    if (host != nullptr && !host->runtime->fabric_reachable) {
      return FabricAway(*host->runtime);
    }
    if (part_.state == AttachmentState::kReleaseBlocked) return ReleaseBlocked(host);
    if (host != nullptr && !host->runtime->online) return AgentAway();
    if (part_.detaching) return GoingDown();
    if (host != nullptr && FindBlockedBridge(*host)) return BridgeBlocked();
    return ComingUp();
  }

 private:
  Finding Say(Urgency urgency, const char* problem, std::string text,
              std::vector<std::string> commands) {
    finding_.urgency = urgency;
    finding_.problem = problem;
    finding_.text = std::move(text);
    finding_.commands = std::move(commands);
    return std::move(finding_);
  }

  std::string Rung() const {
    return absl::StrCat(ToString(part_.state), part_.detaching ? " and on its way down" : "",
                        " on host ", attachment_.host);
  }

  Finding FabricAway(const HostRuntime& runtime) {
    return Say(Urgency::kWrong, "FABRIC_AWAY",
               absl::StrCat(Rung(), "; the fabric cannot be asked about that host",
                            InBrackets(runtime.fabric_reason)),
               {absl::StrCat("cxlpool explain host/", attachment_.host), Fence(attachment_.host)});
  }

  Finding ReleaseBlocked(const HostView* host) {
    const std::string holders =
        host == nullptr ? "" : HoldersOf(*host->runtime, attachment_.generation);
    return Say(
        Urgency::kWrong, "RELEASE_BLOCKED",
        absl::StrCat("host ", attachment_.host, " cannot let go of it", InBrackets(part_.reason),
                     holders.empty() ? "" : absl::StrCat("; it is held by ", holders)),
        {absl::StrCat("cxlpool region holders ", region_.id),
         OnHost(attachment_.host, "end those processes"), Fence(attachment_.host)});
  }

  Finding AgentAway() {
    return Say(
        Urgency::kWrong, "AGENT_AWAY", absl::StrCat(Rung(), "; that host's agent has no session"),
        {OnHost(attachment_.host, "systemctl status cxlpool-agent"), Fence(attachment_.host)});
  }

  // An unbind that the fabric does not prove is the one thing that nobody may assume.
  Finding GoingDown() {
    const bool slow = part_.state == AttachmentState::kEjecting && now_ - part_.since > kSlowUnbind;
    if (slow && !CXLPOOL_MUTANT("slow-unbind-only-waits")) {
      return Say(Urgency::kWrong, "UNBIND_NOT_PROVEN",
                 absl::StrCat("the fabric has not proven that host ", attachment_.host,
                              " is without it", InBrackets(part_.reason)),
                 {Fence(attachment_.host)});
    }
    return Say(Urgency::kWaits, "GOING_DOWN", absl::StrCat(Rung(), InBrackets(part_.reason)), {});
  }

  // Whether one of the bridges that it is to be made on takes nothing new because of another
  // Region.
  bool FindBlockedBridge(const HostView& host) {
    for (const Segment& segment : attachment_.segments) {
      const Bridge* bridge = FindBridge(*host.runtime, segment.host_bridge);
      if (bridge == nullptr) continue;
      const BridgeOutlook outlook = LookAt(*bridge, *host.runtime, host.occupied);
      if (!outlook.blocked || outlook.blocked_by == region_.id) continue;
      blocked_ = bridge->name;
      blocked_by_ = outlook.blocked_by;
      return true;
    }
    return false;
  }

  Finding BridgeBlocked() {
    std::vector<std::string> commands;
    std::string by;
    if (!blocked_by_.empty()) {
      finding_.waits_for.push_back(RegionName(blocked_by_));
      by = absl::StrCat(" until Region ", blocked_by_, " goes");
      commands = {Detach(blocked_by_, attachment_.host)};
    }
    commands.push_back(Detach(region_.id, attachment_.host));
    return Say(
        Urgency::kWrong, "BRIDGE_BLOCKED",
        absl::StrCat(Rung(), "; its host bridge ", blocked_, " takes no new host region", by),
        std::move(commands));
  }

  Finding ComingUp() {
    return Say(
        Urgency::kWaits, "COMING_UP", absl::StrCat(Rung(), InBrackets(part_.reason)),
        {absl::StrCat("cxlpool region watch ", region_.id), Detach(region_.id, attachment_.host)});
  }

  const PoolView& view_;
  const Region& region_;
  const Attachment& attachment_;
  const Part& part_;
  const absl::Time now_;
  Finding finding_;
  std::string blocked_, blocked_by_;
};

bool IsSettled(const Part& part) { return part.is_up() || part.state == AttachmentState::kUnbound; }

// Of its own state, without its Attachments. Nothing: all is well.
void ExplainState(const PoolView& view, const Region& region, std::vector<Finding>& out) {
  Finding finding{.subject = RegionName(region.id), .since = region.state_since};
  const auto say = [&](Urgency urgency, const char* problem, std::string text,
                       std::vector<std::string> commands) {
    finding.urgency = urgency;
    finding.problem = problem;
    finding.text = std::move(text);
    finding.commands = std::move(commands);
    out.push_back(std::move(finding));
  };
  switch (region.state) {
    case RegionState::kQuarantined: {
      std::vector<std::string> commands;
      for (const Attachment& attachment : region.attachments) {
        if (attachment.held) commands.push_back(Detach(region.id, attachment.host));
      }
      commands.push_back(ForceRelease(region.id));
      return say(Urgency::kWrong, "QUARANTINED",
                 absl::StrCat("its bytes are kept from everybody", InBrackets(region.state_reason)),
                 std::move(commands));
    }
    case RegionState::kScrubbing: {
      const DeviceView* away = nullptr;
      for (const Extent& extent : region.extents) {
        const DeviceView* device = FindDevice(view, extent.device);
        if (device != nullptr && !device->device.reachable) away = device;
      }
      if (away == nullptr) {
        return say(Urgency::kWaits, "SCRUBBING", "its bytes are being cleared", {});
      }
      finding.waits_for = {DeviceName(away->device.id)};
      return say(Urgency::kWrong, "SCRUB_WAITS",
                 absl::StrCat("its bytes cannot be cleared while the fabric does not show device ",
                              away->device.id, InBrackets(away->device.unreachable_reason)),
                 {absl::StrCat("cxlpool explain device/", away->device.id)});
    }
    case RegionState::kFailed:
      return say(
          Urgency::kWaits, "FAILED",
          absl::StrCat("it could not be made, and goes by itself", InBrackets(region.state_reason)),
          {});
    case RegionState::kReserved:
    case RegionState::kAllocated:
    case RegionState::kReleasing:
      break;
  }
  if (!region.bad.empty()) {
    std::vector<std::string> commands = {
        absl::StrCat("cxlpool region release ", region.id, " --detach-all")};
    for (const BadExtent& bad : region.bad) {
      commands.push_back(
          absl::StrCat("cxlpool device drain ", region.extents[bad.extent_index].device.str()));
    }
    return say(Urgency::kWrong, "LOST_BYTES", region.state_reason, std::move(commands));
  }
}

void ExplainLease(const Region& region, absl::Time now, std::vector<Finding>& out) {
  if (region.expire_time == absl::InfiniteFuture() || region.state == RegionState::kReleasing ||
      region.state == RegionState::kScrubbing || region.expire_time - now > kLeaseEndsSoon) {
    return;
  }
  out.push_back({.urgency = Urgency::kNote,
                 .subject = RegionName(region.id),
                 .problem = "LEASE_ENDS",
                 .text = absl::StrCat("it is released by itself at ",
                                      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", region.expire_time,
                                                       absl::UTCTimeZone()),
                                      " unless it is renewed"),
                 .commands = {absl::StrCat("cxlpool region renew ", region.id)}});
}

// What the operator has to know of the pool as a whole.
void ExplainPool(const PoolView& view, std::vector<Finding>& out) {
  const Capacity& capacity = view.capacity;
  if (capacity.total_bytes == 0) {
    out.push_back({.urgency = Urgency::kWrong,
                   .problem = "NO_DEVICE",
                   .text = "the pool has no device",
                   .commands = {"cxlpool device add DEVICE --capacity SIZE"}});
    return;
  }
  const uint64_t twentieth = capacity.total_bytes / 20;
  if (capacity.free_bytes < twentieth) {
    out.push_back({.urgency = Urgency::kNote,
                   .problem = "POOL_FULL",
                   .text = absl::StrCat(FormatByteSize(capacity.free_bytes), " of ",
                                        FormatByteSize(capacity.total_bytes), " are free"),
                   .commands = {"cxlpool region list --order-by \"size_bytes desc\"",
                                "cxlpool device add DEVICE --capacity SIZE"}});
  } else if (capacity.free_bytes > 2 * twentieth &&
             capacity.largest_free_bytes < capacity.free_bytes / 10) {
    out.push_back({.urgency = Urgency::kNote,
                   .problem = "POOL_FRAGMENTED",
                   .text = absl::StrCat(FormatByteSize(capacity.free_bytes),
                                        " are free, and the largest run of them is ",
                                        FormatByteSize(capacity.largest_free_bytes)),
                   .commands = {"cxlpool region allocate --max-extents 16 ..."}});
  }
  for (const TenantView& tenant : *view.tenants) {
    const uint64_t quota = tenant.tenant.quota_bytes;
    if (quota == 0 || tenant.use.held_bytes < quota - quota / 20) continue;
    out.push_back(
        {.urgency = Urgency::kNote,
         .subject = ResourceName("tenants", tenant.tenant.id),
         .problem = "TENANT_FULL",
         .text = absl::StrCat("its Regions have ", FormatByteSize(tenant.use.held_bytes), " of ",
                              FormatByteSize(quota)),
         .commands = {
             absl::StrCat("cxlpool region list --filter \"tenant = ", tenant.tenant.id, "\""),
             absl::StrCat("cxlpool tenant set ", tenant.tenant.id, " --quota SIZE")}});
  }
}

// Where findings of one urgency stand: the cause before what it brings about.
int RankOf(const std::string& subject) {
  constexpr std::array<absl::string_view, 4> kOrder = {"hosts/", "devices/", "tenants/",
                                                       "regions/"};
  if (subject.empty()) return 0;
  for (size_t i = 0; i < kOrder.size(); ++i) {
    if (absl::StartsWith(subject, kOrder[i])) return static_cast<int>(i) + 1;
  }
  return static_cast<int>(kOrder.size()) + 1;
}

bool ComesBefore(const Finding& a, const Finding& b) {
  const auto key = [](const Finding& f) { return std::make_tuple(f.urgency, RankOf(f.subject)); };
  if (key(a) != key(b)) return key(a) < key(b);
  return a.subject < b.subject;
}

}  // namespace

std::vector<Finding> ExplainRegion(const PoolView& view, const Region& region, absl::Time now) {
  std::vector<Finding> out;
  ExplainState(view, region, out);
  for (const Attachment& attachment : region.attachments) {
    for (const Part& part : attachment.parts) {
      // A stray that is held waits for nothing but its operator: that is said of the Region.
      if (IsSettled(part) || (attachment.held && !part.detaching)) continue;
      out.push_back(PartExplainer(view, region, attachment, part, now).Explain());
    }
  }
  ExplainLease(region, now, out);
  return out;
}

std::vector<Finding> ExplainHost(const HostView& host, absl::Time now) {
  std::vector<Finding> out;
  const HostRuntime& runtime = *host.runtime;
  const std::string& id = host.host.id;
  const auto say = [&](Urgency urgency, const char* problem, std::string text,
                       std::vector<std::string> commands, absl::Time since = absl::InfinitePast()) {
    out.push_back({.urgency = urgency,
                   .subject = HostName(id),
                   .problem = problem,
                   .text = std::move(text),
                   .since = since,
                   .commands = std::move(commands)});
  };
  if (host.host.retired) return out;  // Nothing is attached there.
  if (!runtime.fabric_reachable) {
    say(Urgency::kWrong, "FABRIC_AWAY",
        absl::StrCat("the fabric cannot be asked what is bound there",
                     InBrackets(runtime.fabric_reason), "; nothing is bound or proven meanwhile"),
        {absl::StrCat("cxlpool host show ", id)});
  }
  if (!runtime.online) {
    const bool came = runtime.last_heartbeat != absl::InfinitePast();
    const bool has_memory = !host.occupied.empty();
    say(has_memory ? Urgency::kWrong : Urgency::kNote,
        came || has_memory ? "AGENT_AWAY" : "AGENT_NEVER_CAME",
        absl::StrCat(
            came ? "its agent has no session any more"
                 : "its agent has not come since this manager started",
            has_memory ? absl::StrCat("; ", host.occupied.size(), " of its slots are taken") : ""),
        {OnHost(id, "systemctl status cxlpool-agent"), OnHost(id, "cxlpool-agent check")},
        came ? runtime.last_heartbeat : absl::InfinitePast());
  } else if (!runtime.unfit_reason.empty()) {
    say(Urgency::kWrong, "UNFIT", absl::StrCat("it can take no memory: ", runtime.unfit_reason),
        {OnHost(id, "cxlpool-agent check")});
  }
  for (const Bridge& bridge : runtime.bridges) {
    const BridgeOutlook outlook = LookAt(bridge, runtime, host.occupied);
    if (!outlook.blocked) continue;
    say(Urgency::kWaits, "BRIDGE_BLOCKED",
        absl::StrCat("no new host region can be made on ", bridge.name,
                     outlook.blocked_by.empty()
                         ? ""
                         : absl::StrCat(" until Region ", outlook.blocked_by, " goes")),
        {});
    if (!outlook.blocked_by.empty()) {
      out.back().waits_for = {RegionName(outlook.blocked_by)};
      out.back().commands = {Detach(outlook.blocked_by, id)};
    }
  }
  for (const auto& [device, seen] : runtime.unreached) {
    say(Urgency::kWrong, "DEVICE_NOT_REACHED",
        absl::StrCat("it does not reach device ", device, InBrackets(seen)),
        {"cxlpool device discover --host " + id});
    out.back().waits_for = {DeviceName(device)};
  }
  if (!runtime.certificate_serial.empty() && runtime.certificate_end - now < kCertificateEndsSoon) {
    const bool ended = runtime.certificate_end <= now;
    say(ended ? Urgency::kWrong : Urgency::kNote, "CERTIFICATE_ENDS",
        absl::StrCat(
            "the certificate of its agent ", ended ? "ended at " : "ends at ",
            absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", runtime.certificate_end, absl::UTCTimeZone())),
        {absl::StrCat("cxlpool pki renew host ", id)});
  }
  return out;
}

namespace {

// The Regions with bytes on a device that is to end empty: the first few of them, and how they go.
void AddOwners(const PoolView& view, const std::string& device, Finding& finding) {
  for (std::string after;;) {
    const std::vector<RegionPtr> step = view.regions.List(after, kStep);
    for (const RegionPtr& region : step) {
      if (std::none_of(region->extents.begin(), region->extents.end(),
                       [&](const Extent& extent) { return extent.device.str() == device; })) {
        continue;
      }
      if (finding.waits_for.size() == kNamed) return;
      finding.waits_for.push_back(RegionName(region->id));
      finding.commands.push_back(
          absl::StrCat("cxlpool region release ", region->id, " --detach-all"));
    }
    if (step.size() < kStep) return;
    after = step.back()->id;
  }
}

Finding Unseen(const std::string& device, const std::string& why) {
  return {.urgency = Urgency::kWrong,
          .subject = DeviceName(device),
          .problem = "DEVICE_UNREACHABLE",
          .text = absl::StrCat("the fabric has never shown it", InBrackets(why)),
          .commands = {absl::StrCat("cxlpool device show ", device)}};
}

std::vector<Finding> ExplainDevice(const PoolView& view, const DeviceView& device) {
  std::vector<Finding> out;
  const Device& itself = device.device;
  const uint64_t held =
      device.use.held_bytes + device.use.scrubbing_bytes + device.use.quarantined_bytes;
  const auto say = [&](Urgency urgency, const char* problem, std::string text,
                       std::vector<std::string> commands) {
    out.push_back({.urgency = urgency,
                   .subject = DeviceName(itself.id),
                   .problem = problem,
                   .text = std::move(text),
                   .commands = std::move(commands)});
  };
  const std::string bytes = absl::StrCat(FormatByteSize(held), " of it are not free");
  switch (itself.service) {
    case DeviceService::kRemoved:
      return out;
    case DeviceService::kFailed:
      if (held > 0) {
        say(Urgency::kWrong, "DEVICE_FAILED",
            absl::StrCat("it is broken for good", InBrackets(itself.service_reason), "; ", bytes),
            {absl::StrCat("cxlpool device show ", itself.id)});
      } else {
        say(Urgency::kNote, "DEVICE_FAILED",
            absl::StrCat("it is broken for good", InBrackets(itself.service_reason), ", and empty"),
            {absl::StrCat("cxlpool device remove ", itself.id)});
      }
      return out;
    case DeviceService::kDraining:
      if (held == 0) {
        say(Urgency::kNote, "DRAINED", "it is empty, and nothing is placed there",
            {absl::StrCat("cxlpool device remove ", itself.id),
             absl::StrCat("cxlpool device add ", itself.id)});
      } else {
        say(Urgency::kWaits, "DRAINING", absl::StrCat("nothing new is placed there; ", bytes), {});
        AddOwners(view, itself.id, out.back());
        out.back().commands.push_back(absl::StrCat("cxlpool device add ", itself.id));
      }
      break;
    case DeviceService::kInService:
      break;
  }
  if (!itself.reachable) {
    say(Urgency::kWrong, "DEVICE_UNREACHABLE",
        absl::StrCat("the fabric does not show it", InBrackets(itself.unreachable_reason)),
        {absl::StrCat("cxlpool device show ", itself.id)});
  } else if (device.max_lds != 0 && device.use.lds >= device.max_lds &&
             held < itself.capacity_bytes) {
    say(Urgency::kNote, "LDS_TAKEN",
        absl::StrCat("each of its ", device.max_lds, " LDs is taken: ",
                     FormatByteSize(itself.capacity_bytes - held), " can be given to nobody"),
        {absl::StrCat("cxlpool device show ", itself.id)});
  }
  return out;
}

}  // namespace

std::optional<std::vector<Finding>> ExplainDevice(const PoolView& view, const std::string& device) {
  if (const DeviceView* known = FindDevice(view, device)) return ExplainDevice(view, *known);
  const auto unseen = view.laid_down->unseen_devices.find(device);
  if (unseen == view.laid_down->unseen_devices.end()) return std::nullopt;
  return std::vector<Finding>{Unseen(device, unseen->second)};
}

// A Region that is settled, which most are, costs a look at its Attachments.
Diagnosis Diagnose(const PoolView& view, std::vector<Finding> of_manager, absl::Time now,
                   size_t limit) {
  Diagnosis diagnosis;
  std::vector<Finding>& all = diagnosis.findings;
  const auto add = [&](std::vector<Finding> more) {
    std::move(more.begin(), more.end(), std::back_inserter(all));
    if (all.size() < 2 * limit) return;
    std::stable_sort(all.begin(), all.end(), ComesBefore);
    diagnosis.left_out += all.size() - limit;
    all.resize(limit);
  };
  add(std::move(of_manager));
  std::vector<Finding> of_pool;
  ExplainPool(view, of_pool);
  add(std::move(of_pool));
  for (const auto& [id, host] : view.hosts) add(ExplainHost(*host, now));
  for (const DeviceView& device : *view.devices) add(ExplainDevice(view, device));
  for (const auto& [device, why] : view.laid_down->unseen_devices) {
    if (FindDevice(view, device) == nullptr) add({Unseen(device, why)});
  }
  for (std::string after;;) {
    const std::vector<RegionPtr> step = view.regions.List(after, kStep);
    for (const RegionPtr& region : step) add(ExplainRegion(view, *region, now));
    if (step.size() < kStep) break;
    after = step.back()->id;
  }
  std::stable_sort(all.begin(), all.end(), ComesBefore);
  if (all.size() > limit) {
    diagnosis.left_out += all.size() - limit;
    all.resize(limit);
  }
  return diagnosis;
}

}  // namespace cxlpool::fm
