// A Unix socket between clients and the manager that loses what the manager says: an answer that
// was given and never arrived.
//
// Thread-safe. Has a thread of its own.
#ifndef CXLPOOL_TEST_RIGS_LOSSY_PROXY_H_
#define CXLPOOL_TEST_RIGS_LOSSY_PROXY_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {

class LossyProxy {
 public:
  // Listens at `path`, and dials `target` for each client.
  static absl::StatusOr<std::unique_ptr<LossyProxy>> Start(const std::string& path,
                                                           const std::string& target);
  ~LossyProxy();

  // Whether what the manager says is thrown away.
  void Lose(bool on) { lose_ = on; }

  // Ends every connection, at once.
  void Cut();

 private:
  struct Pair {
    UniqueFd client, manager;
  };
  LossyProxy() = default;
  void Run();
  void Accept();
  // False: the connection is over.
  bool Forward(int from, int to, bool lose);

  std::string target_;
  UniqueFd listener_, wake_;
  std::atomic<bool> lose_ = false, cut_ = false, stop_ = false;
  std::vector<Pair> pairs_;  // Touched by the thread alone.
  std::thread thread_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_TEST_RIGS_LOSSY_PROXY_H_
