#include "fabric-manager/model/pool/topology_ways.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>

namespace cxlpool::fm {
namespace {

uint32_t Known(uint32_t bandwidth) { return bandwidth == 0 ? UINT32_MAX : bandwidth; }

}  // namespace

bool WaySearch::Label::BetterThan(const Label& other) const {
  const auto key = [](const Label& l) { return std::tuple(l.latency_ns, l.via.size()); };
  if (key(*this) != key(other)) return key(*this) < key(other);
  if (bandwidth != other.bandwidth) return bandwidth > other.bandwidth;
  return via < other.via;
}

// Nodes get dense numbers, each kind in order of id, so that the search is the same whatever order
// the tables are in. Only edges that a way can take are kept: towards a switch, or from a host to a
// device.
WaySearch::WaySearch(const TopologySpec& spec) {
  for (const std::string& id : spec.hosts) hosts_.push_back({.id = id, .failure_domain = {}});
  const auto add = [](std::vector<Node>& nodes, const auto& of) {
    nodes.push_back({of.id, of.latency_ns, Known(of.bandwidth_mib_per_second), of.failure_domain});
  };
  for (const auto& node : spec.switches) add(switches_, node);
  for (const auto& node : spec.devices) add(devices_, node);
  enum Kind { kHost, kSwitch, kDevice };
  std::vector<Node>* const lists[] = {&hosts_, &switches_, &devices_};
  absl::flat_hash_map<std::string, std::pair<Kind, uint32_t>> numbers;
  for (const Kind kind : {kHost, kSwitch, kDevice}) {
    std::vector<Node>& nodes = *lists[kind];
    std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.id < b.id; });
    for (uint32_t i = 0; i < nodes.size(); ++i) numbers[nodes[i].id] = {kind, i};
  }
  direct_.resize(devices_.size());
  for (const TopologySpec::Link& link : spec.links) {
    const auto ends = {std::pair(numbers.at(link.a), numbers.at(link.b)),
                       std::pair(numbers.at(link.b), numbers.at(link.a))};
    for (const auto& [from, to] : ends) {
      Node& node = (*lists[from.first])[from.second];
      Edge edge{to.second, link.latency_ns, Known(link.bandwidth_mib_per_second)};
      if (from.first == kHost) edge.slots = link.slots;
      if (to.first == kSwitch) node.switches.push_back(edge);
      if (to.first == kDevice && from.first == kHost) {
        node.devices.push_back(edge);
        direct_[to.second] = true;
      }
    }
  }
}

void WaySearch::Keep(std::vector<Label>& labels, Label label) {
  for (const Label& other : labels) {
    if (other.bandwidth >= label.bandwidth && other.via <= label.via) return;
  }
  std::erase_if(labels, [&](const Label& other) {
    return label.bandwidth >= other.bandwidth && label.via <= other.via;
  });
  labels.push_back(std::move(label));
}

// Dijkstra's search, in order of latency and then of switches. A way grows longer with every
// switch, so that all labels of a switch are there when its turn comes.
std::vector<std::vector<WaySearch::Label>> WaySearch::Labels(const Node& host) const {
  using Cost = std::pair<uint64_t, size_t>;
  std::vector<std::vector<Label>> labels(switches_.size());
  std::vector<Cost> costs(switches_.size(), {UINT64_MAX, 0});
  std::priority_queue<std::pair<Cost, uint32_t>, std::vector<std::pair<Cost, uint32_t>>,
                      std::greater<>>
      turns;
  const auto reach = [&](const Label& before, const Edge& edge) {
    const Node& node = switches_[edge.to];
    const Cost cost = {before.latency_ns + edge.latency_ns + node.latency_ns,
                       before.via.size() + 1};
    if (cost > costs[edge.to]) return;
    if (cost < costs[edge.to]) {
      costs[edge.to] = cost;
      labels[edge.to].clear();
      turns.push({cost, edge.to});
    }
    Label label{cost.first, std::min({before.bandwidth, edge.bandwidth, node.bandwidth}),
                before.via};
    label.via.push_back(static_cast<uint16_t>(edge.to));
    Keep(labels[edge.to], std::move(label));
  };
  for (const Edge& edge : host.switches) reach({}, edge);
  while (!turns.empty()) {
    const auto [cost, at] = turns.top();
    turns.pop();
    if (cost != costs[at]) continue;  // It was reached by a shorter way meanwhile.
    for (const Edge& edge : switches_[at].switches) {
      for (const Label& label : labels[at]) reach(label, edge);
    }
  }
  return labels;
}

WaySearch::Parts WaySearch::PartsWithout(std::optional<uint32_t> left_out) const {
  Parts parts(switches_.size(), kNowhere);
  for (uint32_t first = 0; first < switches_.size(); ++first) {
    if (parts[first] != kNowhere || left_out == first) continue;
    parts[first] = first;
    std::deque<uint32_t> turns = {first};
    for (; !turns.empty(); turns.pop_front()) {
      for (const Edge& edge : switches_[turns.front()].switches) {
        if (parts[edge.to] != kNowhere || left_out == edge.to) continue;
        parts[edge.to] = first;
        turns.push_back(edge.to);
      }
    }
  }
  return parts;
}

