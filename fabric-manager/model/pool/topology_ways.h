// The search behind Topology: every way, and which switches everything hangs on.
//
// Private to topology.cc. The spec is checked already; any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_WAYS_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_WAYS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabric-manager/model/pool/topology.h"

namespace cxlpool::fm {

class WaySearch {
 public:
  explicit WaySearch(const TopologySpec& spec);

  Ways FindAll() const;

  // Domains that devices have from a switch (Topology::DomainOf).
  std::map<std::string, std::string, std::less<>> SwitchDomains() const;

 private:
  static constexpr uint32_t kWide = UINT32_MAX;  // Bandwidth: not known.

  struct Edge {
    uint32_t to = 0;
    uint32_t latency_ns = 0;
    uint32_t bandwidth = kWide;
    std::vector<uint32_t> slots = {};  // From a host.
  };
  // From a host to a switch or device: what there is to compare. Latency first.
  struct Label {
    uint64_t latency_ns = 0;
    uint32_t bandwidth = kWide;
    std::vector<uint16_t> via = {};  // Switches by number, which is in order of name.
    bool BetterThan(const Label& other) const;
  };
  struct Node {
    std::string id;
    uint32_t latency_ns = 0;
    uint32_t bandwidth = kWide;
    std::string failure_domain;
    std::vector<Edge> switches = {};  // Links to these.
    std::vector<Edge> devices = {};   // Only a host has them: links without a switch.
  };
  // A part of the switches that are linked with each other; by switch. kNowhere: left out.
  using Parts = std::vector<uint32_t>;
  static constexpr uint32_t kNowhere = UINT32_MAX;
  Parts PartsWithout(std::optional<uint32_t> left_out) const;

  // The best labels at each switch: of least latency and fewest switches, and of those all that may
  // still turn out best.
  std::vector<std::vector<Label>> Labels(const Node& host) const;
  static void Keep(std::vector<Label>& labels, Label label);
  std::vector<uint32_t> Distances(uint32_t from) const;  // In switches.
  std::vector<uint32_t> SlotsOf(const Node& host, uint32_t device, const Parts& parts) const;

  std::vector<Node> hosts_, switches_, devices_;  // In order of id each.
  std::vector<bool> direct_;                      // Devices that a host is linked to.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_WAYS_H_
