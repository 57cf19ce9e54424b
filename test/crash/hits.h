// In which phase kills landed: a run in which one of them was never hit is void.
#ifndef CXLPOOL_TEST_CRASH_HITS_H_
#define CXLPOOL_TEST_CRASH_HITS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "test/trials/trial.h"

namespace cxlpool::crash {

class Hits {
 public:
  void Add(const std::string& phase, uint64_t times = 1) { hits_[phase] += times; }

  // How long something took that has a limit: the longest is printed.
  void Took(const std::string& what, absl::Duration time) {
    absl::Duration& longest = longest_[what];
    longest = std::max(longest, time);
  }

  // "allocate 512, backup 31".
  std::string Text() const {
    std::string text;
    for (const auto& [phase, times] : hits_) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", phase, " ", WithCommas(times));
    }
    for (const auto& [what, time] : longest_) {
      absl::StrAppend(&text, "; ", what, " within ", absl::ToInt64Milliseconds(time), " ms");
    }
    return text;
  }

  // Of `wanted` those that were never hit; empty: none.
  std::string Missing(const std::vector<std::string>& wanted) const {
    std::string text;
    for (const std::string& phase : wanted) {
      if (hits_.count(phase) == 0) absl::StrAppend(&text, "no ", phase, "; ");
    }
    return text;
  }

 private:
  std::map<std::string, uint64_t> hits_;
  std::map<std::string, absl::Duration> longest_;
};

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_HITS_H_
