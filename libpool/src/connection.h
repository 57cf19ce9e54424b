// One connection to the host agent: packets and descriptors, nothing of what they mean.
//
// AF_UNIX SOCK_SEQPACKET as in cxlpool/v1/local.proto. Requests are answered in order, so a
// receiver that gave up waiting still has that reply coming: Session counts those.
//
// Not thread-safe; Session gives it to one caller at a time.
#ifndef CXLPOOL_LIBPOOL_SRC_CONNECTION_H_
#define CXLPOOL_LIBPOOL_SRC_CONNECTION_H_

#include <string>
#include <vector>

#include "libpool/src/deadline.h"
#include "libpool/src/local_codec.h"
#include "libpool/src/status.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::libpool {

inline constexpr size_t kMaxPacketBytes = 64 << 10;
inline constexpr size_t kMaxDescriptors = 64;

struct Reply {
  LocalResponse message;
  std::vector<UniqueFd> descriptors;  // Close on exec.
};

class Connection {
 public:
  // Fails at once where no process listens (AGENT_NOT_RUNNING); a listener that is slow to accept
  // is waited for until `deadline` (AGENT_TIMEOUT). SOCKET_DENIED, BAD_SOCKET: as in error.h.
  static StatusOr<Connection> Connect(const std::string& path, Deadline deadline);

  // With `descriptor`, unless it is negative. AGENT_LOST: the connection is over. AGENT_TIMEOUT:
  // nothing was sent. BAD_ARGUMENT: the message is too large.
  Status Send(const LocalRequest& request, Deadline deadline, int descriptor = -1);

  // AGENT_LOST, BAD_REPLY and DESCRIPTORS_LOST: drop the connection. AGENT_TIMEOUT: the reply is
  // still to come.
  StatusOr<Reply> Receive(Deadline deadline);

  // Ends the connection: a Send or Receive that another thread is in returns AGENT_LOST soon. The
  // one call that any thread may make.
  void Interrupt() const;

  // Leaves the socket open across exec: the agent does not notice. UNEXPECTED.
  Status KeepThroughExec() const;

  // Whether the agent has ended it; whether a packet of its is there to receive. Neither waits.
  bool HungUp() const;
  bool HasReply() const;

 private:
  Connection(UniqueFd socket, std::string path)
      : socket_(std::move(socket)), path_(std::move(path)) {}

  // Waits for `events`. AGENT_TIMEOUT.
  Status Wait(short events, Deadline deadline) const;
  Status Lost(int error) const;

  UniqueFd socket_;
  std::string path_;
};

// Where the agent is: `given`, or the value of CXLPOOL_SOCKET (secure_getenv(3)), or the default.
std::string SocketPath(const char* given);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_CONNECTION_H_
