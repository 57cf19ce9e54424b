// Accepts connections, and decides which of them gRPC gets.
//
// The packaged gRPC (1.51) has a listener that never accepts again once descriptors have run out,
// takes any number of connections, and keeps 27 KiB for each that says nothing. So connections are
// accepted here, and a descriptor is handed to gRPC when there is a reason to:
//
//   waiting      has sent nothing yet: costs a descriptor and 200 bytes here, nothing in gRPC
//   handshaking  has sent a TLS ClientHello (without TLS: the first bytes of HTTP/2), and is
//                gRPC's; no call on it was let in yet
//   established  a call on it was let in (Calls, by Prove)
//
// Each phase has a limit, and the first two a deadline. Where waiting or handshaking ones are too
// many, the oldest of the address that has most of them goes: a peer that means it is through
// within milliseconds, so a flood throws out itself. Where established ones are too many, in all or
// of one address, new connections are closed at once. Everything recovers by itself, since nothing
// here waits for a slow peer.
//
// gRPC 1.51 keeps some KiB for good of each call that ends before its request is there. So those
// are counted, and where an address has too many of them, the connections of who made them end, and
// that address gets no new ones for a while. Where strangers can call, that is by tokens, they are
// counted apart: they share their address with agents (of IPv6 it is a whole network), and must not
// keep these from a socket at which nobody calls without a certificate.
//
// gRPC does not say when it has closed a connection. It shows: the descriptor is no longer that
// socket. Records of connections that ended are found so, in the time of a system call each.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_LISTENER_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_LISTENER_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabric-manager/rpc/refused_peers.h"
#include "proto/support/executor.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

struct ConnectionLimits {
  size_t waiting = 1024;
  size_t handshaking = 256;
  size_t established = 16384;
  size_t of_one_address = 8192;                   // Established.
  size_t of_one_host = 16;                        // Likewise, with one host's certificate.
  size_t of_one_operator = 1024;                  // Likewise, with one operator's.
  absl::Duration first_bytes = absl::Seconds(5);  // From the accept.
  absl::Duration first_call = absl::Seconds(10);  // Likewise.
  // Empty calls of one address: so many at once, and then one a second.
  size_t empty_calls = 1000;
  // Whoever made more: the first time so long, each time twice as long, up to the longest.
  absl::Duration first_ban = absl::Seconds(10);
  absl::Duration longest_ban = absl::Minutes(10);

  // For a process that may have so many descriptors: an eighth of them (at most 2048) is left to
  // the store, the fabric, backups and logs.
  static ConnectionLimits For(uint64_t descriptors);
};

// Raises this process's limit of descriptors as far as it may without privilege; what it is now.
uint64_t RaiseDescriptorLimit();

class Listener {
 public:
  // Gives a descriptor, which is connected and does not block, to gRPC.
  using HandOver = std::function<void(int fd)>;

  Listener(const ConnectionLimits& limits, RefusedPeers* refused);
  ~Listener() { Stop(); }

  // Binds; before Start. `tls`: connections begin with a ClientHello. The port, 0 for a Unix
  // socket. INVALID_ARGUMENT/BAD_ADDRESS; UNAVAILABLE/CANNOT_LISTEN names the address and why.
  // `tokens`: a certificate is asked for, and not needed.
  absl::StatusOr<int> Listen(const std::string& address, bool tls, HandOver hand_over,
                             bool tokens = false);

  // Begins to accept.
  void Start();

  // Closes what listens and what waits; connections that gRPC has are left to it. Again: no effect.
  void Stop();

  // A call on the connection from `peer` (grpc::ServerContext::peer) was let in: of `identity`, a
  // host's or an operator's; empty: there is no TLS. Any thread.
  // RESOURCE_EXHAUSTED/TOO_MANY_CONNECTIONS: the identity has as many others as it may have.
  absl::Status Prove(const std::string& peer, const std::string& identity, bool is_host);

