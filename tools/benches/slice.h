// One slice of a run: a fresh server, warmed up, measured under load, killed under load, and, if
// it is the manager, started again to see whether it kept its word.
#ifndef CXLPOOL_TOOLS_BENCHES_SLICE_H_
#define CXLPOOL_TOOLS_BENCHES_SLICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/benches/survival.h"

namespace cxlpool::bench {

struct SliceOptions {
  std::string manager;    // Path of cxlpool-fm.
  std::string echo;       // Path of bench-echo.
  std::string directory;  // Empty; slices make their own below it, and remove them.
  int callers = 64;
  absl::Duration warm_up = absl::Milliseconds(500);
  absl::Duration measured = absl::Seconds(2);
};

struct Slice {
  double per_second = 0;  // Calls answered, while measured.
  double cpu_micros = 0;  // Of the server, for each of them.
  Survival survival;      // Of all that was acknowledged, the warm-up's included. The manager's.
};

// Runs slices and numbers them: no two use the same directory or request_ids.
//
// Errors: any call that failed before the kill; a server that did not come up, with the end of its
// log; a caller that hung. That something was lost is no error here: it is in the Slice.
class SliceRunner {
 public:
  explicit SliceRunner(SliceOptions options) : options_(std::move(options)) {}

  // Asks a manager for one allocation and keeps the answer for the echo. Call it first.
  absl::Status Prepare();

  absl::StatusOr<Slice> Manager();
  absl::StatusOr<Slice> Echo();

  // Serialised, as measured by Prepare.
  size_t answer_bytes() const { return answer_bytes_; }

 private:
  std::string NextDirectory();
  std::string answer_file() const { return options_.directory + "/answer"; }

  const SliceOptions options_;
  int slices_ = 0;
  size_t answer_bytes_ = 0;
};

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_SLICE_H_
