#include "tools/benches/pod.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <unordered_map>
#include <utility>

#include "fabric-manager/model/space/balanced_spread.h"
#include "fabric-manager/model/space/bytes.h"
#include "fabric-manager/model/space/free_space.h"

namespace cxlpool::bench {
namespace {

using fm::kGiB;

constexpr uint8_t kBase[2][kDeviceHeads][2] = {{{0, 0}, {0, 1}, {1, 0}, {2, 2}},
                                               {{0, 0}, {0, 2}, {1, 3}, {3, 2}}};

// DeviceNeed wants so many sizes in a row to fit: one alone may be luck.
constexpr uint32_t kInARow = 8;
// And gives up that far above the even share.
constexpr uint32_t kMostAbove = 1000;

// The pod while the trace is played.
class Pod {
 public:
  Pod(PodPolicy policy, uint32_t device_slices) : policy_(policy) {
    for (size_t device = 0; device < kPodDevices; ++device) {
      if (!space_.AddDevice(device_slices * kGiB, kGiB).ok()) std::abort();
    }
    const auto design = PodDesign();
    for (size_t device = 0; device < kPodDevices; ++device) {
      for (const uint8_t host : design[device]) {
        hosts_[host].reach.Add(static_cast<fm::DeviceIndex>(device));
      }
    }
    for (Host& host : hosts_) host.own_bytes.resize(kPodDevices);
  }

  bool Arrive(const PodEvent& event) {
    Host& host = hosts_[event.host];
    const std::vector<fm::DeviceIndex> devices = Choose(event);
    if (devices.size() != event.slices) return false;
    std::vector<fm::FreeSpace::Run>& runs = live_[event.machine];
    for (const fm::DeviceIndex device : devices) {
      const auto run = space_.BestFitOn(device, kGiB);
      if (!run.has_value() || !space_.Take(device, run->dpa_bytes, run->length_bytes).ok())
        std::abort();
      runs.push_back(*run);
      host.own_bytes[device] += kGiB;
    }
    host.bytes += event.slices * kGiB;
    host.most_bytes = std::max(host.most_bytes, host.bytes);
    return true;
  }

  void Leave(const PodEvent& event) {
    Host& host = hosts_[event.host];
    const auto found = live_.find(event.machine);
    for (const fm::FreeSpace::Run& run : found->second) {
      if (!space_.Give(run.device, run.dpa_bytes, run.length_bytes).ok()) std::abort();
      host.own_bytes[run.device] -= kGiB;
    }
    host.bytes -= event.slices * kGiB;
    live_.erase(found);
  }

 private:
  struct Host {
    fm::DeviceSet reach;
    std::vector<uint64_t> own_bytes;  // By device.
    uint64_t bytes = 0;
    uint64_t most_bytes = 0;
  };

  std::vector<fm::DeviceIndex> Choose(const PodEvent& event) const {
    if (policy_ != PodPolicy::kBalanced) return MostRoom(event);
    fm::SpreadRequest request{.among = hosts_[event.host].reach,
                              .slice_bytes = kGiB,
                              .slices = event.slices,
                              .own_bytes = hosts_[event.host].own_bytes,
                              .peers = {}};
    for (size_t i = 0; i < kPodHosts; ++i) {
      if (i != event.host) request.peers.push_back({hosts_[i].reach, hosts_[i].most_bytes});
    }
    return fm::BalancedSpread(space_, request);
  }

  std::vector<fm::DeviceIndex> MostRoom(const PodEvent& event) const {
    std::vector<std::pair<uint64_t, fm::DeviceIndex>> room;
    hosts_[event.host].reach.ForEach([&](fm::DeviceIndex device) {
      room.emplace_back(space_.free_bytes(device) / kGiB, device);
    });
    const auto less = [](const auto& a, const auto& b) { return a.first < b.first; };
    const uint32_t step = policy_ == PodPolicy::kWhole ? event.slices : 1;
    std::vector<fm::DeviceIndex> devices;
    while (devices.size() < event.slices) {
      const auto most = std::max_element(room.begin(), room.end(), less);
      if (most->first < step) return {};
      most->first -= step;
      devices.insert(devices.end(), step, most->second);
    }
    return devices;
  }

  const PodPolicy policy_;
  fm::FreeSpace space_;
  std::array<Host, kPodHosts> hosts_;
  std::unordered_map<uint32_t, std::vector<fm::FreeSpace::Run>> live_;
};

}  // namespace

std::array<std::array<uint8_t, kDeviceHeads>, kPodDevices> PodDesign() {
  std::array<std::array<uint8_t, kDeviceHeads>, kPodDevices> design;
  for (size_t device = 0; device < kPodDevices; ++device) {
    const size_t moved = device % kPodHosts;
    for (size_t head = 0; head < kDeviceHeads; ++head) {
      const auto& [x, y] = kBase[device / kPodHosts][head];
      design[device][head] = static_cast<uint8_t>((x + moved / 5) % 5 * 5 + (y + moved % 5) % 5);
    }
  }
  return design;
}

std::vector<PodTrace> PackPods(const std::vector<Machine>& machines) {
  std::vector<uint32_t> cores;                    // Free, by host.
  std::set<std::pair<uint32_t, uint32_t>> hosts;  // Free cores, host.
  std::vector<uint32_t> host_of(machines.size());
  std::vector<PodTrace> pods;
  std::vector<uint32_t> used;  // Slices, by pod.
  for (const TraceEvent& event : EventsOf(machines)) {
    const Machine& machine = machines[event.machine];
    if (machine.vcpus > kHostCores) continue;
    uint32_t& host = host_of[event.machine];
    if (event.arrives) {
      const auto fit = hosts.lower_bound({machine.vcpus, 0});
      if (fit == hosts.end()) {
        host = static_cast<uint32_t>(cores.size());
        cores.push_back(kHostCores);
      } else {
        host = fit->second;
        hosts.erase(fit);
      }
      cores[host] -= machine.vcpus;
    } else {
      hosts.erase({cores[host], host});
      cores[host] += machine.vcpus;
    }
    hosts.emplace(cores[host], host);
    const size_t pod = host / kPodHosts;
    if (pod == pods.size()) {
      pods.emplace_back();
      used.push_back(0);
    }
    const uint16_t slices =
        static_cast<uint16_t>(std::min(std::ceil(machine.memory_gib / 2), 60'000.0));
    pods[pod].events.push_back(
        {event.machine, static_cast<uint8_t>(host % kPodHosts), slices, event.arrives});
    used[pod] += event.arrives ? slices : 0u - slices;
    pods[pod].peak_slices = std::max(pods[pod].peak_slices, used[pod]);
  }
  return pods;
}

bool Fits(const PodTrace& trace, PodPolicy policy, uint32_t device_slices) {
  Pod pod(policy, device_slices);
  for (const PodEvent& event : trace.events) {
    if (!event.arrives) {
      pod.Leave(event);
    } else if (!pod.Arrive(event)) {
      return false;
    }
  }
  return true;
}

uint32_t DeviceNeed(const PodTrace& trace, PodPolicy policy) {
  const uint32_t even = static_cast<uint32_t>((trace.peak_slices + kPodDevices - 1) / kPodDevices);
  uint32_t need = even;
  for (uint32_t size = even; size < need + kInARow && size < even + kMostAbove; ++size) {
    if (!Fits(trace, policy, size)) need = size + 1;
  }
  return need;
}

}  // namespace cxlpool::bench
