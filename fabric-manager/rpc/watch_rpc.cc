#include "fabric-manager/rpc/watch_rpc.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/tenant_view.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"

namespace cxlpool::fm {
namespace {

// How many messages a stream has ready at most, but for events of one revision.
constexpr size_t kBatch = 128;

// Of streams: how many a thread wakes when it is done with a write. More than one, so that all of
// gRPC's threads are soon at it; few, so that none is long at it.
constexpr size_t kFew = 8;
// How long a round may stand still, when those who were woken cannot write.
constexpr absl::Duration kPatience = absl::Milliseconds(1);
constexpr size_t kMany = 256;

// A message as gRPC writes it. Copies share the bytes.
using Frame = std::shared_ptr<const grpc::ByteBuffer>;

Frame MakeFrame(v1::WatchRegionsResponse::Event kind, const RegionPtr& region, uint64_t revision,
                const FabricCapabilities& fabric, const Caller& caller) {
  v1::WatchRegionsResponse message;
  message.set_event(kind);
  if (region != nullptr) *message.mutable_region() = ToProto(*region, fabric);
  if (caller.for_tenants()) HideOthers(&message);
  message.set_revision(revision);
  const grpc::Slice slice(message.SerializeAsString());
  return std::make_shared<const grpc::ByteBuffer>(&slice, 1);
}

// The id of the only Region to watch; empty: all. It need not be there yet. Of a tag that the
// caller may not see it says the same as of one that nothing has.
absl::StatusOr<std::string> OnlyRegion(const v1::WatchRegionsRequest& request,
                                       const ViewHolder& views, const Caller& caller) {
  if (request.name().empty()) return std::string();
  auto id = ParseResourceName("regions", request.name());
  if (!id.ok()) return id.status();
  Uuid tag;
  if (!ParseUuid(*id, tag)) return *std::move(id);
  std::string only = views.IdOfTag(tag);
  if (!only.empty()) {
    if (caller.for_pool()) return only;
    const PoolViewPtr view = views.Get();
    const RegionPtr region = view->regions.Find(only);
    if (region != nullptr && MaySee(caller, OwnHost(*view, caller), *region)) return only;
  }
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION",
                absl::StrCat("there is no ", request.name()), "see `cxlpool region list`",
                {{"region", request.name()}});
}

// What a host or a tenant has been shown is known for as long as its stream lasts only: another
// stream begins with everything, or it would never hear of what it may not see any more.
absl::Status CheckResume(const v1::WatchRegionsRequest& request, const Caller& caller) {
  if (caller.for_pool() || request.start_revision() == 0) return absl::OkStatus();
  return Refuse(absl::StatusCode::kOutOfRange, "REVISION_COMPACTED",
                "this watch cannot be resumed: what you may see may have changed meanwhile",
                "watch from 0");
}

absl::Status RightsChanged(const Caller& caller) {
  return Refuse(absl::StatusCode::kAborted, "RIGHTS_CHANGED",
                absl::StrCat("the enrolment of host \"", caller.host(), "\" has changed"),
                "watch from 0", {{"host", caller.host()}});
}

}  // namespace

// Three kinds of threads meet here: gRPC's (OnWriteDone, OnCancel), the one that wakes who waits,
// and the one that starts the stream. Each calls Pump; one mutex decides who writes next, and at
// most one write is under way. It lives until gRPC is done with it and nobody is about to wake it.
// A stream that keeps up takes no lock but its own.
class Watch : public OneRequestCall {
 public:
  Watch(Admitted admitted, WatchStreams* streams)
      : OneRequestCall(std::move(admitted)), streams_(streams) {}

  void Begin(Calls* calls, std::shared_ptr<Watch> self) {
    self_ = std::move(self);
    ReadRequest(calls);
  }

  // Has nothing to send, and looks for nothing. Who finds it so after an event came has to Wake it:
  // it looked for the event once more after it said so.
  bool idle() const { return idle_.load(); }

  // Keeps Regions as they were, has not sent all that it took, and events since are gone from the
  // ring. Takes no lock.
  bool IsTooSlow(uint64_t floor) const {
    const uint64_t keeps_at = keeps_at_.load();
    return keeps_at != 0 && keeps_at < floor && !idle() &&
           !CXLPOOL_MUTANT("slow-watchers-keep-old-views");
  }

