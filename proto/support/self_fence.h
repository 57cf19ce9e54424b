// Ends this process at a given time, whatever it does then: also where it is stopped, or all its
// threads hang. For whoever holds something only for as long as it gives signs of life.
#ifndef CXLPOOL_PROTO_SUPPORT_SELF_FENCE_H_
#define CXLPOOL_PROTO_SUPPORT_SELF_FENCE_H_

#include <time.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cxlpool {

// A timer of the kernel's, which sends SIGKILL.
class SelfFence {
 public:
  // INTERNAL/NO_TIMER: the kernel gives none (RLIMIT_SIGPENDING).
  static absl::StatusOr<std::unique_ptr<SelfFence>> Make();
  ~SelfFence();  // Disarms it.
  SelfFence(const SelfFence&) = delete;
  SelfFence& operator=(const SelfFence&) = delete;

  // The process ends at `when` (Clock::Elapsed) unless it is armed anew before that. What is over
  // already ends it now. Any thread.
  void Arm(absl::Duration when);

 private:
  explicit SelfFence(timer_t timer) : timer_(timer) {}
  const timer_t timer_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_SELF_FENCE_H_
