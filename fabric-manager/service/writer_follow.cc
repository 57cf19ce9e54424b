// What the Writer has of its store before the store is its own: the records, and meanwhile the
// commits of another manager.

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/service/writer.h"
#include "proto/support/check.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

// What the store takes in one commit, less what the Writer adds by itself: tombstones that expired,
// and the pool's own record.
StoreLimits LeftForChanges(StoreLimits limits) {
  limits.max_batch_rows -= std::min<size_t>(limits.max_batch_rows / 4, 4096);
  limits.max_batch_bytes -= std::min<size_t>(limits.max_batch_bytes / 4, 1 << 20);
  return limits;
}

// What the view is to have of the Regions, in the order in which it wants them.
void ListRegions(const Change& records, Publication& publication) {
  publication.regions.reserve(records.size());
  publication.tags.reserve(records.size());
  for (const Item& item : records) {
    const auto* region = std::get_if<RegionPtr>(&item);
    if (region == nullptr) continue;
    publication.regions.push_back({*region});
    publication.tags.emplace_back((*region)->tag, *region);
  }
  std::sort(publication.regions.begin(), publication.regions.end(),
            [](const auto& a, const auto& b) { return a.ComesBefore(b); });
}

}  // namespace

void Writer::Open(Listener listener, Done done) {
  listener_ = std::move(listener);
  Done lost = [this](absl::Status why) {
    if (CXLPOOL_MUTANT("lost-store-goes-on")) return;
    executor_->Post([this, why = std::move(why)] { Fail(why); });
  };
  store_->Follow(
      {.on_owner = listener_.on_owner,
       .on_image = [this](StoreImage image) { Await([&] { return Load(std::move(image)); }); },
       .on_batch = [this](StoreBatch batch) { Await([&] { return Follow(std::move(batch)); }); }});
  store_->Open(
      std::move(lost), [this, done = std::move(done)](absl::StatusOr<StoreImage> image) mutable {
        executor_->Post([this, image = std::move(image), done = std::move(done)]() mutable {
          if (!image.ok()) return std::move(done)(image.status());
          has_rivals_ = image->beat_interval > absl::ZeroDuration();
          if (has_rivals_) Beat(image->beat_interval);
          const StoreImage bounds = {.epoch = image->epoch,
                                     .revision = image->revision,
                                     .limits = image->limits,
                                     .rows = {},
                                     .beat_interval = {}};
          absl::Status status = loaded_ ? absl::OkStatus() : Load(*std::move(image));
          if (status.ok()) TakeUp(bounds);
          std::move(done)(std::move(status));
        });
      });
}

// Runs `task` on the executor, and waits for it on the store's thread: so the store hands over no
// more than is taken. An executor that has been stopped drops it.
void Writer::Await(std::function<absl::Status()> task) {
  std::promise<absl::Status> done;
  std::future<absl::Status> future = done.get_future();
  executor_->Post([&task, done = std::move(done)]() mutable { done.set_value(task()); });
  future.wait();
  absl::Status status;
  try {
    status = future.get();
  } catch (const std::future_error&) {
    return;
  }
  if (!status.ok()) Fail(status);
}

// The store is ours, at the revision of the state.
void Writer::TakeUp(const StoreImage& image) {
  CXLPOOL_CHECK(image.revision == revision_, "the store is at revision ", image.revision,
                ", the state at ", revision_);
  limits_ = LeftForChanges(image.limits);
  max_batch_rows_ = image.limits.max_batch_rows;
  // A group is full once it has half of what there is (CommitIsFull): the other half, but for the
  // pool's own record, is there for whatever plan comes next.
  context_.max_items = std::max<size_t>(limits_.max_batch_rows / 2, 2) - 1;
  epoch_ = image.epoch;
  next_id_ = meta_.next_id;
  context_.hold_reason = meta_.hold_reason;
}

// Makes the state of what the store has. Records that do not make a sound pool are DATA_LOSS: going
// on with some of them might give bytes to two owners.
absl::Status Writer::Load(StoreImage image) {
  if (std::exchange(loaded_, true)) {
    return absl::UnavailableError(
        "another manager committed faster than this one followed: starting anew, to read all");
  }
  revision_ = image.revision;
  watch_->Reset(revision_);
  const absl::StatusOr<Change> decoded = DecodeAll(std::move(image.rows), meta_);
  if (!decoded.ok()) return decoded.status();
  const Change& records = *decoded;
  // Beside the indices where that is worth a thread, else in get().
  const auto launch = records.size() < kRecordsPerThread
                          ? std::launch::deferred
                          : std::launch::async | std::launch::deferred;
  std::future<void> listed = std::async(launch, [&] { ListRegions(records, publication_); });
  const absl::Status status = state_.Restore(records);
  listed.get();
  if (!status.ok()) {
    return absl::DataLossError(
        absl::StrCat("the store's records do not make a sound pool: ", status.message(),
                     "; check and repair them, or restore a backup (docs/operations.md, Damage; "
                     "where they are in etcd, docs/replicated.md, Damage)"));
  }
  meters_.audit_chain_ok = trail_.Load(meta_.audit, records);
  PublishLoaded(records);
  return absl::OkStatus();
}

