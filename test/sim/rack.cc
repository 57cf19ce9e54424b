// The fabric's hand on the rack, and who reaches what.
#include "test/sim/rack.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

absl::Status Unreachable(const std::string& host) {
  return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                absl::StrCat("the fabric cannot be asked about host ", host), "try again later");
}

// For breaches and the trace.
std::string Granules(const fm::Slice& slice) {
  return absl::StrCat(slice.device, " granules [", slice.dpa_bytes / kGranule, ", ",
                      (slice.dpa_bytes + slice.length_bytes) / kGranule, ")");
}

std::string Describe(const fm::BoundLd& ld) {
  return absl::StrCat("LD of tag ", ld.key->tag, " generation ", ld.key->generation, " extent ",
                      ld.key->extent_index, " serial ", ld.serial, " on ", ld.host, " slot ",
                      ld.slot, ", ", Granules(ld.slice));
}

bool SameArguments(const fm::BoundLd& ld, const fm::BindRequest& request) {
  return ld.slot == request.slot && ld.serial == request.serial &&
         ld.read_only == request.read_only && ld.slice == request.slice;
}

}  // namespace

std::string RackHost::incarnation() const { return absl::StrCat(id, "-boot-", boots); }

const RackBridge* RackHost::BridgeOf(uint32_t slot) const {
  for (const RackBridge& bridge : bridges) {
    if (std::find(bridge.slots.begin(), bridge.slots.end(), slot) != bridge.slots.end()) {
      return &bridge;
    }
  }
  return nullptr;
}

uint32_t Rack::HashOf(const std::string& tag) {
  uint32_t hash = 2166136261u;  // FNV-1a.
  for (const char c : tag) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash == 0 ? 1 : hash;
}

RackHost* Rack::FindHost(const std::string& id) {
  const auto it = hosts.find(id);
  return it == hosts.end() ? nullptr : &it->second;
}

RackDevice* Rack::FindDevice(const std::string& id) {
  for (RackDevice& device : devices) {
    if (device.id == id) return &device;
  }
  return nullptr;
}

uint32_t Rack::Subscribe(OnGone on_gone) {
  on_gone_.emplace_back(++subscriptions_, std::move(on_gone));
  return subscriptions_;
}

void Rack::Unsubscribe(uint32_t subscription) {
  std::erase_if(on_gone_, [=](const auto& entry) { return entry.first == subscription; });
}

void Rack::Breach(const std::string& what) { violation_(what); }

// --- Bind.

absl::Status Rack::CheckBind(const fm::BindRequest& request) const {
  const auto host = hosts.find(request.key.host);
  if (host == hosts.end()) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                  absl::StrCat("the rack has no host ", request.key.host), "use one that it has");
  }
  const auto device = std::find_if(devices.begin(), devices.end(), [&](const RackDevice& d) {
    return d.id == request.slice.device;
  });
  if (device == devices.end()) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
                  absl::StrCat("the rack has no device ", request.slice.device),
                  "use one that it has");
  }
  const uint64_t capacity = device->content.size() * kGranule;
  const fm::Slice& slice = request.slice;
  if (slice.length_bytes == 0 || slice.dpa_bytes % kGranule != 0 ||
      slice.length_bytes % kGranule != 0 || slice.dpa_bytes > capacity ||
      slice.length_bytes > capacity - slice.dpa_bytes) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SLICE",
                  absl::StrCat("no whole granules of device ", device->id, ": ", slice.length_bytes,
                               " bytes at ", slice.dpa_bytes),
                  "use whole granules within the device");
  }
  if (host->second.BridgeOf(request.slot) == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_SLOT",
                  absl::StrCat("host ", request.key.host, " has no slot ", request.slot),
                  "use one that it has");
  }
  if (request.serial == 0) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SERIAL", "the serial is 0",
                  "count serials from 1");
  }
  if (!host->second.powered || !CanAsk(host->second)) return Unreachable(request.key.host);
  return absl::OkStatus();
}

