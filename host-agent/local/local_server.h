// The AF_UNIX server for applications on this host: local.proto over SOCK_SEQPACKET.
//
// One I/O thread of its own moves packets; every request runs on the core's Executor. A
// connection has one request under way; what it sends meanwhile waits in its socket buffer. The end
// of a connection closes what it had open. One that the core has had a request of keeps its place
// until the core has seen its end. So what waits for the core is bounded, also where peers connect,
// ask and hang up over and over: for each place at most one packet each way, one descriptor, and
// one end. A descriptor that comes is kept where it is the page of counters of a
// LocalUsageRequest; any other is dropped, without waiting for that. A packet that is
// no LocalRequest gets an INVALID_ARGUMENT reply and ends the connection; a larger one than 64 KiB
// ends it at once.
//
// A peer that may not use the agent takes no place: it is refused as it connects. Root and the
// agent's own user have places of their own, kPlacesForRoot besides max_connections. A connection
// that has asked for nothing for idle_timeout and has nothing open is ended; libpool makes a new
// one when it has something to ask. Where all places are taken, the one that has been idle for
// longest makes room.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_LOCAL_SERVER_H_
#define CXLPOOL_HOST_AGENT_LOCAL_LOCAL_SERVER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "host-agent/local/packet.h"
#include "host-agent/service/local_service.h"
#include "proto/support/executor.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

struct LocalServerOptions {
  std::string path;              // Of the socket, at most 107 bytes. Its directory exists.
  size_t max_connections = 256;  // Without those of root and of the agent's own user.
  size_t max_connections_per_uid = 64;
  absl::Duration idle_timeout = absl::Minutes(1);
  absl::Duration send_timeout = absl::Seconds(10);  // For a peer that does not read its answer.
};

// Raises the limit of open files (up to the hard limit) so that `wanted` connections fit, and
// answers how many do: at most `wanted`. Warns where it is fewer.
size_t FitConnections(size_t wanted);

class LocalServer {
 public:
  static constexpr size_t kPlacesForRoot = 16;

  // `service` is used on `executor` only; both outlive Stop.
  LocalServer(LocalServerOptions options, LocalService* service, Executor* executor);
  ~LocalServer();

  // Binds the socket, mode 0666, and starts the thread. A socket that no process answers on is
  // replaced. FAILED_PRECONDITION: SOCKET_BUSY (another agent serves it), SOCKET_PATH.
  absl::Status Start();

  // Ends every connection, removes the socket and joins the thread. Again: no effect.
  void Stop();

 private:
  struct Connection {
    LocalPeer peer;
    UniqueFd socket;
    bool busy = false;     // The core has a request of it.
    bool served = false;   // The core has had a request of it.
    bool closing = false;  // Ends once `unsent` is out.
    std::string unsent;
    std::vector<UniqueFd> unsent_descriptors;
    absl::Duration send_deadline = absl::InfiniteDuration();
    bool privileged = false;
    bool holds = false;       // Has something open.
    absl::Duration asked_at;  // On the clock's Elapsed: when it connected, or was answered last.
    bool idle() const { return !busy && !holds && unsent.empty(); }
  };
  // Of a connection that has ended.
  struct Place {
    uint32_t uid = 0;
    bool privileged = false;
  };
  // Identify the listener, the mailbox and connections towards epoll.
  static constexpr uint64_t kListener = 0;
  static constexpr uint64_t kMailbox = 1;
  static constexpr uint64_t kFirstConnection = 2;
  struct Answer {
    uint64_t connection = 0;
    LocalReply reply;
  };

  absl::Status Bind();
  void Run();
  void Accept();
  // False: it is not served.
  bool Take(UniqueFd& socket);
  // Closes it, with what its peer has sent and nobody has read.
  void HangUp(UniqueFd socket);
  void OnReadable(Connection& connection);
  void Reply(Connection& connection, LocalReply reply);
  void Flush(Connection& connection);
  void TakeAnswers();
  void Watch(const Connection& connection);
  void End(uint64_t id);
  void EndOverdue();
  int WaitMs() const;
  absl::Status FindPlace(const Connection& newcomer);
  bool EndIdlest();

  const LocalServerOptions options_;
  LocalService* const service_;
  Executor* const executor_;
  SystemClock clock_;

  UniqueFd listener_;
  UniqueFd epoll_;
  std::optional<WaitBreaker> breaker_;  // The I/O thread's, as long as it runs.
  DescriptorBin bin_;
  UniqueFd spare_;  // Given up for a moment when the process is out of descriptors.
  std::map<uint64_t, Connection> connections_;  // The I/O thread's.
  // Its as well: have ended, and the core has yet to see that.
  std::map<uint64_t, Place> ending_;
  uint64_t last_connection_ = kFirstConnection;

  // Shared with answers that are on their way from the core.
  struct Mailbox {
    Mutex mutex;
    std::deque<Answer> answers ABSL_GUARDED_BY(mutex);
    std::vector<uint64_t> ended ABSL_GUARDED_BY(mutex);  // The core has seen these end.
    bool stopping ABSL_GUARDED_BY(mutex) = false;
    UniqueFd wake;  // eventfd.
  };
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::thread thread_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_LOCAL_SERVER_H_
