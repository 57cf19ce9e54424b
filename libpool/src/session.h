// The conversation with the host agent: lets callers speak side by side, reconnects, and keeps what
// this process has open known to whichever agent answers.
//
// The rules:
// - There are kLanes lanes, each with a connection of its own once it is needed. One caller at a
// time
//   has the turn on a lane, and with it the lane's connection; waiting for a lane counts against
//   the caller's deadline. A program that makes one call at a time uses one connection. mutex_ is
//   never held across I/O.
// - What was opened counts as used by the connection that opened it. A lost connection ends, for
// the
//   agent, everything that was open on it. The caller that takes the next turn sees which
//   connections of idle lanes are lost, and opens again each hold that is open on none: the same
//   Region though it was renamed, and no more of it though it has grown.
// - A caller that gave up leaves its reply behind on its lane; `owed` counts those, and they are
// read
//   and thrown away before the next request there. The connection stays, so that a slow agent does
//   not see this process's Regions closed.
// - The agent is given the page of counters (usage.h) on each connection that opens something,
// before
//   that. One that does not know what it is refuses it, and all goes on without.
// - A hold that ends while another caller has the turn on its lane leaves its name in the lane's
//   pending_closes; turns end by sending them to the agent. So closing waits for no other caller.
//
// Thread-safe. Shared by the client and every hold, so Regions may outlive their client.
#ifndef CXLPOOL_LIBPOOL_SRC_SESSION_H_
#define CXLPOOL_LIBPOOL_SRC_SESSION_H_

#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cxlpool/cxlpool.h"
#include "libpool/src/connection.h"
#include "libpool/src/deadline.h"
#include "libpool/src/opened_region.h"
#include "libpool/src/status.h"
#include "libpool/src/usage.h"
#include "proto/support/mutex.h"

namespace cxlpool::libpool {

// Which body an answer has to have.
enum class Body { kOpen, kRelease, kList, kClose, kFaults };

class Session : public std::enable_shared_from_this<Session> {
 public:
  static constexpr size_t kLanes = CXLPOOL_MAX_CALLS;

  // `timeout` is for this and for each later call. Errors as cxlpool_connect.
  static StatusOr<std::shared_ptr<Session>> Connect(std::string socket_path, Duration timeout);

  // One logical call: `request` has its body; wait_ms is filled in here so that all tries together
  // wait for `wait`. An OK reply has the `expected` body.
  StatusOr<LocalResponse> Call(LocalRequest request, Duration wait, Body expected);

  // The same for open and allocate.
  StatusOr<std::shared_ptr<const OpenedRegion>> Open(LocalRequest request, Duration wait);

  // For Hold only. EndHold never fails: what cannot be sent now is sent later, or is made clear by
  // the end of the connection.
  Status CheckHold(uint64_t id) const;
  void EndHold(uint64_t id);
  // Leaves the hold's connection open across exec. FAILED_PRECONDITION/CLIENT_BUSY: another call
  // uses it; AGENT_LOST: it is open on none.
  Status KeepHold(uint64_t id);

 private:
  // `connection`, `owed` and `has_usage` are of the caller whose turn it is; mutex_ guards the
  // others, and these while no one has the turn.
  struct Lane {
    std::optional<Connection> connection;
    int owed = 0;
    bool busy = false;
    uint64_t epoch = 0;      // Counts connections.
    bool has_usage = false;  // The agent was given usage_ over this one.
    // When its turn ends: a close on it could not be noted for want of memory.
    bool to_be_dropped = false;
    std::vector<std::string> pending_closes = {};
  };

  struct HeldRegion {
    std::string name;
    std::string tag;
    uint64_t generation = 0;
    uint64_t size_bytes = 0;
    int32_t access = CXLPOOL_READ_WRITE;
    bool as_file = false;
    Lane* lane = nullptr;    // Where it was opened last,
    uint64_t epoch = 0;      // on this connection.
    Status status = {};      // Why it is not open on any.
    bool reopening = false;  // A caller is at it.
    bool stale = false;      // The name means another Region now: never opened again.
  };

  class Turn;

  // What one call has to keep to.
  struct Limits {
    Deadline deadline;
    Deadline wait_until;
    Deadline give_up;  // On what passes by itself, such as a manager that is away.
  };

  Session(std::string socket_path, Duration timeout)
      : socket_path_(std::move(socket_path)), timeout_(timeout), process_(::getpid()) {}

  // A forked child shares the connections with its parent: what it sent would be taken for the
  // parent's, and locks may be held by threads that it does not have.
  bool Forked() const { return ::getpid() != process_; }

  StatusOr<Lane*> TakeTurn(Deadline deadline);
  void EndTurn(Lane& lane, Deadline deadline);

  // All below: the caller has the turn on `lane`.
  StatusOr<Reply> Converse(Lane& lane, LocalRequest& request, Limits limits, Body expected);
  Status EnsureConnected(Lane& lane, Deadline deadline);
  Status ReopenHolds(Lane& lane, Deadline deadline);
  Status ReopenHold(Lane& lane, uint64_t id, const HeldRegion& held, Deadline deadline);
  // One request and its reply, refusals included, on the connection there is. An error is one of
  // the conversation itself; drops the connection where it cannot go on.
  StatusOr<Reply> Exchange(Lane& lane, const LocalRequest& request, Deadline deadline,
                           Body expected);
  StatusOr<Reply> ExchangeOnce(Lane& lane, const LocalRequest& request, Deadline deadline,
                               int descriptor = -1);
  // An error is one of the conversation.
  StatusOr<Reply> GiveUsage(Lane& lane, Deadline deadline);
  Status DrainOwed(Lane& lane, Deadline deadline);
  void SendClose(Lane& lane, const std::string& name, Deadline deadline);
  void Drop(Lane& lane);

  // The page of counters, made when it is first asked for. Null: there is none.
  std::shared_ptr<UsageCounters> Usage();

  Lane* IdleLane() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops the connections of idle lanes that are lost.
  void DropLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropLocked(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsHeld(const Lane& lane, const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool IsOpen(const HeldRegion& held) { return held.epoch == held.lane->epoch; }

  // Constant.
  const std::string socket_path_;
  const Duration timeout_;
  const pid_t process_;  // That made it.

  mutable Mutex mutex_;
  std::condition_variable turn_ended_;
  std::array<Lane, kLanes> lanes_;  // See Lane.
  bool usage_made_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<UsageCounters> usage_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_hold_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, HeldRegion> holds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_SESSION_H_
