#include "fabric-manager/rpc/refused_peers.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"

namespace cxlpool::fm {

void RefusedPeers::Note(absl::string_view what, absl::string_view address, absl::string_view why,
                        absl::string_view detail) {
  std::string whose = absl::StrCat(what, " from ", address);
  {
    MutexLock lock(mutex_);
    const auto known = counted_.find({whose, std::string(why)});
    if (known != counted_.end()) {
      ++known->second.since_logged;
      return;
    }
    if (counted_.size() >= kMaxLines) {
      ++others_;
      return;
    }
    if (counted_.empty()) began_ = clock_->Elapsed();
    counted_.emplace(std::make_pair(whose, std::string(why)), Counted{});
  }
  LogWarning("peers", "refused ", whose, ": ", why, detail.empty() ? "" : ": ", detail);
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
        // Quiet for a whole period: the next one is news again.
        it = counted_.erase(it);
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
