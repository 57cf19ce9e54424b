// std::mutex with the annotations that let clang check who locks what.
//
// ThreadSanitizer sees through std::mutex without false reports, which it does not through the
// packaged absl::Mutex.
#ifndef CXLPOOL_PROTO_SUPPORT_MUTEX_H_
#define CXLPOOL_PROTO_SUPPORT_MUTEX_H_

#include <mutex>

#include "absl/base/thread_annotations.h"

namespace cxlpool {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.native()) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() = default;

  // For std::condition_variable::wait.
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_MUTEX_H_
