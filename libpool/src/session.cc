#include "libpool/src/session.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "libpool/src/numa.h"
#include "libpool/src/reply.h"
#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr int kFirstBackoffMs = 10;
constexpr int kLastBackoffMs = 500;
constexpr Duration kLongestClose = std::chrono::seconds(5);
// A caller leaves one reply behind per time-out; an agent that owes this many is not coming back.
constexpr int kMaxOwed = 64;
constexpr int kMaxWaitMs = 600'000;

// Only for errors of connect, send and receive: an agent may send a refusal with any reason.
bool IsLost(const Status& status) {
  return status.reason() == "AGENT_LOST" || status.reason() == "AGENT_NOT_RUNNING";
}

// What the agent refuses now and will not in a while, without anybody doing something about it. Not
// NOT_ONLINE_YET: the agent has waited for that as long as it was asked to.
bool Passes(const Status& answer) {
  if (IsLost(answer)) return false;  // No agent that we know answers that.
  return (answer.code() == Code::kUnavailable && answer.reason() != "NOT_ONLINE_YET") ||
         answer.reason() == "QUEUE_FULL";
}

Status NotOurs() {
  return Refuse(Code::kFailedPrecondition, "FORKED",
                "this client is another process's: this process was forked from it",
                "connect again in the child");
}

// What is left of the wait. In an allocation 0 is for the agent to choose: it would wait for a
// minute, which may be longer than this call lasts, and nobody would hear that the Region is there.
void SetWait(LocalRequest& request, Deadline wait_until) {
  const auto wait_ms = static_cast<uint32_t>(RemainingMs(wait_until, kMaxWaitMs));
  const uint32_t least_ms = CXLPOOL_MUTANT("no-wait-is-a-minute") ? 0 : 1;
  if (request.open.has_value()) request.open->wait_ms = wait_ms;
  if (request.allocate.has_value()) request.allocate->wait_ms = std::max(wait_ms, least_ms);
}

bool Has(const LocalResponse& response, Body body) {
  switch (body) {
    case Body::kOpen:
      return response.open.has_value();
    case Body::kRelease:
      return response.release.has_value();
    case Body::kList:
      return response.list.has_value();
    case Body::kClose:
      return response.close.has_value();
    case Body::kFaults:
      return response.faults.has_value();
  }
  return false;
}

// Whether this is no answer to the page of counters: an agent that hangs up on a user first sends
// why, whatever was asked. BAD_REQUEST comes from an agent that does not know such pages.
bool IsHangUp(const LocalResponse& answer) {
  if (answer.code == 0 || CXLPOOL_MUTANT("hang-up-taken-for-an-answer")) return false;
  const std::string reason(StatusOf(answer).reason());
  return reason != "BAD_REQUEST" && reason != "BAD_USAGE_PAGE" && reason != "TOO_MANY_USAGE_PAGES";
}

}  // namespace

// A turn on a lane that was taken: ends it in whatever way the call ends. A call that an exception
// ends (no memory) may have left half of a conversation behind: then the connection goes, and with
// it all that the agent was asked for on it.
class Session::Turn {
 public:
  Turn(Session& session, Lane& lane, Deadline deadline)
      : session_(session), lane_(lane), deadline_(deadline) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (std::uncaught_exceptions() > exceptions_) session_.Drop(lane_);
    session_.EndTurn(lane_, deadline_);
  }

 private:
  Session& session_;
  Lane& lane_;
  const Deadline deadline_;
  const int exceptions_ = std::uncaught_exceptions();
};

StatusOr<std::shared_ptr<Session>> Session::Connect(std::string socket_path, Duration timeout) {
  std::shared_ptr<Session> session(new Session(std::move(socket_path), timeout));
  StatusOr<Connection> connection = Connection::Connect(session->socket_path_, After(timeout));
  if (!connection.ok()) return connection.status();
  session->lanes_.front().connection = *std::move(connection);
  return session;
}