  // Forgets those Regions: the next thing that it asks for are those events, and it is refused. One
  // that is idle is not: it may be about to be handed what comes after its revision.
  void LetGo(uint64_t floor) {
    PoolViewPtr view;  // It and the others go after the lock.
    absl::flat_hash_map<Key, RegionPtr> shown;
    MutexLock lock(mutex_);
    if (idle_ || keeps_at_ >= floor) return;
    view.swap(snapshot_);
    shown.swap(shown_);
    keeps_at_ = 0;
  }

  // Up to here it has taken what there was, if not sent it yet.
  uint64_t revision() {
    MutexLock lock(mutex_);
    return revision_;
  }

  // `entries` are the events after revision `from`, without gaps, if there are any.
  void Wake(uint64_t from, const std::vector<WatchEntryPtr>& entries) {
    MutexLock lock(mutex_);
    if (idle_.exchange(false) && !finished_ && !cancelled_ && revision_ >= from && Judge()) {
      for (const WatchEntryPtr& entry : entries) {
        if (entry->event().revision > revision_) Push(*entry);
      }
      if (!entries.empty()) HasTaken(entries.back()->event().revision);
    }
    PumpLocked();
  }

 private:
  void OnRequest(grpc::ByteBuffer& bytes) override {
    v1::WatchRegionsRequest request;
    absl::Status status = ParseRequest(bytes, {}, &request);
    if (status.ok()) status = CheckResume(request, caller());
    std::string only;
    if (status.ok()) {
      auto found = OnlyRegion(request, *streams_->views_, caller());
      status = found.status();
      if (found.ok()) only = *std::move(found);
    }
    {
      MutexLock lock(mutex_);
      asked_ = true;
      if (!status.ok()) return FinishLocked(status);
      only_ = std::move(only);
      revision_ = request.start_revision();
      if (revision_ == 0 || CXLPOOL_MUTANT("watch-begins-anew")) {
        snapshot_ = streams_->views_->Get();
        keeps_at_ = revision_ = snapshot_->revision;
        if (const Host* own = OwnHost(*snapshot_, caller()); own != nullptr) own_ = *own;
      }
    }
    streams_->Join(self_);
    Pump();
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) cancelled_ = true;
      PumpLocked();
    }
    streams_->Help(kFew);
  }

  void OnCancel() override {
    MutexLock lock(mutex_);
    cancelled_ = true;
    PumpLocked();
  }

  void OnDone() override {
    const std::shared_ptr<Watch> self = std::move(self_);
    streams_->Leave(self);
    GiveBackPlace();  // Rounds may keep the stream for a while yet.
  }

  void Pump() {
    MutexLock lock(mutex_);
    PumpLocked();
  }

  // Starts the next write, or the end, if neither is under way.
  void PumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // Before there is a request, the read that fails ends the call.
    if (!asked_ || writing_ || finished_) return;
    if (cancelled_) {
      FinishLocked(absl::CancelledError("the watcher went away"));
      return;
    }
    if (queue_.empty()) Refill();
    if (finished_ || queue_.empty()) return;
    frame_ = std::move(queue_.front());
    queue_.pop_front();
    writing_ = true;
    grpc::WriteOptions options;
    // Not with the first: gRPC holds the stream's head back with it, and is never done writing.
    if (began_ && !queue_.empty()) options.set_buffer_hint();
    began_ = true;
    StartWrite(frame_.get(), options);
  }

  void Refill() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (snapshot_ != nullptr) TakeSnapshot();
    while (queue_.empty() && !finished_) {
      if (!checked_ || streams_->hub_->newest() > revision_) {
        TakeEvents();
        continue;
      }
      idle_ = true;
      if (streams_->hub_->newest() <= revision_) return;
      idle_ = false;
    }
  }

  // A part of what there was when the stream began, and SYNCED after the last.
  void TakeSnapshot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t revision = snapshot_->revision;
    while (queue_.empty() && snapshot_ != nullptr) {
      const auto regions = snapshot_->regions.List(after_, kBatch);
      for (const RegionPtr& region : regions) {
        after_ = region->id;
        if (!Sees(*region) || !Wanted(*region)) continue;
        if (!caller().for_pool()) shown_[region->key] = region;
        queue_.push_back(FrameOf(v1::WatchRegionsResponse::CHANGED, region, revision));
      }
      if (regions.size() == kBatch) continue;
      queue_.push_back(FrameOf(v1::WatchRegionsResponse::SYNCED, nullptr, revision));
      snapshot_.reset();
      if (caller().for_pool()) keeps_at_ = 0;
    }
  }

  void TakeEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool had_begun = std::exchange(checked_, true) || began_;
    const auto entries = streams_->hub_->Take(revision_, kBatch);
    if (!entries.ok()) {
      // Whoever resumes too late was not dropped: it has not begun.
      if (had_begun && meters() != nullptr) meters()->watches_dropped.Add();
      FinishLocked(entries.status());
      return;
    }
    if (!Judge()) return;
    for (const WatchEntryPtr& entry : *entries) Push(*entry);
    if (!entries->empty()) HasTaken(entries->back()->event().revision);
  }

  // All events up to this one.
  void HasTaken(uint64_t revision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    revision_ = std::max(revision_, revision);
    if (keeps_at_ != 0) keeps_at_ = revision_;
  }

  // Whether the caller's rights are those that the stream began with; otherwise it ends here,
  // before anything is judged by the wrong ones. After new events were taken: a view is published
  // before the events of its commit, so that this one is no older than they are.
  bool Judge() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!caller().is_host()) return true;  // A change of its role ends the call: JudgeAgain.
    const PoolViewPtr view = streams_->views_->Get();
    const Host* own = OwnHost(*view, caller());
    if (own != nullptr && own_.has_value() && own->identity == own_->identity &&
        own->tenants == own_->tenants && own->retired == own_->retired) {
      return true;
    }
    FinishLocked(RightsChanged(caller()));
    return false;
  }

  bool Sees(const Region& region) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return CXLPOOL_MUTANT("watch-shows-all") ||
           MaySee(caller(), own_.has_value() ? &*own_ : nullptr, region);
  }

  // Whether the event is to be sent as it is. To a host or a tenant a Region that it was shown and
  // may not see any more is gone, as it was shown last: what became of it is not theirs to know.
  bool IsForCaller(const WatchEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (caller().for_pool()) return Wanted(*event.region);
    const auto shown = shown_.find(event.region->key);
    if (!Sees(*event.region)) {
      if (shown == shown_.end()) return false;
      queue_.push_back(FrameOf(v1::WatchRegionsResponse::REMOVED, shown->second, event.revision));
      shown_.erase(shown);
      return false;
    }
    if (!Wanted(*event.region)) return false;
    if (event.removed) {
      shown_.erase(event.region->key);
    } else {
      shown_[event.region->key] = event.region;
    }
    return true;
  }

  void Push(const WatchEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!IsForCaller(entry.event())) return;
    const auto make = [this](const WatchEvent& event) {
      return FrameOf(event.removed && !CXLPOOL_MUTANT("removed-is-changed")
                         ? v1::WatchRegionsResponse::REMOVED
                         : v1::WatchRegionsResponse::CHANGED,
                     event.region, event.revision);
    };
    // The bytes of an entry are shared by all streams: those for tenants are their own.
    queue_.push_back(caller().for_tenants()
                         ? make(entry.event())
                         : std::static_pointer_cast<const grpc::ByteBuffer>(entry.Wire(make)));
  }

  Frame FrameOf(v1::WatchRegionsResponse::Event kind, const RegionPtr& region,
                uint64_t revision) const {
    return MakeFrame(kind, region, revision, streams_->fabric_, caller());
  }

  // Once the Region was met under its name, it is followed through others.
  bool Wanted(const Region& region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (only_.empty() || CXLPOOL_MUTANT("watch-tells-of-all")) return true;
    if (region.key == only_key_) return true;
    if (region.id != only_) return false;
    only_key_ = region.key;
    return true;
  }

  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    CountEnd(status);
    Finish(ToWire(status, *context()));
  }

  WatchStreams* const streams_;

  std::atomic<bool> idle_{false};
  std::atomic<uint64_t> keeps_at_{0};  // What snapshot_ and shown_ are as of; 0: there is neither.
  Mutex mutex_;
  std::shared_ptr<Watch> self_;                 // Until OnDone. Set before the first read.
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // The request came.
  bool began_ ABSL_GUARDED_BY(mutex_) = false;  // To write.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool checked_ ABSL_GUARDED_BY(mutex_) = false;  // That the ring goes back to revision_.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Frame> queue_ ABSL_GUARDED_BY(mutex_);
  Frame frame_ ABSL_GUARDED_BY(mutex_);
  PoolViewPtr snapshot_ ABSL_GUARDED_BY(mutex_);
  std::string after_ ABSL_GUARDED_BY(mutex_);
  uint64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string only_ ABSL_GUARDED_BY(mutex_);  // Empty: all.
  Key only_key_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of a caller who is a host: its record when the stream began, and what it was shown.
  std::optional<Host> own_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Key, RegionPtr> shown_ ABSL_GUARDED_BY(mutex_);
};

