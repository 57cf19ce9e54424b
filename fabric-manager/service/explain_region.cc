// What a Region waits for: its own state, and each part of its Attachments.

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "fabric-manager/service/explain.h"
#include "fabric-manager/service/explain_words.h"
#include "fabric-manager/service/scrubs.h"
#include "proto/support/byte_size.h"
#include "proto/support/mutant.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

const Bridge* FindBridge(const HostRuntime& runtime, absl::string_view name) {
  for (const Bridge& bridge : runtime.bridges) {
    if (bridge.name == name) return &bridge;
  }
  return nullptr;
}

// Who holds it, as its host's agent said: "pid 812 (python3) of user 1000, pid 813 ..."; and what
// ends those processes. Empty: nobody is known to hold it.
struct HoldersText {
  std::string who;
  std::string kill;
};
HoldersText HoldersOf(const HostRuntime& runtime, uint64_t generation) {
  if (runtime.holders == nullptr) return {};
  const auto of = runtime.holders->by_generation.find(generation);
  if (of == runtime.holders->by_generation.end() || of->second.holders.empty()) return {};
  std::vector<std::string> words;
  std::string kill = "kill";
  for (const Holder& holder : of->second.holders) {
    if (words.size() == kNamed) break;
    words.push_back(
        absl::StrCat("pid ", holder.pid, InBrackets(holder.program), " of user ", holder.uid));
    absl::StrAppend(&kill, " ", holder.pid);
  }
  const size_t more = of->second.holders.size() + of->second.more - words.size();
  if (more > 0) words.push_back(absl::StrCat(more, " more"));
  return {absl::StrJoin(words, ", "), std::move(kill)};
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
    Finding& finding = Say(Urgency::kWrong, "FABRIC_AWAY",
                           absl::StrCat(Rung(), "; the fabric cannot be asked about that host",
                                        InBrackets(runtime.fabric_reason)),
                           {absl::StrCat("cxlpool explain host/", attachment_.host)});
    finding.since = SinceWhen(runtime.wrong_since, "FABRIC_AWAY");
    if (view_.fabric.asks_agents && !runtime.online) {
      finding.commands.push_back(RestartAgent(attachment_.host));
    }
    finding.commands.push_back(CutOff());
  }

  void ReleaseBlocked(const HostView* host) {
    const HoldersText holders =
        host == nullptr ? HoldersText() : HoldersOf(*host->runtime, attachment_.generation);
    Say(Urgency::kWrong, "RELEASE_BLOCKED",
        absl::StrCat("host ", attachment_.host, " cannot let go of it", InBrackets(part_.reason),
                     holders.who.empty() ? "" : absl::StrCat("; it is held by ", holders.who)),
        {absl::StrCat("cxlpool region holders ", region_.id),
         OnHost(attachment_.host,
                holders.kill.empty() ? "end the processes that use it" : holders.kill),
         CutOff()});
  }

  void AgentAway(const HostRuntime& runtime) {
    Say(Urgency::kWrong, "AGENT_AWAY", absl::StrCat(Rung(), "; that host's agent has no session"),
        {RestartAgent(attachment_.host), CutOff()})
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
  out.Say(Urgency::kWrong, "QUARANTINED",
          absl::StrCat("its bytes are kept from everybody", InBrackets(region.state_reason)),
          EndQuarantine(region))
      .since = region.state_since;
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
  Finding& finding = out.Say(Urgency::kWrong, "SCRUB_WAITS", absl::StrCat(why, kFailOnlyIf));
  finding.since = since;
  for (const Extent& extent : extents) {
    const std::string name = DeviceName(extent.device);
    const DeviceView* device = FindDevice(view, extent.device);
    if (device != nullptr && IsFailed(*device)) continue;
    if (absl::c_linear_search(finding.waits_for, name)) continue;
    finding.waits_for.push_back(name);
    for (std::string& command : LookOrFail(extent.device.str())) {
      finding.commands.push_back(std::move(command));
    }
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

}  // namespace cxlpool::fm