std::vector<uint32_t> WaySearch::SlotsOf(const Node& host, uint32_t device,
                                         const Parts& parts) const {
  std::vector<uint32_t> slots;
  const auto add = [&](const Edge& edge) {
    slots.insert(slots.end(), edge.slots.begin(), edge.slots.end());
    return !edge.slots.empty();
  };
  for (const Edge& edge : host.devices) {
    if (edge.to == device && !add(edge)) return {};
  }
  for (const Edge& edge : host.switches) {
    const bool leads =
        std::any_of(devices_[device].switches.begin(), devices_[device].switches.end(),
                    [&](const Edge& behind) { return parts[behind.to] == parts[edge.to]; });
    if (leads && !add(edge)) return {};
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

// The best way from each host to each device. Ways are kept once for all pairs that have an equal
// one (`kinds_`): a rack has few different ones and many pairs.
Ways WaySearch::FindAll() const {
  Ways ways;
  for (const Node& host : hosts_) {
    ways.host_number_[host.id] = static_cast<uint32_t>(ways.hosts_.size());
    ways.hosts_.push_back(host.id);
  }
  for (const Node& device : devices_) {
    ways.device_number_[device.id] = static_cast<uint32_t>(ways.devices_.size());
    ways.devices_.push_back(device.id);
  }
  const Parts parts = PartsWithout(std::nullopt);
  absl::flat_hash_map<Path, uint32_t> numbers;
  for (const Node& host : hosts_) {
    const std::vector<std::vector<Label>> labels = Labels(host);
    std::vector<std::optional<Label>> best(devices_.size());
    const auto offer = [&](uint32_t device, const Label& before, const Edge& edge) {
      const Node& node = devices_[device];
      Label label{before.latency_ns + edge.latency_ns + node.latency_ns,
                  std::min({before.bandwidth, edge.bandwidth, node.bandwidth}), before.via};
      if (!best[device] || label.BetterThan(*best[device])) best[device] = std::move(label);
    };
    for (const Edge& edge : host.devices) offer(edge.to, {}, edge);
    for (uint32_t device = 0; device < devices_.size(); ++device) {
      for (const Edge& edge : devices_[device].switches) {
        for (const Label& label : labels[edge.to]) offer(device, label, edge);
      }
      if (!best[device].has_value()) {
        ways.kind_.push_back(Ways::kNone);
        continue;
      }
      Path path;
      for (const uint16_t number : best[device]->via) path.via.push_back(switches_[number].id);
      path.latency_ns =
          static_cast<uint32_t>(std::min<uint64_t>(best[device]->latency_ns, UINT32_MAX));
      if (best[device]->bandwidth != kWide) path.bandwidth_mib_per_second = best[device]->bandwidth;
      path.slots = SlotsOf(host, device, parts);
      const auto [it, fresh] = numbers.try_emplace(path, static_cast<uint32_t>(ways.kinds_.size()));
      if (fresh) ways.kinds_.push_back(std::move(path));
      ways.kind_.push_back(it->second);
    }
  }
  return ways;
}

std::vector<uint32_t> WaySearch::Distances(uint32_t from) const {
  std::vector<uint32_t> distances(switches_.size(), kNowhere);
  distances[from] = 0;
  std::deque<uint32_t> turns = {from};
  for (; !turns.empty(); turns.pop_front()) {
    for (const Edge& edge : switches_[turns.front()].switches) {
      if (distances[edge.to] != kNowhere) continue;
      distances[edge.to] = distances[turns.front()] + 1;
      turns.push_back(edge.to);
    }
  }
  return distances;
}

// The failure domain of each device that no host reaches without some switch: that of the nearest
// such switch. Each switch is taken out in turn, and what is cut off from all hosts then depends on
// it. A device that no host reaches even with all of them depends on none.
std::map<std::string, std::string, std::less<>> WaySearch::SwitchDomains() const {
  // Whether a host is linked to each part, by the part's number.
  const auto hosted = [&](const Parts& parts) {
    std::vector<bool> with(switches_.size());
    for (const Node& host : hosts_) {
      for (const Edge& edge : host.switches) {
        if (parts[edge.to] != kNowhere) with[parts[edge.to]] = true;
      }
    }
    return with;
  };
  const auto reached = [&](const Node& device, const Parts& parts, const std::vector<bool>& with) {
    return std::any_of(device.switches.begin(), device.switches.end(), [&](const Edge& edge) {
      return parts[edge.to] != kNowhere && with[parts[edge.to]];
    });
  };
  const Parts whole = PartsWithout(std::nullopt);
  const std::vector<bool> whole_hosted = hosted(whole);
  std::vector<uint32_t> nearest(devices_.size(), kNowhere);
  std::map<std::string, std::string, std::less<>> domains;
  for (uint32_t out = 0; out < switches_.size(); ++out) {
    if (switches_[out].failure_domain.empty()) continue;
    const Parts parts = PartsWithout(out);
    const std::vector<bool> with = hosted(parts);
    const std::vector<uint32_t> distances = Distances(out);
    for (uint32_t d = 0; d < devices_.size(); ++d) {
      const Node& device = devices_[d];
      if (!device.failure_domain.empty() || direct_[d] || reached(device, parts, with)) continue;
      if (!reached(device, whole, whole_hosted)) continue;
      for (const Edge& edge : device.switches) {
        if (distances[edge.to] >= nearest[d]) continue;
        nearest[d] = distances[edge.to];
        domains[device.id] = switches_[out].failure_domain;
      }
    }
  }
  return domains;
}

}  // namespace cxlpool::fm
