#include "fabric-manager/rpc/refused_peers.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/text.h"

namespace cxlpool::fm {

// Logs the first refusal of its kind, again after a period without any; the others are counted.
// Peers that come from ever new addresses cost no memory: beyond kMaxLines kinds they are one
// number.
void RefusedPeers::Note(absl::string_view what, absl::string_view address, absl::string_view why,
                        absl::string_view detail, absl::string_view remedy, bool is_agent) {
  std::string whose = absl::StrCat(what, " from ", address);
  {
    MutexLock lock(mutex_);
    auto known = counted_.find({whose, std::string(why)});
    if (known == counted_.end()) {
      if (counted_.size() >= kMaxLines) {
        ++others_;
        return;
      }
      if (counted_.empty()) began_ = clock_->Elapsed();
      Counted fresh;
      fresh.refused = {.whose = whose,
                       .why = std::string(why),
                       .detail = CutText(detail, kMaxText),
                       .remedy = CutText(remedy, kMaxText),
                       .is_agent = is_agent,
                       .since = clock_->Now()};
      fresh.quiet = true;
      known = counted_.emplace(std::make_pair(whose, std::string(why)), std::move(fresh)).first;
    }
    Counted& counted = known->second;
    ++counted.refused.times;
    counted.refused.last = clock_->Now();
    if (!std::exchange(counted.quiet, false)) {
      ++counted.since_logged;
      return;
    }
  }
  LogWarning("peers", "refused ", whose, ": ", why, detail.empty() ? "" : ": ", detail);
}

std::vector<RefusedPeers::Refused> RefusedPeers::Latest() const {
  std::vector<Refused> latest;
  MutexLock lock(mutex_);
  for (const auto& [key, counted] : counted_) latest.push_back(counted.refused);
  return latest;
}

// Once a period: one line for each peer and reason that came again since its last line, and one for
// all that did not fit.
void RefusedPeers::Tick() {
  std::vector<std::string> lines;
  {
    MutexLock lock(mutex_);
    if (counted_.empty() || clock_->Elapsed() - began_ < kPeriod) return;
    began_ = clock_->Elapsed();
    for (auto it = counted_.begin(); it != counted_.end();) {
      auto& [key, counted] = *it;
      if (counted.since_logged == 0) {
        // Forgotten after a second period without one.
        if (std::exchange(counted.quiet, true)) {
          it = counted_.erase(it);
        } else {
          ++it;
        }
        continue;
      }
      lines.push_back(absl::StrCat("refused ", key.first, ", ", counted.since_logged,
                                   " times more within ", absl::FormatDuration(kPeriod), ": ",
                                   key.second));
      counted.since_logged = 0;
      ++it;
    }
    if (others_ > 0) {
      lines.push_back(absl::StrCat("refused ", others_, " more within ",
                                   absl::FormatDuration(kPeriod),
                                   ", from other addresses or for other reasons"));
      others_ = 0;
    }
  }
  for (const std::string& line : lines) LogWarning("peers", line);
}

}  // namespace cxlpool::fm
