#include "host-agent/adapters/emulated/decoder_stack.h"

namespace cxlpool::agent {

DecoderStack StackOf(const std::vector<LiveDecoder>& live, uint64_t base_bytes,
                     uint64_t window_bytes) {
  DecoderStack stack;
  stack.live = static_cast<uint32_t>(live.size());
  stack.next_hpa_bytes = base_bytes;
  uint64_t used_bytes = 0;
  for (const LiveDecoder& decoder : live) {
    used_bytes += decoder.size_bytes;
    const uint64_t end = decoder.hpa_bytes + decoder.size_bytes;
    if (end <= stack.next_hpa_bytes) continue;
    stack.next_hpa_bytes = end;
    stack.topmost_serial = decoder.serial;
  }
  // Live ones fill [base, next) exactly, unless one below the top was freed.
  stack.blocked = used_bytes != stack.next_hpa_bytes - base_bytes;
  const uint64_t window_end = base_bytes + window_bytes;
  stack.free_bytes = window_end > stack.next_hpa_bytes ? window_end - stack.next_hpa_bytes : 0;
  return stack;
}

}  // namespace cxlpool::agent
