#include "fabric-manager/service/writer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// How many ids one pool record makes available: a commit of it once in so many.
constexpr uint64_t kIdBlock = 4096;
constexpr size_t kTombstonesPerCommit = 64;

absl::Status QueueFull(size_t limit) {
  return Refusal{.code = absl::StatusCode::kResourceExhausted,
                 .reason = "QUEUE_FULL",
                 .message = absl::StrCat("the manager has ", limit, " requests waiting already"),
                 .remedy = "retry later with the same request_id",
                 .metadata = {}}
      .ToStatus();
}

absl::Status StoreFailed(const absl::Status& why) {
  if (ReasonOf(why) == "STORE_FULL") return why;
  return Refusal{.code = absl::StatusCode::kUnavailable,
                 .reason = "STORE_FAILED",
                 .message = absl::StrCat("the change could not be made durable: ", why.message()),
                 .remedy = "retry with the same request_id",
                 .metadata = {}}
      .ToStatus();
}

// Hosts whose slots an item concerns.
void AddHosts(const Item& item, std::set<std::string>& hosts) {
  if (const auto* region = std::get_if<RegionPtr>(&item)) {
    for (const Attachment& attachment : (*region)->attachments) hosts.insert(attachment.host);
  } else if (const auto* host = std::get_if<Host>(&item)) {
    hosts.insert(host->id);
  }
}

}  // namespace

Proposal Proposal::Of(Item item, RegionPtr region) {
  Proposal proposal;
  proposal.change.push_back(std::move(item));
  proposal.region = std::move(region);
  return proposal;
}

Writer::Writer(Options options, Executor* executor, Clock* clock, Store* store, ViewHolder* views,
               WatchHub* watch)
    : options_(options),
      executor_(executor),
      clock_(clock),
      store_(store),
      views_(views),
      watch_(watch) {}

void Writer::Open(Listener listener, Done done) {
  listener_ = std::move(listener);
  store_->Open([this, done = std::move(done)](absl::StatusOr<StoreImage> image) mutable {
    executor_->Post([this, image = std::move(image), done = std::move(done)]() mutable {
      std::move(done)(image.ok() ? Load(*image) : image.status());
    });
  });
}

absl::Status Writer::Load(const StoreImage& image) {
  epoch_ = image.epoch;
  revision_ = image.revision;
  Change change;
  for (const Row& row : image.rows) {
    auto record = DecodeRecord(row.key, row.value);
    if (!record.ok()) return record.status();
    if (auto* meta = std::get_if<PoolMeta>(&*record)) {
      meta_ = *meta;
      continue;
    }
    change.push_back(std::move(std::get<Item>(*record)));
  }
  // Devices first: Regions hold bytes of them.
  std::stable_partition(change.begin(), change.end(),
                        [](const Item& item) { return std::holds_alternative<Device>(item); });
  if (auto inverse = state_.Apply(change); !inverse.ok()) {
    return absl::DataLossError(
        absl::StrCat("the store's records do not make a sound pool: ", inverse.status().message(),
                     "; restore the store from a backup"));
  }
  next_id_ = meta_.next_id;
  watch_->Reset(revision_);
  PublishView({&change});
  return absl::OkStatus();
}

void Writer::Submit(Audit audit, PlanFn plan, DoneWith<Committed> done) {
  if (queued_.fetch_add(1) >= options_.max_queue) {
    queued_.fetch_sub(1);
    std::move(done)(QueueFull(options_.max_queue));
    return;
  }
  executor_->Post(
      [this, pending = Pending{std::move(audit), std::move(plan), std::move(done)}]() mutable {
        Enqueue(std::move(pending));
      });
}

void Writer::Enqueue(Pending pending) {
  queue_.push_back(std::move(pending));
  // Posted, not called: requests that are waiting behind this one join its group.
  if (committing_ || pump_posted_) return;
  pump_posted_ = true;
  executor_->Post([this] {
    pump_posted_ = false;
    Pump();
  });
}

