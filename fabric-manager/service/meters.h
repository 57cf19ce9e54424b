// What the manager counts as it happens, for its metrics. What can be read off a view when somebody
// asks is not here: metrics.h does that.
//
// Counting costs a relaxed atomic addition, and changes nothing of what is decided. Any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_METERS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_METERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fabric-manager/model/pool/region.h"
#include "proto/metrics/metrics.h"

namespace cxlpool::fm {

// The steps of the ladder whose time is measured.
enum class Rung : uint8_t { kBind, kOnline, kOffline, kEject, kProve, kScrub };
inline constexpr std::array<const char*, 6> kRungNames = {"bind",  "online", "offline",
                                                          "eject", "prove",  "scrub"};

// The reason of a refusal; where it has none, gRPC's code. A closed set: "other" is what
// docs/errors.md does not have, which an agent may have sent.
std::string ReasonOrCode(const absl::Status& status);

// One method of the API.
struct MethodMeter {
  static constexpr size_t kCodes = 17;  // gRPC's, by number.
  std::array<metrics::Counter, kCodes> answered;
  metrics::Histogram duration{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5};
};

struct Meters {
  // The store.
  metrics::Histogram commit_group_size{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  metrics::Histogram commit_duration{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                     0.05,   0.1,   0.25,   1,     5};
  metrics::Counter commit_failures;
  std::atomic<int64_t> last_backup_s{0};  // Since the epoch; 0: none since this manager started.

  // The audit trail.
  metrics::Counter audit_entries;
  std::atomic<bool> audit_chain_ok{true};  // When the manager started.
  std::atomic<int64_t> last_anchor_s{0};   // When its end was logged last; 0: it was not.

  // The ladder.
  std::array<metrics::Histogram, kRungNames.size()> rungs = {RungTimes(), RungTimes(), RungTimes(),
                                                             RungTimes(), RungTimes(), RungTimes()};
  std::array<metrics::CounterByLabel, kRungNames.size()> rung_failures;  // By reason.
  metrics::Counter scrubbed_bytes;
  std::atomic<uint64_t> scrub_backlog_bytes{0};  // Not cleared yet, of Regions that go or shrink.
  metrics::Counter leases_expired;
  metrics::Counter strays;
  metrics::Counter fabric_differences;  // As a look of FabricCalls::TakeView finds them.

  // Agents.
  metrics::Counter sessions_opened, sessions_lost, sessions_replaced, sessions_refused;
  // By device: events without lost bytes, and Extents that lost some, each once.
  metrics::CounterByLabel media_errors, media_errors_lost;

  // The API. The map has a method for each that is served, before the first is called.
  std::map<std::string, std::unique_ptr<MethodMeter>> methods;
  metrics::CounterByLabel refusals;  // By reason.
  metrics::Counter watches_dropped;  // That took their events too slowly.

  // Counts the rungs that a Region has reached: `after`, which is durable, was `before`. Null: it
  // is gone. The time is that in the state before.
  void CountRungs(const Region& before, const Region* after, absl::Time now);
  void CountFailure(Rung rung, const absl::Status& why) {
    rung_failures[static_cast<size_t>(rung)].Add(ReasonOrCode(why));
  }

 private:
  static metrics::Histogram RungTimes();
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_METERS_H_
