// One packet of the local protocol on a SOCK_SEQPACKET socket: a message of at most 64 KiB, and
// with it the descriptors that belong to it (SCM_RIGHTS); and how to close descriptors that a peer
// has given.
//
// Any thread, unless said otherwise. Nothing here blocks: sockets are non-blocking.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_PACKET_H_
#define CXLPOOL_HOST_AGENT_LOCAL_PACKET_H_

#include <time.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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

// Lets no peer keep a thread in the kernel. What comes along with a packet and is not received the
// kernel closes itself, in the thread that receives the packet, or that closes the socket in which
// it lies unread; and there a socket lingers as long as its owner has said (SO_LINGER). While a
// Guard lives, a signal (SIGURG) ends such a wait after kPatience, and the next one again.
//
// For the thread that makes it, which calls nothing else meanwhile that a signal interrupts.
class WaitBreaker {
 public:
  static constexpr absl::Duration kPatience = absl::Milliseconds(5);

  WaitBreaker();
  ~WaitBreaker();
  WaitBreaker(const WaitBreaker&) = delete;
  WaitBreaker& operator=(const WaitBreaker&) = delete;

  class Guard {
   public:
    explicit Guard(const WaitBreaker& breaker) : breaker_(breaker) { breaker_.Signal(kPatience); }
    ~Guard() { breaker_.Signal(absl::ZeroDuration()); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    const WaitBreaker& breaker_;
  };

 private:
  // From now on, again and again; ZeroDuration: no more.
  void Signal(absl::Duration every) const;

  timer_t timer_ = {};
  bool is_made_ = false;
};

// Closes descriptors that a peer has given. They may be of any kind.
//
// Closing one may wait for the peer: a file of a file system that it serves (FUSE) is flushed, and
// a socket may linger. So each is closed by a thread of its own, which may stay there for ever.
// While kMaxUnderWay closes are under way, no more descriptors should be received: the kernel
// closes what is not received (WaitBreaker). Not thread-safe; owned by the I/O thread.
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
