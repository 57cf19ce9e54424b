// How long something took, of all the times that it happened, and whether that was within a bound.
#ifndef CXLPOOL_TEST_CRASH_TIMES_H_
#define CXLPOOL_TEST_CRASH_TIMES_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace cxlpool::crash {

class Times {
 public:
  void Add(absl::Duration time) { times_.push_back(time); }
  size_t count() const { return times_.size(); }

  // "12 times, p50 1530 ms, p99 1600 ms, at most 1600 ms".
  std::string Text() const {
    return TextOf([](absl::Duration) { return std::string(); });
  }

  // Each time also by `unit`, which is called `name`: "p50 1530 ms (1.02 T)".
  std::string TextBy(const std::string& name, absl::Duration unit) const {
    return TextOf([&](absl::Duration time) {
      return absl::StrFormat(" (%.2f %s)", absl::FDivDuration(time, unit), name);
    });
  }

  // Empty where at most one in a hundred was longer than `bound`; else which, for people. Of fewer
  // than a hundred none may be longer.
  std::string Late(const std::string& what, absl::Duration bound) const {
    const auto late = static_cast<size_t>(std::count_if(
        times_.begin(), times_.end(), [&](absl::Duration time) { return time > bound; }));
    if (late * 100 <= times_.size()) return "";
    return absl::StrCat(late, " of ", times_.size(), " ", what, " were longer than ",
                        absl::ToInt64Milliseconds(bound), " ms; ");
  }

 private:
  template <typename More>
  std::string TextOf(const More& more) const {
    if (times_.empty()) return "never";
    std::vector<absl::Duration> sorted = times_;
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&](size_t percent) {
      const absl::Duration time = sorted[(sorted.size() - 1) * percent / 100];
      return absl::StrCat(absl::ToInt64Milliseconds(time), " ms", more(time));
    };
    return absl::StrCat(sorted.size(), " times, p50 ", at(50), ", p99 ", at(99), ", at most ",
                        at(100));
  }

  std::vector<absl::Duration> times_;
};

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_TIMES_H_