absl::StatusOr<fm::BoundLd> Rack::Bind(const fm::BindRequest& request) {
  if (absl::Status status = CheckBind(request); !status.ok()) return status;
  RackHost& host = hosts.at(request.key.host);
  if (request.incarnation != host.life()) {
    return Refuse(
        absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
        absl::StrCat("host ", host.id, " lives in ", host.life(), ", not in ", request.incarnation),
        "look at the fabric again");
  }
  for (const auto& [slot, plugged] : host.slots) {
    if (plugged.ld.key != request.key) continue;
    if (SameArguments(plugged.ld, request)) return plugged.ld;
    return Refuse(absl::StatusCode::kAlreadyExists, "LD_CONFLICT",
                  absl::StrCat("bound with other arguments: ", Describe(plugged.ld)),
                  "unbind it first");
  }
  if (const auto there = host.slots.find(request.slot); there != host.slots.end()) {
    return Refuse(absl::StatusCode::kResourceExhausted, "NO_FREE_PORT",
                  absl::StrCat("the slot holds the ", Describe(there->second.ld)),
                  "choose a free slot");
  }
  PluggedLd plugged;
  plugged.ld = {request.key.host, request.slot,        request.slice, request.read_only,
                request.serial,   /*unbinding=*/false, request.key};
  plugged.device = static_cast<size_t>(FindDevice(request.slice.device) - devices.data());
  plugged.first = request.slice.dpa_bytes / kGranule;
  plugged.end = plugged.first + request.slice.length_bytes / kGranule;
  plugged.bridge = static_cast<uint32_t>(host.BridgeOf(request.slot) - host.bridges.data());
  plugged.hash = HashOf(request.key.tag);
  if (shared) {
    plugged.powered = true;
    plugged.memdev = "grant" + std::to_string(host.names++);
  }
  JudgeBind(host, request, plugged);
  host.serials_seen.insert(request.serial);
  if (trace) trace(absl::StrCat("rack: bind ", Describe(plugged.ld)));
  fm::BoundLd bound = plugged.ld;
  host.slots.emplace(request.slot, std::move(plugged));
  return bound;
}

void Rack::JudgeBind(const RackHost& host, const fm::BindRequest& request,
                     const PluggedLd& plugged) {
  const auto breach = [&](auto... why) {
    Breach(absl::StrCat("bind of ", Describe(plugged.ld), ": ", why...));
  };
  if (judge_.intends &&
      !judge_.intends(request.key, request.slice, request.key.host, request.slot, request.serial)) {
    breach("no durable record wants it");
  }
  if (host.serials_seen.contains(request.serial)) {
    breach("the serial was used before in fabric incarnation ", host.fabric_boots);
  }
  if (const PluggedLd* other =
          Reaches(plugged.device, plugged.first, plugged.end, request.key.tag)) {
    breach("its bytes are bound as ", Describe(other->ld));
  }
  const std::vector<uint32_t>& poison = devices[plugged.device].poison;
  for (uint64_t g = plugged.first; !poison.empty() && g < plugged.end; ++g) {
    if (poison[g] == 0 || poison[g] == plugged.hash) continue;
    breach("granule ", g, " has lost bytes, and they were somebody else's (tag hash ", poison[g],
           ")");
    return;
  }
  const std::vector<uint32_t>& content = devices[plugged.device].content;
  for (uint64_t g = plugged.first; g < plugged.end; ++g) {
    if (content[g] == 0 || content[g] == plugged.hash) continue;
    breach("granule ", g, " holds bytes of somebody else (tag hash ", content[g], ")");
    return;
  }
}

const PluggedLd* Rack::Reaches(size_t device, uint64_t first, uint64_t end,
                               const std::string& except_tag) const {
  for (const auto& [id, host] : hosts) {
    for (const auto& [slot, plugged] : host.slots) {
      if (plugged.device == device && plugged.first < end && first < plugged.end &&
          plugged.ld.key->tag != except_tag) {
        return &plugged;
      }
    }
  }
  return nullptr;
}

// --- Unbind, fence, scrub.

absl::Status Rack::BeginUnbind(const fm::LdKey& key) {
  RackHost* host = FindHost(key.host);
  if (host == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                  absl::StrCat("the rack has no host ", key.host), "use one that it has");
  }
  if (!CanAsk(*host)) return Unreachable(key.host);
  for (auto& [slot, plugged] : host->slots) {
    if (plugged.ld.key != key) continue;
    if (trace && !plugged.ld.unbinding) {
      trace(absl::StrCat("rack: begin unbind of ", Describe(plugged.ld)));
    }
    plugged.ld.unbinding = true;
  }
  return absl::OkStatus();
}

Rack::AgentSession Rack::SessionOf(const RackHost& host) const {
  return session_of && host.powered ? session_of(host) : AgentSession();
}

bool Rack::CanAsk(const RackHost& host) const {
  if (host.does_late_task) return host.powered;
  if (!host.reachable) return false;
  if (!shared) return true;
  if (!host.powered) return false;
  if (!session_of) return true;
  const AgentSession session = SessionOf(host);
  return session.agent != kWorld && !session.stands &&
         std::none_of(host.late_tasks.begin(), host.late_tasks.end(),
                      [this](LifeId agent) { return scheduler_->Alive(agent); });
}

