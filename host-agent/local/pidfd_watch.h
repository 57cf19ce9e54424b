// ProcessWatch by pidfds: one descriptor a process, one thread that waits for all of them.
//
// Thread-safe. Needs Linux 5.3.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_PIDFD_WATCH_H_
#define CXLPOOL_HOST_AGENT_LOCAL_PIDFD_WATCH_H_

#include <cstdint>
#include <map>
#include <thread>

#include "absl/status/status.h"
#include "host-agent/ports/process_watch.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

class PidfdWatch : public ProcessWatch {
 public:
  PidfdWatch() = default;
  ~PidfdWatch() override { Stop(); }

  // RESOURCE_EXHAUSTED: the process is out of descriptors.
  absl::Status Start();

  // Every watch ends with CANCELLED, then the thread. Again: no effect.
  void Stop();

  void Watch(const ProcessId& process, Done ended) override;
  void Forget(const ProcessId& process) override;
  bool HasEnded(const ProcessId& process) override;

 private:
  struct Watched {
    uint64_t id = 0;  // Never used twice: identifies it towards epoll.
    UniqueFd pidfd;
    Done ended;
  };

  void Run();

  UniqueFd epoll_;
  UniqueFd wake_;  // eventfd.
  std::thread thread_;

  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = true;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<ProcessId, Watched> watched_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, ProcessId> by_id_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_PIDFD_WATCH_H_
