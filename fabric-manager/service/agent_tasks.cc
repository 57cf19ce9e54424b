#include "fabric-manager/service/agent_tasks.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "fabric-manager/service/host_sessions.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

using google::protobuf::FieldDescriptor;

// Of what an agent writes. An agent of ours stays below all of these (status_wire.cc).
constexpr size_t kMaxAnswerText = 2048;
constexpr size_t kMaxReason = 128;
constexpr size_t kMaxRemedy = 1024;
constexpr size_t kMaxMetadata = 4096;  // Of all keys and values together.
constexpr size_t kMaxLookText = 512;   // A name, a serial, why a device is unfit.

absl::Status NoSession(const std::string& host, absl::string_view what) {
  return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                absl::StrCat("the agent of host ", host, " ", what),
                absl::StrCat("see `cxlpool host show ", host, "`"), {{"host", host}});
}

// Where a manager begins to count its tasks. So far from any other that they never meet.
uint64_t FirstId() {
  if (CXLPOOL_MUTANT("task-numbers-begin-anew")) return 0;
  const std::string bytes = RandomUuid();
  uint64_t id = 0;
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id >> 1;  // It is counted up from there, and does not become 0 again.
}

absl::Status Stopped() { return absl::CancelledError("the manager is stopping"); }

// Cuts each text in `message`, at all depths, to `max_bytes`. What an agent shows is repeated in
// reasons that everybody who lists hosts, devices and Regions is sent.
void CutTexts(google::protobuf::Message* message, size_t max_bytes) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field->is_repeated()) {
      const std::string text = reflection.GetString(*message, field);
      if (text.size() > max_bytes) reflection.SetString(message, field, CutText(text, max_bytes));
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      CutTexts(reflection.MutableMessage(message, field), max_bytes);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      CutTexts(reflection.MutableRepeatedMessage(message, field, i), max_bytes);
    }
  }
}

}  // namespace

SessionTasks::SessionTasks() : last_id_(FirstId()) {}

// The agent's message has its remedy behind it, as every message on the wire. It may write what it
// likes, and no more than the limits is kept of that.
absl::StatusOr<v1::DeviceLook> ResultOf(const v1::DeviceAnswer& answer) {
  if (answer.code() == 0) return answer.look();
  const auto code = static_cast<absl::StatusCode>(answer.code());
  const v1::ErrorInfo& error = answer.error();
  const std::string message = CutText(answer.message(), kMaxAnswerText);
  if (error.reason().empty()) return absl::Status(code, message);
  const std::string suffix = absl::StrCat(" (", error.remedy(), ")");
  Refusal refusal{code,
                  CutText(error.reason(), kMaxReason),
                  std::string(absl::StripSuffix(message, error.remedy().empty() ? "" : suffix)),
                  CutText(error.remedy(), kMaxRemedy),
                  {}};
  if (CXLPOOL_MUTANT("remedies-of-agents-without-end")) refusal.remedy = error.remedy();
  size_t bytes = 0;
  for (const auto& [key, value] : error.metadata()) {
    const size_t more = key.size() + value.size();
    if (more > kMaxMetadata - bytes) continue;
    bytes += more;
    refusal.metadata.emplace_back(key, value);
  }
  std::sort(refusal.metadata.begin(), refusal.metadata.end());  // The map has no order.
  return refusal.ToStatus();
}

void SessionTasks::Attach(Executor* executor, HostSessions* sessions) {
  executor_ = executor;
  sessions_ = sessions;
}

std::string SessionTasks::LifeOf(const std::string& host) {
  MutexLock lock(mutex_);
  const auto life = lives_.find(host);
  return life == lives_.end() ? "" : life->second;
}

uint64_t SessionTasks::SessionOf(const std::string& host) {
  MutexLock lock(mutex_);
  return lives_.contains(host) ? sessions_begun_[host] : 0;
}

