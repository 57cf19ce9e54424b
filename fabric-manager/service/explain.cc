#include "fabric-manager/service/explain.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "fabric-manager/service/scrubs.h"
#include "proto/support/byte_size.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kNamed = 5;  // Of those that something waits for.

// What is said of one subject.
class Findings {
 public:
  explicit Findings(std::string subject) : subject_(std::move(subject)) {}

  // The caller may add to what it gives back, until the next Say.
  Finding& Say(Urgency urgency, const char* problem, std::string text,
               std::vector<std::string> commands = {}) {
    all_.push_back({.urgency = urgency,
                    .subject = subject_,
                    .problem = problem,
                    .text = std::move(text),
                    .commands = std::move(commands)});
    return all_.back();
  }

  void Add(Finding finding) { all_.push_back(std::move(finding)); }

  std::vector<Finding> Take() { return std::move(all_); }

 private:
  const std::string subject_;
  std::vector<Finding> all_;
};

std::string RegionName(absl::string_view id) { return ResourceName("regions", id); }
std::string HostName(absl::string_view id) { return ResourceName("hosts", id); }
std::string DeviceName(absl::string_view id) { return ResourceName("devices", id); }

std::string OnHost(absl::string_view host, absl::string_view command) {
  return absl::StrCat("on ", host, ": ", command);
}
// How a host is without the pool's memory for certain, the last thing to do. A fabric that cannot
// cut hosts off sees by a host's next boot that the one before it has ended.
std::string CutOff(const FabricCapabilities& fabric, absl::string_view host) {
  if (!fabric.can_fence()) {
    return OnHost(host, "reboot it; to cut it off from afar, set fabric.fence_program");
  }
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

// Since when that is so, of a host's `wrong_since` or the view's `scarce_since`; InfinitePast: it
// is not known.
absl::Time SinceWhen(const std::map<std::string, absl::Time>& known, const std::string& what) {
  const auto since = known.find(what);
  return since == known.end() ? absl::InfinitePast() : since->second;
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

// What one part of an Attachment waits for: one finding.
class PartExplainer {
 public:
  PartExplainer(const PoolView& view, const Region& region, const Attachment& attachment,
                const Part& part, absl::Time now, Findings& out)
      : view_(view), region_(region), attachment_(attachment), part_(part), now_(now), out_(out) {}

  // The first cause that applies is said: what keeps all others waiting comes first.
  void Explain() {
    const HostView* host = FindHost(view_, attachment_.host);
    if (host != nullptr && !host->runtime->fabric_reachable) {
      return FabricAway(*host->runtime);
    }
    if (part_.state == AttachmentState::kReleaseBlocked) return ReleaseBlocked(host);
    if (host != nullptr && !host->runtime->online) return AgentAway(*host->runtime);
    if (part_.detaching) return GoingDown();
    if (host != nullptr && FindBlockedBridge(*host)) return BridgeBlocked();
    return ComingUp();
  }

 private:
  // Since when it is at its rung: the caller corrects that where something else is wrong.
  Finding& Say(Urgency urgency, const char* problem, std::string text,
               std::vector<std::string> commands) {
    Finding& finding = out_.Say(urgency, problem, std::move(text), std::move(commands));
    finding.since = part_.since;
    finding.waits_for = {HostName(attachment_.host)};
    return finding;
  }

  std::string CutOff() const { return fm::CutOff(view_.fabric, attachment_.host); }

  std::string Rung() const {
    return absl::StrCat(ToString(part_.state), part_.detaching ? " and being detached" : "",
                        " on host ", attachment_.host);
  }

  void FabricAway(const HostRuntime& runtime) {
    Say(Urgency::kWrong, "FABRIC_AWAY",
        absl::StrCat(Rung(), "; the fabric cannot be asked about that host",
                     InBrackets(runtime.fabric_reason)),
        {absl::StrCat("cxlpool explain host/", attachment_.host), CutOff()})
        .since = SinceWhen(runtime.wrong_since, "FABRIC_AWAY");
  }

  void ReleaseBlocked(const HostView* host) {
    const std::string holders =
        host == nullptr ? "" : HoldersOf(*host->runtime, attachment_.generation);
    Say(Urgency::kWrong, "RELEASE_BLOCKED",
        absl::StrCat("host ", attachment_.host, " cannot let go of it", InBrackets(part_.reason),
                     holders.empty() ? "" : absl::StrCat("; it is held by ", holders)),
        {absl::StrCat("cxlpool region holders ", region_.id),
         OnHost(attachment_.host, "end those processes"), CutOff()});
  }

  void AgentAway(const HostRuntime& runtime) {
    Say(Urgency::kWrong, "AGENT_AWAY", absl::StrCat(Rung(), "; that host's agent has no session"),
        {OnHost(attachment_.host, "systemctl status cxlpool-agent"), CutOff()})
        .since = runtime.last_heartbeat;
  }

  // An unbind that the fabric does not prove is the one thing that nobody may assume.
  void GoingDown() {
    const bool slow = part_.state == AttachmentState::kEjecting && now_ - part_.since > kSlowUnbind;
    if (slow && !CXLPOOL_MUTANT("slow-unbind-only-waits")) {
      Say(Urgency::kWrong, "UNBIND_NOT_PROVEN",
          absl::StrCat("the fabric has not proven that host ", attachment_.host, " is without it",
                       InBrackets(part_.reason)),
          {CutOff()});
      return;
    }
    Say(Urgency::kWaits, "GOING_DOWN", absl::StrCat(Rung(), InBrackets(part_.reason)), {});
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

  void BridgeBlocked() {
    Finding& finding =
        Say(Urgency::kWrong, "BRIDGE_BLOCKED",
            absl::StrCat(Rung(), "; its host bridge ", blocked_, " takes no new host region"),
            {Detach(region_.id, attachment_.host)});
    if (blocked_by_.empty()) return;
    absl::StrAppend(&finding.text, " until Region ", blocked_by_, " goes");
    finding.waits_for.push_back(RegionName(blocked_by_));
    finding.commands.insert(finding.commands.begin(), Detach(blocked_by_, attachment_.host));
  }

  void ComingUp() {
    Say(Urgency::kWaits, "COMING_UP", absl::StrCat(Rung(), InBrackets(part_.reason)),
        {absl::StrCat("cxlpool region watch ", region_.id), Detach(region_.id, attachment_.host)});
  }

  const PoolView& view_;
  const Region& region_;
  const Attachment& attachment_;
  const Part& part_;
  const absl::Time now_;
  Findings& out_;
  std::string blocked_, blocked_by_;  // Of FindBlockedBridge.
};

bool IsSettled(const Part& part) { return part.is_up() || part.state == AttachmentState::kUnbound; }

// What a Region in QUARANTINED waits for: that an operator says what is true of its bytes. What was
// found bound to a host is let go of first.
void ExplainQuarantine(const Region& region, Findings& out) {
  Finding& finding =
      out.Say(Urgency::kWrong, "QUARANTINED",
              absl::StrCat("its bytes are kept from everybody", InBrackets(region.state_reason)));
  finding.since = region.state_since;
  for (const Attachment& attachment : region.attachments) {
    if (attachment.held) finding.commands.push_back(Detach(region.id, attachment.host));
  }
  finding.commands.push_back(ForceRelease(region.id));
}

// Nothing is cleared on a device that failed (Scrubs::Done), and no scrub waits for it.
bool IsFailed(const DeviceView& device) {
  return device.device.service == DeviceService::kFailed &&
         !CXLPOOL_MUTANT("scrubs-wait-for-broken-devices");
}

// A scrub goes on by itself, unless one of the devices cannot be reached, or somebody can still
// write there, or it fails: then it is tried again and again, and a person has to look. A Region
// that shrinks is scrubbed where it gives back; since when it is, is not known.
void ExplainScrub(const PoolView& view, const Region& region, uint64_t left_bytes, Findings& out) {
  absl::Span<const Extent> extents = region.extents;
  if (region.resizing()) extents.remove_prefix(region.settled_extents());
  const absl::Time since = region.resizing() ? absl::InfinitePast() : region.state_since;
  for (const Extent& extent : extents) {
    const DeviceView* device = FindDevice(view, extent.device);
    if (device == nullptr || device->device.reachable || IsFailed(*device)) continue;
    Finding& finding =
        out.Say(Urgency::kWrong, "SCRUB_WAITS",
                absl::StrCat("its bytes cannot be cleared while the fabric does not show device ",
                             device->device.id, InBrackets(device->device.unreachable_reason)),
                {absl::StrCat("cxlpool explain device/", device->device.id)});
    finding.since = since;
    finding.waits_for = {DeviceName(device->device.id)};
    return;
  }
  absl::string_view why = region.state_reason;
  if (!absl::ConsumePrefix(&why, kScrubWaits)) {
    std::string text = "its bytes are being cleared";
    if (left_bytes > 0) {
      uint64_t bytes = 0;
      for (const Extent& extent : extents) bytes += extent.length_bytes;
      absl::StrAppend(&text, "; ", FormatByteSize(left_bytes), " of ", FormatByteSize(bytes),
                      " are left");
    }
    out.Say(Urgency::kWaits, "SCRUBBING", std::move(text)).since = since;
    return;
  }
  Finding& finding = out.Say(Urgency::kWrong, "SCRUB_WAITS", std::string(why));
  finding.since = since;
  for (const Extent& extent : extents) {
    const std::string name = DeviceName(extent.device);
    const DeviceView* device = FindDevice(view, extent.device);
    if (device != nullptr && IsFailed(*device)) continue;
    if (absl::c_linear_search(finding.waits_for, name)) continue;
    finding.waits_for.push_back(name);
    finding.commands.push_back(absl::StrCat("cxlpool device show ", extent.device.str()));
  }
}

// The bytes that a Region has lost do not come back. Releasing it takes the bad extents out of use
// only if their devices are drained, too. Since when they are lost is on no record.
void ExplainLostBytes(const Region& region, Findings& out) {
  Finding& finding = out.Say(Urgency::kWrong, "LOST_BYTES", region.state_reason,
                             {absl::StrCat("cxlpool region release ", region.id, " --detach-all")});
  for (const BadExtent& bad : region.bad) {
    finding.commands.push_back(
        absl::StrCat("cxlpool device drain ", region.extents[bad.extent_index].device.str()));
  }
}

// Of its own state, without its Attachments. A Region that is up has nothing to say of its state;
// one that comes up or goes down is explained by its Attachments.
void ExplainState(const PoolView& view, const Region& region, uint64_t left_bytes, Findings& out) {
  // Also what shrinks, and what could not be made: it would go for ever, and nobody would hear why.
  const bool waits = absl::StartsWith(region.state_reason, kScrubWaits) &&
                     (region.state == RegionState::kFailed || region.resizing());
  if (waits && region.state != RegionState::kQuarantined &&
      !CXLPOOL_MUTANT("shrinks-wait-unheard")) {
    return ExplainScrub(view, region, left_bytes, out);
  }
  switch (region.state) {
    case RegionState::kQuarantined:
      return ExplainQuarantine(region, out);
    case RegionState::kScrubbing:
      return ExplainScrub(view, region, left_bytes, out);
    case RegionState::kFailed:
      out.Say(Urgency::kWaits, "FAILED",
              absl::StrCat("it could not be made, and goes by itself",
                           InBrackets(region.state_reason)))
          .since = region.state_since;
      return;
    case RegionState::kReserved:
    case RegionState::kAllocated:
    case RegionState::kReleasing:
      break;
  }
  if (!region.bad.empty()) ExplainLostBytes(region, out);
}

// A lease that nobody renews is no mistake; its end surprises whoever has forgotten it. Its end
// does nothing to a Region that goes already, and QUARANTINED only an operator ends.
void ExplainLease(const Region& region, absl::Time now, Findings& out) {
  const bool ends = !region.compensating && (region.state == RegionState::kReserved ||
                                             region.state == RegionState::kAllocated);
  if (!ends && !CXLPOOL_MUTANT("doctor-says-leases-end-quarantine")) return;
  if (region.expire_time == absl::InfiniteFuture() || region.expire_time - now > kLeaseEndsSoon) {
    return;
  }
  out.Say(Urgency::kNote, "LEASE_ENDS",
          absl::StrCat("it is released by itself at ", UtcText(region.expire_time),
                       " unless it is renewed"),
          {absl::StrCat("cxlpool region renew ", region.id, " --ttl 1h")});
}

// What the operator has to know of the pool as a whole. A pool without a device says only that: it
// is full and in pieces, too.
std::vector<Finding> ExplainPool(const PoolView& view) {
  Findings out("");
  const Capacity& capacity = view.capacity;
  if (capacity.total_bytes == 0) {
    out.Say(Urgency::kWrong, "NO_DEVICE", "the pool has no device", view.fabric.add_device);
    return out.Take();
  }
  if (IsNearlyFull(capacity)) {
    std::vector<std::string> commands = view.fabric.add_device;
    commands.insert(commands.begin(), "cxlpool region list --order-by \"size_bytes desc\"");
    out.Say(Urgency::kNote, "POOL_FULL",
            absl::StrCat(FormatByteSize(capacity.free_bytes), " of ",
                         FormatByteSize(capacity.total_bytes), " are free"),
            std::move(commands))
        .since = SinceWhen(*view.scarce_since, "POOL_FULL");
  } else if (IsInPieces(capacity, MostFreeOnOneDevice(view))) {
    out.Say(Urgency::kNote, "POOL_FRAGMENTED",
            absl::StrCat("one device has ", FormatByteSize(MostFreeOnOneDevice(view)),
                         " free, and the largest run of free bytes on any is ",
                         FormatByteSize(capacity.largest_free_bytes)),
            {"cxlpool region allocate NAME --size SIZE --max-extents 16"})
        .since = SinceWhen(*view.scarce_since, "POOL_FRAGMENTED");
  }
  return out.Take();
}

// A tenant that is about to be refused for its quota.
std::vector<Finding> ExplainTenant(const PoolView& view, const TenantView& tenant) {
  const std::string& id = tenant.tenant.id;
  Findings out(ResourceName("tenants", id));
  if (IsNearlyFull(tenant.tenant, tenant.use)) {
    out.Say(Urgency::kNote, "TENANT_FULL",
            absl::StrCat("its Regions have ", FormatByteSize(tenant.use.held_bytes), " of ",
                         FormatByteSize(tenant.tenant.quota_bytes)),
            {absl::StrCat("cxlpool region list --filter \"tenant = ", id, "\""),
             absl::StrCat("cxlpool tenant set ", id, " --quota SIZE")})
        .since = SinceWhen(*view.scarce_since, absl::StrCat("TENANT_FULL ", id));
  }
  return out.Take();
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

std::optional<Finding> ExplainPart(const PoolView& view, const Region& region,
                                   const Attachment& attachment, const Part& part, absl::Time now) {
  // A stray that is held waits for nothing but its operator: that is said of the Region.
  if (IsSettled(part) || (attachment.held && !part.detaching)) return std::nullopt;
  Findings out(RegionName(region.id));
  PartExplainer(view, region, attachment, part, now, out).Explain();
  return out.Take().front();
}

std::vector<Finding> ExplainRegion(const PoolView& view, const Region& region, absl::Time now,
                                   uint64_t left_bytes) {
  Findings out(RegionName(region.id));
  ExplainState(view, region, left_bytes, out);
  for (const Attachment& attachment : region.attachments) {
    for (const Part& part : attachment.parts) {
      auto finding = ExplainPart(view, region, attachment, part, now);
      if (finding.has_value()) out.Add(*std::move(finding));
    }
  }
  ExplainLease(region, now, out);
  return out.Take();
}

namespace {

// An agent that is away is a mistake where its host has memory; one that never came may be a
// machine that is not built yet.
void ExplainAgent(const HostView& host, Findings& out) {
  const std::string& id = host.host.id;
  const HostRuntime& runtime = *host.runtime;
  if (runtime.online) {
    if (runtime.unfit_reason.empty()) return;
    out.Say(Urgency::kWrong, "UNFIT", absl::StrCat("it can take no memory: ", runtime.unfit_reason),
            {OnHost(id, "cxlpool-agent check")})
        .since = SinceWhen(runtime.wrong_since, "UNFIT");
    return;
  }
  const bool came = runtime.last_heartbeat != absl::InfinitePast();
  const bool has_memory = !host.occupied.empty();
  Finding& finding =
      out.Say(has_memory ? Urgency::kWrong : Urgency::kNote,
              came || has_memory ? "AGENT_AWAY" : "AGENT_NEVER_CAME",
              came ? "its agent has no session any more"
                   : "its agent has not come since this manager started",
              {OnHost(id, "systemctl status cxlpool-agent"), OnHost(id, "cxlpool-agent check")});
  if (has_memory)
    absl::StrAppend(&finding.text, "; ", host.occupied.size(), " of its slots are taken");
  if (came) finding.since = runtime.last_heartbeat;
}

// Host bridges where no new host region can be made: the kernel takes them down in the order in
// which it made them, so that one Region that stays keeps others from coming.
void ExplainBridges(const HostView& host, Findings& out) {
  for (const Bridge& bridge : host.runtime->bridges) {
    const BridgeOutlook outlook = LookAt(bridge, *host.runtime, host.occupied);
    if (!outlook.blocked) continue;
    Finding& finding = out.Say(Urgency::kWaits, "BRIDGE_BLOCKED",
                               absl::StrCat("no new host region can be made on ", bridge.name));
    finding.since =
        SinceWhen(host.runtime->wrong_since, absl::StrCat("BRIDGE_BLOCKED ", bridge.name));
    if (outlook.blocked_by.empty()) continue;
    absl::StrAppend(&finding.text, " until Region ", outlook.blocked_by, " goes");
    finding.waits_for = {RegionName(outlook.blocked_by)};
    finding.commands = {Detach(outlook.blocked_by, host.host.id)};
  }
}

}  // namespace

std::vector<Finding> ExplainHost(const HostView& host, absl::Time now) {
  const HostRuntime& runtime = *host.runtime;
  const std::string& id = host.host.id;
  Findings out(HostName(id));
  if (host.host.retired) return out.Take();  // Nothing is attached there.
  if (!runtime.fabric_reachable) {
    out.Say(Urgency::kWrong, "FABRIC_AWAY",
            absl::StrCat("the fabric cannot be asked what is bound there",
                         InBrackets(runtime.fabric_reason),
                         "; nothing is bound or proven meanwhile"),
            {absl::StrCat("cxlpool host show ", id)})
        .since = SinceWhen(runtime.wrong_since, "FABRIC_AWAY");
  }
  ExplainAgent(host, out);
  ExplainBridges(host, out);
  for (const auto& [device, seen] : runtime.unreached) {
    Finding& finding = out.Say(Urgency::kWrong, "DEVICE_NOT_REACHED",
                               absl::StrCat("it does not reach device ", device, InBrackets(seen)),
                               {absl::StrCat("cxlpool device discover --host ", id)});
    finding.since = SinceWhen(runtime.wrong_since, absl::StrCat("DEVICE_NOT_REACHED ", device));
    finding.waits_for = {DeviceName(device)};
  }
  if (!runtime.certificate_serial.empty() && runtime.certificate_end - now < kCertificateEndsSoon) {
    const bool ended = runtime.certificate_end <= now;
    out.Say(ended ? Urgency::kWrong : Urgency::kNote, "CERTIFICATE_ENDS",
            absl::StrCat("the certificate of its agent ", ended ? "ended at " : "ends at ",
                         UtcText(runtime.certificate_end)),
            {absl::StrCat("cxlpool pki renew host ", id)});
  }
  return out.Take();
}

namespace {

// The Regions with bytes on a device that is to end empty: the first few of them, and how they go.
void AddOwners(const PoolView& view, const std::string& device, Finding& finding) {
  view.regions.ForEach([&](const Region& region) {
    if (!region.HasBytesOn(device)) return true;
    finding.waits_for.push_back(RegionName(region.id));
    finding.commands.push_back(absl::StrCat("cxlpool region release ", region.id, " --detach-all"));
    return finding.waits_for.size() < kNamed;
  });
}

Finding Unseen(const std::string& device, const std::string& why) {
  return {.urgency = Urgency::kWrong,
          .subject = DeviceName(device),
          .problem = "DEVICE_UNREACHABLE",
          .text = absl::StrCat("the fabric has never shown it", InBrackets(why)),
          .commands = {absl::StrCat("cxlpool device show ", device)}};
}

// A device that failed may go once it is empty; one that is drained, too, or come back.
void ExplainService(const PoolView& view, const Device& device, const DeviceUse& use,
                    Findings& out) {
  const uint64_t held = use.taken_bytes();
  const std::string remove = absl::StrCat("cxlpool device remove ", device.id);
  const std::string add = absl::StrCat("cxlpool device add ", device.id);
  const std::string bytes = absl::StrCat(FormatByteSize(held), " of it are not free");
  if (device.service == DeviceService::kFailed) {
    const std::string broken =
        absl::StrCat("it is broken for good", InBrackets(device.service_reason));
    if (held == 0) {
      out.Say(Urgency::kNote, "DEVICE_FAILED", absl::StrCat(broken, ", and empty"), {remove})
          .since = device.service_since;
    } else {
      out.Say(Urgency::kWrong, "DEVICE_FAILED", absl::StrCat(broken, "; ", bytes),
              {absl::StrCat("cxlpool device show ", device.id)})
          .since = device.service_since;
    }
  } else if (IsDrained(device, use)) {
    out.Say(Urgency::kNote, "DRAINED", "it is empty, and nothing is placed there", {remove, add})
        .since = SinceWhen(*view.scarce_since, absl::StrCat("DRAINED ", device.id));
  } else if (device.service == DeviceService::kDraining) {
    Finding& finding =
        out.Say(Urgency::kWaits, "DRAINING", absl::StrCat("nothing new is placed there; ", bytes));
    finding.since = device.service_since;
    AddOwners(view, device.id, finding);
    finding.commands.push_back(add);
  }
}

std::vector<Finding> ExplainDevice(const PoolView& view, const DeviceView& device) {
  const Device& itself = device.device;
  Findings out(DeviceName(itself.id));
  ExplainService(view, itself, device.use, out);
  // What is out of service for good is not looked for any more.
  if (itself.service == DeviceService::kRemoved || itself.service == DeviceService::kFailed) {
    return out.Take();
  }
  const std::vector<std::string> show = {absl::StrCat("cxlpool device show ", itself.id)};
  if (!itself.reachable) {
    out.Say(Urgency::kWrong, "DEVICE_UNREACHABLE",
            absl::StrCat("the fabric does not show it", InBrackets(itself.unreachable_reason)),
            show)
        .since = itself.unreachable_since;
  } else if (IsOutOfLds(itself, device.max_lds, device.use)) {
    out.Say(Urgency::kNote, "LDS_TAKEN",
            absl::StrCat("each of its ", device.max_lds, " LDs is taken: ",
                         FormatByteSize(device.free_bytes()), " can be given to nobody"),
            show)
        .since = SinceWhen(*view.scarce_since, absl::StrCat("LDS_TAKEN ", itself.id));
  }
  return out.Take();
}

}  // namespace

std::optional<std::vector<Finding>> ExplainDevice(const PoolView& view, const std::string& device) {
  if (const DeviceView* known = FindDevice(view, device)) return ExplainDevice(view, *known);
  const auto unseen = view.laid_down->unseen_devices.find(device);
  if (unseen == view.laid_down->unseen_devices.end()) return std::nullopt;
  return std::vector<Finding>{Unseen(device, unseen->second)};
}

// A Region that is settled, which most are, costs a look at its Attachments. What is found is
// sorted and cut whenever it is twice the limit, so that a pool with a million findings costs the
// manager no more memory than one with a few.
Diagnosis Diagnose(const PoolView& view, const Caller& caller, std::vector<Finding> of_manager,
                   absl::Time now, size_t limit) {
  const bool of_pool = !caller.for_tenants();
  Diagnosis diagnosis;
  std::vector<Finding>& all = diagnosis.findings;
  const auto add = [&](std::vector<Finding> more) {
    std::move(more.begin(), more.end(), std::back_inserter(all));
    if (all.size() < 2 * limit) return;
    std::stable_sort(all.begin(), all.end(), ComesBefore);
    diagnosis.left_out += all.size() - limit;
    all.resize(limit);
  };
  if (of_pool) {
    add(std::move(of_manager));
    add(ExplainPool(view));
    for (const auto& [id, host] : view.hosts) add(ExplainHost(*host, now));
    for (const DeviceView& device : *view.devices) add(ExplainDevice(view, device));
    for (const auto& [device, why] : view.laid_down->unseen_devices) {
      if (FindDevice(view, device) == nullptr) add({Unseen(device, why)});
    }
  }
  for (const TenantView& tenant : *view.tenants) {
    if (of_pool || caller.HasTenant(tenant.tenant.id)) add(ExplainTenant(view, tenant));
  }
  view.regions.ForEach([&](const Region& region) {
    const bool is_told = of_pool || MaySee(caller, /*own=*/nullptr, region) ||
                         CXLPOOL_MUTANT("doctor-tells-tenants-all");
    if (is_told) add(ExplainRegion(view, region, now));
    return true;
  });
  std::stable_sort(all.begin(), all.end(), ComesBefore);
  if (all.size() > limit) {
    diagnosis.left_out += all.size() - limit;
    all.resize(limit);
  }
  return diagnosis;
}

}  // namespace cxlpool::fm
