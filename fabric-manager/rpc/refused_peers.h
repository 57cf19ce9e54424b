// What is said in the log of peers that are refused: who, why and how often, and never more than a
// few lines a minute, however many come.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_REFUSED_PEERS_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_REFUSED_PEERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

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

  // `what` was refused: "a connection", "a call". `why` is one of few texts, `detail` any; only the
  // first one's is shown.
  void Note(absl::string_view what, absl::string_view address, absl::string_view why,
            absl::string_view detail = "");

  // Logs what was counted, if a period is over. Somebody calls it every few seconds.
  void Tick();

 private:
  struct Counted {
    uint64_t since_logged = 0;
  };

  const Clock* const clock_;
  Mutex mutex_;
  absl::Duration began_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();  // The period.
  // By "what from address" and why.
  std::map<std::pair<std::string, std::string>, Counted> counted_ ABSL_GUARDED_BY(mutex_);
  uint64_t others_ ABSL_GUARDED_BY(mutex_) = 0;  // Beyond kMaxLines.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_REFUSED_PEERS_H_
