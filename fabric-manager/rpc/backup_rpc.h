// Backup streams: the store's copy as it was at one revision, in pieces.
//
// The store writes the copy into a directory of its own beside the database. The file is opened and
// its name taken away before the first piece is sent, so that nothing is left of it when the stream
// ends, whatever way; what a manager that died left behind the next one removes.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_BACKUP_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_BACKUP_RPC_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "fabric-manager/ports/store.h"
#include "fabric-manager/rpc/calls.h"
#include "fabric-manager/service/meters.h"

namespace cxlpool::fm {

// All Backup streams of one server: one at a time. Any thread; outlives its streams.
class BackupStreams {
 public:
  static constexpr absl::Duration kLimit = absl::Minutes(30);  // Of one, the copying included.
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  // `directory` is the store's; empty: it has none. `timer` ends streams at kLimit. `meters`: as
  // ServerOptions.
  BackupStreams(Store* store, std::string directory, Executor* timer, Meters* meters);

  // Starts a stream once its request is read. Errors as in inventory_service.proto.
  grpc::ServerGenericBidiReactor* Start(Calls* calls, Admitted admitted);

 private:
  friend class BackupStream;

  Store* const store_;
  const std::string directory_;
  Executor* const timer_;
  Meters* const meters_;
  const std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_BACKUP_RPC_H_
