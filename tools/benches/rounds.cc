#include "tools/benches/rounds.h"

#include <time.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cxlpool::bench {

absl::Duration ThreadCpuTime() {
  timespec spent = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return absl::DurationFromTimespec(spent);
}

absl::Status Rounds::Run(int rounds) {
  for (int round = 1; round <= rounds; ++round) {
    std::vector<Sample> there(sides_.size()), back(sides_.size());
    std::string line = absl::StrFormat("round %d of %d:", round, rounds);
    for (size_t i = 0; i < 2 * sides_.size(); ++i) {
      const bool forth = i < sides_.size();
      const size_t side = forth ? i : 2 * sides_.size() - 1 - i;
      auto sample = sides_[side].measure();
      if (!sample.ok()) {
        return absl::Status(sample.status().code(),
                            absl::StrCat(sides_[side].name, ": ", sample.status().message()));
      }
      absl::StrAppendFormat(&line, " %s %.4g", sides_[side].name, sides_[side].headline(*sample));
      (forth ? there : back)[side] = *sample;
    }
    there_.push_back(std::move(there));
    back_.push_back(std::move(back));
    std::cout << line << std::endl;
  }
  return absl::OkStatus();
}

std::vector<Round> Rounds::Compare(const Value& ours, const Value& peer) const {
  std::vector<Round> rounds;
  for (size_t i = 0; i < there_.size(); ++i) {
    rounds.push_back({ours(there_[i]), peer(there_[i]), peer(back_[i]), ours(back_[i])});
  }
  return rounds;
}

double Rounds::Median(const Value& value) const {
  std::vector<double> values;
  for (const auto& samples : there_) values.push_back(value(samples));
  for (const auto& samples : back_) values.push_back(value(samples));
  return bench::Median(std::move(values));
}

}  // namespace cxlpool::bench
