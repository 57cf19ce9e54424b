#include "fabric-manager/rpc/backup_rpc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "proto/support/log.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {
namespace {

constexpr char kPrefix[] = ".backup-";
constexpr char kFile[] = "copy";

absl::Status CannotCopy(const std::string& what, int error) {
  return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                absl::StrCat("the backup cannot be made: ", what, ": ", strerror(error)),
                "look at the manager's disk, then try again");
}

absl::Status InProgress() {
  return Refuse(absl::StatusCode::kResourceExhausted, "BACKUP_IN_PROGRESS",
                "another backup is being made or sent", "wait until it is done");
}

}  // namespace

// A directory that is only ours, and gone with its file at the latest when this is.
class CopyDirectory {
 public:
  ~CopyDirectory() { Remove(); }

  absl::Status Make(const std::string& beside) {
    std::string path = absl::StrCat(beside, "/", kPrefix, "XXXXXX");
    if (mkdtemp(path.data()) == nullptr) return CannotCopy(absl::StrCat("mkdir ", path), errno);
    path_ = std::move(path);
    return absl::OkStatus();
  }
  // Of the copy; for a store that has no place empty, and it will say so.
  std::string file() const { return path_.empty() ? path_ : absl::StrCat(path_, "/", kFile); }
  void Remove() {
    if (path_.empty()) return;
    unlink(file().c_str());
    rmdir(path_.c_str());
    path_.clear();
  }

 private:
  std::string path_;
};

// The store's thread says when the copy is made, gRPC's when a piece is sent or the client gone.
// Lives until gRPC is done with it, and the store too.
class BackupStream : public OneRequestCall, public std::enable_shared_from_this<BackupStream> {
 public:
  BackupStream(Admitted admitted, BackupStreams* streams)
      : OneRequestCall(std::move(admitted)), streams_(streams), busy_(streams->busy_) {}

  void Begin(Calls* calls) {
    {
      MutexLock lock(mutex_);
      self_ = shared_from_this();
    }
    ReadRequest(calls);
  }

 private:
  // Takes the one place there is for a backup and asks the store for the copy. For that the lock is
  // given up: the store may answer at once, on this thread.
  void OnRequest(grpc::ByteBuffer& bytes) override {
    v1::BackupRequest request;
    const absl::Status parsed = ParseRequest(bytes, {}, &request);
    {
      MutexLock lock(mutex_);
      asked_ = true;
      if (cancelled_) return FinishLocked(absl::CancelledError("the client went away"));
      if (!parsed.ok()) return FinishLocked(parsed);
      busy_is_ours_ = !busy_->exchange(true);
      if (!busy_is_ours_) return FinishLocked(InProgress());
      if (!streams_->directory_.empty()) {
        if (absl::Status status = directory_.Make(streams_->directory_); !status.ok()) {
          return FinishLocked(status);
        }
      }
      copying_ = true;
    }
    streams_->timer_->PostAfter(BackupStreams::kLimit, [weak = weak_from_this()] {
      if (const auto stream = weak.lock()) stream->OnLimit();
    });
    streams_->store_->Backup(FileName(),
                             [self = shared_from_this()](absl::StatusOr<StoreBackup> made) {
                               self->OnCopied(std::move(made));
                             });
  }

  std::string FileName() {
    MutexLock lock(mutex_);
    return directory_.file();
  }

  // The file loses its name here, whatever becomes of the stream. Where that has ended meanwhile,
  // only the place is left to give back: it was kept while the store was at the copy.
  void OnCopied(absl::StatusOr<StoreBackup> made) {
    MutexLock lock(mutex_);
    copying_ = false;
    if (made.ok()) file_.Reset(open(directory_.file().c_str(), O_RDONLY | O_CLOEXEC));
    const int error = errno;
    directory_.Remove();
    if (finished_) {
      LetGo();
      return;
    }
    if (!made.ok()) return FinishLocked(made.status());
    if (!file_.valid()) return FinishLocked(CannotCopy("open", error));
    left_ = made->size_bytes;
    message_.set_revision(made->revision);
    message_.set_total_bytes(made->size_bytes);
    SendPiece();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    if (finished_) return;
    if (!ok) return FinishLocked(absl::CancelledError("the client went away"));
    if (left_ == 0) {
      if (Meters* const meters = streams_->meters_; meters != nullptr) {
        meters->last_backup_s = absl::ToUnixSeconds(absl::Now());
      }
      return FinishLocked(absl::OkStatus());
    }
    message_.Clear();
    SendPiece();
  }

