// Keeps a driver's events until a test looks for one, and waits for completions with a deadline.
#ifndef CXLPOOL_TEST_CONTRACT_FABRIC_EVENT_LOG_H_
#define CXLPOOL_TEST_CONTRACT_FABRIC_EVENT_LOG_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// Longer than any driver's own deadline: reaching it means that a completion never came.
inline constexpr std::chrono::seconds kNeverCame{60};

// Any thread.
class FabricEventLog {
 public:
  void Add(FabricEvent event) {
    MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

  void Clear() {
    MutexLock lock(mutex_);
    events_.clear();
  }

  // Whether an event that `wanted` accepts is there or comes within `limit`.
  bool WaitFor(const std::function<bool(const FabricEvent&)>& wanted,
               std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    MutexLock lock(mutex_);
    while (true) {
      for (const FabricEvent& event : events_) {
        if (wanted(event)) return true;
      }
      if (changed_.wait_until(lock.native(), end) == std::cv_status::timeout) return false;
    }
  }

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  std::vector<FabricEvent> events_ ABSL_GUARDED_BY(mutex_);
};

// Calls `start` with a completion and waits for it.
template <typename T>
T WaitForAnswer(const std::function<void(absl::AnyInvocable<void(T) &&>)>& start) {
  auto promise = std::make_shared<std::promise<T>>();
  auto answer = promise->get_future();
  start([promise](T value) { promise->set_value(std::move(value)); });
  if (answer.wait_for(kNeverCame) != std::future_status::ready) {
    return absl::InternalError("the completion never came");
  }
  return answer.get();
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_CONTRACT_FABRIC_EVENT_LOG_H_
