// The thread that asks the host agent for lost bytes and for the sizes of Regions, and its
// connection (cxlpool.h, "Lost bytes").
//
// Thread-safe, except for the destructor, which waits for a call of `on_fault` or `on_size` that is
// under way. In a forked child there is no such thread, and the connection is the parent's: Check
// answers FORKED, and the watch must not be destroyed.
#ifndef CXLPOOL_LIBPOOL_SRC_FAULT_WATCH_H_
#define CXLPOOL_LIBPOOL_SRC_FAULT_WATCH_H_

#include <sys/types.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "libpool/src/connection.h"
#include "libpool/src/deadline.h"
#include "libpool/src/local_codec.h"
#include "libpool/src/own_thread.h"
#include "libpool/src/status.h"
#include "proto/support/mutex.h"

namespace cxlpool::libpool {

class FaultWatcher {
 public:
  using OnFault = std::function<void(const LocalFault&)>;
  using OnSize = std::function<void(const LocalSize&)>;

  // Either function may be empty.
  FaultWatcher(std::string path, Duration timeout, OnFault on_fault, OnSize on_size)
      : path_(std::move(path)),
        timeout_(timeout),
        on_fault_(std::move(on_fault)),
        on_size_(std::move(on_size)) {}
  ~FaultWatcher();

  // Asks once, and starts the thread. Once. RESOURCE_EXHAUSTED/NO_THREAD.
  Status Start();

  // OK while the agent answers. FAILED_PRECONDITION/FORKED.
  Status Check() const;

  bool Forked() const { return ::getpid() != process_; }

 private:
  void Run(const LocalFaultsResponse& first);
  // A request and its answer.
  StatusOr<LocalFaultsResponse> Ask(uint32_t wait_ms);
  void Deliver(const LocalFaultsResponse& answer);
  // Both for the thread, which has no caller to whom it could throw. RESOURCE_EXHAUSTED/NO_MEMORY.
  StatusOr<LocalFaultsResponse> TryAsk();
  Status TryDeliver(const LocalFaultsResponse& answer);
  void DeliverFault(const LocalFault& fault);
  void DeliverSize(const LocalSize& size);
  bool Stopping() const;

  // Constant.
  const std::string path_;
  const Duration timeout_;
  const OnFault on_fault_;
  const OnSize on_size_;
  const pid_t process_ = ::getpid();
  const Status no_memory_ = NoMemory();

  // The thread's. `connection_` is replaced with the mutex held.
  std::optional<Connection> connection_;
  uint64_t after_ = 0;
  std::set<std::tuple<std::string, uint64_t, uint64_t>> reported_;
  std::map<std::string, uint64_t> sizes_;  // By tag: the last that was reported.

  mutable Mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Status status_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_FAULT_WATCH_H_
