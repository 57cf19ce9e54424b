// Everything that the store does with etcd. One thread, which waits for etcd's answers.
//
// What is read is never decided by: a claim, a commit and a fold are transactions that compare what
// was read. etcd_records.cc has those; etcd_fold.cc how the log becomes packs.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_RECORDS_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_RECORDS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/store_etcd/etcd_client.h"
#include "fabric-manager/adapters/store_etcd/etcd_layout.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/ports/pack.h"
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
  void Cancel() { cancelled_ = true; }

  absl::Status Commit(const StoreBatch& batch);
  absl::Status Beat();
  // Says that nobody has it any more. Not after a failure.
  void LetGo();

  // As EtcdClient's: only where there are meters.
  void AskMembers() { client_->AskMembers(keys_.Head(), options_.meters); }

  bool wants_to_fold() const {
    return broken_.ok() && (tail_bytes_ > options_.fold_bytes || tail_.size() > kMaxTail);
  }

  // Until then, on Clock::Elapsed, etcd is not told to forget what there is now or comes after it:
  // somebody else reads it.
  void KeepHistory(absl::Duration until);
  uint64_t revision() const { return head_.revision; }

  // A step: some of the oldest changes, or one that is larger.
  absl::Status Fold();

 private:
  struct Change {
    uint64_t revision = 0;
    std::string digest;  // After it.
    std::string bytes;
  };
  using Rows = std::map<uint64_t, std::string>;
  static constexpr size_t kMaxTail = 4096;  // Changes in the log: it is read 48 at a time.

  uint64_t BytesUsed() const { return pack_bytes_ + tail_bytes_; }
  void NoteUsed() const;
  absl::Status Full(size_t wanted) const;
  absl::Status NoAnswer(const absl::Status& why) const;
  absl::Status Broken(absl::Status status);

  // Reading.
  absl::StatusOr<etcdserverpb::RangeResponse> Read(const etcdserverpb::RangeRequest& request,
                                                   bool may_shrink = false);
  absl::StatusOr<etcdserverpb::RangeResponse> ReadOne(const std::string& key, int64_t revision = 0);
  absl::StatusOr<std::string> ValueOf(const std::string& key);
  bool IsAnothers(const std::string& text) const;
  absl::Status ReadAll(std::string from, const std::string& end, int64_t revision, int limit,
                       const std::function<absl::Status(const etcdserverpb::KeyValue&)>& each);
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
  absl::Status Stuck(const absl::Status& last) const;
  absl::Status Claim(const std::string* beat);
  absl::Status Put(uint64_t revision, const std::string& change);

  // Folding.
  struct FoldTxn;
  absl::Status FoldAll();
  absl::Status FoldStep();
  absl::StatusOr<const Edit*> FoldPacks(const Edit* at, const Edit* end);
  absl::StatusOr<const Edit*> FoldPack(const Edit* at, const Edit* end, FoldTxn& fold);
  void NoteRevision(int64_t revision);
  void Forget();
  void ForgetBeats();

  const EtcdStoreOptions options_;
  const EtcdKeys keys_;
  const std::unique_ptr<EtcdClient> client_;
  StoreGuard guard_;
  absl::Status broken_;
  EtcdHead head_;            // As read or written, but for the owner, which is this process.
  std::string head_text_;    // As etcd has it; empty: it has none.
  std::string folded_text_;  // The same, when it was read.
  uint64_t beats_ = 0;
  int64_t etcd_revision_ = 0;
  int64_t forgot_at_ = 0;  // Which it was when etcd was told to forget,
  int64_t forgotten_ = 0;  // and what was before this one.
  struct Moment {
    absl::Duration at;
    int64_t revision = 0;  // etcd's, then.
  };
  std::deque<Moment> moments_;
  int folds_ = 0;
  absl::Duration keep_until_;
  int64_t keep_from_ = 0;
  std::atomic<bool> cancelled_ = false;

  std::deque<Change> tail_;  // What is not folded yet.
  uint64_t tail_bytes_ = 0;
  std::set<uint64_t> packs_;  // By first record, as far as is known: see FoldPack.
  uint64_t pack_bytes_ = 0;

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
