// Which host reaches which device, by which way, how far it is and how wide: hosts, switches and
// devices as nodes, links between them, as operators gave them. Figures are like a CDAT's
// (Coherent Device Attribute Table; CXL 3.1, 8.1.11): the operator's, not measured.
//
//   one big switch   host-a ── sw0 ── cmm-0     every host and device linked to it
//   sparse pod       host-a ── cmm-3            multi-headed devices, a head a host, no switch
//
// Without any link every host reaches every device and nothing is known of the way.
//
// Immutable once made; any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cxlpool::fm {

// What operators say. 0 of a figure: not known.
struct TopologySpec {
  struct Switch {
    std::string id;
    uint32_t latency_ns = 0;  // Through it.
    uint32_t bandwidth_mib_per_second = 0;
    std::string failure_domain =
        {};  // For everything that is reached only through it: see DomainOf.
    friend bool operator==(const Switch&, const Switch&) = default;
  };
  struct Device {
    std::string id;
    uint32_t latency_ns = 0;  // Of a load, at its port.
    uint32_t bandwidth_mib_per_second = 0;
    uint32_t heads = 0;               // Links it may have; 0: not limited.
    std::string failure_domain = {};  // What fails together with it; empty: its own.
  };
  struct Link {
    std::string a, b;  // Ids of a host, switch or device each.
    uint32_t latency_ns = 0;
    uint32_t bandwidth_mib_per_second = 0;
    // Where a host is an end: its PCIe slots behind this link. Empty: any.
    std::vector<uint32_t> slots = {};
    friend bool operator==(const Link&, const Link&) = default;
  };
  std::vector<std::string> hosts;
  std::vector<Switch> switches;
  std::vector<Device> devices;
  std::vector<Link> links;
};

// The best way from a host to a device: least latency, then fewest switches, then the widest (what
// is not known is no limit), then the lowest names. Sums latency over device, switches and links;
// takes the narrowest bandwidth.
struct Path {
  std::vector<std::string> via;           // Switches, in order from the host.
  uint32_t latency_ns = 0;                // 0: no part of it is known.
  uint32_t bandwidth_mib_per_second = 0;  // 0: no part of it is known.
  // Where it may enter the host, over all links that lead there, ascending; empty: any.
  std::vector<uint32_t> slots;
  friend bool operator==(const Path&, const Path&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Path& p) {
    return H::combine(std::move(h), p.via, p.latency_ns, p.bandwidth_mib_per_second, p.slots);
  }
};

// Every way between hosts and devices, in order of both. Equal ones are kept once: a rack has very
// many ways and few kinds of them.
class Ways {
 public:
  struct Way {
    std::pair<const std::string&, const std::string&> ends;  // Host and device.
    const Path& path;
  };
  class Iterator {
   public:
    Iterator(const Ways* ways, size_t at) : ways_(ways), at_(at) { Skip(); }
    Way operator*() const {
      const size_t devices = ways_->devices_.size();
      return {{ways_->hosts_[at_ / devices], ways_->devices_[at_ % devices]},
              ways_->kinds_[ways_->kind_[at_]]};
    }
    Iterator& operator++() {
      ++at_;
      Skip();
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    void Skip() {
      while (at_ < ways_->kind_.size() && ways_->kind_[at_] == kNone) ++at_;
    }
    const Ways* ways_;
    size_t at_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, kind_.size()}; }

  const Path* Find(absl::string_view host, absl::string_view device) const;

 private:
  friend class WaySearch;
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<std::string> hosts_;    // In order.
  std::vector<std::string> devices_;  // In order.
  absl::flat_hash_map<std::string, uint32_t> host_number_;
  absl::flat_hash_map<std::string, uint32_t> device_number_;
  std::vector<Path> kinds_;
  std::vector<uint32_t> kind_;  // By host, then device.
};

class Topology {
 public:
  Topology();  // No links: everybody reaches everything.

  // INVALID_ARGUMENT/BAD_TOPOLOGY names the link or node: unknown or double ids, a link between two
  // hosts or two devices or from a node to itself, slots where no host is an end, more links than
  // heads, beyond limits (4096 devices, 1024 hosts, 256 switches, 65536 links).
  static absl::StatusOr<Topology> Create(const TopologySpec& spec);

  bool connects_all() const { return !linked_; }
  // Whether any link says which slots lie behind it.
  bool names_slots() const { return names_slots_; }

  // Null: there is no way (never null where connects_all(): then it says how far the device itself
  // is).
  const Path* Find(absl::string_view host, absl::string_view device) const;

  // Every way there is. None where connects_all().
  const Ways& paths() const { return *ways_; }

  // The failure domain of a device: as configured; without one, that of the nearest switch without
  // which no host reaches it, if that has one; else its own id.
  std::string DomainOf(absl::string_view device) const;

 private:
  bool linked_ = false;
  bool names_slots_ = false;
  std::shared_ptr<const Ways> ways_;              // Never null. A copy of a Topology shares it.
  std::map<std::string, Path, std::less<>> own_;  // Where all are connected: a device by itself.
  std::map<std::string, std::string, std::less<>> domains_;  // Where it is not its own id.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_H_
