// What keeps a manager busy when it is asked to stop: watchers, some of which do not read; a backup
// that nobody reads; batches, one after the other.
//
// One thread makes and ends it.
#ifndef CXLPOOL_TEST_CRASH_BUSY_MANAGER_H_
#define CXLPOOL_TEST_CRASH_BUSY_MANAGER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/crash/client.h"

namespace cxlpool::crash {

class BusyManager {
 public:
  explicit BusyManager(const std::string& socket);
  ~BusyManager();  // Ends all calls.

  // Events that watchers read, and batches that were answered, so far.
  uint64_t events() const { return events_; }
  uint64_t batches() const { return batches_; }

 private:
  void Watch(Client& client, grpc::ClientContext& context);
  void Batches(Client& client);

  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  // Never read: what is sent on them waits.
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchRegionsResponse>>> deaf_;
  std::unique_ptr<grpc::ClientReader<v1::BackupResponse>> backup_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> events_ = 0, batches_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_BUSY_MANAGER_H_
