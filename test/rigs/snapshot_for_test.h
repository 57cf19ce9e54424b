// A host of one bridge with two slots, as the kernel shows it, for tests to change.
#ifndef CXLPOOL_TEST_RIGS_SNAPSHOT_FOR_TEST_H_
#define CXLPOOL_TEST_RIGS_SNAPSHOT_FOR_TEST_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"

namespace cxlpool::agent {

inline constexpr uint64_t kMiB = 1ull << 20;
inline constexpr uint64_t kWindowHpa = 0x1000000000;

inline DecoderStack EmptyStack(const std::string& port, int decoders) {
  DecoderStack stack;
  stack.port = port;
  for (int id = 0; id < decoders; ++id) stack.decoders.push_back({id, 0, "", false});
  return stack;
}

inline CxlSnapshot OneBridge() {
  CxlSnapshot snapshot;
  snapshot.bridges = {
      {"ACPI0016:00", "pci0000:0c", {EmptyStack("port1", 4), EmptyStack("port2", 4)}}};
  snapshot.windows = {
      {"decoder0.0", kWindowHpa, 8192 * kMiB, 8192 * kMiB, 256, true, {"pci0000:0c"}}};
  snapshot.memdevs = {{"mem0", 0x1001, 512 * kMiB, "0000:0f:00.0", "pci0000:0c", true},
                      {"mem1", 0x1002, 512 * kMiB, "0000:10:00.0", "pci0000:0c", true}};
  return snapshot;
}

// Puts a live region of 256 MiB on decoder `id` of every port of the first bridge.
inline void AddRegion(CxlSnapshot& snapshot, int id, uint64_t serial) {
  const std::string name = absl::StrCat("region", id);
  const uint64_t hpa = kWindowHpa + id * 256 * kMiB;
  for (DecoderStack& stack : snapshot.bridges.front().stacks) {
    stack.decoders[id] = {id, hpa, name, true};
  }
  snapshot.regions.push_back(
      {name, "decoder0.0", hpa, 256 * kMiB, true, true, 256, {{"decoder4.0", serial}}});
}

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_RIGS_SNAPSHOT_FOR_TEST_H_
