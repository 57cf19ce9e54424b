// Row 8: a sparse pod. 25 hosts with 8 ports each, 50 devices with 4 heads each and no switch; any
// two hosts share exactly one device. How large its devices have to be for a trace, beside a pool
// that every host reaches whole.
//
// A VM is packed on the fullest host of 40 cores where it fits, 25 hosts to a pod. Half its memory
// is in the pool, in slices of 1 GiB that never move. Pure functions.
#ifndef CXLPOOL_TOOLS_BENCHES_POD_H_
#define CXLPOOL_TOOLS_BENCHES_POD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/benches/placement_trace.h"

namespace cxlpool::bench {

inline constexpr size_t kPodHosts = 25;
inline constexpr size_t kPodDevices = 50;
inline constexpr size_t kHostPorts = 8;
inline constexpr size_t kDeviceHeads = 4;
inline constexpr uint32_t kHostCores = 40;

// The hosts of each device: the blocks of a 2-(25,4,1) design, all translates over Z5 x Z5 of two
// base blocks whose differences are every element but 0 once.
std::array<std::array<uint8_t, kDeviceHeads>, kPodDevices> PodDesign();

struct PodEvent {
  uint32_t machine = 0;
  uint8_t host = 0;
  uint16_t slices = 0;
  bool arrives = false;
};

struct PodTrace {
  std::vector<PodEvent> events;
  uint32_t peak_slices = 0;  // Of all hosts together. Over 50 devices, the least that could do.
};

// By pod. Machines with more cores than a host has are left out.
std::vector<PodTrace> PackPods(const std::vector<Machine>& machines);

enum class PodPolicy {
  kWhole,     // All of a VM on the device that has the most room.
  kLeast,     // Each slice where there is the most room.
  kBalanced,  // fm::BalancedSpread.
};

// Whether every VM gets its slices from devices of that many.
bool Fits(const PodTrace& trace, PodPolicy policy, uint32_t device_slices);

// Slices that each device needs: with as many, and with a few more, it fits.
uint32_t DeviceNeed(const PodTrace& trace, PodPolicy policy);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_POD_H_