WatchStreams::WatchStreams(const ViewHolder* views, WatchHub* hub, const FabricCapabilities& fabric)
    : views_(views), hub_(hub), fabric_(fabric), subscription_(hub->Subscribe([this] {
        // A stream that opens just now looks for itself, after it was counted.
        if (open_count_ == 0) return;
        if (!beginning_.exchange(true)) loop_.Post([this] { BeginRound(); });
      })) {}

WatchStreams::~WatchStreams() {
  hub_->Unsubscribe(subscription_);
  loop_.Stop();
}

grpc::ServerGenericBidiReactor* WatchStreams::Start(Calls* calls, Admitted admitted) {
  auto watch = std::make_shared<Watch>(std::move(admitted), this);
  watch->Begin(calls, watch);
  return watch.get();
}

void WatchStreams::Join(const std::shared_ptr<Watch>& watch) {
  MutexLock lock(mutex_);
  open_.insert(watch);
  open_count_ = open_.size();
}

void WatchStreams::Leave(const std::shared_ptr<Watch>& watch) {
  MutexLock lock(mutex_);
  open_.erase(watch);
  open_count_ = open_.size();
}

// They are not asked under this lock, which a round needs.
uint64_t WatchStreams::Lag() {
  std::vector<std::shared_ptr<Watch>> open;
  {
    MutexLock lock(mutex_);
    open.assign(open_.begin(), open_.end());
  }
  const uint64_t newest = hub_->newest();
  uint64_t most = 0;
  for (const std::shared_ptr<Watch>& watch : open) {
    most = std::max(most, newest - std::min(newest, watch->revision()));
  }
  return most;
}

