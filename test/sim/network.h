// The simulated network: how long messages take, and which are lost.
//
// Legal faults: a call or its answer is late, lost, or delivered twice, and so overtaken by others;
// a host or a client is cut off for a while (a partition). A session's stream keeps its order and
// loses nothing but its end, as TCP would; each end may learn at another time that it is over, and
// what was under way then still arrives.
#ifndef CXLPOOL_TEST_SIM_NETWORK_H_
#define CXLPOOL_TEST_SIM_NETWORK_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "test/sim/scheduler.h"
#include "test/sim/script.h"

namespace cxlpool::sim {

struct Weather {
  uint32_t drop_percent = 0;
  uint32_t duplicate_percent = 0;
  uint32_t late_percent = 0;  // By up to half a second.
};

class Network {
 public:
  Network(Scheduler* scheduler, Random random) : scheduler_(scheduler), random_(random) {}

  Weather weather;

  void PartitionHost(int host, int64_t until_us) {
    host_until_us_[host] = std::max(host_until_us_[host], until_us);
  }
  void PartitionClient(int client, int64_t until_us) {
    client_until_us_[client] = std::max(client_until_us_[client], until_us);
  }

  // From now until everything is well again.
  void Heal() {
    weather = {};
    host_until_us_.fill(0);
    client_until_us_.fill(0);
  }

  // When each copy of a client's message arrives, as delays from now; 0 copies: it is lost.
  struct Copies {
    int count = 0;
    std::array<int64_t, 2> delay_us = {};
  };
  Copies OfClient(int client) {
    Copies copies;
    if (client_until_us_[client] > scheduler_->now_us() || random_.Percent(weather.drop_percent)) {
      return copies;
    }
    copies.count = random_.Percent(weather.duplicate_percent) ? 2 : 1;
    for (int i = 0; i < copies.count; ++i) copies.delay_us[i] = Delay();
    return copies;
  }

  // When a message between host and manager arrives that is sent now; in a partition after it.
  int64_t OfHost(int host) {
    return std::max<int64_t>(0, host_until_us_[host] - scheduler_->now_us()) + Delay();
  }

  Random& random() { return random_; }

 private:
  int64_t Delay() {
    const bool late = random_.Percent(weather.late_percent);
    return random_.Between(30, 300) + (late ? random_.Between(1'000, 500'000) : 0);
  }

  Scheduler* const scheduler_;
  Random random_;
  std::array<int64_t, kHosts> host_until_us_ = {};
  std::array<int64_t, kClients> client_until_us_ = {};
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_NETWORK_H_