StatusOr<LocalResponse> Session::Call(LocalRequest request, Duration wait, Body expected) {
  const Limits limits = {After(timeout_ + wait), After(wait), After(timeout_)};
  const StatusOr<Lane*> lane = TakeTurn(limits.deadline);
  if (!lane.ok()) return lane.status();
  const Turn turn(*this, **lane, limits.deadline);
  StatusOr<Reply> reply = Converse(**lane, request, limits, expected);
  if (!reply.ok()) return reply.status();
  return std::move(reply->message);
}

// An OK reply that cannot be understood ends the connection: with it ends the use that the agent
// has counted, and that nobody here knows how to close.
StatusOr<std::shared_ptr<const OpenedRegion>> Session::Open(LocalRequest request, Duration wait) {
  const Limits limits = {After(timeout_ + wait), After(wait), After(timeout_)};
  const StatusOr<Lane*> taken = TakeTurn(limits.deadline);
  if (!taken.ok()) return taken.status();
  Lane& lane = **taken;
  const Turn turn(*this, lane, limits.deadline);
  StatusOr<Reply> reply = Converse(lane, request, limits, Body::kOpen);
  StatusOr<OpenReply> opened =
      reply.ok() ? ParseOpen(*reply->message.open, reply->descriptors.size(), PageBytes())
                 : reply.status();
  if (!opened.ok()) {
    if (reply.ok()) Drop(lane);
    return opened.status();
  }
  uint64_t id = 0;
  {
    // Before the turn ends: a close of the same name that is pending must not undo this open.
    MutexLock lock(mutex_);
    id = next_hold_++;
    holds_[id] = {.name = opened->name,
                  .tag = opened->tag,
                  .generation = opened->generation,
                  .size_bytes = opened->size_bytes,
                  .access = opened->access,
                  .as_file = opened->has_paths() && !CXLPOOL_MUTANT("reopened-without-path"),
                  .lane = &lane,
                  .epoch = lane.epoch};
  }
  try {
    return std::shared_ptr<const OpenedRegion>(std::make_shared<const OpenedRegion>(
        shared_from_this(), id, *std::move(opened), std::move(reply->descriptors), Usage()));
  } catch (...) {  // No memory: nobody has the hold, and the turn drops the connection.
    MutexLock lock(mutex_);
    holds_.erase(id);
    throw;
  }
}

Status Session::CheckHold(uint64_t id) const {
  if (Forked() && !CXLPOOL_MUTANT("child-asks-of-its-parents-hold")) return NotOurs();
  MutexLock lock(mutex_);
  const auto held = holds_.find(id);
  return held == holds_.end() ? Status() : held->second.status;
}

Status Session::KeepHold(uint64_t id) {
  if (Forked()) return NotOurs();
  MutexLock lock(mutex_);
  const auto held = holds_.find(id);
  if (held == holds_.end() || !IsOpen(held->second)) {
    return Refuse(Code::kUnavailable, "AGENT_LOST", "the connection that had it open is lost",
                  "open it again");
  }
  Lane& lane = *held->second.lane;
  if (lane.busy) {
    return Refuse(Code::kDeadlineExceeded, "CLIENT_BUSY",
                  "another call of this client uses the connection that has it open",
                  "make this call when the others are done");
  }
  return lane.connection->KeepThroughExec();
}

// Called by a destructor: nothing is thrown. A close that there is no memory to note is made by the
// end of the connection, as soon as nobody has the turn on it.
void Session::EndHold(uint64_t id) {
  if (Forked()) return;  // It is the parent's.
  const Deadline deadline = After(std::min(timeout_, kLongestClose));
  Lane* lane = nullptr;
  {
    MutexLock lock(mutex_);
    const auto held = holds_.find(id);
    if (held == holds_.end()) return;
    // The end of a connection closed everything on it. Who opens this one again sees that it ended.
    const bool open = IsOpen(held->second);
    lane = held->second.lane;
    try {
      if (open) lane->pending_closes.push_back(std::move(held->second.name));
    } catch (const std::bad_alloc&) {
      lane->to_be_dropped = !CXLPOOL_MUTANT("close-without-memory-forgotten");
    }
    holds_.erase(held);
    if (!open || lane->busy) return;  // The caller whose turn it is sends it.
    lane->busy = true;
  }
  EndTurn(*lane, deadline);
}