// Hands the events since the last round to every stream that waits for them. Several threads carry
// a round out (Help); the next one begins when all of it is handed over.
void WatchStreams::BeginRound() {
  // The last one first: a stream that it has not come to may be ahead of what the next one brings.
  while (Help(kMany)) {
  }
  beginning_ = false;
  LetGoOfOldViews();
  auto round = std::make_shared<Round>();
  round->from = handed_;
  handed_ = hub_->newest();
  // Where it is compacted already, each stream sees to itself.
  if (auto entries = hub_->Take(round->from, kBatch); entries.ok()) {
    round->entries = *std::move(entries);
  }
  {
    MutexLock lock(mutex_);
    for (const std::shared_ptr<Watch>& watch : open_) {
      if (watch->idle()) round->streams.push_back(watch);
    }
    if (round->streams.empty()) return;
    round_ = round;
  }
  Push(round, 0);
}

// A stream that nobody reads would keep the pool as it was when it began, and a tenant's or a
// host's also what it was shown, for as long as its client lives: with some of them, begun one
// after the other, every Region several times over.
void WatchStreams::LetGoOfOldViews() {
  const uint64_t floor = hub_->floor();
  if (std::exchange(let_go_, floor) == floor) return;
  std::vector<std::shared_ptr<Watch>> slow;
  {
    MutexLock lock(mutex_);
    for (const std::shared_ptr<Watch>& watch : open_) {
      if (watch->IsTooSlow(floor)) slow.push_back(watch);
    }
  }
  for (const std::shared_ptr<Watch>& watch : slow) watch->LetGo(floor);
}

bool WatchStreams::Help(size_t few) {
  std::shared_ptr<Round> round;
  {
    MutexLock lock(mutex_);
    round = round_;
  }
  if (round == nullptr) return false;
  const size_t first = round->next.fetch_add(few);
  const size_t end = std::min(first + few, round->streams.size());
  for (size_t i = first; i < end; ++i) round->streams[i]->Wake(round->from, round->entries);
  if (end < round->streams.size()) return true;
  MutexLock lock(mutex_);
  if (round_ == round) round_ = nullptr;
  return false;
}

void WatchStreams::Push(const std::shared_ptr<Round>& round, size_t next) {
  const size_t now = round->next.load();
  if (now >= round->streams.size()) return;
  if (now == next) Help(next == 0 ? kFew : kMany);
  loop_.PostAfter(kPatience, [this, round, seen = round->next.load()] { Push(round, seen); });
}

}  // namespace cxlpool::fm
