// Everything that the store does with etcd but folding. One thread, which waits for etcd's answers.
//
// What is read is never decided by: a claim and a commit are transactions that compare what was
// read. How the log becomes packs: etcd_folder.h.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_RECORDS_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_RECORDS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/store_etcd/etcd_client.h"
#include "fabric-manager/adapters/store_etcd/etcd_folder.h"
#include "fabric-manager/adapters/store_etcd/etcd_history.h"
#include "fabric-manager/adapters/store_etcd/etcd_layout.h"
#include "fabric-manager/adapters/store_etcd/etcd_reader.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/ports/store.h"
#include "fabric-manager/ports/store_guard.h"
#include "proto/support/loop.h"

namespace cxlpool::fm {

class EtcdRecords {
 public:
  EtcdRecords(const EtcdStoreOptions& options, std::unique_ptr<EtcdClient> client);

  // Reads all there is and claims it, as one: a claim succeeds only if the head is still the one
  // that was read. Whoever has the store is not waited for.
  absl::StatusOr<StoreImage> Open();

  // A look at a store that another may have, and the claim once it is due. Nothing: not yet; look
  // again after a moment. `follower` is told what was committed since the last look, so that the
  // image of the claim has no rows; without on_image it is told nothing of that, and it has.
  absl::StatusOr<std::optional<StoreImage>> Look(const StoreFollower& follower);
  // On Clock::Elapsed: from when on a look claims the store, if its owner gives no further sign of
  // life.
  absl::Duration silent_at() const { return seen_since_ + options_.takeover; }

  // Reads all there is, and claims nothing; no earlier revision than `revision`: a read may be
  // stale.
  absl::StatusOr<StoreImage> ReadSince(uint64_t revision);

  // Any thread. Open, Look and ReadSince wait for etcd no longer than the call that is under way:
  // CANCELLED. Not of a store that is open.
  void Cancel() { reader_.Cancel(); }

  absl::Status Commit(const StoreBatch& batch);
  absl::Status Beat();
  // Says that nobody has it any more. Not after a failure.
  void LetGo();

  // As EtcdClient's: only where there are meters.
  void AskMembers() { client_->AskMembers(keys_.Head(), options_.meters); }

  // Whether the log is long enough to be folded, by EtcdFolder;
  bool wants_to_fold() const {
    return broken_.ok() && (tail_bytes_ > options_.fold_bytes || tail_.size() > kMaxTail);
  }
  // and whether a commit has to wait for that: the log is a quarter longer still, or there is no
  // room, and there may be some once what was replaced and erased is folded.
  bool WaitsForFolding(const StoreBatch& batch) const;
  // What is folded in one step: some of the oldest changes, or one that is larger.
  std::vector<EtcdChange> OldestChanges() const;
  // Notes how that step ended. CANCELLED: it was broken off, and nothing is noted.
  absl::Status Folded(const absl::StatusOr<EtcdFoldStep>& step);

  // What a folder begins with, once there was a claim.
  const EtcdFolded& folded() const { return folded_; }
  std::set<uint64_t> TakePacks() { return std::move(packs_); }

  // Until then, on Clock::Elapsed, etcd is not told to forget what there is now or comes after it:
  // somebody else reads it.
  void KeepHistory(absl::Duration until) { history_.Keep(until); }
  uint64_t revision() const { return head_.revision; }

 private:
  using Rows = std::map<uint64_t, std::string>;
  // Changes in the log from which on it is folded: it is read 48 at a time.
  static constexpr size_t kMaxTail = 4096;

  uint64_t BytesUsed() const { return folded_.pack_bytes + tail_bytes_; }
  void NoteUsed() const;
  absl::Status Full(size_t wanted) const;
  absl::Status Broken(absl::Status status);

  // Reading.
  bool IsAnothers(const std::string& text) const;
  absl::StatusOr<StoreImage> Load();
  absl::Status LoadPacks(int64_t revision, Rows& rows);
  absl::Status LoadLog(int64_t revision, Rows& rows);
  absl::StatusOr<bool> ReadLog(uint64_t after, std::string digest, const EtcdHead& head,
                               int64_t revision,
                               const std::function<void(uint64_t revision, StoreBatch)>& each);

  // Waiting.
  struct Signs {
    std::string head, folded, beat;
    int64_t revision = 0;  // etcd's.
  };
  absl::StatusOr<Signs> ReadSigns();
  absl::Status FollowTo(const StoreFollower& follower);
  void NoteFollowed(const absl::Status& status);
  absl::Status NoteFolded(const std::string& text);
  absl::Status ReadPackKeys();

  // Writing.
  etcdserverpb::TxnRequest Compared() const;
  etcdserverpb::TxnRequest Guarded();
  absl::StatusOr<etcdserverpb::TxnResponse> Send(const etcdserverpb::TxnRequest& txn);
  std::string BeatNow() const;
  void IsOurs(absl::Duration sent);
  absl::Status Settle(const etcdserverpb::TxnRequest& txn, const std::string& key,
                      const std::string& wanted, bool claims = false);
  absl::Status Claim(const std::string* beat);
  absl::Status Put(uint64_t revision, const std::string& change);

  void Forget();

  const EtcdStoreOptions options_;
  const EtcdKeys keys_;
  const std::unique_ptr<EtcdClient> client_;
  EtcdReader reader_;
  StoreGuard guard_;
  absl::Status broken_;
  EtcdHead head_;          // As read or written, but for the owner, which is this process.
  std::string head_text_;  // As etcd has it; empty: it has none.
  EtcdFolded folded_;      // The same of where the packs end.
  std::string folded_text_;
  uint64_t beats_ = 0;
  EtcdHistory history_;
  int folds_ = 0;

  std::deque<EtcdChange> tail_;  // What is not folded yet.
  uint64_t tail_bytes_ = 0;
  std::set<uint64_t> packs_;  // By first record, as far as is known, until a folder has them.

  // While another has it.
  SystemClock clock_;
  bool loaded_ = false;        // The follower has what is in the store as of head_text_.
  bool follows_ = false;       // The last look found out what was committed,
  bool said_behind_ = false;   // and whether the log has that it did not.
  bool looked_ = false;        // There was a look,
  Signs seen_;                 // and it saw these;
  absl::Duration seen_since_;  // they have been so since.
  absl::Duration answered_;    // When etcd did last,
  bool said_silent_ = false;   // and whether the log has that it does not.
  // What is listed of the packs' keys, as ReadPackKeys goes through them.
  std::string listed_, list_from_;
  uint64_t listed_to_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_RECORDS_H_