uint64_t Writer::NextId() {
  if (next_id_ >= meta_.next_id) {
    meta_.next_id = next_id_ + kIdBlock;
    puts_[kPoolKey] = EncodePool(meta_, Audit{clock_->Now(), "manager", "reserve-ids", ""});
  }
  return next_id_++;
}

void Writer::PlanOne(Pending pending) {
  pending.audit.time = clock_->Now();
  PlanContext context{.next_id = [this] { return NextId(); },
                      .make_tag = RandomUuid,
                      .now = pending.audit.time,
                      .revision = revision_ + 1,
                      .hardware_coherent = options_.hardware_coherent};
  absl::StatusOr<Proposal> proposal = std::move(pending.plan)(state_, context);
  Planned planned{std::move(pending.done), absl::UnknownError(""), !changes_.empty()};
  if (proposal.ok() && !proposal->change.empty()) {
    std::vector<std::pair<Key, std::string>> rows;
    std::vector<WatchEvent> events;
    for (const Item& item : proposal->change) {
      const Key key = KeyOf(item);
      rows.emplace_back(key, std::holds_alternative<Erased>(item)
                                 ? std::string()
                                 : EncodeItem(item, pending.audit));
      if (const auto* region = std::get_if<RegionPtr>(&item)) {
        events.push_back({context.revision, *region, false});
      } else if (const auto* gone = std::get_if<Tombstone>(&item)) {
        events.push_back({context.revision, gone->region, true});
      }
    }
    auto inverse = state_.Apply(proposal->change);
    if (inverse.ok()) {
      revision_ = context.revision;
      for (auto& [key, value] : rows) puts_[key] = std::move(value);
      for (WatchEvent& event : events) events_.push_back(std::move(event));
      changes_.push_back(std::move(proposal->change));
      inverses_.push_back(*std::move(inverse));
      planned.depends_on_commit = true;
    } else {
      LogError("writer", "refused a plan of ", pending.audit.action, ": ",
               inverse.status().message());
      proposal = inverse.status();
    }
  }
  if (proposal.ok()) {
    planned.answer = Committed{std::move(proposal->region), revision_};
  } else {
    planned.answer = proposal.status();
  }
  group_.push_back(std::move(planned));
}

void Writer::Pump() {
  if (committing_ || queue_.empty()) return;
  base_revision_ = revision_;
  for (size_t n = 0; n < options_.max_group && !queue_.empty(); ++n) {
    Pending pending = std::move(queue_.front());
    queue_.pop_front();
    if (failed_) {
      queued_.fetch_sub(1);
      std::move(pending.done)(StoreFailed(absl::UnavailableError("the store is closed")));
    } else {
      PlanOne(std::move(pending));
    }
  }
  if (changes_.empty() && puts_.empty()) {
    FinishGroup(absl::OkStatus());
    return;
  }
  if (changes_.empty()) ++revision_;  // Ids alone: still a commit of its own revision.
  // More than this group can have buried, so that they never pile up.
  const Change expired =
      state_.ExpiredTombstones(clock_->Now(), kTombstonesPerCommit + changes_.size());
  if (!expired.empty()) {
    if (auto inverse = state_.Apply(expired); inverse.ok()) {
      for (const Item& item : expired) puts_[KeyOf(item)].clear();
      changes_.push_back(expired);
      inverses_.push_back(*std::move(inverse));
    }
  }
  StoreBatch batch{.epoch = epoch_,
                   .base_revision = base_revision_,
                   .revision = revision_,
                   .puts = {},
                   .erases = {}};
  for (auto& [key, value] : puts_) {
    if (value.empty()) {
      batch.erases.push_back(key);
    } else {
      batch.puts.push_back({key, std::move(value)});
    }
  }
  committing_ = true;
  store_->Commit(std::move(batch), [this](absl::Status status) {
    executor_->Post([this, status = std::move(status)] {
      committing_ = false;
      FinishGroup(status);
      Pump();
    });
  });
}

