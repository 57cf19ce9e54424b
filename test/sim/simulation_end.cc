// All is made well: what must settle then, and what must be empty in the end.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "test/sim/simulation_run.h"

namespace cxlpool::sim {
namespace {

// Pauses, and hosts without power, have ends of their own, at most twelve seconds away.
constexpr int64_t kToSettle_us = 30 * kSecond_us;

// What was lost cannot come back under one that stayed: decoders are a stack. What is to go, goes.
bool IsBlocked(const fm::Part& part) {
  const bool repair =
      part.reason.starts_with("LD_LOST") || part.reason.starts_with("HOST_RESTARTED");
  return !part.detaching && repair && part.reason.find("BRIDGE_BLOCKED") != std::string::npos;
}
bool IsAnyBlocked(const fm::Attachment& attachment) {
  return std::any_of(attachment.parts.begin(), attachment.parts.end(), IsBlocked);
}

// It is ALLOCATED once it was online everywhere, and a resize ends when all have the new extents.
bool WaitsForABridge(const fm::Region& region) {
  const bool reserved = region.state == fm::RegionState::kReserved && !region.compensating;
  const bool grows = region.resizing() && !region.tail_leaving;
  if (!reserved && !grows) return false;
  return std::any_of(region.attachments.begin(), region.attachments.end(), IsAnyBlocked);
}

}  // namespace

// --- The end.

void SimulationRun::MakeWell() {
  ending_ = true;
  Trace("all is made well");
  network_.Heal();
  fabric_faults_.next.clear();
  fabric_faults_.can_fence = true;
  store_faults_ = {};
  manager_crash_in_probes_ = 0;
  manager_pause_in_calls_ = 0;
  for (int number = 0; number < kHosts; ++number) {
    Host& host = hosts_[static_cast<size_t>(number)];
    RackHost& machine = rack_host(number);
    host.faults.next.clear();
    host.crash_in_probes = 0;
    machine.reachable = true;
    machine.refuses_offline = false;
    machine.held.clear();
    if (!machine.powered) rack_.PowerBack(machine);
    const bool lied = host.lies.until_us > scheduler_.now_us();
    host.lies.until_us = 0;
    if (host.agent == nullptr) StartAgent(number);
    if (host.agent == nullptr) continue;
    if (lied) host.agent->link().CutHere(network_.OfHost(number));
  }
  for (size_t which = 0; which < manager_count(); ++which) StartManager(which);
}

bool SimulationRun::Stays(const std::string& host, uint64_t serial) const {
  const fm::Attachment* attachment = reference_.ThatStays(host, serial);
  if (attachment == nullptr) return false;
  const auto& slots = rack_.hosts.at(host).slots;
  return std::all_of(attachment->segments.begin(), attachment->segments.end(),
                     [&](const fm::Segment& segment) {
                       const auto slot = slots.find(segment.slot);
                       return slot != slots.end() && slot->second.ld.serial == segment.serial;
                     });
}

bool SimulationRun::NobodyReaches(const fm::Region& region) const {
  return std::all_of(region.attachments.begin(), region.attachments.end(),
                     [this](const fm::Attachment& a) { return !rack_.hosts.at(a.host).powered; });
}

// Every LD bound, every host region made, in its mode and whole.
std::string SimulationRun::WhyNotThere(const fm::Region& region,
                                       const fm::Attachment& attachment) const {
  const RackHost& host = rack_.hosts.at(attachment.host);
  for (const fm::Segment& segment : attachment.segments) {
    const auto slot = host.slots.find(segment.slot);
    const auto made = std::find_if(
        host.regions.begin(), host.regions.end(), [&](const agent::ObservedHostRegion& r) {
          return std::find(r.serials.begin(), r.serials.end(), segment.serial) != r.serials.end();
        });
    std::string why;
    if (slot == host.slots.end() || slot->second.ld.serial != segment.serial) {
      why = "no LD in slot ";
    } else if (made == host.regions.end()) {
      why = "no host region for the LD in slot ";
    } else if (attachment.mode == fm::Mode::kDevdax
                   ? made->dax_driver != agent::DaxDriver::kDeviceDax
                   : made->dax_driver != agent::DaxDriver::kKmem ||
                         made->online_blocks != made->total_blocks) {
      why = "not in its mode is what is in slot ";
    }
    if (!why.empty()) {
      return absl::StrCat("; regions/", region.id, " is ONLINE on ", attachment.host, ", but ", why,
                          segment.slot);
    }
  }
  return "";
}

std::string SimulationRun::WhyNotSettled() const {
  std::string why;
  if (!Serves()) return "; no manager serves";
  if (clients_.under_way() > 0) return "; calls are under way";
  size_t lds = 0;
  for (const auto& [key, region] : reference_.regions()) {
    const bool rests = region->state == fm::RegionState::kQuarantined ||
                       (region->state == fm::RegionState::kAllocated && !region->resizing()) ||
                       WaitsForABridge(*region);
    if (!rests) {
      absl::StrAppend(&why, "; regions/", region->id, " is ", ToString(region->state),
                      region->resizing() ? ", resizing" : "", " (", region->state_reason, ")");
    }
    for (const fm::Attachment& attachment : region->attachments) {
      lds += attachment.segments.size();
      if (IsBlocked(attachment.settled())) continue;
      if (attachment.settled().state != fm::AttachmentState::kOnline ||
          attachment.settled().detaching) {
        absl::StrAppend(&why, "; regions/", region->id, " is ",
                        ToString(attachment.settled().state), " on ", attachment.host,
                        attachment.settled().detaching ? ", detaching (" : " (",
                        attachment.settled().reason, ")");
      } else if (rests && !IsAnyBlocked(attachment)) {
        absl::StrAppend(&why, WhyNotThere(*region, attachment));
      }
    }
  }
  size_t plugged = 0;
  for (const auto& [id, host] : rack_.hosts) plugged += host.slots.size();
  for (const auto& [id, host] : rack_.hosts) {
    for (const Rack::PoisonSeen& poison : rack_.PoisonOn(host)) {
      if (reference_.IsMarked(id, poison.serial)) continue;
      absl::StrAppend(&why, "; serial ", poison.serial, " on ", id,
                      " has lost bytes, and no record says so");
    }
  }
  if (why.empty() && plugged != lds) {
    absl::StrAppend(&why, "; ", plugged, " LDs are bound, the records have ", lds);
  }
  return why;
}

// Hosts without agent or enrolment, and applications that are done.
void SimulationRun::BringBack() {
  for (int host = 0; host < kHosts; ++host) {
    const auto& agent = hosts_[static_cast<size_t>(host)].agent;
    if (agent == nullptr) StartAgent(host);
    for (uint64_t connection = 1; agent != nullptr && connection <= kConnections; ++connection) {
      agent->local().ConnectionEnded(connection);
    }
    clients_.Enrol(host);
  }
}

// Whatever was asked for comes to its end: ONLINE, or gone.
void SimulationRun::Settle() {
  const int64_t end_us = scheduler_.now_us() + kToSettle_us;
  std::string why = "begins";
  while (result_.violation.empty() && !why.empty() && scheduler_.now_us() < end_us) {
    BringBack();
    for (int i = 0; i < 20 && result_.violation.empty() && !why.empty(); ++i) {
      scheduler_.RunUntil(scheduler_.now_us() + 50'000);
      why = WhyNotSettled();
    }
  }
  if (!why.empty()) Violate(absl::StrCat("half a minute after all was well", why));
}

bool SimulationRun::Empty() const {
  if (!Serves() || !reference_.regions().empty()) return false;
  if (clients_.under_way() > 0 || manager()->writer().revision() != disk_->revision()) return false;
  for (const auto& [id, host] : rack_.hosts) {
    if (!host.slots.empty() || !host.regions.empty()) return false;
  }
  return true;
}

std::string SimulationRun::WhyNotEmpty() const {
  std::string why;
  if (!Serves()) absl::StrAppend(&why, "; no manager serves");
  for (const auto& [key, region] : reference_.regions()) {
    absl::StrAppend(&why, "; regions/", region->id, " is ", ToString(region->state), " (",
                    region->state_reason, ")");
    for (const fm::Attachment& attachment : region->attachments) {
      absl::StrAppend(&why, ", on ", attachment.host, " ", ToString(attachment.settled().state),
                      attachment.settled().detaching ? " detaching" : "", " (",
                      attachment.settled().reason, ")");
    }
  }
  for (const auto& [id, host] : rack_.hosts) {
    for (const auto& [slot, plugged] : host.slots) {
      absl::StrAppend(&why, "; slot ", slot, " of ", id, " has an LD of ", plugged.ld.key->tag,
                      plugged.ld.unbinding ? ", unbinding" : "", plugged.powered ? ", on" : "");
    }
    for (const auto& region : host.regions) {
      absl::StrAppend(&why, "; ", id, " has ", region.name);
    }
  }
  return why;
}

void SimulationRun::CheckEmpty() {
  if (!Empty()) return Violate(absl::StrCat("a minute after all was well", WhyNotEmpty()));
  if (absl::Status sound = manager()->writer().state().CheckInvariants(); !sound.ok()) {
    Violate(std::string(sound.message()));
  }
  for (const RackDevice& device : rack_.devices) {
    if (reference_.DeviceFailed(device.id)) continue;
    for (size_t i = 0; i < device.content.size(); ++i) {
      if (device.content[i] != 0) {
        Violate(absl::StrCat("granule ", i, " of ", device.id, " is free and not zero"));
      }
    }
  }
  const fm::Capacity capacity = manager()->writer().state().GetCapacity();
  if (capacity.held_bytes + capacity.scrubbing_bytes != 0) Violate("bytes leaked");
}

void SimulationRun::CountMeetings() {
  Coverage& coverage = result_.coverage;
  coverage.Met(Meeting::kTookOver, etcd_.takeovers());
  coverage.Met(Meeting::kFencedCommit, store_met_.fenced);
  coverage.Met(Meeting::kClaimOutrun, store_met_.outrun);
  coverage.Met(Meeting::kOutcomeLost, store_met_.lost);
  coverage.Met(Meeting::kOutcomeFound, store_met_.found_out);
  coverage.Met(Meeting::kTransactionDoubled, store_met_.doubled);
  coverage.Met(Meeting::kReadAnew, store_met_.read_anew);
  coverage.Met(Meeting::kLateBind, rack_.dropped_binds);
  coverage.Met(Meeting::kLateScrub, rack_.dropped_scrubs);
}

void SimulationRun::CheckHistory() {
  // Where nothing went wrong, nothing turned down by itself.
  const auto disturbs = [](const Step& step) {
    return IsFault(step.verb) || step.verb == Verb::kFenceHost || step.verb == Verb::kRetireHost ||
           step.verb == Verb::kFailDevice || step.verb == Verb::kForceRelease;
  };
  const bool calm = std::none_of(script_.steps.begin(), script_.steps.end(), disturbs);
  const RegionHistoryResult checked = CheckRegionHistory(
      clients_.TakeHistory(), {.model = {.attachments_fail = !calm, .devices_fail = !calm}});
  result_.coverage.histories = checked.names;
  result_.coverage.gave_up = checked.gave_up;
  if (!checked.ok()) Violate(checked.why);
}

}  // namespace cxlpool::sim