bool Session::IsHeld(const Lane& lane, const std::string& name) const {
  return std::any_of(holds_.begin(), holds_.end(), [&](const auto& held) {
    const HeldRegion& region = held.second;
    return region.name == name && region.lane == &lane && IsOpen(region) && !region.stale;
  });
}

// One with a late answer first, so that what it opened for a caller that had gone is closed; one
// that owes an answer which is not there yet only where there is no other.
Session::Lane* Session::IdleLane() {
  Lane* free = nullptr;
  Lane* owing = nullptr;
  for (Lane& lane : lanes_) {
    if (lane.busy) continue;
    if (lane.owed > 0 && lane.connection->HasReply()) return &lane;
    Lane*& kind = lane.owed == 0 ? free : owing;
    if (kind == nullptr) kind = &lane;
  }
  return free != nullptr ? free : owing;
}

StatusOr<Session::Lane*> Session::TakeTurn(Deadline deadline) {
  if (Forked()) return NotOurs();
  MutexLock lock(mutex_);
  while (true) {
    if (Lane* const lane = IdleLane(); lane != nullptr) {
      DropLost();
      lane->busy = true;
      return lane;
    }
    if (turn_ended_.wait_until(lock.native(), deadline) == std::cv_status::timeout &&
        IdleLane() == nullptr) {
      return Refuse(Code::kDeadlineExceeded, "CLIENT_BUSY",
                    "other calls of this client took all the time",
                    "allow more time, or use a second client beside long waits");
    }
  }
}

// Sends the closes that came while the turn lasted, and lets others have it. Also where its time is
// over one of them is sent, and not waited for: there may be no later call to send it, and the
// agent would count the Region as used for as long as this process lives. The answer that the lane
// then owes has the next call take this lane, and send the others.
void Session::EndTurn(Lane& lane, Deadline deadline) {
  bool tried_late = CXLPOOL_MUTANT("late-close-waits-for-a-call");
  while (true) {
    std::string name;
    {
      MutexLock lock(mutex_);
      if (lane.to_be_dropped) DropLocked(lane);
      // The end of a connection closed everything on it.
      if (!lane.connection.has_value()) lane.pending_closes.clear();
      const bool is_late = RemainingMs(deadline, 1) == 0;
      if (lane.pending_closes.empty() || (is_late && tried_late)) {
        lane.busy = false;
        turn_ended_.notify_one();
        return;
      }
      name = std::move(lane.pending_closes.back());
      lane.pending_closes.pop_back();
      if (IsHeld(lane, name)) continue;
      tried_late = tried_late || is_late;
    }
    try {
      SendClose(lane, name, deadline);
    } catch (const std::bad_alloc&) {
      Drop(lane);  // Which closes it, too, and leaves no half of a conversation.
    }
  }
}

void Session::SendClose(Lane& lane, const std::string& name, Deadline deadline) {
  LocalRequest request;
  request.close = {.name = name};
  const int owed_before = lane.owed;
  const Status status = Exchange(lane, request, deadline, Body::kClose).status();
  // Timed out before it was sent: it still has to be sent.
  if (lane.connection.has_value() && lane.owed <= owed_before &&
      status.reason() == "AGENT_TIMEOUT") {
    MutexLock lock(mutex_);
    lane.pending_closes.push_back(name);
  }
}

void Session::Drop(Lane& lane) {
  MutexLock lock(mutex_);
  DropLocked(lane);
}

void Session::DropLocked(Lane& lane) {
  lane.connection.reset();
  lane.owed = 0;
  if (!CXLPOOL_MUTANT("usage-given-once-a-client")) lane.has_usage = false;
  ++lane.epoch;
  lane.to_be_dropped = false;
  lane.pending_closes.clear();
}