  // A call on the connection from `peer` was empty: its peer took it back before its request, or a
  // refusal, was there. Any thread.
  void NoteEmptyCall(const std::string& peer, bool has_certificate);

  // Runs `task` on the listener's thread: that it does shows that it still accepts.
  void Ping(Task task);

  struct Counts {
    size_t waiting, handshaking, established;
  };
  Counts counts() const;

 private:
  enum class Phase { kWaiting, kHandshaking, kEstablished };

  // Where a peer is: 16 bytes of address, IPv4 mapped, and two of port.
  using PeerKey = std::array<uint8_t, 18>;
  struct KeyHash {
    size_t operator()(const PeerKey& key) const;
  };
  static bool KeyOf(absl::string_view peer, PeerKey& key);

  struct Socket {
    UniqueFd fd;
    bool tls;
    HandOver hand_over;
    std::string path;  // Of a Unix socket.
    bool needs_certificate;
  };
  struct Connection;
  using Connections = std::list<std::unique_ptr<Connection>>;
  // What one address has.
  struct Peer {
    std::array<Connections, 3> by_phase;  // The oldest first.
    bool empty() const;
  };
  // Empty calls of one address, at sockets of one kind.
  struct Empty {
    double left;             // Below 0: it is banned.
    absl::Duration counted;  // When that was so.
    absl::Duration next_ban;
  };
  struct Connection {
    int fd;
    ino_t inode;
    Phase phase;
    absl::Duration since;
    size_t socket;        // That accepted it.
    std::string address;  // Without the port; of IPv6 the network.
    bool has_key;         // Not so: a Unix socket's.
    bool needs_certificate;
    PeerKey key;
    std::string identity;  // Established ones': by which it is counted; may be empty.
    Connections::iterator place;
  };

  void Run();
  void Accept(size_t socket);
  void AcceptWithoutDescriptors(const Socket& socket);
  void Add(size_t socket, UniqueFd fd);
  void LookAtFirstBytes(int fd);
  void Tick(absl::Duration now);

  // Whether the descriptor is still the connection that it was handed over as.
  static bool IsStill(const Connection& connection, int fd);
  // Takes it out of all indices; the descriptor is left alone.
  void Forget(Connection* connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends it, no matter who has the descriptor, and forgets it.
  void HangUp(Connection* connection, absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MoveTo(Connection* connection, Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hangs up on the oldest in `phase` of the address that has most of them.
  void MakeRoom(Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets those in `phase` that gRPC has closed.
  void Sweep(Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // By which a connection's empty calls are counted.
  using EmptyKey = std::pair<std::string, bool>;
  static EmptyKey EmptyKeyOf(const Connection& connection);
  // Counts one. True: it was one too many.
  bool CountEmpty(const Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether such a connection may not be had now.
  bool IsBanned(const Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SweepEstablished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HangUpOlderThan(Phase phase, absl::Duration limit, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t& Count(Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return counts_[static_cast<size_t>(phase)];
  }

  const ConnectionLimits limits_;
  RefusedPeers* const refused_;
  const SystemClock clock_;
  std::vector<Socket> sockets_;
  UniqueFd epoll_;
  UniqueFd wake_;   // Readable: there are tasks, or it is to stop.
  UniqueFd spare_;  // Given up for a moment where descriptors have run out.
  std::thread thread_;

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration swept_ ABSL_GUARDED_BY(mutex_);  // When SweepEstablished did.
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Peer, std::less<>> peers_ ABSL_GUARDED_BY(mutex_);  // By address.
  absl::flat_hash_map<int, Connection*> by_fd_ ABSL_GUARDED_BY(mutex_);
  // Two connections of one peer's port may come through different sockets.
  std::unordered_multimap<PeerKey, Connection*, KeyHash> by_key_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<EmptyKey, Empty> empty_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, size_t> of_identity_ ABSL_GUARDED_BY(mutex_);  // Established.
  std::array<size_t, 3> counts_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_LISTENER_H_
