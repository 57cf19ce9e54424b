#include "fabric-manager/rpc/watch_rpc.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/convert.h"
#include "proto/support/mutex.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kBatch = 128;

// Three kinds of threads meet here: gRPC's (OnWriteDone, OnCancel), the hub's publisher and the one
// that starts the stream. Each calls Pump; one mutex decides who writes next, and at most one write
// is under way. gRPC calls OnDone after the other reactions returned, and Unsubscribe waits for the
// publisher, so nobody is inside when the object goes.
class Watch : public grpc::ServerWriteReactor<v1::WatchRegionsResponse> {
 public:
  Watch(grpc::CallbackServerContext* context, const v1::WatchRegionsRequest& request,
        std::string only, const ViewHolder* views, WatchHub* hub, WatchLimit* limit,
        bool hardware_coherent)
      : context_(context),
        only_(std::move(only)),
        views_(views),
        hub_(hub),
        limit_(limit),
        hardware_coherent_(hardware_coherent),
        revision_(request.start_revision()) {
    if (revision_ == 0) {
      snapshot_ = views_->Get();
      revision_ = snapshot_->revision;
    }
  }

  void Begin() {
    subscription_ = hub_->Subscribe([this] { Pump(); });
    Pump();
  }

 private:
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) cancelled_ = true;
    }
    Pump();
  }

  void OnCancel() override {
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
    }
    Pump();
  }

  void OnDone() override {
    hub_->Unsubscribe(subscription_);
    limit_->open.fetch_sub(1);
    delete this;
  }

  // Starts the next write, or the end, if neither is under way.
  void Pump() {
    MutexLock lock(mutex_);
    if (writing_ || finished_) return;
    if (cancelled_) {
      FinishLocked(absl::CancelledError("the watcher went away"));
      return;
    }
    if (queue_.empty()) Refill();
    if (finished_ || queue_.empty()) return;
    message_ = std::move(queue_.front());
    queue_.pop_front();
    writing_ = true;
    StartWrite(&message_);
  }

  void Refill() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (snapshot_ != nullptr) {
      for (const RegionPtr& region : snapshot_->regions.List(after_, kBatch)) {
        after_ = region->id;
        Push(v1::WatchRegionsResponse::CHANGED, region, snapshot_->revision);
      }
      if (snapshot_->regions.List(after_, 1).empty()) {
        v1::WatchRegionsResponse synced;
        synced.set_event(v1::WatchRegionsResponse::SYNCED);
        synced.set_revision(snapshot_->revision);
        queue_.push_back(std::move(synced));
        snapshot_.reset();
      }
      if (!queue_.empty()) return;
    }
    while (queue_.empty()) {
      auto events = hub_->Read(revision_, kBatch);
      if (!events.ok()) {
        FinishLocked(events.status());
        return;
      }
      if (events->empty()) return;
      for (const WatchEvent& event : *events) {
        revision_ = event.revision;
        Push(event.removed ? v1::WatchRegionsResponse::REMOVED : v1::WatchRegionsResponse::CHANGED,
             event.region, event.revision);
      }
    }
  }

  void Push(v1::WatchRegionsResponse::Event kind, const RegionPtr& region, uint64_t revision)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!only_.empty() && region->id != only_) return;
    v1::WatchRegionsResponse message;
    message.set_event(kind);
    *message.mutable_region() = ToProto(*region, hardware_coherent_);
    message.set_revision(revision);
    queue_.push_back(std::move(message));
  }

  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    Finish(ToWire(status, *context_));
  }

  grpc::CallbackServerContext* const context_;
  const std::string only_;
  const ViewHolder* const views_;
  WatchHub* const hub_;
  WatchLimit* const limit_;
  const bool hardware_coherent_;
  uint64_t subscription_ = 0;

  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<v1::WatchRegionsResponse> queue_ ABSL_GUARDED_BY(mutex_);
  v1::WatchRegionsResponse message_ ABSL_GUARDED_BY(mutex_);
  PoolViewPtr snapshot_ ABSL_GUARDED_BY(mutex_);
  std::string after_ ABSL_GUARDED_BY(mutex_);
  uint64_t revision_ ABSL_GUARDED_BY(mutex_);
};

// A stream that is refused.
class Refused : public grpc::ServerWriteReactor<v1::WatchRegionsResponse> {
 public:
  explicit Refused(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchRegionsResponse>* StartWatch(
    grpc::CallbackServerContext* context, const absl::Status& admitted,
    const v1::WatchRegionsRequest& request, const ViewHolder* views, WatchHub* hub,
    WatchLimit* limit, bool hardware_coherent) {
  if (!admitted.ok()) return new Refused(ToWire(admitted, *context));
  std::string only;
  if (!request.name().empty()) {
    auto id = ParseResourceName("regions", request.name());
    if (!id.ok()) return new Refused(ToWire(id.status(), *context));
    only = *std::move(id);
    if (const auto tag = ParseUuid(only); tag.ok()) {
      only = views->IdOfTag(*tag);
      if (only.empty()) {
        return new Refused(ToWire(Refusal{absl::StatusCode::kNotFound,
                                          "UNKNOWN_REGION",
                                          absl::StrCat("there is no ", request.name()),
                                          "see `cxlpool region list`",
                                          {{"region", request.name()}}}
                                      .ToStatus(),
                                  *context));
      }
    }
  }
  if (limit->open.fetch_add(1) >= WatchLimit::kMaxStreams) {
    limit->open.fetch_sub(1);
    return new Refused(
        ToWire(Refusal{absl::StatusCode::kResourceExhausted,
                       "TOO_MANY_WATCHERS",
                       absl::StrCat(WatchLimit::kMaxStreams, " watchers are connected already"),
                       "retry later, or share one watcher",
                       {}}
                   .ToStatus(),
               *context));
  }
  auto* watch = new Watch(context, request, std::move(only), views, hub, limit, hardware_coherent);
  watch->Begin();
  return watch;
}

}  // namespace cxlpool::fm
