// One client of the load: makes calls of all kinds on Regions of its own, one after the other, and
// keeps the answers.
//
// One thread at a time.
#ifndef CXLPOOL_TEST_CRASH_LANE_H_
#define CXLPOOL_TEST_CRASH_LANE_H_

#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "test/crash/client.h"
#include "test/crash/ledger.h"

namespace cxlpool::crash {

inline constexpr char kSmallDevice[] = "cmm-small";      // Soon full.
inline constexpr char kTightTenant[] = "tenants/tight";  // Of all lanes: its quota is soon met.
inline constexpr uint64_t kTightQuota = 96ull << 20;

struct LaneLife {
  uint64_t seed = 0;
  std::vector<std::string> hosts;  // hosts/{host}; empty: nothing is attached.
};

class Lane {
 public:
  explicit Lane(int number);  // Below 16, and no other lane's.

  // Sends what was not answered in the life before, then one call after the other, until one is not
  // answered or `stop`. An error is a broken promise.
  absl::Status Run(Client& client, const LaneLife& life, const std::atomic<bool>& stop);

  // Sends what was not answered. UNAVAILABLE: not answered again; other errors are broken promises.
  absl::Status Settle(Client& client);

  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  uint64_t answered() const { return answered_; }  // Calls, so far.
  uint64_t retried() const { return retried_; }    // Of them, sent more than once.

 private:
  // UNAVAILABLE: no answer; it is pending.
  absl::Status Send(Client& client, Call call);
  Call Choose(const LaneLife& life);
  v1::AllocateRegionRequest Allocation(const LaneLife& life);
  v1::ReleaseRegionRequest Release(const Known& known);
  Call Resize(const Known& known);
  Call Rename(const Known& known);
  Call AttachOrDetach(const Known& known, const LaneLife& life);
  Call SetQuota();
  const Known& Any(const std::vector<const Known*>& live);
  uint64_t Draw(uint64_t below) { return random_() % below; }
  std::string RequestId();
  // Up to 8 granules, as a rule in no whole ones. No two Regions that are there at one time were
  // asked for with the same size, by whichever lanes: it tells what became of a batch's items.
  uint64_t Size();

  const int number_;
  const std::string tenant_;
  std::mt19937_64 random_;
  uint64_t next_name_ = 1;
  uint64_t next_size_ = 0;
  uint64_t answered_ = 0;
  uint64_t retried_ = 0;
  Ledger ledger_;
};

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_LANE_H_