// Waits on its caller's thread. The entry in `waiting_` is there for exactly as long: whatever
// comes for it afterwards finds none, and is dropped.
absl::StatusOr<v1::DeviceLook> SessionTasks::Ask(const std::string& host, const std::string& life,
                                                 uint64_t session, v1::DeviceTask task,
                                                 absl::Duration timeout) {
  uint64_t id = 0;
  {
    MutexLock lock(mutex_);
    if (stopped_) return Stopped();
    const auto now = lives_.find(host);
    if (now == lives_.end()) return NoSession(host, "has no session");
    if (now->second != life && !CXLPOOL_MUTANT("task-to-any-life")) {
      return NoSession(host, absl::StrCat("lives in boot ", now->second, " now, not in ", life));
    }
    if (session != 0 && session != sessions_begun_[host] &&
        !CXLPOOL_MUTANT("task-to-any-session")) {
      return NoSession(host, "has begun another session since this was decided");
    }
    if (under_way_[host] >= kMaxUnderWay) {
      return Refuse(absl::StatusCode::kResourceExhausted, "FABRIC_OVERLOADED",
                    absl::StrCat("the agent of host ", host, " has ", kMaxUnderWay,
                                 " tasks that it has not answered"),
                    "wait; it is tried again");
    }
    id = ++last_id_;
    ++under_way_[host];
    waiting_[id].host = host;
  }
  task.set_id(id);
  executor_->Post(
      [this, id, host, task = std::move(task)]() mutable { Send(id, host, std::move(task)); });
  const auto end =
      std::chrono::steady_clock::now() +
      absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24)));
  absl::StatusOr<v1::DeviceLook> answer =
      Refuse(absl::StatusCode::kDeadlineExceeded, "NO_ANSWER",
             absl::StrCat("the agent of host ", host, " has not answered for ",
                          absl::FormatDuration(timeout)),
             absl::StrCat("look at cxlpool-agent on ", host), {{"host", host}});
  {
    MutexLock lock(mutex_);
    Waiting& own = waiting_[id];
    while (!own.answer.has_value()) {
      if (answered_.wait_until(lock.native(), end) == std::cv_status::timeout) break;
    }
    if (own.answer.has_value()) answer = *std::move(own.answer);
    waiting_.erase(id);
    if (--under_way_[host] == 0) under_way_.erase(host);
  }
  // Here, where only its caller waits for it.
  if (answer.ok() && !CXLPOOL_MUTANT("agents-show-texts-without-end")) {
    CutTexts(&*answer, kMaxLookText);
  }
  return answer;
}

// On the executor, as everything that begins and ends sessions. Where the session that
// was asked in is over, its caller has that answer already, and the next session does not get the
// task.
void SessionTasks::Send(uint64_t id, const std::string& host, v1::DeviceTask task) {
  {
    MutexLock lock(mutex_);
    const auto waiting = waiting_.find(id);
    if (waiting == waiting_.end() || waiting->second.answer.has_value()) return;
  }
  sessions_->SendTask(host, std::move(task));
}

void SessionTasks::SetOnSession(std::function<void(const std::string& host)> on_session) {
  MutexLock lock(on_session_mutex_);
  on_session_ = std::move(on_session);
}

void SessionTasks::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  for (auto& [id, waiting] : waiting_) {
    if (!waiting.answer.has_value()) waiting.answer = Stopped();
  }
  answered_.notify_all();
}

// A session never goes over into another one without having ended, so that what was asked in the
// former one is over as well.
void SessionTasks::OnSession(const std::string& host, const std::string& life) {
  {
    MutexLock lock(mutex_);
    if (life.empty()) {
      lives_.erase(host);
    } else {
      lives_[host] = life;
      ++sessions_begun_[host];
    }
    for (auto& [id, waiting] : waiting_) {
      if (waiting.host != host || waiting.answer.has_value() ||
          CXLPOOL_MUTANT("asks-outlive-sessions")) {
        continue;
      }
      waiting.answer = NoSession(host, "ended its session before it answered");
    }
    answered_.notify_all();
  }
  MutexLock lock(on_session_mutex_);
  if (on_session_) on_session_(host);
}

void SessionTasks::OnAnswer(const std::string& host, const v1::DeviceAnswer& answer) {
  MutexLock lock(mutex_);
  const auto waiting = waiting_.find(answer.id());
  // An agent answers for its own host only.
  if (waiting == waiting_.end() || waiting->second.host != host ||
      waiting->second.answer.has_value()) {
    return;
  }
  waiting->second.answer = ResultOf(answer);
  answered_.notify_all();
}

}  // namespace cxlpool::fm
