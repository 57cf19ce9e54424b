// Clients that work on the same few names, each over whichever manager answers, while managers and
// members of etcd fall: what they were answered, in all, one pool that does one thing at a time
// could have answered (test/sim/region_history.h). So nobody was shown a state that was over, by a
// manager that did not know yet that it is none, and nothing that was acknowledged was lost.
//
// One thread makes and ends it.
#ifndef CXLPOOL_TEST_CRASH_CONTENDERS_H_
#define CXLPOOL_TEST_CRASH_CONTENDERS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "test/crash/client.h"
#include "test/sim/region_history.h"

namespace cxlpool::crash {

class Contenders {
 public:
  // `sockets`: of all managers. `life`: a name for their Regions that nobody had before. `seed`: of
  // what they ask for. They begin at once.
  Contenders(std::vector<std::string> sockets, uint64_t life, uint64_t seed);
  // Where End was not called, they end without a judgement.
  ~Contenders();
  Contenders(const Contenders&) = delete;
  Contenders& operator=(const Contenders&) = delete;

  // Call it when some manager leads. Ends the clients, judges their history, releases what is left
  // and waits until it is gone.
  absl::Status End();

  // A Region's name that none of them asks for, and that End releases with theirs.
  std::string free_name() const { return prefix_ + "free"; }

  size_t answered() const { return answered_; }  // Calls in the history.
  size_t names() const { return names_; }        // That were judged,
  size_t gave_up() const { return gave_up_; }    // and those whose check took too many steps.

 private:
  class Contender;
  void Join();
  absl::Status Clear();

  const std::vector<std::string> sockets_;
  const std::string prefix_;
  const uint64_t seed_;
  std::atomic<bool> stop_ = false;
  std::vector<std::vector<sim::ClientOp>> histories_;  // Of each thread.
  std::vector<std::thread> threads_;
  size_t answered_ = 0;
  size_t names_ = 0;
  size_t gave_up_ = 0;
};

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_CONTENDERS_H_