void Session::DropLost() {
  for (Lane& lane : lanes_) {
    if (lane.busy || !lane.connection.has_value() || !lane.connection->HungUp()) continue;
    if (!CXLPOOL_MUTANT("lost-lane-unseen")) DropLocked(lane);
  }
}

// Sends the request until it has an answer that does not pass by itself, with a backoff. The
// request keeps its request_id, so that sending it again never does it twice.
StatusOr<Reply> Session::Converse(Lane& lane, LocalRequest& request, Limits limits, Body expected) {
  int backoff_ms = kFirstBackoffMs;
  bool may_be_done = false;  // It reached somebody, and the answer did not reach us.
  while (true) {
    Status status = EnsureConnected(lane, limits.deadline);
    if (status.ok()) {
      SetWait(request, limits.wait_until);
      StatusOr<Reply> reply = Exchange(lane, request, limits.deadline, expected);
      status = reply.status();
      if (reply.ok()) {
        Status answer = StatusOf(reply->message);
        if (answer.ok()) return reply;
        if (may_be_done && request.release.has_value() && answer.code() == Code::kNotFound) {
          Reply gone;  // An earlier try has released it: that is success.
          gone.message.release.emplace();
          return gone;
        }
        if (!Passes(answer)) return answer;
        // Its commit may be durable all the same.
        may_be_done |= answer.reason() == "MANAGER_UNREACHABLE";
        status = answer;
      } else {
        may_be_done |= IsLost(status);
      }
    }
    const bool lost = IsLost(status);
    if (!lost && !Passes(status)) return status;
    const int left_ms = RemainingMs(lost ? limits.deadline : limits.give_up, backoff_ms);
    if (left_ms == 0) return status;
    ::poll(nullptr, 0, left_ms);
    // Another try now would be sent and not waited for. Its time-out would hide why the others
    // failed, and what it asks for might be done although the caller was told otherwise.
    const bool is_over = RemainingMs(limits.deadline, 1) == 0;
    if (is_over && !CXLPOOL_MUTANT("last-try-hides-why")) return status;
    backoff_ms = std::min(2 * backoff_ms, kLastBackoffMs);
  }
}

Status Session::EnsureConnected(Lane& lane, Deadline deadline) {
  if (!lane.connection.has_value()) {
    StatusOr<Connection> connection = Connection::Connect(socket_path_, deadline);
    if (!connection.ok()) return connection.status();
    lane.connection = *std::move(connection);
  }
  return ReopenHolds(lane, deadline);
}

Status Session::ReopenHolds(Lane& lane, Deadline deadline) {
  // However this ends: what is not open again then is any caller's to try.
  struct Attempt {
    ~Attempt() {
      MutexLock lock(session.mutex_);
      for (const auto& [id, held] : missing) {
        const auto now = session.holds_.find(id);
        if (now != session.holds_.end()) now->second.reopening = false;
      }
    }
    Session& session;
    std::vector<std::pair<uint64_t, HeldRegion>> missing = {};
  } attempt{*this};
  {
    MutexLock lock(mutex_);
    for (auto& [id, held] : holds_) {
      if (held.stale || held.reopening || IsOpen(held)) continue;
      attempt.missing.emplace_back(id, held);
      held.reopening = true;
    }
  }
  Status status;
  for (const auto& [id, held] : attempt.missing) {
    if (status.ok()) status = ReopenHold(lane, id, held, deadline);
  }
  return status;
}

