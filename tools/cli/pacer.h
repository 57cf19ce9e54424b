// Time as the command spends it (a parameter, so that no test sleeps), and how long it waits
// between two tries.
#ifndef CXLPOOL_TOOLS_CLI_PACER_H_
#define CXLPOOL_TOOLS_CLI_PACER_H_

#include <time.h>

#include <algorithm>
#include <random>

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

// How long to wait before the next try: doubling from 100 ms to 2 s, each 50 to 100 % of that, so
// that many callers do not come back at one moment.

class Backoff {
 public:
  explicit Backoff(uint32_t seed = std::random_device{}(), absl::Duration most = kMost)
      : random_(seed), most_(most) {}

  absl::Duration Next() {
    const absl::Duration step = step_;
    step_ = std::min(2 * step_, most_);
    return step * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  }
  void Reset() { step_ = kFirst; }

  static constexpr absl::Duration kFirst = absl::Milliseconds(100);
  static constexpr absl::Duration kMost = absl::Seconds(2);
  // Of several managers another leads within a second or two.
  static constexpr absl::Duration kMostOfSeveral = absl::Milliseconds(400);

 private:
  std::minstd_rand random_;
  const absl::Duration most_;
  absl::Duration step_ = kFirst;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_PACER_H_
