// So many lines a second of one kind, so that a flood of what they are about is no flood of lines.
//
// Not thread-safe.
#ifndef CXLPOOL_PROTO_SUPPORT_LOG_LIMIT_H_
#define CXLPOOL_PROTO_SUPPORT_LOG_LIMIT_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace cxlpool {

class LogLimit {
 public:
  explicit LogLimit(int lines_per_second) : most_(lines_per_second) {}

  // Whether one more may be written at `now` (Clock::Elapsed): then how many were left out since
  // the last one.
  std::optional<uint64_t> Take(absl::Duration now) {
    if (now - second_ >= absl::Seconds(1)) {
      second_ = now;
      lines_ = 0;
    }
    if (lines_ >= most_) {
      ++left_out_;
      return std::nullopt;
    }
    ++lines_;
    return std::exchange(left_out_, 0);
  }

 private:
  const int most_;
  absl::Duration second_ = -absl::InfiniteDuration();  // When it began.
  int lines_ = 0;                                      // In it.
  uint64_t left_out_ = 0;                              // Since the last line.
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_LOG_LIMIT_H_