void Writer::FinishGroup(const absl::Status& status) {
  if (!status.ok()) {
    for (auto inverse = inverses_.rbegin(); inverse != inverses_.rend(); ++inverse) {
      const auto undone = state_.Apply(*inverse);
      if (!undone.ok()) LogError("writer", "cannot undo: ", undone.status().message());
    }
    // Ids of the failed group stay given out; the next group writes the bound again.
    revision_ = base_revision_;
    meta_.next_id = next_id_;
    PublishView({});
    if (ReasonOf(status) != "STORE_FULL") {
      failed_ = true;
      listener_.on_fatal(status);
    }
  } else {
    // Before the view: whoever watches from a revision that he was shown finds it known.
    watch_->Advance(revision_);
    if (!changes_.empty()) Publish();
  }
  const std::vector<Change> changes = status.ok() ? std::move(changes_) : std::vector<Change>();
  std::vector<Planned> group = std::move(group_);
  group_.clear();
  changes_.clear();
  inverses_.clear();
  puts_.clear();
  events_.clear();
  queued_.fetch_sub(group.size());
  for (Planned& planned : group) {
    if (!status.ok() && planned.depends_on_commit) planned.answer = StoreFailed(status);
    std::move(planned.done)(std::move(planned.answer));
  }
  if (!changes.empty()) listener_.on_committed(changes);
}

void Writer::Publish() {
  std::vector<const Change*> all;
  for (const Change& change : changes_) all.push_back(&change);
  for (const Change& inverse : inverses_) all.push_back(&inverse);
  PublishView(all);
  watch_->Publish(std::move(events_));
}

std::shared_ptr<const HostView> Writer::LookAtHost(const Host& host) const {
  return std::make_shared<const HostView>(
      HostView{host, state_.Runtime(host.id), state_.Occupied(host.id)});
}

// `changes` name what may differ from the last view, old values and new; what is there now is
// read from the state.
void Writer::PublishView(const std::vector<const Change*>& changes) {
  auto view = std::make_shared<PoolView>(*views_->Get());
  view->revision = revision_;
  std::vector<RegionTable::Edit> edits;
  std::vector<std::pair<std::string, std::string>> by_tag;
  std::set<std::string> hosts = std::move(stale_hosts_);
  stale_hosts_.clear();
  for (const Change* change : changes) {
    for (const Item& item : *change) {
      AddHosts(item, hosts);
      const auto* value = std::get_if<RegionPtr>(&item);
      if (value == nullptr) continue;
      const Region& named = **value;
      const RegionPtr* now = state_.FindRegionById(named.id);
      edits.push_back({named.id, now == nullptr ? nullptr : *now});
      by_tag.emplace_back(named.tag, state_.FindRegionByTag(named.tag) == nullptr ? "" : named.id);
    }
  }
  view->regions = view->regions.With(edits);
  for (const std::string& id : hosts) {
    if (const Host* host = state_.FindHost(id)) view->hosts[id] = LookAtHost(*host);
  }
  view->devices.clear();
  for (const auto& [id, device] : state_.devices()) {
    const ExtentMap& map = *state_.FindExtents(id);
    view->devices.push_back(
        {device, map.held_bytes(ExtentMap::Use::kHeld), map.held_bytes(ExtentMap::Use::kScrubbing),
         map.held_bytes(ExtentMap::Use::kQuarantined), map.largest_free_bytes()});
  }
  view->capacity = state_.GetCapacity();
  views_->Set(std::move(view), by_tag);
}

void Writer::SetRuntime(const std::string& host, HostRuntime runtime) {
  state_.SetRuntime(host, std::move(runtime));
  stale_hosts_.insert(host);
  if (!committing_) PublishView({});  // A commit under way publishes in a moment.
}

void Writer::SetReachable(const std::string& device, bool reachable) {
  state_.SetReachable(device, reachable);
  if (!committing_) PublishView({});
}

}  // namespace cxlpool::fm
