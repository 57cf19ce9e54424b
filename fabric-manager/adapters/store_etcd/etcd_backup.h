// A backup of what is in etcd: all of it is read as of one revision, while commits go on, and
// written into a database.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_BACKUP_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_BACKUP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/adapters/store_etcd/etcd_records.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

// One backup, on a thread and with a connection of its own.
class EtcdBackup {
 public:
  // What was committed up to `revision` will be in it. `on_read` is called once etcd is not needed
  // any more, and `done` at the end; both on that thread.
  // RESOURCE_EXHAUSTED/NO_THREAD; errors as EtcdClient::Make: then `done` is not called.
  static absl::StatusOr<std::unique_ptr<EtcdBackup>> Start(const EtcdStoreOptions& options,
                                                           std::string path, uint64_t revision,
                                                           std::function<void()> on_read,
                                                           DoneWith<StoreBackup> done);
  // Gives up what is still being read, and waits for what is being written.
  ~EtcdBackup();

  bool is_done() const { return is_done_; }  // Any thread.

 private:
  EtcdBackup(const EtcdStoreOptions& options, std::unique_ptr<EtcdClient> client);
  absl::StatusOr<StoreBackup> Make(const std::string& path, uint64_t revision,
                                   const std::function<void()>& on_read);

  const EtcdStoreOptions options_;
  EtcdRecords records_;
  std::atomic<bool> is_done_ = false;
  std::thread thread_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_BACKUP_H_
