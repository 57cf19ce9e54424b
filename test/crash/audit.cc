#include "test/crash/audit.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "test/crash/bytes.h"

namespace cxlpool::crash {
namespace {

using Seen = std::map<std::string, const v1::Region*>;  // By tag.

absl::Status Differs(const std::string& what, const v1::Region& region) {
  return absl::InternalError(absl::StrCat(what, ": ", region.ShortDebugString()));
}

bool GoesDown(const v1::Region& region) {
  return region.state() == v1::Region::RELEASING || region.state() == v1::Region::SCRUBBING;
}

// Extents as acknowledged; while it is resized, with a tail behind them.
absl::Status CheckLiveExtents(const Known& known, const v1::Region& found, const Call* pending) {
  const v1::Region& acknowledged = known.region;
  const auto* resize =
      pending == nullptr ? nullptr : std::get_if<v1::ResizeRegionRequest>(&pending->request);
  int same = 0;
  while (same < std::min(acknowledged.extents_size(), found.extents_size()) &&
         SameExtent(acknowledged.extents(same), found.extents(same))) {
    ++same;
  }
  if (same == acknowledged.extents_size() && (same == found.extents_size() || found.resizing())) {
    return absl::OkStatus();
  }
  if (resize != nullptr) {
    const int keep = ExtentsFor(acknowledged, resize->size_bytes());
    const bool shrunk =
        keep < acknowledged.extents_size() && same == keep && found.extents_size() == keep;
    const bool grown = same == acknowledged.extents_size() &&
                       ExtentsFor(found, resize->size_bytes()) == found.extents_size();
    if (shrunk || grown) return absl::OkStatus();
  }
  return Differs(absl::StrCat("it was acknowledged with other extents (",
                              acknowledged.ShortDebugString(), ")"),
                 found);
}

absl::Status CheckHosts(const Known& known, const v1::Region& found, const Call* pending) {
  std::string moving;  // The host that the call without an answer is about.
  if (pending != nullptr) {
    if (const auto* attach = std::get_if<v1::AttachRegionRequest>(&pending->request)) {
      moving = attach->host();
    } else if (const auto* detach = std::get_if<v1::DetachRegionRequest>(&pending->request)) {
      moving = detach->host();
    }
  }
  std::set<std::string> attached;
  for (const v1::Attachment& attachment : found.attachments()) {
    if (!attachment.detaching()) attached.insert(attachment.host());
  }
  for (const auto& [host, stays] : known.hosts) {
    if (stays && attached.erase(host) == 0 && host != moving) {
      return Differs(absl::StrCat("it was attached to ", host), found);
    }
  }
  attached.erase(moving);
  if (attached.empty()) return absl::OkStatus();
  return Differs(absl::StrCat("nobody attached it to ", *attached.begin()), found);
}

absl::Status CheckLive(const Known& known, const v1::Region& found, const Call* pending) {
  const v1::Region& acknowledged = known.region;
  if (pending != nullptr && pending->releases() && GoesDown(found)) return absl::OkStatus();
  if (found.state() != v1::Region::RESERVED && found.state() != v1::Region::ALLOCATED) {
    return Differs("it was acknowledged, and nobody released it", found);
  }
  const auto* rename =
      pending == nullptr ? nullptr : std::get_if<v1::RenameRegionRequest>(&pending->request);
  const bool renamed = rename != nullptr && found.name() == "regions/" + rename->new_region_id();
  if (!renamed &&
      (found.name() != acknowledged.name() || found.generation() != acknowledged.generation())) {
    return Differs(
        absl::StrCat("its name was ", acknowledged.name(), ", ", acknowledged.generation()), found);
  }
  if (found.tenant() != acknowledged.tenant() || found.sharing() != acknowledged.sharing()) {
    return Differs("tenant or sharing changed", found);
  }
  if (absl::Status status = CheckLiveExtents(known, found, pending); !status.ok()) return status;
  return CheckHosts(known, found, pending);
}

// Whether `region`, which no client knows of, is what `call` asks for.
bool AskedForBy(const Call& call, const v1::Region& region) {
  const auto asks = [&](const v1::AllocateRegionRequest& request) {
    return region.requested_bytes() == request.size_bytes() &&
           region.tenant() == (request.tenant().empty() ? "tenants/default" : request.tenant()) &&
           (request.region_id().empty() || region.name() == "regions/" + request.region_id()) &&
           (region.state() == v1::Region::RESERVED || region.state() == v1::Region::ALLOCATED);
  };
  if (const auto* one = std::get_if<v1::AllocateRegionRequest>(&call.request)) return asks(*one);
  const auto* batch = std::get_if<v1::BatchAllocateRegionsRequest>(&call.request);
  return batch != nullptr && std::any_of(batch->requests().begin(), batch->requests().end(), asks);
}

bool IsTold(const Lanes& lanes, const std::string& tag) {
  return std::any_of(lanes.begin(), lanes.end(),
                     [&](const auto& lane) { return lane->ledger().regions.count(tag) > 0; });
}

// Of a batch without an answer: all or nothing, as far as its items cannot be refused one by one.
absl::Status CheckBatchWhole(const Ledger& ledger, const Seen& found, const Lanes& lanes) {
  if (!ledger.pending.has_value()) return absl::OkStatus();
  std::string done, not_done;
  const auto add = [&](bool is_done, const auto& item) {
    absl::StrAppend(is_done ? &done : &not_done, " {", item.ShortDebugString(), "}");
  };
  if (const auto* made = std::get_if<v1::BatchAllocateRegionsRequest>(&ledger.pending->request)) {
    for (const v1::AllocateRegionRequest& request : made->requests()) {
      const bool plain = request.tenant().empty() && request.host().empty() &&
                         request.device().empty() && request.policy() != v1::SPREAD;
      // The size tells an item from every other (Lane::Size), a resized Region's from none.
      if (plain) {
        add(std::any_of(found.begin(), found.end(),
                        [&](const auto& region) {
                          return region.second->requested_bytes() == request.size_bytes() &&
                                 !IsTold(lanes, region.first);
                        }),
            request);
      }
    }
  } else if (const auto* gone =
                 std::get_if<v1::BatchReleaseRegionsRequest>(&ledger.pending->request)) {
    for (int i = 0; i < gone->requests_size(); ++i) {
      const auto region = found.find(ledger.pending->tags[static_cast<size_t>(i)]);
      add(region == found.end() || GoesDown(*region->second), gone->requests(i));
    }
  }
  if (done.empty() || not_done.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(NameOf(*ledger.pending), " was carried out for", done,
                                          " and not for", not_done));
}

// Those that nobody knows of belong to calls without an answer, one each at most.
absl::Status CheckUntold(const Seen& unanswered, const Lanes& lanes) {
  std::map<const Lane*, int> made;
  for (const auto& [tag, region] : unanswered) {
    const Lane* owner = nullptr;
    for (const auto& lane : lanes) {
      const auto& pending = lane->ledger().pending;
      if (!pending.has_value() || !AskedForBy(*pending, *region)) continue;
      const auto* batch = std::get_if<v1::BatchAllocateRegionsRequest>(&pending->request);
      if (made[lane.get()] < (batch == nullptr ? 1 : batch->requests_size())) owner = lane.get();
      if (owner != nullptr) break;
    }
    if (owner == nullptr) return Differs("nobody asked for it", *region);
    ++made[owner];
  }
  return absl::OkStatus();
}

absl::Status CheckTenants(const PoolSeen& seen, const Lanes& lanes) {
  std::map<std::string, uint64_t> used;
  for (const v1::Region& region : seen.regions.regions()) {
    for (const v1::Extent& extent : region.extents()) {
      used[region.tenant()] += extent.length_bytes();
    }
  }
  for (const v1::Tenant& tenant : seen.tenants.tenants()) {
    if (tenant.name() == kTightTenant &&
        (tenant.quota_bytes() != kTightQuota || used[tenant.name()] > kTightQuota)) {
      return absl::InternalError(absl::StrCat("quota is exceeded: ", used[tenant.name()],
                                              " bytes of ", tenant.ShortDebugString()));
    }
    for (const auto& lane : lanes) {
      const Ledger& ledger = lane->ledger();
      const auto quota = ledger.quota.find(tenant.name());
      if (quota == ledger.quota.end() || quota->second == tenant.quota_bytes()) continue;
      const auto* set = ledger.pending.has_value()
                            ? std::get_if<v1::SetTenantRequest>(&ledger.pending->request)
                            : nullptr;
      if (set != nullptr && set->tenant().quota_bytes() == tenant.quota_bytes()) continue;
      return absl::InternalError(absl::StrCat("its quota was acknowledged as ", quota->second, ": ",
                                              tenant.ShortDebugString()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSums(const PoolSeen& seen, const PoolLayout& layout) {
  const auto held = CheckExtents(seen.regions, layout);
  if (!held.ok()) return held.status();
  uint64_t total = 0;
  for (const auto& [id, capacity] : layout.devices) total += capacity;
  const v1::Capacity& capacity = seen.capacity;
  const uint64_t out = capacity.allocated_bytes() + capacity.scrubbing_bytes();
  if (capacity.total_bytes() != total || capacity.quarantined_bytes() != 0 || out != *held ||
      capacity.free_bytes() + out != total) {
    return absl::InternalError(absl::StrCat("bytes are lost: Regions hold ", *held, " of ", total,
                                            "; ", capacity.ShortDebugString()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PoolSeen> Look(Client& client) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    PoolSeen seen;
    auto tenants = client.Call(&InventoryStub::ListTenants, v1::ListTenantsRequest());
    if (!tenants.ok()) return tenants.status();
    auto regions = client.Regions();
    if (!regions.ok()) return regions.status();
    auto capacity = client.Call(&PoolStub::GetCapacity, v1::GetCapacityRequest());
    if (!capacity.ok()) return capacity.status();
    // What is released goes on being scrubbed: both have to be of one moment.
    if (capacity->revision() != regions->revision()) continue;
    return PoolSeen{*std::move(regions), *std::move(capacity), *std::move(tenants)};
  }
  return absl::InternalError("the pool does not stand still for a moment");
}

absl::StatusOr<uint64_t> CheckExtents(const v1::ListRegionsResponse& regions,
                                      const PoolLayout& layout) {
  std::vector<std::tuple<std::string, uint64_t, uint64_t, std::string>> runs;
  uint64_t held = 0;
  for (const v1::Region& region : regions.regions()) {
    for (const v1::Extent& extent : region.extents()) {
      const auto device =
          layout.devices.find(extent.device().substr(std::string("devices/").size()));
      const uint64_t end = extent.dpa_bytes() + extent.length_bytes();
      if (device == layout.devices.end() || end > device->second || extent.length_bytes() == 0) {
        return Differs("an extent outside its device", region);
      }
      runs.emplace_back(extent.device(), extent.dpa_bytes(), end, region.name());
      held += extent.length_bytes();
    }
  }
  std::sort(runs.begin(), runs.end());
  for (size_t i = 1; i < runs.size(); ++i) {
    const auto& [device, begin, end, owner] = runs[i];
    const auto& [other_device, other_begin, other_end, other] = runs[i - 1];
    if (device == other_device && begin < other_end) {
      return absl::InternalError(
          absl::StrCat(owner, " and ", other, " both own byte ", begin, " of ", device));
    }
  }
  return held;
}

absl::Status Audit(const Pool& pool, const PoolSeen& seen, const Lanes& lanes) {
  if (absl::Status status = CheckSums(seen, pool.layout()); !status.ok()) return status;
  if (absl::Status status = CheckTenants(seen, lanes); !status.ok()) return status;
  Seen unanswered;
  for (const v1::Region& region : seen.regions.regions()) unanswered[region.tag()] = &region;
  for (const auto& lane : lanes) {
    Ledger& ledger = lane->ledger();
    if (absl::Status status = CheckBatchWhole(ledger, unanswered, lanes); !status.ok())
      return status;
    for (auto at = ledger.regions.begin(); at != ledger.regions.end();) {
      const auto& [tag, known] = *at;
      const Call* pending =
          ledger.pending.has_value() && ledger.pending->About(tag) ? &*ledger.pending : nullptr;
      const auto found = unanswered.find(tag);
      if (found == unanswered.end()) {
        // A release that nobody got an answer to, and all the way.
        const bool may_be_gone = !known.live() || (pending != nullptr && pending->releases());
        if (!may_be_gone) return Differs("it was acknowledged, and is lost", known.region);
        at = known.live() ? std::next(at) : ledger.regions.erase(at);
        continue;
      }
      if (!known.live() && !GoesDown(*found->second)) {
        return Differs("its release was acknowledged", *found->second);
      }
      if (known.live()) {
        if (absl::Status status = CheckLive(known, *found->second, pending); !status.ok()) {
          return status;
        }
      }
      unanswered.erase(found);
      ++at;
    }
  }
  return CheckUntold(unanswered, lanes);
}

absl::Status AuditBytes(const Pool& pool, const PoolSeen& seen, const Lanes& lanes) {
  Seen regions;
  for (const v1::Region& region : seen.regions.regions()) regions[region.tag()] = &region;
  for (const std::string& file : pool.ExtentFiles()) {
    if (regions.count(file.substr(0, file.find('.'))) == 0) {
      return absl::InternalError(absl::StrCat("nobody has the extent file ", file, " any more"));
    }
  }
  for (const auto& lane : lanes) {
    Ledger& ledger = lane->ledger();
    for (auto& [tag, known] : ledger.regions) {
      const auto found = regions.find(tag);
      const bool sure = !ledger.pending.has_value() || !ledger.pending->About(tag);
      if (!known.live() || !sure || found == regions.end() || found->second->resizing()) continue;
      const auto& attachments = found->second->attachments();
      const bool online =
          std::any_of(attachments.begin(), attachments.end(), [](const v1::Attachment& a) {
            return a.state() == v1::Attachment::ONLINE && !a.detaching();
          });
      for (int i = 0; i < known.region.extents_size(); ++i) {
        const std::string path = pool.extents_directory() + "/" + ExtentFile(tag, i);
        absl::Status status;
        if (const auto mark = known.written.find(i); mark != known.written.end()) {
          status = ExpectMark(path, mark->second);
        } else if (online) {
          status = ExpectZero(path);
          const uint64_t made = found->second->generation() * 64 + static_cast<uint64_t>(i) + 1;
          if (status.ok()) status = WriteMark(path, made);
          if (status.ok()) known.written[i] = made;
        }
        if (!status.ok()) return Differs(std::string(status.message()), *found->second);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::crash