// Only an end of the conversation is an error here; a refusal is remembered for CheckHold and does
// not stop the call that happened to come next.
Status Session::ReopenHold(Lane& lane, uint64_t id, const HeldRegion& held, Deadline deadline) {
  LocalRequest request;
  request.open = {.name = held.name,
                  .access = held.access,
                  .tag = held.tag,
                  .at_most_bytes = held.size_bytes,
                  .as_file = held.as_file};
  const StatusOr<Reply> reply = Exchange(lane, request, deadline, Body::kOpen);
  if (!reply.ok()) return reply.status();
  const Status answer = StatusOf(reply->message);

  MutexLock lock(mutex_);
  const auto found = holds_.find(id);
  if (found == holds_.end()) {  // Ended meanwhile, before it was open here.
    if (answer.ok()) lane.pending_closes.push_back(held.name);
    return Status();
  }
  HeldRegion& now = found->second;
  now.status = answer;
  if (!answer.ok()) return Status();
  const LocalOpenResponse& opened = *reply->message.open;
  if (opened.tag == held.tag && opened.generation == held.generation) {
    now.lane = &lane;
    now.epoch = lane.epoch;
    return Status();
  }
  now.stale = true;
  now.status = Refuse(
      Code::kFailedPrecondition, "STALE_GENERATION",
      Concat("the name ", held.name, " now means another Region; the one that was open (tag ",
             held.tag, ", generation ", held.generation, ") is gone"),
      "unmap and close it, and open the name again");
  lane.pending_closes.push_back(held.name);
  return Status();
}

StatusOr<Reply> Session::Exchange(Lane& lane, const LocalRequest& request, Deadline deadline,
                                  Body expected) {
  StatusOr<Reply> given = Reply();
  if (expected == Body::kOpen) given = GiveUsage(lane, deadline);
  if (given.ok() && IsHangUp(given->message)) return given;
  StatusOr<Reply> reply = given.ok() ? ExchangeOnce(lane, request, deadline) : given.status();
  if (!reply.ok()) {
    const std::string_view reason = reply.status().reason();
    const bool usable = reason == "AGENT_TIMEOUT" || reason == "BAD_ARGUMENT";
    if (!usable || lane.owed > kMaxOwed) Drop(lane);
    return reply;
  }
  if (reply->message.code == 0 && !Has(reply->message, expected)) {
    Drop(lane);
    return BadReply("the answer to another question");
  }
  return reply;
}

std::shared_ptr<UsageCounters> Session::Usage() {
  const MutexLock lock(mutex_);
  if (!std::exchange(usage_made_, true)) usage_ = UsageCounters::Make();
  return usage_;
}

// What the agent refuses it does not want, and it is not asked again on this connection. Without
// anything to give, the answer is empty.
StatusOr<Reply> Session::GiveUsage(Lane& lane, Deadline deadline) {
  if (std::exchange(lane.has_usage, true)) return Reply();
  const std::shared_ptr<UsageCounters> usage = Usage();
  if (usage == nullptr) return Reply();
  LocalRequest request;
  request.usage.emplace();
  return ExchangeOnce(lane, request, deadline, usage->fd());
}

StatusOr<Reply> Session::ExchangeOnce(Lane& lane, const LocalRequest& request, Deadline deadline,
                                      int descriptor) {
  if (Status status = DrainOwed(lane, deadline); !status.ok()) return status;
  const Status sent = lane.connection->Send(request, deadline, descriptor);
  if (!sent.ok() && !IsLost(sent)) return sent;
  // An agent that hung up on us may have sent the reason before.
  StatusOr<Reply> reply = lane.connection->Receive(deadline);
  if (!sent.ok() && !reply.ok()) return sent;
  if (reply.status().reason() == "AGENT_TIMEOUT") ++lane.owed;
  return reply;
}

Status Session::DrainOwed(Lane& lane, Deadline deadline) {
  while (lane.owed > 0) {
    const StatusOr<Reply> late = lane.connection->Receive(deadline);
    if (!late.ok()) return late.status();
    --lane.owed;
    if (late->message.code != 0 || !late->message.open.has_value()) continue;
    if (CXLPOOL_MUTANT("late-open-stays")) continue;
    // Opened for a caller that had gone.
    MutexLock lock(mutex_);
    lane.pending_closes.push_back(late->message.open->name);
  }
  return Status();
}

Hold::~Hold() { session_->EndHold(id_); }

Status Hold::KeepThroughExec() const { return session_->KeepHold(id_); }

Status Hold::Check() const { return session_->CheckHold(id_); }

}  // namespace cxlpool::libpool
