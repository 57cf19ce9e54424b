// What is wrong with the pool as a whole, with hosts and devices; and all of it, sorted.

#include "fabric-manager/service/explain.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/service/explain_words.h"
#include "proto/support/byte_size.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

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
            {"cxlpool region allocate NAME --size SIZE --max-extents 16",
             "cxlpool region list --order-by size_bytes",
             "cxlpool region release NAME --detach-all"})
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

// An agent that is away is a mistake where its host has memory; one that never came may be a
// machine that is not built yet, or will not be. The check says why it does not come.
void ExplainAgent(const HostView& host, Findings& out) {
  const std::string& id = host.host.id;
  const HostRuntime& runtime = *host.runtime;
  if (runtime.online) {
    if (runtime.unfit_reason.empty()) return;
    out.Say(Urgency::kWrong, "UNFIT", absl::StrCat("it can take no memory: ", runtime.unfit_reason),
            {OnHost(id, "cxlpool-agent check"), RestartAgent(id)})
        .since = SinceWhen(runtime.wrong_since, "UNFIT");
    return;
  }
  const bool came = runtime.last_heartbeat != absl::InfinitePast();
  const bool has_memory = !host.occupied.empty();
  std::vector<std::string> commands = {OnHost(id, "cxlpool-agent check")};
  if (came || has_memory) {
    commands.push_back(RestartAgent(id));
  } else {
    commands.push_back(OnHost(id, "systemctl enable --now cxlpool-agent"));
    commands.push_back(absl::StrCat("cxlpool host retire ", id));
  }
  Finding& finding = out.Say(has_memory ? Urgency::kWrong : Urgency::kNote,
                             came || has_memory ? "AGENT_AWAY" : "AGENT_NEVER_CAME",
                             came ? "its agent has no session any more"
                                  : "its agent has not come since this manager started",
                             std::move(commands));
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

std::vector<Finding> ExplainHost(const PoolView& view, const HostView& host, absl::Time now) {
  const HostRuntime& runtime = *host.runtime;
  const std::string& id = host.host.id;
  Findings out(HostName(id));
  if (host.host.retired) return out.Take();  // Nothing is attached there.
  if (!runtime.fabric_reachable) {
    Finding& finding = out.Say(
        Urgency::kWrong, "FABRIC_AWAY",
        absl::StrCat("the fabric cannot be asked what is bound there",
                     InBrackets(runtime.fabric_reason), "; nothing is bound or proven meanwhile"),
        {absl::StrCat("cxlpool host show ", id)});
    finding.since = SinceWhen(runtime.wrong_since, "FABRIC_AWAY");
    // A machine that hangs is ended by it, and what it has is free before it comes back.
    if (!host.occupied.empty()) finding.commands.push_back(CutOff(view.fabric, id));
  }
  ExplainAgent(host, out);
  ExplainBridges(host, out);
  for (const auto& [device, seen] : runtime.unreached) {
    Finding& finding = out.Say(Urgency::kWrong, "DEVICE_NOT_REACHED",
                               absl::StrCat("it does not reach device ", device, InBrackets(seen)),
                               {absl::StrCat("cxlpool device discover --host ", id),
                                OnHost(id, "cxlpool-agent check"), RestartAgent(id)});
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
    const std::string release = absl::StrCat("cxlpool region release ", region.id, " --detach-all");
    switch (region.state) {
      case RegionState::kQuarantined:
        for (std::string& command : EndQuarantine(region)) {
          finding.commands.push_back(std::move(command));
        }
        break;
      case RegionState::kReserved:
      case RegionState::kAllocated:
        finding.commands.push_back(release);
        break;
      case RegionState::kReleasing:
      case RegionState::kScrubbing:
      case RegionState::kFailed:
        break;  // It goes already: what it waits for is said of itself.
    }
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
      Finding& finding =
          out.Say(Urgency::kWrong, "DEVICE_FAILED", absl::StrCat(broken, "; ", bytes));
      finding.since = device.service_since;
      if (!CXLPOOL_MUTANT("broken-device-is-nobodys")) AddOwners(view, device.id, finding);
      finding.commands.push_back(remove);
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

// Hosts whose agents are away, where the agents show the devices: the first few of them.
void AddAwayHosts(const PoolView& view, Finding& finding) {
  for (const auto& [id, host] : view.hosts) {
    if (host->runtime->online || host->host.retired) continue;
    finding.waits_for.push_back(HostName(id));
    finding.commands.push_back(RestartAgent(id));
    if (finding.waits_for.size() == kNamed) return;
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
  if (!itself.reachable) {
    Finding& finding = out.Say(Urgency::kWrong, "DEVICE_UNREACHABLE",
                               absl::StrCat("the fabric does not show it",
                                            InBrackets(itself.unreachable_reason), kFailOnlyIf));
    finding.since = itself.unreachable_since;
    if (view.fabric.asks_agents) AddAwayHosts(view, finding);
    for (std::string& command : LookOrFail(itself.id)) {
      finding.commands.push_back(std::move(command));
    }
  } else if (IsOutOfLds(itself, device.max_lds, device.use)) {
    out.Say(Urgency::kNote, "LDS_TAKEN",
            absl::StrCat("each of its ", device.max_lds, " LDs is taken: ",
                         FormatByteSize(device.free_bytes()), " can be given to nobody"),
            {absl::StrCat("cxlpool region list --filter \"device = ", itself.id, "\""),
             "cxlpool region release NAME --detach-all"})
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
    for (const auto& [id, host] : view.hosts) add(ExplainHost(view, *host, now));
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
