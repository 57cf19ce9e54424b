// How the oldest changes of the log are brought into the packs: beside commits, on a thread and
// with a connection of its own.
//
// A commit compares the head, and folding leaves that alone; it compares `folded`, which a commit
// leaves alone. A claim changes both: whoever had the store can then do neither.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_FOLDER_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/adapters/store_etcd/etcd_client.h"
#include "fabric-manager/adapters/store_etcd/etcd_layout.h"
#include "fabric-manager/adapters/store_etcd/etcd_reader.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/ports/pack.h"
#include "proto/support/loop.h"

namespace cxlpool::fm {

// What a commit put into the log.
struct EtcdChange {
  uint64_t revision = 0;
  std::string digest;  // After it.
  std::string bytes;   // EncodeChange.
};

// What folding has changed.
struct EtcdFoldStep {
  EtcdFolded folded;
  int64_t revision = 0;  // etcd's, after it.
};

// One thread, but for what says otherwise.
class EtcdFolder {
 public:
  EtcdFolder(const EtcdStoreOptions& options, std::unique_ptr<EtcdClient> client);

  // What was claimed: `folded` as the claim has put it, and the packs by first record, as far as
  // they are known.
  void Begin(EtcdFolded folded, std::set<uint64_t> packs);

  // Brings these, which are the oldest changes of the log, into the packs, and takes them off the
  // log. Waits for etcd. ABORTED/STORE_FENCED: another has the store.
  // UNKNOWN/STORE_STUCK: etcd has not answered for commit_deadline. DATA_LOSS/STORE_CORRUPT.
  absl::StatusOr<EtcdFoldStep> Fold(const std::vector<EtcdChange>& changes);

  // Any thread: how many calls etcd has answered. It grows while a fold makes progress.
  uint64_t answered() const { return client_->answered(); }

  // Any thread: Fold gives up before its next call, CANCELLED. What it has done is not lost.
  void Cancel() { reader_.Cancel(); }

 private:
  struct Transaction;
  absl::StatusOr<const Edit*> FoldPacks(const Edit* at, const Edit* end);
  absl::StatusOr<const Edit*> FoldPack(const Edit* at, const Edit* end, Transaction& fold);
  absl::Status PutFolded(const EtcdFolded& next);
  absl::StatusOr<std::string> FoldedNow();

  const EtcdStoreOptions options_;
  const EtcdKeys keys_;
  const std::unique_ptr<EtcdClient> client_;
  EtcdReader reader_;
  const SystemClock clock_;
  EtcdFolded folded_;         // As etcd has it.
  uint64_t pack_bytes_ = 0;   // folded_.pack_bytes and what the current step has added.
  std::set<uint64_t> packs_;  // By first record, as far as is known: see FoldPack.
  int64_t revision_ = 0;      // etcd's, when it answered last.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_FOLDER_H_