bool Rack::IsBound(const fm::LdKey& key) const {
  const auto host = hosts.find(key.host);
  if (host == hosts.end()) return false;
  return std::any_of(host->second.slots.begin(), host->second.slots.end(),
                     [&](const auto& entry) { return entry.second.ld.key == key; });
}

bool Rack::MayBeBound(const fm::LdKey& key) const {
  const auto host = hosts.find(key.host);
  return (host != hosts.end() && !CanAsk(host->second)) || IsBound(key);
}

void Rack::Fence(const std::string& host) {
  if (RackHost* found = FindHost(host)) PowerLost(*found);
}

void Rack::Scrub(const fm::Slice& slice, uint64_t first, uint64_t count) {
  RackDevice* device = FindDevice(slice.device);
  if (device == nullptr) return;
  const uint64_t begin = slice.dpa_bytes / kGranule;
  const uint64_t end =
      std::min<uint64_t>(begin + slice.length_bytes / kGranule, device->content.size());
  if (const PluggedLd* other =
          Reaches(static_cast<size_t>(device - devices.data()), begin, end, "")) {
    Breach(absl::StrCat("scrub of ", Granules(slice), ": they can be reached by the ",
                        Describe(other->ld)));
  }
  if (judge_.leaving && !judge_.leaving(slice)) {
    Breach(
        absl::StrCat("scrub of ", Granules(slice), ": they are not on their way out of a Region"));
  }
  for (uint64_t g = begin + first; g < std::min(begin + first + count, end); ++g) {
    device->content[g] = 0;
    if (!device->poison.empty()) device->poison[g] = 0;
  }
  if (trace) {
    trace(absl::StrCat("rack: scrub ", count, " granules from ", first, " of ", Granules(slice)));
  }
}

fm::FabricView Rack::Look() const {
  fm::FabricView view;
  view.devices.reserve(devices.size());
  for (const RackDevice& device : devices) {
    view.devices.push_back({device.id, device.id, device.content.size() * kGranule, kGranule});
  }
  view.hosts.reserve(hosts.size());
  for (const auto& [id, host] : hosts) {
    fm::FabricHost& seen = view.hosts.emplace_back();
    seen.id = id;
    seen.reachable = CanAsk(host) && host.powered;
    seen.fabric_incarnation = host.life();
    for (const RackBridge& bridge : host.bridges) {
      seen.slots.insert(seen.slots.end(), bridge.slots.begin(), bridge.slots.end());
    }
    if (!seen.reachable) continue;
    for (const auto& [slot, plugged] : host.slots) view.bound.push_back(plugged.ld);
  }
  return view;
}

// --- What leaves.

void Rack::LeaveSlot(RackHost& host, uint32_t slot, Gone gone) {
  const auto it = host.slots.find(slot);
  const fm::BoundLd ld = std::move(it->second.ld);
  host.slots.erase(it);
  if (trace) trace(absl::StrCat("rack: gone is the ", Describe(ld)));
  for (size_t i = 0; i < on_gone_.size(); ++i) on_gone_[i].second(ld, gone);
}

// A grant is not lost by itself.
void Rack::Remove(RackHost& host, uint32_t slot) {
  if (!shared && host.slots.contains(slot)) LeaveSlot(host, slot, Gone::kRemoved);
}

void Rack::ForgetKernel(RackHost& host) {
  host.regions.clear();
  host.held.clear();
  host.prepared = false;
  host.names = 0;
  for (auto& [slot, plugged] : host.slots) plugged.powered = false;
}

void Rack::Reset(RackHost& host) {
  if (!host.powered) return;
  ++host.boots;
  ForgetKernel(host);
  if (shared) {
    host.serials_seen.clear();
    while (!host.slots.empty()) LeaveSlot(host, host.slots.begin()->first, Gone::kDark);
  }
  if (trace) trace(absl::StrCat("rack: reset of ", host.id, ", now ", host.incarnation()));
}

void Rack::PowerLost(RackHost& host) {
  if (!host.powered) return;
  host.powered = false;
  ++host.fabric_boots;
  if (shared) ++host.boots;
  host.serials_seen.clear();
  ForgetKernel(host);
  if (trace) trace(absl::StrCat("rack: ", host.id, " goes dark"));
  while (!host.slots.empty()) LeaveSlot(host, host.slots.begin()->first, Gone::kDark);
  if (on_dark) on_dark(host.id);
}

void Rack::PowerBack(RackHost& host) {
  if (host.powered) return;
  host.powered = true;
  ++host.boots;
  if (trace) trace(absl::StrCat("rack: ", host.id, " is back as ", host.incarnation()));
}

}  // namespace cxlpool::sim
