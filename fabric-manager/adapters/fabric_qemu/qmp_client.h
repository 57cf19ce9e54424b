// One connection to one QEMU's QMP socket.
//
// Strict: a line that is not QMP, a reply that was not asked for or a line without end breaks the
// connection, and a broken connection stays broken: the owner makes another and reads everything
// back. Every wait has a deadline and ends at once when `interrupt_fd` becomes readable.
//
// A QMP socket serves one client; a second one connects but is never greeted. QEMU still carries
// out, and answers to us, what a client before us has sent: so ids begin at a random number, a
// reply by another id breaks the connection, and only when QEMU has answered one command of our own
// is everything done that came before (it greets earlier than that). Negotiate sends that command.
//
// Errors of Execute:
//   NOT_FOUND, FAILED_PRECONDITION  QEMU refused; the message is QEMU's own. Connection stays.
//   DEADLINE_EXCEEDED               no reply in time: unknown outcome. Broken.
//   CANCELLED                       interrupted: unknown outcome. Broken.
//   UNAVAILABLE                     the connection ended or spoke no QMP: unknown outcome. Broken.
// One thread.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QMP_CLIENT_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QMP_CLIENT_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/fabric_qemu/qmp_message.h"
#include "proto/support/loop.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

// Called for events, within Execute and Drain. Must not call the client.
using QmpEventSink = absl::AnyInvocable<void(const QmpMessage&)>;

class QmpClient {
 public:
  // Connects; the process at the other end is known before it has sent anything.
  // RESOURCE_EXHAUSTED: others wait already for the client that is served to end. UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<QmpClient>> Connect(const std::string& path,
                                                            int interrupt_fd, QmpEventSink sink);

  // Takes the greeting. DEADLINE_EXCEEDED: another client may have the socket; the greeting may
  // still come, and the connection is not broken by that.
  absl::Status AwaitGreeting(absl::Duration timeout);

  // Takes the greeting, if there has been none, and leaves capabilities negotiation. First.
  // DEADLINE_EXCEEDED says that another client may have the socket. Again: no effect.
  absl::Status Negotiate(absl::Duration timeout);

  absl::StatusOr<nlohmann::json> Execute(const std::string& command,
                                         const nlohmann::json& arguments, absl::Duration timeout);

  // Takes in what has arrived, without waiting.
  absl::Status Drain();

  int fd() const { return socket_.get(); }
  pid_t peer_pid() const { return peer_pid_; }
  const std::string& version() const { return version_; }

 private:
  QmpClient(UniqueFd socket, pid_t peer_pid, int interrupt_fd, QmpEventSink sink);

  absl::Status Send(const std::string& line, absl::Duration deadline);
  // The next message that is not an event; events go to the sink. Only DEADLINE_EXCEEDED does not
  // break the connection here.
  absl::StatusOr<QmpMessage> Receive(absl::Duration deadline);
  // Waits for `events` on the socket.
  absl::Status WaitFor(short events, absl::Duration deadline);
  // Reads once, without waiting. UNAVAILABLE: ended.
  absl::Status ReadSome();
  // Takes a line off the buffer. False: there is no whole line.
  absl::StatusOr<bool> TakeLine(std::string& line);
  absl::Status Break(absl::Status why);

  UniqueFd socket_;
  const pid_t peer_pid_;
  const int interrupt_fd_;
  QmpEventSink sink_;
  const SystemClock clock_;
  std::string version_;  // Of the greeting; empty: none has come.
  bool negotiated_ = false;
  std::string buffer_;
  size_t searched_ = 0;  // Of buffer_, without a newline.
  uint64_t next_id_;
  absl::Status broken_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QMP_CLIENT_H_
