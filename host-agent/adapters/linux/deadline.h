// A moment on the steady clock by which blocking work gives up, and polling towards it.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DEADLINE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DEADLINE_H_

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cxlpool::agent {

class Deadline {
 public:
  static Deadline In(absl::Duration duration) {
    return Deadline(std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(duration));
  }

  // Never negative.
  absl::Duration left() const {
    return std::max(absl::ZeroDuration(),
                    absl::FromChrono(when_ - std::chrono::steady_clock::now()));
  }
  bool passed() const { return left() == absl::ZeroDuration(); }
  std::chrono::steady_clock::time_point when() const { return when_; }

 private:
  explicit Deadline(std::chrono::steady_clock::time_point when) : when_(when) {}

  std::chrono::steady_clock::time_point when_;
};

// True as soon as `ready()` is; false once the deadline has passed. Asks at least once.
template <typename Ready>
bool PollUntil(const Deadline& deadline, absl::Duration interval, Ready ready) {
  while (!ready()) {
    if (deadline.passed()) return false;
    absl::SleepFor(std::min(interval, deadline.left()));
  }
  return true;
}

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DEADLINE_H_
