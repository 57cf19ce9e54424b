// The conversation with the host agent: takes callers in turn, reconnects, and keeps what this
// process has open known to whichever agent answers.
//
// The rules:
// - One caller at a time has the turn, and with it connection_; waiting for the turn counts
//   against the caller's deadline. mutex_ is never held across I/O.
// - A lost connection ends, for the agent, everything that was open on it. The caller whose turn it
// is
//   next connects anew and opens again each hold that is not open on this connection (epoch_): the
//   same Region though it was renamed, and no more of it though it has grown.
// - A caller that gave up leaves its reply behind on the connection; owed_ counts those, and they
//   are read and thrown away before the next request. The connection stays, so that a slow agent
//   does not see this process's Regions closed.
// - A hold that ends while another caller has the turn leaves its name in pending_closes_; turns
//   end by telling the agent. So a destructor waits for no other caller.
//
// Thread-safe. Shared by the Client and every hold, so Regions may outlive their Client.
#ifndef CXLPOOL_LIBPOOL_SRC_SESSION_H_
#define CXLPOOL_LIBPOOL_SRC_SESSION_H_

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libpool/src/connection.h"
#include "libpool/src/deadline.h"
#include "libpool/src/opened_region.h"
#include "proto/support/mutex.h"

namespace cxlpool::libpool {

class Session : public std::enable_shared_from_this<Session> {
 public:
  // `timeout` is for this and for each later call. Errors as Client::Connect.
  static absl::StatusOr<std::shared_ptr<Session>> Connect(std::string socket_path,
                                                          absl::Duration timeout);

  // One logical call: `request` has its body; the rest is filled in here, wait_ms so that all
  // tries together wait for `wait`. An OK reply has the `expected` body.
  absl::StatusOr<v1::LocalResponse> Call(v1::LocalRequest request, absl::Duration wait,
                                         v1::LocalResponse::BodyCase expected);

  // The same for open and allocate.
  absl::StatusOr<std::shared_ptr<const OpenedRegion>> Open(v1::LocalRequest request,
                                                           absl::Duration wait);

  // For Hold alone. EndHold never fails: what cannot be said now is said later, or is said by
  // the end of the connection.
  absl::Status CheckHold(uint64_t id) const;
  void EndHold(uint64_t id);

 private:
  struct HeldRegion {
    std::string name;
    std::string tag;
    uint64_t generation = 0;
    uint64_t size_bytes = 0;
    Access access = Access::kReadWrite;
    uint64_t epoch = 0;   // The connection that it is open on.
    absl::Status status;  // Why it is not open on this one.
    bool stale = false;   // The name means another Region now: never opened again.
  };

  // What one call has to keep to.
  struct Limits {
    Deadline deadline;
    Deadline wait_until;
    Deadline give_up;  // On what passes by itself, such as a manager that is away.
  };

  Session(std::string socket_path, absl::Duration timeout)
      : socket_path_(std::move(socket_path)), timeout_(timeout), process_(::getpid()) {}

  // A forked child shares the connection with its parent: what it sent would be taken for the
  // parent's, and locks may be held by threads that it does not have.
  bool Forked() const { return ::getpid() != process_; }

  absl::Status TakeTurn(Deadline deadline);
  void EndTurn(Deadline deadline);

  // All below: the caller has the turn.
  absl::StatusOr<Reply> Converse(v1::LocalRequest& request, Limits limits,
                                 v1::LocalResponse::BodyCase expected);
  absl::Status EnsureConnected(Deadline deadline);
  absl::Status ReopenHolds(Deadline deadline);
  absl::Status ReopenHold(uint64_t id, HeldRegion held, Deadline deadline);
  // One request and its reply, refusals included, on the connection there is. An error is one of
  // the conversation itself; drops the connection where it cannot go on.
  absl::StatusOr<Reply> Exchange(const v1::LocalRequest& request, Deadline deadline,
                                 v1::LocalResponse::BodyCase expected);
  absl::StatusOr<Reply> ExchangeOnce(const v1::LocalRequest& request, Deadline deadline);
  absl::Status DrainOwed(Deadline deadline);
  void SendClose(const std::string& name, Deadline deadline);
  void Drop();

  bool IsHeld(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant.
  const std::string socket_path_;
  const absl::Duration timeout_;
  const pid_t process_;  // That made it.

  // Of the caller whose turn it is.
  std::optional<Connection> connection_;
  int owed_ = 0;

  mutable Mutex mutex_;
  std::condition_variable turn_ended_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // Counts connections.
  uint64_t next_hold_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, HeldRegion> holds_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> pending_closes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_SESSION_H_
