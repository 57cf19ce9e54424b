#include "host-agent/adapters/linux/machine/machine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"

namespace cxlpool::agent {
namespace {

// The longest run of the window that no region takes.
uint64_t LongestRun(const CxlSnapshot& snapshot, const CxlWindow& window) {
  const uint64_t end = window.hpa_bytes + window.size_bytes;
  std::vector<std::pair<uint64_t, uint64_t>> taken;  // [begin, end)
  for (const CxlHostRegion& region : snapshot.regions) {
    if (region.window != window.name || region.hpa_bytes == 0) continue;
    taken.emplace_back(region.hpa_bytes, region.hpa_bytes + region.size_bytes);
  }
  taken.emplace_back(end, end);
  std::sort(taken.begin(), taken.end());
  uint64_t longest = 0;
  uint64_t free_from = window.hpa_bytes;
  for (const auto& [begin, after] : taken) {
    if (begin > free_from) longest = std::max(longest, begin - free_from);
    free_from = std::max(free_from, after);
  }
  return longest;
}

}  // namespace

void CountFree(CxlSnapshot& snapshot) {
  for (CxlWindow& window : snapshot.windows) {
    window.largest_free_bytes = std::min(window.largest_free_bytes, LongestRun(snapshot, window));
  }
}

CxlSnapshot LookAtCxl(Machine& machine) {
  CxlSnapshot snapshot = ReadCxlSnapshot(machine.files, machine.shapes);
  machine.known.Complete(snapshot);
  CountFree(snapshot);
  return snapshot;
}

}  // namespace cxlpool::agent
