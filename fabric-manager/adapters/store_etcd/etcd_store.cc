#include "fabric-manager/adapters/store_etcd/etcd_store.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "fabric-manager/adapters/store_etcd/etcd_backup.h"
#include "fabric-manager/adapters/store_etcd/etcd_folder.h"
#include "fabric-manager/adapters/store_etcd/etcd_records.h"
#include "fabric-manager/ports/store_guard.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

class EtcdStore : public Store {
 public:
  EtcdStore(const EtcdStoreOptions& options, std::unique_ptr<EtcdRecords> records,
            std::unique_ptr<EtcdFolder> folder)
      : options_(options),
        records_(std::move(records)),
        folder_(std::move(folder)),
        takeover_(options.takeover) {
    if (options_.meters != nullptr) loop_.Post([this] { AskMembers(); });
  }
  // Who waits for its turn may be reading, and etcd may not answer: nobody wants that any more.
  ~EtcdStore() override {
    if (!open_ && !CXLPOOL_MUTANT("closing-waits-for-etcd")) records_->Cancel();
    folder_->Cancel();
    fold_loop_.Stop();
    loop_.Stop();
    if (asked_.has_value()) CommitNow();  // It had waited for more to be folded.
    if (open_ && takeover_ > absl::ZeroDuration()) records_->LetGo();
    if (opened_ != nullptr) Opened(absl::CancelledError("the store was closed"));
    backup_ = nullptr;
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

  // A commit is a sign of life by itself, unless it waits for a fold. Then there are beats while
  // etcd answers the fold; with one that hangs, the manager is to be replaced.
  void Beat() override {
    if (outstanding_ && (!waiting_ || CXLPOOL_MUTANT("waiting-is-a-sign-of-life"))) return;
    loop_.Post([this] {
      const uint64_t before = std::exchange(fold_answers_, folder_->answered());
      const bool hangs = fold_answers_ == before && !CXLPOOL_MUTANT("hung-fold-is-alive");
      if (!waiting_ || !hangs) Check(records_->Beat());
    });
  }

  void Commit(StoreBatch batch, Done done) override {
    if (outstanding_.exchange(true)) return std::move(done)(CommitOutstanding());
    loop_.Post([this, batch = std::move(batch), done = std::move(done)]() mutable {
      asked_ = Asked{std::move(batch), std::move(done)};
      GoOn();
    });
  }

  void Backup(std::string path, DoneWith<StoreBackup> done) override {
    loop_.Post([this, path = std::move(path), done = std::move(done)]() mutable {
      const auto answer = std::make_shared<DoneWith<StoreBackup>>(std::move(done));
      absl::Status status = StartBackup(
          std::move(path), [answer](auto made) { std::move (*answer)(std::move(made)); });
      if (!status.ok()) std::move (*answer)(std::move(status));
    });
  }

 private:
  void Opened(absl::StatusOr<StoreImage> image) {
    open_ = image.ok();
    if (open_) folder_->Begin(records_->folded(), records_->TakePacks());
    if (open_) image->beat_interval = takeover_ / 5;
    std::exchange(opened_, nullptr)(std::move(image));
  }

  // Again and again, until the store is ours.
  void Look() {
    auto image = records_->Look(follower_);
    if (!image.ok()) return Opened(image.status());
    if (image->has_value()) return Opened(**std::move(image));
    // The last look at an owner that is silent comes when that has lasted for `takeover`, and not
    // up to a step later.
    const absl::Duration step = takeover_ / kLooks;
    const absl::Duration left = records_->silent_at() - clock_.Elapsed();
    loop_.PostAfter(left > absl::ZeroDuration() ? std::min(step, left) : step, [this] { Look(); });
  }

  // Whether this manager leads or stands by. The answers are waited for by nobody.
  void AskMembers() {
    records_->AskMembers();
    loop_.PostAfter(kAskEvery, [this] { AskMembers(); });
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

  // While it reads, etcd keeps what was replaced since: for a while, as that takes space.
  absl::Status StartBackup(std::string path, DoneWith<StoreBackup> done) {
    if (options_.write_backup == nullptr) {
      return Refuse(absl::StatusCode::kUnimplemented, "NO_BACKUP",
                    "this store was given nothing to write backups with",
                    "take a snapshot of etcd");
    }
    if (!open_) return NotOpen();
    if (backup_ != nullptr && !backup_->is_done()) {
      return Refuse(absl::StatusCode::kResourceExhausted, "BACKUP_IN_PROGRESS",
                    "another backup is being made", "wait until it is done");
    }
    backup_ = nullptr;
    records_->KeepHistory(clock_.Elapsed() + kMaxHistory);
    const auto forget = [this] {
      loop_.Post([this] { records_->KeepHistory(absl::ZeroDuration()); });
    };
    auto backup =
        EtcdBackup::Start(options_, std::move(path), records_->revision(), forget, std::move(done));
    if (!backup.ok()) return backup.status();
    backup_ = *std::move(backup);
    return absl::OkStatus();
  }

  // Commits what was asked for, once there is room for it, and folds beside it.
  void GoOn() {
    const bool waits = asked_.has_value() && open_ && records_->WaitsForFolding(asked_->batch);
    waiting_ = waits;
    if (asked_.has_value() && !waits) CommitNow();
    if (open_ && (waits || records_->wants_to_fold())) Fold();
  }

  void CommitNow() {
    Asked asked = *std::exchange(asked_, std::nullopt);
    absl::Status status = open_ ? records_->Commit(asked.batch) : NotOpen();
    outstanding_ = false;
    std::move(asked.done)(std::move(status));
  }

  // One step at a time, on the other thread; then what has waited for it goes on.
  void Fold() {
    if (std::exchange(folding_, true)) return;
    fold_loop_.Post([this, changes = records_->OldestChanges()] {
      const absl::StatusOr<EtcdFoldStep> done = folder_->Fold(changes);
      loop_.Post([this, step = done] {
        folding_ = false;
        Check(records_->Folded(step));
        if (!absl::IsCancelled(step.status())) GoOn();
      });
    });
  }

  static constexpr absl::Duration kAskEvery = absl::Seconds(5);
  static constexpr int kLooks = 30;  // Within the time after which a silent owner is followed.

  // At full load etcd gets some gigabytes in that time.
  static constexpr absl::Duration kMaxHistory = absl::Seconds(30);

  const EtcdStoreOptions options_;
  const std::unique_ptr<EtcdRecords> records_;
  const std::unique_ptr<EtcdFolder> folder_;
  const absl::Duration takeover_;
  const SystemClock clock_;
  StoreFollower follower_;  // Before Open.
  std::atomic<bool> outstanding_ = false;
  std::atomic<bool> waiting_ = false;  // What is outstanding waits until more is folded.
  std::atomic<bool> open_ = false;     // Set on the loop.
  // On the loop.
  struct Asked {
    StoreBatch batch;
    Done done;
  };
  std::optional<Asked> asked_;   // The commit that is outstanding.
  bool folding_ = false;         // On the other thread.
  uint64_t fold_answers_ = 0;    // At the last call of Beat.
  DoneWith<StoreImage> opened_;  // While Open waits.
  Done lost_;
  std::unique_ptr<EtcdBackup> backup_;  // The last one asked for.
  Loop loop_{"fm-etcd"};
  Loop fold_loop_{"fm-etcd-fold"};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> MakeEtcdStore(const EtcdStoreOptions& options) {
  EtcdOptions etcd = options.etcd;
  // A member that hangs must not take all the time in which a sign of life is due.
  if (options.takeover > absl::ZeroDuration()) {
    etcd.call_timeout = std::min(etcd.call_timeout, options.takeover / 5);
  }
  auto client = EtcdClient::Make(etcd), another = EtcdClient::Make(etcd);
  for (const auto* made : {&client, &another}) {
    if (!made->ok()) return made->status();
  }
  return std::make_unique<EtcdStore>(options,
                                     std::make_unique<EtcdRecords>(options, *std::move(client)),
                                     std::make_unique<EtcdFolder>(options, *std::move(another)));
}

absl::StatusOr<StoreImage> ReadEtcdStore(const EtcdStoreOptions& options) {
  auto client = EtcdClient::Make(options.etcd);
  if (!client.ok()) return client.status();
  return EtcdRecords(options, *std::move(client)).ReadSince(0);
}

}  // namespace cxlpool::fm
