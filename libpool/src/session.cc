#include "libpool/src/session.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libpool/src/errors.h"
#include "libpool/src/reply.h"
#include "proto/support/refusal.h"

namespace cxlpool::libpool {
namespace {

constexpr int kFirstBackoffMs = 10;
constexpr int kLastBackoffMs = 500;
constexpr absl::Duration kLongestClose = absl::Seconds(5);
// A caller leaves one reply behind per time-out; an agent that owes this many is not coming back.
constexpr int kMaxOwed = 64;
constexpr int kMaxWaitMs = 600'000;

// Of connect, send and receive alone: an agent may send a refusal with any reason.
bool IsLost(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return reason == "AGENT_LOST" || reason == "AGENT_NOT_RUNNING";
}

// What the agent refuses now and will not in a while, without anybody doing something about it. Not
// NOT_ONLINE_YET: the agent has waited for that as long as it was asked to.
bool Passes(const absl::Status& answer) {
  const std::string reason = ReasonOf(answer);
  if (IsLost(answer)) return false;  // An agent that says so is none that we know.
  return (absl::IsUnavailable(answer) && reason != "NOT_ONLINE_YET") || reason == "QUEUE_FULL";
}

uint64_t PageBytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

void SetWait(v1::LocalRequest& request, Deadline wait_until) {
  const auto wait_ms = static_cast<uint32_t>(RemainingMs(wait_until, kMaxWaitMs));
  if (request.has_open()) request.mutable_open()->set_wait_ms(wait_ms);
  if (request.has_allocate()) request.mutable_allocate()->set_wait_ms(wait_ms);
}

v1::LocalRequest NewRequest() {
  v1::LocalRequest request;
  request.set_protocol_version(kProtocolVersion);
  return request;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Connect(std::string socket_path,
                                                          absl::Duration timeout) {
  std::shared_ptr<Session> session(new Session(std::move(socket_path), timeout));
  auto connection = Connection::Connect(session->socket_path_, After(timeout));
  if (!connection.ok()) return connection.status();
  session->connection_ = *std::move(connection);
  return session;
}

absl::StatusOr<v1::LocalResponse> Session::Call(v1::LocalRequest request, absl::Duration wait,
                                                v1::LocalResponse::BodyCase expected) {
  const Limits limits = {After(timeout_ + wait), After(wait), After(timeout_)};
  if (absl::Status status = TakeTurn(limits.deadline); !status.ok()) return status;
  absl::StatusOr<Reply> reply = Converse(request, limits, expected);
  EndTurn(limits.deadline);
  if (!reply.ok()) return reply.status();
  return std::move(reply->message);
}

absl::StatusOr<std::shared_ptr<const OpenedRegion>> Session::Open(v1::LocalRequest request,
                                                                  absl::Duration wait) {
  const Limits limits = {After(timeout_ + wait), After(wait), After(timeout_)};
  if (absl::Status status = TakeTurn(limits.deadline); !status.ok()) return status;
  auto reply = Converse(request, limits, v1::LocalResponse::kOpen);
  absl::StatusOr<OpenReply> opened =
      reply.ok() ? ParseOpen(reply->message.open(), reply->descriptors.size(), PageBytes())
                 : reply.status();
  if (!opened.ok()) {
    if (reply.ok()) Drop();
    EndTurn(limits.deadline);
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
                  .epoch = epoch_,
                  .status = absl::OkStatus(),
                  .stale = false};
  }
  auto region = std::make_shared<const OpenedRegion>(shared_from_this(), id, *std::move(opened),
                                                     std::move(reply->descriptors));
  EndTurn(limits.deadline);
  return region;
}

absl::Status Session::CheckHold(uint64_t id) const {
  MutexLock lock(mutex_);
  const auto held = holds_.find(id);
  return held == holds_.end() ? absl::OkStatus() : held->second.status;
}

void Session::EndHold(uint64_t id) {
  if (Forked()) return;  // It is the parent's.
  const Deadline deadline = After(std::min(timeout_, kLongestClose));
  {
    MutexLock lock(mutex_);
    const auto held = holds_.find(id);
    if (held == holds_.end()) return;
    pending_closes_.push_back(std::move(held->second.name));
    holds_.erase(held);
    if (busy_) return;  // The caller whose turn it is says it.
    busy_ = true;
  }
  EndTurn(deadline);
}

bool Session::IsHeld(const std::string& name) const {
  return std::any_of(holds_.begin(), holds_.end(), [&name](const auto& held) {
    return held.second.name == name && !held.second.stale;
  });
}

absl::Status Session::TakeTurn(Deadline deadline) {
  if (Forked()) {
    return Error(absl::StatusCode::kFailedPrecondition, "FORKED",
                 "this Client is another process's: this process was forked from it",
                 "make a new Client in the child");
  }
  MutexLock lock(mutex_);
  while (busy_) {
    if (turn_ended_.wait_until(lock.native(), deadline) == std::cv_status::timeout && busy_) {
      return Error(absl::StatusCode::kDeadlineExceeded, "CLIENT_BUSY",
                   "other calls of this Client took all the time",
                   "allow more time, or use a second Client beside long waits");
    }
  }
  busy_ = true;
  return absl::OkStatus();
}

void Session::EndTurn(Deadline deadline) {
  while (true) {
    std::string name;
    {
      MutexLock lock(mutex_);
      // The end of a connection closed everything on it.
      if (!connection_.has_value()) pending_closes_.clear();
      const bool in_time = RemainingMs(deadline, 1) > 0;
      if (pending_closes_.empty() || !in_time) {
        busy_ = false;
        turn_ended_.notify_one();
        return;
      }
      name = std::move(pending_closes_.back());
      pending_closes_.pop_back();
      if (IsHeld(name)) continue;
    }
    SendClose(name, deadline);
  }
}

void Session::SendClose(const std::string& name, Deadline deadline) {
  v1::LocalRequest request = NewRequest();
  request.mutable_close()->set_name(name);
  const int owed_before = owed_;
  const absl::Status status = Exchange(request, deadline, v1::LocalResponse::kClose).status();
  // Timed out before it was sent: it still has to be said.
  if (!status.ok() && connection_.has_value() && owed_ <= owed_before &&
      ReasonOf(status) == "AGENT_TIMEOUT") {
    MutexLock lock(mutex_);
    pending_closes_.push_back(name);
  }
}

void Session::Drop() {
  connection_.reset();
  owed_ = 0;
  MutexLock lock(mutex_);
  ++epoch_;
  pending_closes_.clear();
}

absl::StatusOr<Reply> Session::Converse(v1::LocalRequest& request, Limits limits,
                                        v1::LocalResponse::BodyCase expected) {
  request.set_protocol_version(kProtocolVersion);
  int backoff_ms = kFirstBackoffMs;
  bool may_be_done = false;  // It reached somebody, and the answer did not reach us.
  while (true) {
    absl::Status status = EnsureConnected(limits.deadline);
    if (status.ok()) {
      SetWait(request, limits.wait_until);
      absl::StatusOr<Reply> reply = Exchange(request, limits.deadline, expected);
      status = reply.status();
      if (reply.ok()) {
        const absl::Status answer = StatusOf(reply->message);
        if (answer.ok()) return reply;
        if (may_be_done && request.has_release() && absl::IsNotFound(answer)) {
          Reply gone;  // That is what was asked for.
          gone.message.mutable_release();
          return gone;
        }
        if (!Passes(answer)) return answer;
        // Its commit may be durable all the same.
        may_be_done |= ReasonOf(answer) == "MANAGER_UNREACHABLE";
        status = answer;
      } else {
        may_be_done |= IsLost(status);
      }
    }
    const bool lost = IsLost(status);
    if (!lost && !Passes(status)) return status;
    const Deadline deadline = lost ? limits.deadline : limits.give_up;
    const int left_ms = RemainingMs(deadline, backoff_ms);
    if (left_ms == 0) return status;
    ::poll(nullptr, 0, left_ms);
    backoff_ms = std::min(2 * backoff_ms, kLastBackoffMs);
  }
}

absl::Status Session::EnsureConnected(Deadline deadline) {
  if (!connection_.has_value()) {
    auto connection = Connection::Connect(socket_path_, deadline);
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
  }
  return ReopenHolds(deadline);
}

absl::Status Session::ReopenHolds(Deadline deadline) {
  std::vector<std::pair<uint64_t, HeldRegion>> missing;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, held] : holds_) {
      if (held.epoch != epoch_ && !held.stale) missing.emplace_back(id, held);
    }
  }
  for (const auto& [id, held] : missing) {
    if (absl::Status status = ReopenHold(id, held, deadline); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Only an end of the conversation is an error here; a refusal is remembered for Check() and does
// not stop the call that happened to come next.
absl::Status Session::ReopenHold(uint64_t id, HeldRegion held, Deadline deadline) {
  v1::LocalRequest request = NewRequest();
  v1::LocalOpenRequest& open = *request.mutable_open();
  open.set_name(held.name);
  open.set_tag(held.tag);
  open.set_at_most_bytes(held.size_bytes);
  open.set_access(held.access == Access::kReadOnly ? v1::READ_ONLY : v1::READ_WRITE);
  const absl::StatusOr<Reply> reply = Exchange(request, deadline, v1::LocalResponse::kOpen);
  if (!reply.ok()) return reply.status();
  const v1::LocalOpenResponse& opened = reply->message.open();
  const absl::Status answer = StatusOf(reply->message);
  const bool same = opened.tag() == held.tag && opened.generation() == held.generation;

  MutexLock lock(mutex_);
  const auto now = holds_.find(id);
  if (now == holds_.end()) {  // Ended meanwhile, before it was open here.
    if (answer.ok()) pending_closes_.push_back(held.name);
    return absl::OkStatus();
  }
  now->second.status = answer;
  if (!answer.ok()) return absl::OkStatus();
  if (same) {
    now->second.epoch = epoch_;
    return absl::OkStatus();
  }
  now->second.stale = true;
  now->second.status = Error(
      absl::StatusCode::kFailedPrecondition, "STALE_GENERATION",
      absl::StrCat("the name ", held.name, " now means another Region; the one that was open ",
                   "(tag ", held.tag, ", generation ", held.generation, ") is gone"),
      "unmap and close it, and open the name again");
  pending_closes_.push_back(held.name);
  return absl::OkStatus();
}

absl::StatusOr<Reply> Session::Exchange(const v1::LocalRequest& request, Deadline deadline,
                                        v1::LocalResponse::BodyCase expected) {
  absl::StatusOr<Reply> reply = ExchangeOnce(request, deadline);
  if (!reply.ok()) {
    const std::string reason = ReasonOf(reply.status());
    const bool usable = reason == "AGENT_TIMEOUT" || reason == "BAD_ARGUMENT";
    if (!usable || owed_ > kMaxOwed) Drop();
    return reply;
  }
  if (reply->message.code() == 0 && reply->message.body_case() != expected) {
    Drop();
    return BadReply("the answer to another question");
  }
  return reply;
}

absl::StatusOr<Reply> Session::ExchangeOnce(const v1::LocalRequest& request, Deadline deadline) {
  if (absl::Status status = DrainOwed(deadline); !status.ok()) return status;
  const absl::Status sent = connection_->Send(request, deadline);
  if (!sent.ok() && !IsLost(sent)) return sent;
  // An agent that hung up on us may have said why before.
  absl::StatusOr<Reply> reply = connection_->Receive(deadline);
  if (!sent.ok() && !reply.ok()) return sent;
  if (ReasonOf(reply.status()) == "AGENT_TIMEOUT") ++owed_;
  return reply;
}

absl::Status Session::DrainOwed(Deadline deadline) {
  while (owed_ > 0) {
    absl::StatusOr<Reply> late = connection_->Receive(deadline);
    if (!late.ok()) return late.status();
    --owed_;
    if (late->message.code() != 0 || !late->message.has_open()) continue;
    // Opened for a caller that had gone.
    MutexLock lock(mutex_);
    pending_closes_.push_back(late->message.open().name());
  }
  return absl::OkStatus();
}

Hold::~Hold() { session_->EndHold(id_); }

absl::Status Hold::Check() const { return session_->CheckHold(id_); }

}  // namespace cxlpool::libpool
