#include "tools/cli/pacer.h"

#include <time.h>

namespace cxlpool::cli {

absl::Duration SystemPacer::Elapsed() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace cxlpool::cli
