#include "proto/support/self_fence.h"

#include <signal.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/check.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool {

absl::StatusOr<std::unique_ptr<SelfFence>> SelfFence::Make() {
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer;
  // It counts while the machine sleeps, as Clock::Elapsed does.
  if (::timer_create(CLOCK_BOOTTIME, &event, &timer) != 0) {
    return Refuse(absl::StatusCode::kInternal, "NO_TIMER",
                  absl::StrCat("the kernel gives no timer: ", std::strerror(errno)),
                  "raise the limit of pending signals (LimitSIGPENDING)");
  }
  return std::unique_ptr<SelfFence>(new SelfFence(timer));
}

SelfFence::~SelfFence() { ::timer_delete(timer_); }

void SelfFence::Arm(absl::Duration when) {
  if (CXLPOOL_MUTANT("fence-not-armed")) return;
  itimerspec at = {};
  at.it_value = absl::ToTimespec(when);
  CXLPOOL_CHECK(::timer_settime(timer_, TIMER_ABSTIME, &at, nullptr) == 0,
                "the timer that ends this process cannot be set: ", std::strerror(errno));
}

}  // namespace cxlpool
