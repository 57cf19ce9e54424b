#include "test/sim/reference.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "test/sim/rack.h"

namespace cxlpool::sim {
namespace {

// The manager's own check of everything is slow.
constexpr uint64_t kGroupsPerAudit = 64;

const fm::Attachment* FindGeneration(const fm::Region& region, uint64_t generation) {
  for (const fm::Attachment& attachment : region.attachments) {
    if (attachment.generation == generation) return &attachment;
  }
  return nullptr;
}

std::string Name(const fm::Region& region) {
  return absl::StrCat("regions/", region.id, " (key ", region.key, ", ", ToString(region.state),
                      ", revision ", region.revision, ")");
}

uint64_t First(const fm::Extent& extent) { return extent.dpa_bytes / kGranule; }
uint64_t End(const fm::Extent& extent) {
  return (extent.dpa_bytes + extent.length_bytes) / kGranule;
}

// Whether the item leaves the Region the bytes that it has.
bool Keeps(const fm::Region& before, const fm::Item& item) {
  const auto* now = std::get_if<fm::RegionPtr>(&item);
  return now != nullptr && (*now)->extents == before.extents;
}

}  // namespace

// --- What became durable.

// The records as a manager has them that has just got the store: what the reference knew is
// dropped, but for lost bytes and for what was acknowledged, which must all be there.
void Reference::Reload(const fm::PoolState& state, uint64_t epoch, uint64_t revision) {
  if (epoch == epoch_) Fail(absl::StrCat("two managers have epoch ", epoch));
  if (epoch <= epoch_) return;  // Another has taken over already, and this one has not heard of it.
  epoch_ = epoch;
  taken_revision_ = revision;
  const auto before = std::exchange(devices_, {});
  regions_.clear();
  by_tag_.clear();
  by_serial_.clear();
  made_by_.clear();
  leaving_from_.clear();
  gone_.clear();
  for (const auto& [id, device] : state.devices()) {
    devices_[id] = {std::vector<fm::Key>(device.capacity_bytes / kGranule), device.service};
    const auto was = before.find(id);
    if (was != before.end()) devices_[id].bad = was->second.bad;
  }
  tenants_ = {state.tenants().begin(), state.tenants().end()};
  hosts_.clear();
  for (const auto& [id, host] : state.hosts()) hosts_[host.identity] = host;
  for (const fm::Item& item : state.ExpiredTombstones(absl::InfiniteFuture(), SIZE_MAX)) {
    gone_[fm::KeyOf(item)] = UINT64_MAX;
  }
  // In the order of their keys: a seed always gives the same run.
  const std::map<fm::Key, fm::RegionPtr> recorded(state.regions().begin(), state.regions().end());
  for (const auto& [key, region] : recorded) {
    Take(*region);
    Put(region);
    CheckDryRuns(*region);
    // The commit that it rests on may be the one of which the last manager never heard.
    const bool on_its_way = region->state == fm::RegionState::kReleasing ||
                            region->state == fm::RegionState::kScrubbing;
    if (any_bad_ && region->forced && on_its_way && region->bad.empty()) Unmark(*region);
  }
  if (any_bad_) CheckMarks();
  if (absl::Status sound = state.CheckInvariants(); !sound.ok()) Fail(std::string(sound.message()));
  for (const auto& [key, revision] : acknowledged_) {
    const auto region = regions_.find(key);
    const bool there = region != regions_.end() && region->second->revision >= revision;
    if (there || gone_.contains(key)) continue;
    Fail(absl::StrCat("an acknowledged change is lost: key ", key, " at revision ", revision,
                      region == regions_.end() ? " is not there" : " is older"));
  }
}

// What a manager of a lower epoch hears of its commits. It may hear late of what the next one found
// when it took over; anything later got past the fence.
void Reference::HeardLate(const std::vector<fm::Change>& changes) {
  for (const fm::Change& change : changes) {
    for (const fm::Item& item : change) {
      const auto* region = std::get_if<fm::RegionPtr>(&item);
      if (region == nullptr || (*region)->revision <= taken_revision_) continue;
      Fail(absl::StrCat(Name(**region), " was made durable by a manager after the next one had ",
                        "taken over at revision ", taken_revision_));
    }
  }
}

// Holds each change against the rules of the ladder, of quotas and of who may ask for it, and keeps
// an owner for each granule. In the end the manager's own figures have to agree, unless it has
// planned further than was committed: its state is then ahead of these changes.
void Reference::Committed(const std::vector<fm::Change>& changes, const fm::PoolState& state,
                          uint64_t planned, uint64_t epoch) {
  if (epoch < epoch_) return HeardLate(changes);
  uint64_t revision = 0;
  for (const fm::Change& change : changes) {
    ++coverage_->commits;
    // Bytes may go from one record to another in one change.
    for (const fm::Item& item : change) {
      const auto old = regions_.find(fm::KeyOf(item));
      if (old != regions_.end() && !Keeps(*old->second, item)) Give(*old->second);
    }
    for (const fm::Item& item : change) {
      const fm::Key key = fm::KeyOf(item);
      if (const auto* region = std::get_if<fm::RegionPtr>(&item)) {
        revision = (*region)->revision;
        const auto old = regions_.find(key);
        const fm::Region* before = old == regions_.end() ? nullptr : old->second.get();
        before == nullptr ? coverage_->Begins((*region)->state) : CountEdges(*before, **region);
        // A QUARANTINED Region that is released by force gives its lost bytes back: a person said
        // that they are sound again.
        const bool operator_vouched =
            before != nullptr && (*region)->forced && (*region)->bad.empty() &&
            before->state == fm::RegionState::kQuarantined && before->attachments.empty() &&
            before->bad.size() == before->extents.size();
        if (operator_vouched) Unmark(*before);
        if (before == nullptr) coverage_->bad_kept += (*region)->bad.size();
        if (before == nullptr) {
          for (const auto& attachment : (*region)->attachments)
            coverage_->Begins(attachment.settled().state);
        }
        if (before == nullptr || !Keeps(*before, item)) Take(**region);
        CheckQuota(before, **region);
        CheckCall(before, **region);
        Put(*region);
      } else if (const auto* tombstone = std::get_if<fm::Tombstone>(&item)) {
        Remove(key);
        gone_[key] = tombstone->region->revision;
      } else if (const auto* device = std::get_if<fm::Device>(&item)) {
        DeviceBytes& bytes = devices_[device->id];
        bytes.owner.resize(device->capacity_bytes / kGranule);
        bytes.taken = bytes.owner.size() - static_cast<uint64_t>(std::count(
                                               bytes.owner.begin(), bytes.owner.end(), fm::Key{0}));
        bytes.service = device->service;
      } else if (const auto* tenant = std::get_if<fm::Tenant>(&item)) {
        tenants_[tenant->id] = *tenant;
      } else if (const auto* host = std::get_if<fm::Host>(&item)) {
        hosts_[host->identity] = *host;
      } else if (std::holds_alternative<fm::Erased>(item)) {
        std::erase_if(tenants_, [key](const auto& entry) { return entry.second.key == key; });
        absl::erase_if(hosts_, [key](const auto& entry) { return entry.second.key == key; });
      }
    }
    if (any_bad_) CheckMarks();
  }
  if (revision != planned) return;  // The manager is ahead: another group is on its way.
  if (++groups_ % kGroupsPerAudit == 0) {
    if (absl::Status sound = state.CheckInvariants(); !sound.ok()) {
      Fail(std::string(sound.message()));
    }
  }
  uint64_t held = 0;
  uint64_t all = 0;
  for (const auto& [id, device] : devices_) {
    if (device.service == fm::DeviceService::kRemoved) continue;
    all += device.owner.size();
    if (device.service == fm::DeviceService::kFailed) {
      held += device.owner.size();  // All of it is out of use.
      continue;
    }
    held += device.taken;
  }
  const fm::Capacity capacity = state.GetCapacity();
  const uint64_t counted =
      capacity.held_bytes + capacity.scrubbing_bytes + capacity.quarantined_bytes;
  if (counted != held * kGranule || capacity.total_bytes != all * kGranule) {
    Fail(absl::StrCat("capacity: the records hold ", held, " of ", all,
                      " granules, the manager counts ", counted / kGranule, " of ",
                      capacity.total_bytes / kGranule));
  }
}

void Reference::Put(const fm::RegionPtr& region) {
  fm::RegionPtr& known = regions_[region->key];
  const bool news = known == nullptr || known->requests != region->requests;
  for (const fm::Request& request : region->requests) {
    if (!news || absl::string_view(request.id.method) != "AllocateRegion") continue;
    const auto [made, fresh] = made_by_.try_emplace(request.id, region->key);
    if (!fresh && made->second != region->key) {
      Fail(absl::StrCat("one request made two Regions: keys ", made->second, " and ", region->key));
    }
  }
  if (region->sharing == fm::Sharing::kExclusive && region->attachments.size() > 1) {
    Fail(absl::StrCat(Name(*region), " is EXCLUSIVE and attached to several hosts"));
  }
  if (known == nullptr) by_tag_[region->tag] = region->key;
  for (const fm::Attachment& attachment : region->attachments) {
    for (const fm::Segment& segment : attachment.segments) by_serial_[segment.serial] = region->key;
  }
  const bool all =
      region->state == fm::RegionState::kScrubbing || region->state == fm::RegionState::kFailed;
  if (all || region->tail_leaving) {
    leaving_from_[region->key] = all ? 0 : region->settled_extents();
  } else if (!region->resizing() && region->state == fm::RegionState::kAllocated) {
    leaving_from_.erase(region->key);  // The tail has left.
  }
  if (!region->bad.empty()) Mark(*region);
  known = region;
}

// Remembers the Region's lost Extents, whatever becomes of the Region.
void Reference::Mark(const fm::Region& region) {
  any_bad_ = true;
  for (const fm::BadExtent& bad : region.bad) {
    const fm::Extent& extent = region.extents[bad.extent_index];
    const auto device = devices_.find(absl::string_view(extent.device));
    if (device == devices_.end() || End(extent) > device->second.owner.size()) continue;
    std::vector<bool>& granules = device->second.bad;
    granules.resize(device->second.owner.size());
    if (!granules[First(extent)]) ++coverage_->bad_marked;
    std::fill(granules.begin() + static_cast<ptrdiff_t>(First(extent)),
              granules.begin() + static_cast<ptrdiff_t>(End(extent)), true);
  }
}

// The inverse, by a person's word alone.
void Reference::Unmark(const fm::Region& region) {
  for (const fm::Extent& extent : region.extents) {
    const auto device = devices_.find(absl::string_view(extent.device));
    if (device == devices_.end() || device->second.bad.empty()) continue;
    std::vector<bool>& granules = device->second.bad;
    if (granules[First(extent)]) ++coverage_->bad_freed;
    std::fill(granules.begin() + static_cast<ptrdiff_t>(First(extent)),
              granules.begin() + static_cast<ptrdiff_t>(End(extent)), false);
  }
}

// Every granule that was lost belongs to a Region which says so.
void Reference::CheckMarks() {
  for (auto& [id, device] : devices_) {
    // For good: nobody is given any of it.
    if (device.service == fm::DeviceService::kFailed) device.bad.clear();
    for (size_t i = 0; i < device.bad.size(); ++i) {
      if (!device.bad[i]) continue;
      const auto region = regions_.find(device.owner[i]);
      if (region == regions_.end()) {
        return Fail(absl::StrCat("granule ", i, " of ", id, " has lost bytes, and is free"));
      }
      const std::vector<fm::Extent>& extents = region->second->extents;
      const std::vector<fm::BadExtent>& bad = region->second->bad;
      const bool said = std::any_of(bad.begin(), bad.end(), [&](const fm::BadExtent& b) {
        const fm::Extent& extent = extents[b.extent_index];
        return absl::string_view(extent.device) == id && First(extent) <= i && i < End(extent);
      });
      if (said) continue;
      return Fail(absl::StrCat("granule ", i, " of ", id, " has lost bytes, and ",
                               Name(*region->second), " does not know"));
    }
  }
}

// Whether the records know that these bytes are lost; what they do not know at all counts as known.
bool Reference::IsMarked(const std::string& host, uint64_t serial) const {
  const auto key = by_serial_.find(serial);
  const auto found = key == by_serial_.end() ? regions_.end() : regions_.find(key->second);
  if (found == regions_.end()) return true;
  const fm::Attachment* attachment = found->second->FindAttachment(absl::string_view(host));
  if (attachment == nullptr) return true;
  for (const fm::Segment& segment : attachment->segments) {
    if (segment.serial != serial) continue;
    const std::vector<fm::BadExtent>& bad = found->second->bad;
    return std::any_of(bad.begin(), bad.end(), [&](const fm::BadExtent& b) {
      return b.extent_index == segment.extent_index;
    });
  }
  return true;
}

// A Region goes only once no host has it.
void Reference::Remove(fm::Key key) {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return;
  if (!found->second->attachments.empty()) {
    Fail(absl::StrCat(Name(*found->second), " is gone while it is attached"));
  }
  by_tag_.erase(found->second->tag);
  leaving_from_.erase(key);
  regions_.erase(found);
}

// The Region's granules become its own. One that has an owner already is the worst that can happen.
void Reference::Take(const fm::Region& region) {
  for (const fm::Extent& extent : region.extents) {
    const auto device = devices_.find(absl::string_view(extent.device));
    if (device == devices_.end() || End(extent) > device->second.owner.size()) {
      return Fail(absl::StrCat(Name(region), " has bytes that no device has"));
    }
    for (uint64_t i = First(extent); i < End(extent); ++i) {
      fm::Key& owner = device->second.owner[i];
      if (owner != 0) {
        return Fail(absl::StrCat("granule ", i, " of ", absl::string_view(extent.device),
                                 " has two owners: key ", owner, " and ", Name(region)));
      }
      owner = region.key;
      ++device->second.taken;
    }
  }
}

void Reference::Give(const fm::Region& region) {
  for (const fm::Extent& extent : region.extents) {
    const auto device = devices_.find(absl::string_view(extent.device));
    if (device == devices_.end()) continue;
    for (uint64_t i = First(extent); i < End(extent) && i < device->second.owner.size(); ++i) {
      device->second.taken -= std::exchange(device->second.owner[i], 0) != 0 ? 1 : 0;
    }
  }
}

// Each step of a state follows one that may precede it; a growth is joined only when all hosts have
// the new part. An Attachment is the same one as long as its generation is.
void Reference::CountEdges(const fm::Region& before, const fm::Region& after) {
  if (!MayFollow(before.state, after.state)) {
    Fail(absl::StrCat(Name(after), " came from ", ToString(before.state)));
  }
  if (before.state != after.state) coverage_->Edge(before.state, after.state);
  const bool joined = after.state == fm::RegionState::kAllocated && before.resizing() &&
                      !before.tail_leaving && !after.resizing() &&
                      after.extents.size() == before.extents.size();
  for (const fm::Attachment& attachment : before.attachments) {
    for (const fm::Part& part : attachment.moving()) {
      if (!joined || part.state == fm::AttachmentState::kOnline) continue;
      Fail(absl::StrCat(Name(after), " has grown before ", attachment.host, " has it all"));
    }
  }
  for (const fm::Attachment& now : after.attachments) {
    const fm::Attachment* then = FindGeneration(before, now.generation);
    if (absl::StartsWith(now.settled().reason, "LD_LOST")) repaired_.insert(now.generation);
    if (then == nullptr) {
      coverage_->Begins(now.settled().state);
      continue;
    }
    for (size_t i = 0; i < std::min(then->parts.size(), now.parts.size()); ++i) {
      const fm::AttachmentState from = then->parts[i].state;
      const fm::AttachmentState to = now.parts[i].state;
      if (!MayFollow(from, to)) {
        Fail(absl::StrCat(Name(after), " on ", now.host, ": ", ToString(to), " came from ",
                          ToString(from)));
      }
      if (from != to) i == 0 ? coverage_->Edge(from, to) : coverage_->TailEdge(from, to);
    }
  }
}

// Growing is what a quota forbids: one that was lowered below what is held takes nothing away.
void Reference::CheckQuota(const fm::Region* before, const fm::Region& after) {
  const auto tenant = tenants_.find(absl::string_view(after.tenant));
  if (tenant == tenants_.end() || tenant->second.quota_bytes == 0) return;
  // What is kept from everybody is the manager's, in the default tenant's name.
  if (before == nullptr && after.state == fm::RegionState::kQuarantined) return;
  if (before != nullptr && after.held_bytes() <= before->held_bytes()) return;
  uint64_t held = after.held_bytes();
  for (const auto& [key, region] : regions_) {
    if (key != after.key && region->tenant == after.tenant) held += region->held_bytes();
  }
  if (held > tenant->second.quota_bytes) {
    Fail(absl::StrCat(Name(after), " takes tenant ", absl::string_view(after.tenant), " to ",
                      held / kGranule, " granules; its quota is ",
                      tenant->second.quota_bytes / kGranule));
  }
}

// --- For whom it was done.

void Reference::Asked(const fm::RequestId& request, const std::string& etag, bool dry) {
  asked_[request] = {etag, dry};
}

// A record remembers the calls that changed it, or found it as they wanted it, the newest last.
void Reference::CheckCall(const fm::Region* before, const fm::Region& after) {
  if (after.requests.empty()) return;
  const fm::RequestId& call = after.requests.back().id;
  if (before != nullptr && std::any_of(before->requests.begin(), before->requests.end(),
                                       [&](const fm::Request& r) { return r.id == call; })) {
    return;  // The manager's own doing.
  }
  CheckDryRuns(after);
  const auto asked = asked_.find(call);
  if (asked != asked_.end() && !asked->second.etag.empty()) {
    coverage_->Met(Meeting::kEtagPassed);
    if (before == nullptr || before->etag() != asked->second.etag) {
      Fail(absl::StrCat(absl::string_view(call.method), " of ", Name(after), " was done on etag ",
                        asked->second.etag, "; it was ",
                        before == nullptr ? "not there" : before->etag()));
    }
  }
  if (absl::StartsWith(absl::string_view(call.principal), "cxlpool://host/")) {
    CheckHostsCall(call, before, after);
  }
}

void Reference::CheckDryRuns(const fm::Region& region) {
  for (const fm::Request& request : region.requests) {
    const auto asked = asked_.find(request.id);
    if (asked == asked_.end() || !asked->second.dry) continue;
    Fail(absl::StrCat("a dry run of ", absl::string_view(request.id.method), " was carried out on ",
                      Name(region)));
  }
}

// The rules of what a host may ask for, written down once more: fabric-manager's planner is not
// used.
void Reference::CheckHostsCall(const fm::RequestId& call, const fm::Region* before,
                               const fm::Region& after) {
  const absl::string_view method(call.method);
  const auto breach = [&](absl::string_view why) {
    Fail(absl::StrCat(method, " of ", Name(after), " was done for ",
                      absl::string_view(call.principal), ", though ", why));
  };
  const auto found = hosts_.find(call.principal.str());
  if (found == hosts_.end() || found->second.retired) return breach("no host is enrolled so");
  const fm::Host& host = found->second;
  const auto serves = [&](const fm::Region& region) {
    return std::find(host.tenants.begin(), host.tenants.end(), absl::string_view(region.tenant)) !=
           host.tenants.end();
  };
  if (method == "AllocateRegion") {
    coverage_->Met(Meeting::kHostAllocates);
    if (after.attachments.size() != 1 || after.attachments.front().host != host.id) {
      return breach("it is not for that host");
    }
    if (!serves(after)) breach(absl::StrCat("it does not serve tenant ", after.tenant.str()));
    return;
  }
  if (before == nullptr) return breach("it was not there");
  const bool its_own = !before->requests.empty() &&
                       before->requests.front().id.principal == call.principal &&
                       absl::string_view(before->requests.front().id.method) == "AllocateRegion";
  const bool here = before->FindAttachment(absl::string_view(host.id)) != nullptr;
  if (!its_own && !(here && serves(*before))) return breach("it does not concern that host");
  if (method == "RenewRegion") {
    coverage_->Met(Meeting::kHostRenews);
    if (!its_own) breach("somebody else made it");
  } else if (method == "ReleaseRegion") {
    if (before->revision == after.revision) return;  // It goes down already.
    coverage_->Met(Meeting::kHostReleases);
    if (before->state == fm::RegionState::kQuarantined) return breach("it is quarantined");
    for (const fm::Attachment& other : before->attachments) {
      if (other.host == host.id || other.settled().detaching) continue;
      return breach(absl::StrCat(other.host, " has it attached"));
    }
  } else {
    breach("no host may do that");
  }
}

// --- What clients are answered.

// Nothing is answered, nor shown, that a crash at this moment would lose.
void Reference::Acknowledged(const fm::RegionPtr& region, uint64_t revision, uint64_t disk) {
  ++coverage_->acknowledged;
  if (revision > disk) {
    Fail(absl::StrCat("revision ", revision, " was acknowledged; the disk has ", disk));
  }
  if (region == nullptr) return;
  if (region->revision > disk) {
    Fail(absl::StrCat(Name(*region), " was shown; the disk has revision ", disk));
  }
  uint64_t& newest = acknowledged_[region->key];
  newest = std::max(newest, region->revision);
}

// --- What the judge asks.

const fm::RegionPtr* Reference::FindByTag(const std::string& tag) const {
  Uuid uuid;
  if (!ParseUuid(tag, uuid)) return nullptr;
  const auto key = by_tag_.find(uuid);
  if (key == by_tag_.end()) return nullptr;
  const auto region = regions_.find(key->second);
  return region == regions_.end() ? nullptr : &region->second;
}

// Whether a record, exactly as it is now, wants these bytes in this slot of the host.
bool Reference::Intends(const fm::LdKey& key, const fm::Slice& slice, const std::string& host,
                        uint32_t slot, uint64_t serial) const {
  const fm::RegionPtr* region = FindByTag(key.tag);
  if (region == nullptr) return false;
  const fm::Attachment* attachment = FindGeneration(**region, key.generation);
  if (attachment == nullptr || attachment->host != host) return false;
  for (const fm::Segment& segment : attachment->segments) {
    if (segment.serial != serial || segment.slot != slot) continue;
    const fm::Extent& extent = (*region)->extents[segment.extent_index];
    return absl::string_view(extent.device) == slice.device &&
           extent.dpa_bytes == slice.dpa_bytes && extent.length_bytes == slice.length_bytes;
  }
  return false;
}

// What once is on its way out does not come back, whatever becomes of its Region.
bool Reference::Leaving(const fm::Slice& slice) const {
  if (DeviceFailed(slice.device)) return true;  // For good: nobody is given it.
  for (const auto& [key, first] : leaving_from_) {
    const auto region = regions_.find(key);
    if (region == regions_.end()) continue;
    const auto& extents = region->second->extents;
    for (size_t i = first; i < extents.size(); ++i) {
      if (absl::string_view(extents[i].device) == slice.device &&
          extents[i].dpa_bytes == slice.dpa_bytes &&
          extents[i].length_bytes == slice.length_bytes) {
        return true;
      }
    }
  }
  return false;
}

// The Attachment that must keep what is under this serial: it is ONLINE, nobody detaches it, and
// the serial is of its settled part. Null: there is none, or it may go.
const fm::Attachment* Reference::ThatStays(const std::string& host, uint64_t serial) const {
  const auto key = by_serial_.find(serial);
  if (key == by_serial_.end()) return nullptr;
  const auto found = regions_.find(key->second);
  if (found == regions_.end()) return nullptr;
  const fm::Region& region = *found->second;
  if (region.state != fm::RegionState::kAllocated) return nullptr;
  const fm::Attachment* attachment = region.FindAttachment(absl::string_view(host));
  // An Offer that cleared it away for a repair may still be on its way.
  if (attachment == nullptr || attachment->settled().detaching ||
      attachment->settled().state != fm::AttachmentState::kOnline ||
      repaired_.contains(attachment->generation)) {
    return nullptr;
  }
  for (size_t i = 0; i < attachment->segments.size(); ++i) {
    if (attachment->segments[i].serial != serial) continue;
    return &attachment->PartOf(i) == &attachment->settled() ? attachment : nullptr;
  }
  return nullptr;
}

bool Reference::DeviceFailed(const std::string& id) const {
  const auto device = devices_.find(id);
  return device != devices_.end() && device->second.service == fm::DeviceService::kFailed;
}

}  // namespace cxlpool::sim
