// Time as the command spends it: a parameter, so that no test sleeps.
#ifndef CXLPOOL_TOOLS_CLI_PACER_H_
#define CXLPOOL_TOOLS_CLI_PACER_H_

#include <time.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cxlpool::cli {

class Pacer {
 public:
  virtual ~Pacer() = default;

  // Since some fixed moment; never jumps, and counts while suspended.
  virtual absl::Duration Elapsed() = 0;
  virtual void Sleep(absl::Duration period) = 0;
};

// CLOCK_BOOTTIME and a real sleep.
class SystemPacer : public Pacer {
 public:
  absl::Duration Elapsed() override {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return absl::DurationFromTimespec(now);
  }
  void Sleep(absl::Duration period) override { absl::SleepFor(period); }
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_PACER_H_
