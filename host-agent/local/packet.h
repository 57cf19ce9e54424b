// One packet of the local protocol on a SOCK_SEQPACKET socket: a message of at most 64 KiB, and
// with it the descriptors that belong to it (SCM_RIGHTS); and how to close descriptors that a peer
// has given.
//
// Any thread, unless said otherwise. Nothing here blocks: sockets are non-blocking.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_PACKET_H_
#define CXLPOOL_HOST_AGENT_LOCAL_PACKET_H_

#include <atomic>
#include <memory>
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

// Closes descriptors that a peer has given. They may be of any kind.
//
// Closing one may wait for the peer: a file of a file system that it serves (FUSE) is flushed, and
// a socket may linger. So each is closed by a thread of its own, which may stay there for ever.
// While kMaxUnderWay closes are under way, no more descriptors should be received: the kernel
// drops what is not received. Not thread-safe; owned by the I/O thread.
class DescriptorBin {
 public:
  static constexpr int kMaxUnderWay = 4;

  bool HasRoom() const { return *under_way_ < kMaxUnderWay; }

  // Not valid: no effect. Does not wait.
  void Drop(UniqueFd descriptor);

 private:
  const std::shared_ptr<std::atomic<int>> under_way_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_PACKET_H_
