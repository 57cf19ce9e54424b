// Peers that are refused: who, why and how often. The log has never more than a few lines a minute
// of them, however many come.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_REFUSED_PEERS_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_REFUSED_PEERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/support/executor.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// The first refusal of an address for a reason is logged at once; what follows is counted, and
// logged once a minute. Any thread.
class RefusedPeers {
 public:
  static constexpr absl::Duration kPeriod = absl::Minutes(1);
  static constexpr size_t kMaxLines = 32;  // In a period, of addresses and reasons that are new.

  explicit RefusedPeers(const Clock* clock) : clock_(clock) {}

  // What is known of one address and one reason.
  struct Refused {
    std::string whose;  // "a call from ipv4:10.0.0.7".
    std::string why;
    std::string detail;
    std::string remedy;
    bool is_agent = false;
    uint64_t times = 0;
    absl::Time since = absl::InfinitePast();  // The first of them, and the last.
    absl::Time last = absl::InfinitePast();
  };

  static constexpr size_t kMaxText = 1024;  // Of a detail or a remedy; the rest is cut off.

  // `what` was refused: "a connection", "a call". `why` is one of few texts, `detail` and `remedy`
  // any; only the first one's are kept.
  void Note(absl::string_view what, absl::string_view address, absl::string_view why,
            absl::string_view detail = "", absl::string_view remedy = "", bool is_agent = false);

  // Logs what was counted, if a period is over. Somebody calls it every few seconds.
  void Tick();

  // Those of the last two periods or so: an agent that is refused comes again once in a period.
  std::vector<Refused> Latest() const;

 private:
  struct Counted {
    Refused refused;
    uint64_t since_logged = 0;
    bool quiet = false;  // For a whole period: the next one is news again.
  };

  const Clock* const clock_;
  mutable Mutex mutex_;
  absl::Duration began_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();  // The period.
  // By whose and why.
  std::map<std::pair<std::string, std::string>, Counted> counted_ ABSL_GUARDED_BY(mutex_);
  uint64_t others_ ABSL_GUARDED_BY(mutex_) = 0;  // Beyond kMaxLines.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_REFUSED_PEERS_H_
