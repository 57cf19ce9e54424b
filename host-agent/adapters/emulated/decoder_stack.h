// The HDM decoder stack of one CXL host bridge, emulated as Linux drives it.
//
// Decoders are committed in ascending order of host physical address (HPA) and freed in reverse
// (CXL 3.1, 8.2.4.20). A new host region takes the lowest free HPA of the bridge's window. Free
// one that is not the topmost and the next would land in the hole, below a live decoder: the
// bridge is blocked until everything above the hole is freed too.
//
// Everything follows from the live host regions, so a restart finds the same stack. Pure.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_DECODER_STACK_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_DECODER_STACK_H_

#include <cstdint>
#include <vector>

namespace cxlpool::agent {

// One live host region. Addresses and sizes in bytes.
struct LiveDecoder {
  uint64_t hpa_bytes = 0;
  uint64_t size_bytes = 0;
  uint64_t serial = 0;
};

struct DecoderStack {
  uint32_t live = 0;
  bool blocked = false;
  uint64_t topmost_serial = 0;  // 0: no live decoder.
  uint64_t next_hpa_bytes = 0;  // Where the next one goes, unless blocked.
  uint64_t free_bytes = 0;      // Above the topmost, to the end of the window.
};

// `live` in any order, each within [base, base + window).
DecoderStack StackOf(const std::vector<LiveDecoder>& live, uint64_t base_bytes,
                     uint64_t window_bytes);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_DECODER_STACK_H_