  // Fills the rest of `message_` and sends it.
  void SendPiece() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::string& data = *message_.mutable_data();
    data.resize(std::min<uint64_t>(left_, BackupStreams::kPieceBytes));
    size_t have = 0;
    while (have < data.size()) {
      const ssize_t got = read(file_.get(), data.data() + have, data.size() - have);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return FinishLocked(CannotCopy("read", got < 0 ? errno : EIO));
      have += static_cast<size_t>(got);
    }
    left_ -= data.size();
    message_.set_last(left_ == 0);
    piece_ = ToBytes(message_);
    StartWrite(&piece_);
  }

  void OnCancel() override {
    MutexLock lock(mutex_);
    cancelled_ = true;
    // Before there is a request, the read that fails ends the call.
    if (asked_) FinishLocked(absl::CancelledError("the client went away"));
  }

  // Also while the store copies: the copy is then thrown away when it is done.
  void OnLimit() {
    MutexLock lock(mutex_);
    if (finished_) return;
    FinishLocked(Refuse(absl::StatusCode::kDeadlineExceeded, "BACKUP_TIMEOUT",
                        absl::StrCat("the backup was not taken within ",
                                     absl::FormatDuration(BackupStreams::kLimit)),
                        "try again from nearer by"));
    context()->TryCancel();  // A write that nobody reads would keep the stream.
  }

  void OnDone() override {
    std::shared_ptr<BackupStream> self;  // Maybe the last: goes after the lock.
    MutexLock lock(mutex_);
    self.swap(self_);
  }

  // The first end counts. Where the store is still copying, the place for the next backup stays
  // taken, until OnCopied.
  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    if (!copying_) LetGo();  // Before the client hears of the end, and asks again.
    GiveBackPlace();
    CountEnd(status);
    Finish(ToWire(status, *context()));
  }

  // The next backup may begin.
  void LetGo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(busy_is_ours_, false)) *busy_ = false;
  }

  BackupStreams* const streams_;
  const std::shared_ptr<std::atomic<bool>> busy_;  // The store may be done after the server is.

  Mutex mutex_;
  std::shared_ptr<BackupStream> self_ ABSL_GUARDED_BY(mutex_);  // Until OnDone.
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;                  // The request came.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool busy_is_ours_ ABSL_GUARDED_BY(mutex_) = false;
  bool copying_ ABSL_GUARDED_BY(mutex_) = false;  // The store is at it: nobody else may.
  CopyDirectory directory_ ABSL_GUARDED_BY(mutex_);
  UniqueFd file_ ABSL_GUARDED_BY(mutex_);
  uint64_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::BackupResponse message_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer piece_ ABSL_GUARDED_BY(mutex_);  // The message as it is being sent.
};

// Clears away copies that were left behind. By now the store is open, and so no other manager's:
// none of them is still being made.
BackupStreams::BackupStreams(Store* store, std::string directory, Executor* timer, Meters* meters)
    : store_(store), directory_(std::move(directory)), timer_(timer), meters_(meters) {
  if (directory_.empty()) return;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory_, error);
  // Not a range-for: its step throws where the folder cannot be read further.
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (!absl::StartsWith(entry->path().filename().string(), kPrefix)) continue;
    std::error_code ignored;
    std::filesystem::remove_all(entry->path(), ignored);
    LogInfo("backup", "removed what an earlier manager left: ", entry->path().string());
  }
}

grpc::ServerGenericBidiReactor* BackupStreams::Start(Calls* calls, Admitted admitted) {
  auto stream = std::make_shared<BackupStream>(std::move(admitted), this);
  stream->Begin(calls);
  return stream.get();
}

}  // namespace cxlpool::fm
