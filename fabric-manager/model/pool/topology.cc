#include "fabric-manager/model/pool/topology.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/pool/topology_ways.h"
#include "fabric-manager/model/space/device_set.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxHosts = 1024;
constexpr size_t kMaxSwitches = 256;
constexpr size_t kMaxLinks = 65536;

enum class Kind { kHost, kSwitch, kDevice };
using Kinds = absl::flat_hash_map<absl::string_view, Kind>;

absl::Status Bad(const std::string& message, const std::string& remedy,
                 std::vector<std::pair<std::string, std::string>> metadata) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_TOPOLOGY",
                absl::StrCat("topology: ", message), remedy, std::move(metadata));
}

// These limits bound the search, which finds and keeps a way for each pair of host and device.
absl::Status CheckLimits(const TopologySpec& spec) {
  const struct {
    const char* what;
    size_t count, limit;
  } rows[] = {{"devices", spec.devices.size(), kMaxDevices},
              {"hosts", spec.hosts.size(), kMaxHosts},
              {"switches", spec.switches.size(), kMaxSwitches},
              {"links", spec.links.size(), kMaxLinks}};
  for (const auto& row : rows) {
    if (row.count <= row.limit) continue;
    return Bad(absl::StrCat(row.count, " ", row.what, "; at most ", row.limit),
               "split the pool in two", {{"limit", absl::StrCat(row.limit)}});
  }
  return absl::OkStatus();
}

absl::Status AddNode(Kinds& kinds, absl::string_view id, Kind kind) {
  if (id.empty()) return Bad("a node has no id", "name every host, switch and device", {});
  if (kinds.try_emplace(id, kind).second) return absl::OkStatus();
  return Bad(absl::StrCat("\"", id, "\" is there twice"),
             "give every host, switch and device an id of its own", {{"node", std::string(id)}});
}

// Ids are unique among nodes of all kinds, for a link names its ends by nothing else. Of several
// nodes that are wrong the first is named.
absl::StatusOr<Kinds> CheckNodes(const TopologySpec& spec) {
  Kinds kinds;
  absl::Status status;
  for (const std::string& host : spec.hosts) status.Update(AddNode(kinds, host, Kind::kHost));
  for (const auto& node : spec.switches) status.Update(AddNode(kinds, node.id, Kind::kSwitch));
  for (const auto& node : spec.devices) status.Update(AddNode(kinds, node.id, Kind::kDevice));
  if (!status.ok()) return status;
  return kinds;
}

// A link joins a host or a device to a switch, two switches, or a host to a device.
absl::Status CheckLink(const TopologySpec::Link& link, const Kinds& kinds) {
  const std::string name = absl::StrCat(link.a, " - ", link.b);
  const auto bad = [&](const std::string& what, const std::string& remedy) {
    return Bad(absl::StrCat("link ", name, " ", what), remedy, {{"link", name}});
  };
  for (const std::string& end : {link.a, link.b}) {
    if (kinds.contains(end)) continue;
    return bad(absl::StrCat("names \"", end, "\", which is no host, switch or device"),
               "fix the name, or add the node");
  }
  const Kind a = kinds.at(link.a);
  const Kind b = kinds.at(link.b);
  if (link.a == link.b) return bad("ends where it begins", "name two nodes");
  if (a == b && a != Kind::kSwitch) {
    return bad(a == Kind::kHost ? "is between two hosts" : "is between two devices",
               "link each of them to a switch, or a host to a device");
  }
  if (!link.slots.empty() && a != Kind::kHost && b != Kind::kHost) {
    return bad("has slots, but no host", "give slots only to links of hosts");
  }
  return absl::OkStatus();
}

// Each link by itself, then whether a device has a head for each of its links.
absl::Status CheckLinks(const TopologySpec& spec, const Kinds& kinds) {
  absl::flat_hash_map<absl::string_view, uint32_t> links;
  for (const TopologySpec::Link& link : spec.links) {
    if (absl::Status status = CheckLink(link, kinds); !status.ok()) return status;
    ++links[link.a];
    ++links[link.b];
  }
  for (const TopologySpec::Device& device : spec.devices) {
    if (device.heads == 0 || links[device.id] <= device.heads) continue;
    return Bad(absl::StrCat("device \"", device.id, "\" has ", links[device.id], " links and ",
                            device.heads, " heads"),
               "take links away, or fix `heads`", {{"node", device.id}});
  }
  return absl::OkStatus();
}

}  // namespace

const Path* Ways::Find(absl::string_view host, absl::string_view device) const {
  const auto h = host_number_.find(host);
  const auto d = device_number_.find(device);
  if (h == host_number_.end() || d == device_number_.end()) return nullptr;
  const uint32_t kind = kind_[h->second * devices_.size() + d->second];
  return kind == kNone ? nullptr : &kinds_[kind];
}

Topology::Topology() {
  static const auto& none = *new std::shared_ptr<const Ways>(std::make_shared<Ways>());
  ways_ = none;
}

// Without links every host reaches every device, at the distance that the device itself has; with
// them only what a way leads to. A device's own failure domain goes before that of a switch.
absl::StatusOr<Topology> Topology::Create(const TopologySpec& spec) {
  if (absl::Status status = CheckLimits(spec); !status.ok()) return status;
  const auto kinds = CheckNodes(spec);
  if (!kinds.ok()) return kinds.status();
  if (absl::Status status = CheckLinks(spec, *kinds); !status.ok()) return status;
  Topology topology;
  topology.linked_ = !spec.links.empty();
  if (topology.linked_) {
    const WaySearch search(spec);
    topology.ways_ = std::make_shared<Ways>(search.FindAll());
    topology.domains_ = search.SwitchDomains();
    topology.names_slots_ = std::any_of(spec.links.begin(), spec.links.end(),
                                        [](const auto& link) { return !link.slots.empty(); });
  }
  for (const TopologySpec::Device& device : spec.devices) {
    if (!topology.linked_) {
      topology.own_[device.id] = {{}, device.latency_ns, device.bandwidth_mib_per_second, {}};
    }
    if (!device.failure_domain.empty()) topology.domains_[device.id] = device.failure_domain;
  }
  return topology;
}

const Path* Topology::Find(absl::string_view host, absl::string_view device) const {
  static const Path& unknown = *new Path();
  if (linked_) return ways_->Find(host, device);
  const auto own = own_.find(device);
  return own == own_.end() ? &unknown : &own->second;
}

std::string Topology::DomainOf(absl::string_view device) const {
  const auto it = domains_.find(device);
  return it == domains_.end() ? std::string(device) : it->second;
}

}  // namespace cxlpool::fm