// Takes in what another manager committed: many changes at once, of which only the last of each
// record is left. So bytes, names and hosts go over in three steps: what Regions had is given up,
// then what they are made of changes, then they have what they have now. A host whose identity goes
// over to another one is retired in between, so that no order of theirs gives it to two: two hosts
// may even have swapped. Watchers of that manager find here what came after the last that they saw.
absl::Status Writer::Follow(StoreBatch batch) {
  Group followed;
  Change gone, made_of, regions;
  std::vector<AuditRowPtr> rows;
  for (const Row& row : batch.puts) {
    auto record = DecodeRecord(row.key, row.value);
    if (!record.ok()) return record.status();
    if (auto* meta = std::get_if<PoolMeta>(&*record)) {
      meta_ = std::move(*meta);
      continue;
    }
    Item& item = std::get<Item>(*record);
    if (const auto* audit = std::get_if<AuditRowPtr>(&item)) {
      rows.push_back(*audit);
      continue;
    }
    if (state_.IsRegion(row.key)) gone.push_back(Erased{row.key});
    const auto* host = std::get_if<Host>(&item);
    if (host != nullptr && !CXLPOOL_MUTANT("identity-goes-over-at-once")) {
      const Host* known = state_.FindHost(host->id);
      const bool lets_go = known != nullptr && !known->retired &&
                           (host->retired || host->identity != known->identity);
      if (lets_go) {
        gone.push_back(*known);
        std::get<Host>(gone.back()).retired = true;
      }
    }
    const auto* region = std::get_if<RegionPtr>(&item);
    const auto* tombstone = std::get_if<Tombstone>(&item);
    const bool is = region != nullptr || tombstone != nullptr;
    if (is) {
      const RegionPtr& now = region != nullptr ? *region : tombstone->region;
      if (now->revision > revision_) {
        followed.events.push_back({now->revision, now, region == nullptr});
      }
    }
    (is ? regions : made_of).push_back(std::move(item));
  }
  bool ends_known = true;  // Whether each Region that is gone has left a tombstone.
  for (const uint64_t key : batch.erases) {
    ends_known &= state_.FindRegion(key) == nullptr || CXLPOOL_MUTANT("followed-end-is-silent");
    if (state_.IsRegion(key)) {
      gone.push_back(Erased{key});
    } else if (state_.IsNamed(key)) {
      made_of.push_back(Erased{key});
    }
  }
  // What is replaced by another of its name goes first; of what comes, devices.
  const auto rank = [](const Item& item) {
    return std::holds_alternative<Erased>(item) ? 0 : std::holds_alternative<Device>(item) ? 1 : 2;
  };
  std::stable_sort(made_of.begin(), made_of.end(),
                   [&](const Item& a, const Item& b) { return rank(a) < rank(b); });
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a->key < b->key; });
  for (Change* change : {&gone, &made_of, &regions}) {
    auto inverse = state_.Apply(*change);
    if (!inverse.ok()) {
      return absl::InternalError(absl::StrCat("revision ", batch.revision,
                                              " cannot be followed: ", inverse.status().message()));
    }
    followed.changes.push_back(std::move(*change));
    followed.inverses.push_back(*std::move(inverse));
  }
  // It has to have every row, whatever is wrong with one of before: it may go on from the last.
  const bool sound = (!meters_.audit_chain_ok && CXLPOOL_MUTANT("flawed-trail-is-not-followed")) ||
                     trail_.Follow(meta_.audit, rows, batch.erases);
  meters_.audit_chain_ok = meters_.audit_chain_ok && sound;
  revision_ = batch.revision;
  PrepareView(followed);
  Publish();
  std::sort(followed.events.begin(), followed.events.end(),
            [](const auto& a, const auto& b) { return a.revision < b.revision; });
  if (ends_known) {
    watch_->Publish(std::move(followed.events));
    watch_->Advance(revision_);
  } else {  // Watchers cannot be told how it ended: they have to begin anew.
    watch_->Reset(revision_);
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
