// A moment on the steady clock by which blocking work gives up, and polling towards it.
#ifndef CXLPOOL_HOST_AGENT_SUPPORT_DEADLINE_H_
#define CXLPOOL_HOST_AGENT_SUPPORT_DEADLINE_H_

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

// True as soon as `ready()` is; false once the deadline has passed. Asks at least once, and again
// after a twentieth of the time that it has waited: what takes 200 ms is seen 10 ms late at most.
template <typename Ready>
bool PollUntil(const Deadline& deadline, Ready ready) {
  const auto began = std::chrono::steady_clock::now();
  while (!ready()) {
    if (deadline.passed()) return false;
    const absl::Duration waited = absl::FromChrono(std::chrono::steady_clock::now() - began);
    const absl::Duration pause =
        std::clamp(waited / 20, absl::Milliseconds(1), absl::Milliseconds(20));
    absl::SleepFor(std::min(pause, deadline.left()));
  }
  return true;
}

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SUPPORT_DEADLINE_H_
