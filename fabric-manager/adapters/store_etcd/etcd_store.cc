#include "fabric-manager/adapters/store_etcd/etcd_store.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "fabric-manager/adapters/store_etcd/etcd_records.h"
#include "fabric-manager/ports/store_guard.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"

namespace cxlpool::fm {
namespace {

class EtcdStore : public Store {
 public:
  EtcdStore(std::unique_ptr<EtcdRecords> records, absl::Duration takeover)
      : records_(std::move(records)), takeover_(takeover) {}
  ~EtcdStore() override {
    loop_.Stop();
    if (open_ && takeover_ > absl::ZeroDuration()) records_->LetGo();
    if (opened_ != nullptr) Opened(absl::CancelledError("the store was closed"));
  }

  void Follow(StoreFollower follower) override { follower_ = std::move(follower); }

  void Open(Done lost, DoneWith<StoreImage> done) override {
    loop_.Post([this, lost = std::move(lost), done = std::move(done)]() mutable {
      lost_ = std::move(lost);
      opened_ = std::move(done);
      if (takeover_ > absl::ZeroDuration()) return Look();
      Opened(records_->Open());
    });
  }

  void Beat() override {
    // A commit is as good.
    if (outstanding_.load()) return;
    loop_.Post([this] { Check(records_->Beat()); });
  }

  void Commit(StoreBatch batch, Done done) override {
    if (outstanding_.exchange(true)) return std::move(done)(CommitOutstanding());
    loop_.Post([this, batch = std::move(batch), done = std::move(done)]() mutable {
      absl::Status status = open_ ? records_->Commit(batch) : NotOpen();
      outstanding_ = false;
      std::move(done)(std::move(status));
      FoldSoon();
    });
  }

  void Backup(std::string, DoneWith<StoreBackup> done) override {
    std::move(done)(Refuse(absl::StatusCode::kUnimplemented, "NO_BACKUP",
                           "the store is etcd: there is no database to copy",
                           "take a snapshot of etcd"));
  }

 private:
  void Opened(absl::StatusOr<StoreImage> image) {
    open_ = image.ok();
    if (open_) image->beat_interval = takeover_ / 5;
    std::exchange(opened_, nullptr)(std::move(image));
  }

  // Again and again, until the store is ours.
  void Look() {
    auto image = records_->Look(follower_);
    if (!image.ok()) return Opened(image.status());
    if (image->has_value()) return Opened(**std::move(image));
    loop_.PostAfter(takeover_ / kLooks, [this] { Look(); });
  }

  void Check(absl::Status status) {
    if (status.ok()) return;
    LogError("store", status.message());
    if (lost_ != nullptr) std::exchange(lost_, nullptr)(std::move(status));
  }

  static absl::Status NotOpen() {
    return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_NOT_OPEN",
                  "the store has not been opened", "open it first");
  }

  // One step, behind a commit that has been asked for meanwhile.
  void FoldSoon() {
    if (!open_ || !records_->wants_to_fold() || std::exchange(folding_, true)) return;
    loop_.Post([this] {
      folding_ = false;
      if (!records_->wants_to_fold()) return;
      Check(records_->Fold());
      FoldSoon();
    });
  }

  static constexpr int kLooks = 12;  // Within the time after which a silent owner is followed.

  const std::unique_ptr<EtcdRecords> records_;
  const absl::Duration takeover_;
  StoreFollower follower_;  // Before Open.
  std::atomic<bool> outstanding_ = false;
  // On the loop.
  bool open_ = false;
  bool folding_ = false;
  DoneWith<StoreImage> opened_;  // While Open waits.
  Done lost_;
  Loop loop_{"fm-etcd"};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> MakeEtcdStore(const EtcdStoreOptions& options) {
  EtcdOptions etcd = options.etcd;
  // A member that hangs must not take all the time in which a sign of life is due.
  if (options.takeover > absl::ZeroDuration()) {
    etcd.call_timeout = std::min(etcd.call_timeout, options.takeover / 5);
  }
  auto client = EtcdClient::Make(std::move(etcd));
  if (!client.ok()) return client.status();
  return std::make_unique<EtcdStore>(std::make_unique<EtcdRecords>(options, *std::move(client)),
                                     options.takeover);
}

}  // namespace cxlpool::fm
