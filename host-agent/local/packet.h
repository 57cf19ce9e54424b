// One packet of the local protocol on a SOCK_SEQPACKET socket: a message of at most 64 KiB, and
// with a response the descriptors it speaks of (SCM_RIGHTS).
//
// Any thread. Nothing here blocks: sockets are non-blocking.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_PACKET_H_
#define CXLPOOL_HOST_AGENT_LOCAL_PACKET_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

inline constexpr size_t kMaxPacketBytes = 64 << 10;

// What came along with a packet.
struct GivenDescriptors {
  UniqueFd first;           // Close on exec.
  bool had_others = false;  // That are lost.
};

// The next packet. Of the descriptors that come with it the first goes to `given`, also where the
// packet is refused; the kernel drops the others, and all where it is null.
// UNAVAILABLE: none yet. OUT_OF_RANGE: the peer has hung up. RESOURCE_EXHAUSTED: larger than
// 64 KiB; the rest of it is lost. UNKNOWN: the socket failed.
absl::StatusOr<std::string> ReceivePacket(int socket, GivenDescriptors* given);

// Sends all or nothing. UNAVAILABLE: the peer's buffer is full; send it again when the socket is
// writable. UNKNOWN: the peer is gone.
absl::Status SendPacket(int socket, absl::string_view bytes,
                        const std::vector<UniqueFd>& descriptors);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_PACKET_H_
