// DeviceTasks over the agents' sessions: who waits for which answer.
//
// A task belongs to the session it was sent in. When that ends, its caller learns at once that no
// answer will come: the task may have been done, or may still be. The agent may send that answer in
// its next session, with this manager or another one: no two tasks have the same number, whichever
// managers gave them, so that an answer is never taken for that of another task.
//
// Ask, LifeOf and Stop: any thread. OnSession and OnAnswer: the executor, as the listener of the
// sessions.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_AGENT_TASKS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_AGENT_TASKS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"
#include "fabric-manager/ports/agent_tasks.h"
#include "proto/support/executor.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

class HostSessions;

class SessionTasks : public AgentTasks {
 public:
  SessionTasks();

  // Tasks of one host: each is a thread that waits.
  static constexpr int kMaxUnderWay = 64;

  // Where the sessions are, once they are made: they need the fabric driver's capabilities, and the
  // driver needs this. Both outlive every Ask. Before any session begins.
  void Attach(Executor* executor, HostSessions* sessions);

  std::string LifeOf(const std::string& host) override;
  uint64_t SessionOf(const std::string& host) override;
  // RESOURCE_EXHAUSTED/FABRIC_OVERLOADED: kMaxUnderWay tasks of the host are under way; this one
  // was not sent.
  absl::StatusOr<v1::DeviceLook> Ask(const std::string& host, const std::string& life,
                                     uint64_t session, v1::DeviceTask task,
                                     absl::Duration timeout) override;
  // As the port says; with an empty function: nobody is called from the moment this returns.
  void SetOnSession(std::function<void(const std::string& host)> on_session) override;
  void Stop() override;

  // A session of the host began under the boot id `life`, or ended (empty).
  void OnSession(const std::string& host, const std::string& life);
  // The answer to a task that nobody waits for any more is dropped.
  void OnAnswer(const std::string& host, const v1::DeviceAnswer& answer);

 private:
  struct Waiting {
    std::string host;
    std::optional<absl::StatusOr<v1::DeviceLook>> answer;
  };

  void Send(uint64_t id, const std::string& host, v1::DeviceTask task);

  Executor* executor_ = nullptr;      // Both set once, before any
  HostSessions* sessions_ = nullptr;  // session begins.

  Mutex mutex_;
  std::condition_variable answered_;
  std::map<std::string, std::string> lives_ ABSL_GUARDED_BY(mutex_);  // Of hosts with a session.
  std::map<std::string, uint64_t> sessions_begun_ ABSL_GUARDED_BY(mutex_);  // By host.
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);             // By task id.
  std::map<std::string, int> under_way_ ABSL_GUARDED_BY(mutex_);            // By host.
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex on_session_mutex_;  // Held while it is called.
  std::function<void(const std::string&)> on_session_ ABSL_GUARDED_BY(on_session_mutex_);
};

// What an agent answered, as a Status that is a Refusal where it gave a reason.
absl::StatusOr<v1::DeviceLook> ResultOf(const v1::DeviceAnswer& answer);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_AGENT_TASKS_H_
